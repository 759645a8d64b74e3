// What the ops on matrices share: shapes, checks, the matrices of their cases.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "graph/linear_algebra.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "weft/ops.hpp"

namespace weft::graph::matrices {

inline InputSpec matrix(std::string name) { return {.name = std::move(name), .only = {DType::f32, DType::f64}}; }

inline Shape batch_shape(const Tensor& a) { return Shape(std::vector<Extent>(a.shape().begin(), a.shape().end() - 2)); }
inline Shape with_matrix(Shape batch, Extent rows, Extent columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}
inline Shape with_vector(Shape batch, Extent n) {
  batch.push_back(n);
  return batch;
}

inline void check_matrix(const Call& c, bool square) {
  const Tensor& a = c.input(0);
  const std::string& name = c.row().inputs[0].name;
  if (a.rank() < 2) c.shape_error(fmt::format("{} is not a matrix [..., rows, columns]", name));
  if (square && a.dim(-1) != a.dim(-2))
    c.shape_error(fmt::format("{} has {} rows and {} columns; it must be square", name, a.dim(-2), a.dim(-1)));
}
/// The inference of ops whose result is like their one operand, a square matrix.
inline std::vector<Result> like_square_matrix(const Call& c) {
  check_matrix(c, true);
  return {like(c.input(0))};
}

inline Tensor turned(const Tensor& a) { return weft::transpose(a); }
/// Ones on the diagonal.
inline Tensor eye(Extent rows, Extent columns, const Tensor& like) {
  const Tensor i = arange(rows, DType::i32, like.device()), j = arange(columns, DType::i32, like.device());
  return weft::cast(elementwise("eq", {weft::reshape(i, {rows, 1}), weft::reshape(j, {1, columns})}), like.dtype());
}
inline Tensor eye(Extent n, const Tensor& like) { return eye(n, n, like); }

inline Tensor triangular_call(const Tensor& a, const Tensor& b, bool upper, bool unit = false,
                              Where where = Where::current()) {
  return call(solve_triangular_row(), {a, b}, TriangularAttributes{upper, unit}, where);
}

inline Tensors results_of(const OpRow& row, Tensors inputs, Words words, Where where) {
  Tensors list;
  for (const NodeRef& node : call_nodes(row, std::move(inputs), std::move(words), where)) list.push_back(wrap(node));
  return list;
}
inline Tensors results_of(const OpRow& row, const Tensor& a, Where where) { return results_of(row, {a}, {}, where); }

/// Matrices with a large diagonal, which have inverses.
inline CaseInput regular(Extent batch, Extent rows, Extent columns) {
  CaseInput input{.shape = batch ? Shape{batch, rows, columns} : Shape{rows, columns}};
  for (Extent b = 0; b < std::max<Extent>(batch, 1); ++b)
    for (Extent i = 0; i < rows; ++i)
      for (Extent j = 0; j < columns; ++j)
        input.values.push_back(static_cast<double>((b * 5 + i * 7 + j * 3 + i * j) % 11 - 5) / 4 +
                               (i == j ? 3 + 0.5 * static_cast<double>(i) : 0));
  return input;
}
/// Positive definite matrices.
inline CaseInput definite(Extent batch, Extent n) {
  CaseInput input{.shape = batch ? Shape{batch, n, n} : Shape{n, n}};
  for (Extent b = 0; b < std::max<Extent>(batch, 1); ++b)
    for (Extent i = 0; i < n; ++i)
      for (Extent j = 0; j < n; ++j)
        input.values.push_back(static_cast<double>((b * 5 + (i + j) * 3 + i * j) % 7 - 3) / 4 +
                               (i == j ? 4 + static_cast<double>(i) : 0));
  return input;
}

inline const ErrorCase kNotSquare{"not square", {{{3, 4}}}, {}, "a has 3 rows and 4 columns; it must be square"};
inline const ErrorCase kNoMatrix{"one axis", {{{3}}}, {}, "a is not a matrix"};

}  // namespace weft::graph::matrices
