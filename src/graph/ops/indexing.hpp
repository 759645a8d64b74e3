// What ops on elements by index share: checks, and sums and replacements by index.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/tensor.hpp"

namespace weft::graph {

using NamedOperands = std::vector<std::pair<std::string, Tensor>>;

/// Errors of values that are missing, indices that are not integers, and devices that differ.
void check_indexed(std::string_view op, const NamedOperands& operands, Where where);
/// Bools are added up and multiplied as i32, and are true where the result is not 0.
bool are_bools(const Tensor& x, const Tensor& y);

/// Zeros with the updates of each place added up: `extent` places along the axis.
Tensor added_along(const Tensor& indices, const Tensor& updates, int axis, Extent extent);
/// For each place along the axis the last t with indices[.., t, ..] = place, or -1.
Tensor last_positions(const Tensor& indices, int axis, Extent extent);

/// Zeros with slices of source added at indices [n]; x with slices replaced.
Tensor added_slices(const Tensor& x, int axis, const Tensor& indices, const Tensor& source);
Tensor replaced_slices(const Tensor& x, int axis, const Tensor& indices, const Tensor& source);

}  // namespace weft::graph
