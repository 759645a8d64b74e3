// Products of tensors over any axes.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/tensor.hpp"

namespace weft {

/// The sum of products that the subscripts name, as in NumPy: einsum("bij,bjk->bik", {a, b}). A letter is an axis; "..."
/// stands for axes that broadcast; a letter twice in one operand is its diagonal. Without "->" the result has the letters
/// that occur once, in their order, behind the axes of "...". Of several operands the pair whose product is cheapest in the
/// cheapest order is multiplied first, by `matmul`.
/// Dtypes    numbers, the same in all operands
/// Errors    UsageError: subscripts that do not parse or do not fit; ShapeError: extents of one letter that differ
/// Gradient  follows from the products
[[nodiscard]] Tensor einsum(std::string_view subscripts, std::span<const Tensor> operands,
                            Where where = Where::current());
[[nodiscard]] inline Tensor einsum(std::string_view subscripts, std::initializer_list<Tensor> operands,
                                   Where where = Where::current()) {
  return einsum(subscripts, std::span<const Tensor>(operands.begin(), operands.size()), where);
}

/// Sums over axes_a of a and axes_b of b, which go; then come the other axes of a and those of b.
[[nodiscard]] Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& axes_a,
                               const std::vector<int>& axes_b, Where where = Where::current());
/// The last `axes` axes of a with the first of b.
[[nodiscard]] Tensor tensordot(const Tensor& a, const Tensor& b, int axes = 2, Where where = Where::current());

/// beta c + alpha a b, where c broadcasts: addmm for matrices, baddbmm for batches of them, addmv for a matrix and a vector;
/// addbmm adds up the products of a batch. Errors: as matmul.
struct AddProductOptions {
  double beta = 1, alpha = 1;
};
[[nodiscard]] Tensor addmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddProductOptions& options = {},
                           Where where = Where::current());
[[nodiscard]] Tensor baddbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddProductOptions& options = {},
                             Where where = Where::current());
[[nodiscard]] Tensor addmv(const Tensor& c, const Tensor& a, const Tensor& b, const AddProductOptions& options = {},
                           Where where = Where::current());
[[nodiscard]] Tensor addbmm(const Tensor& c, const Tensor& a, const Tensor& b, const AddProductOptions& options = {},
                            Where where = Where::current());

/// a [m], b [n] -> a_i b_j [m, n].
[[nodiscard]] Tensor outer(const Tensor& a, const Tensor& b, Where where = Where::current());
/// Sums of products over the last axes of both: a [..., k], b [*, k] -> [..., *].
[[nodiscard]] Tensor inner(const Tensor& a, const Tensor& b, Where where = Where::current());
/// a [n], b [n] -> the sum of their products.
[[nodiscard]] Tensor dot(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The vector at right angles to both along an axis of extent 3; a and b broadcast.
[[nodiscard]] Tensor cross(const Tensor& a, const Tensor& b, int axis = -1, Where where = Where::current());
/// Blocks a_i b: extents multiply, axis by axis from the last.
[[nodiscard]] Tensor kron(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The sum of the diagonal of the last two axes: [..., m, n] -> [...].
[[nodiscard]] Tensor matrix_trace(const Tensor& a, Where where = Where::current());

}  // namespace weft
