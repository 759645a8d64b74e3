// Windows of images as columns of a matrix, and back.
#pragma once

#include "weft/ops/per_axis.hpp"
#include "weft/tensor.hpp"

namespace weft {

struct FoldOptions {
  PerAxis stride = 1;
  PerAxis padding = 0;  ///< at both ends of each axis
  PerAxis dilation = 1;
};

/// The windows of x as columns: row (c, i, j) of column (p, q) is x[n, c, p stride + i dilation - padding, ...], and 0 outside.
/// PyTorch's `F.unfold`.
/// Shapes    x [N, C, 1 to 3 axes of space] -> [N, C kernel elements, windows]
/// Errors    ShapeError: a kernel beyond the padded image, numbers that do not fit the axes
/// Gradient  fold
[[nodiscard]] Tensor im2col(const Tensor& x, const PerAxis& kernel, const FoldOptions& options = {},
                            Where where = Where::current());
/// Columns added up at the places that `im2col` reads them from. PyTorch's `F.fold`.
/// Shapes    x [N, C kernel elements, windows] -> [N, C, size...]
/// Dtypes    numbers
/// Errors    ShapeError: columns that are not those of an image of this size
/// Gradient  im2col
[[nodiscard]] Tensor fold(const Tensor& x, const PerAxis& size, const PerAxis& kernel, const FoldOptions& options = {},
                          Where where = Where::current());

}  // namespace weft
