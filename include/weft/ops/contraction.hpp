// Products of tensors over any axes.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/tensor.hpp"

namespace weft {

/// The sum of products that the subscripts describe, as in NumPy: einsum("bij,bjk->bik", {a, b}). A letter is an axis; "..."
/// means axes that broadcast; a letter twice in one operand is its diagonal. Without "->" the result has the axes of "...",
/// then the letters that occur once, in their order. Several operands are multiplied in pairs by `matmul`, in the cheapest
/// order.
/// Dtypes    numbers, the same in all operands
/// Errors    UsageError: subscripts that do not parse or do not fit; ShapeError: extents of one letter that differ
/// Gradient  follows from the products
[[nodiscard]] Tensor einsum(std::string_view subscripts, std::span<const Tensor> operands,
                            Where where = Where::current());
[[nodiscard]] inline Tensor einsum(std::string_view subscripts, std::initializer_list<Tensor> operands,
                                   Where where = Where::current()) {
  return einsum(subscripts, std::span<const Tensor>(operands.begin(), operands.size()), where);
}

/// Sums over axes_a of a and axes_b of b. The result has the other axes of a, then those of b.
[[nodiscard]] Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& axes_a,
                               const std::vector<int>& axes_b, Where where = Where::current());
/// Sums over the last `axes` axes of a and the first of b.
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

/// The product of two or more matrices in the order of the fewest multiplications; the first and the last may be vectors.
/// Errors    ShapeError: a factor that is not a matrix, columns that differ from the next rows
[[nodiscard]] Tensor multi_dot(std::span<const Tensor> factors, Where where = Where::current());
[[nodiscard]] inline Tensor multi_dot(std::initializer_list<Tensor> factors, Where where = Where::current()) {
  return multi_dot(std::span<const Tensor>(factors.begin(), factors.size()), where);
}
/// beta c + alpha a_i b_j for vectors a [m], b [n], where c broadcasts to [m, n].
[[nodiscard]] Tensor addr(const Tensor& c, const Tensor& a, const Tensor& b, const AddProductOptions& options = {},
                          Where where = Where::current());
/// The sum of products along an axis; a and b broadcast.
[[nodiscard]] Tensor vecdot(const Tensor& a, const Tensor& b, int axis = -1, Where where = Where::current());

/// a [m], b [n] -> a_i b_j [m, n].
[[nodiscard]] Tensor outer(const Tensor& a, const Tensor& b, Where where = Where::current());
/// Sums of products over the last axes of both: a [..., k], b [*, k] -> [..., *].
[[nodiscard]] Tensor inner(const Tensor& a, const Tensor& b, Where where = Where::current());
/// a [n], b [n] -> the sum of their products.
[[nodiscard]] Tensor dot(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The cross product along an axis of extent 3; a and b broadcast.
[[nodiscard]] Tensor cross(const Tensor& a, const Tensor& b, int axis = -1, Where where = Where::current());
/// The Kronecker product, made of blocks a_i b: extents multiply, axis by axis from the last.
[[nodiscard]] Tensor kron(const Tensor& a, const Tensor& b, Where where = Where::current());
/// The sum of the diagonal of the last two axes: [..., m, n] -> [...].
[[nodiscard]] Tensor matrix_trace(const Tensor& a, Where where = Where::current());

}  // namespace weft
