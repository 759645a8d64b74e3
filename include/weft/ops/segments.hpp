// Reductions of segments: parts of an axis, one after another, of different lengths.
#pragma once

#include <optional>

#include "weft/ops/indexing.hpp"

namespace weft {

struct SegmentOptions {
  int axis = 0;                        ///< axis that is cut into segments
  std::optional<double> initial = {};  ///< takes part in each reduction, and is the result for an empty segment
};
/// One number for each segment of x: its sum, product, mean or an extreme. The first segment has the first lengths[0] elements along
/// the axis, and so on; elements after the last segment are left out. Without `initial`, an empty segment gives 0, for a product
/// 1, for a mean NaN, for amax -inf (of integers the least number), for amin inf.
/// Shapes    x [lead..., n, rest...], lengths [lead..., segments] -> [lead..., segments, rest...]
/// Dtypes    numbers; lengths integers. A mean: floats. Narrow floats are added in f32
/// Gradient  to x; of an extreme to one of equals
/// Errors    ShapeError for lengths that do not fit, DTypeError
[[nodiscard]] Tensor segment_reduce(const Tensor& x, const Tensor& lengths, ScatterReduction reduction,
                                    SegmentOptions options = {}, Where where = Where::current());

}  // namespace weft
