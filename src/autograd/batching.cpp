#include "autograd/batching.hpp"

#include <unordered_map>

#include "graph/attention.hpp"
#include "graph/linear_algebra.hpp"
#include "graph/matrix_exponential.hpp"
#include "graph/order.hpp"
#include "graph/poisson.hpp"
#include "graph/polynomials.hpp"
#include "graph/scan.hpp"
#include "graph/scatter.hpp"
#include "weft/ops.hpp"
#include "weft/ops/layout.hpp"

namespace weft::autograd {
namespace {

using graph::OpRow;
using graph::Tensors;

Tensors results_of(const OpRow& row, Tensors inputs, graph::Words words, Where where) {
  Tensors list;
  for (const graph::NodeRef& node : graph::call_nodes(row, std::move(inputs), std::move(words), where))
    list.emplace_back(node);
  return list;
}

// The words of a call whose first attribute is an axis, of an example; that axis of the batch.
graph::Words with_axis_moved(const graph::Words& words) {
  graph::Words moved = words;
  if (moved.at(0) >= 0) ++moved[0];
  return moved;
}

// Works along an axis, and the other axes count independent lines.
std::optional<Tensors> along_axis(const BatchedCall& b) {
  return results_of(b.call.row(), b.all_mapped(), with_axis_moved(b.call.words()), b.call.where());
}

// Takes matrices, or single elements, or stacks of them along any leading axes.
std::optional<Tensors> of_stacks(const BatchedCall& b) {
  return results_of(b.call.row(), b.all_mapped(), b.call.words(), b.call.where());
}

// Axis 0 of the inputs and results of attention counts sequences already: [E, B, ...] is computed as [E B, ...]. A mask may be
// of 1 along it, and the seed has no such axis: examples drop shares of their own.
std::optional<Tensors> attention_of_examples(const BatchedCall& b) {
  constexpr int kScoresRank = 4;
  Tensors inputs;
  for (std::size_t i = 0; i < b.inputs.size(); ++i) {
    Tensor x = b.inputs[i];
    const bool is_seed = b.call.row().inputs[i].name == "seed", is_mask = b.call.row().inputs[i].name == "score_mask";
    if (!x.defined() || is_seed) {
      if (is_seed && b.is_mapped[i]) return std::nullopt;
    } else if (is_mask && !b.is_mapped[i] && x.rank() == kScoresRank && x.dim(0) == 1) {
      // Shared by all examples as it is.
    } else {
      x = b.mapped(i);
      if (is_mask) {
        Shape shape = x.shape();
        shape[1] = b.mapped(0).dim(1);
        x = weft::expand(x, shape);
      }
      x = weft::flatten(x, 0, 1);
    }
    inputs.push_back(x);
  }
  Tensors results = results_of(b.call.row(), std::move(inputs), b.call.words(), b.call.where());
  for (Tensor& y : results) y = weft::unflatten(y, 0, {b.examples, y.dim(0) / b.examples});
  return results;
}

// Rows [n, columns] added up by index: each example gets result rows of its own.
std::optional<Tensors> rows_of_examples(const BatchedCall& b) {
  const Extent rows = b.call.words().at(0), e = b.examples;
  Tensor updates = b.mapped(1);
  const Extent n = updates.dim(1), columns = updates.dim(2);
  if (!b.is_mapped[0]) {  // the same rows of every example: examples are more columns
    updates = weft::reshape(weft::permute(updates, {1, 0, 2}), {n, e * columns});
    const Tensor sums = results_of(b.call.row(), {b.inputs[0], updates}, {rows}, b.call.where())[0];
    return Tensors{weft::permute(weft::reshape(sums, {rows, e, columns}), {1, 0, 2})};
  }
  const Tensor indices(graph::index_type(b.mapped(0).node()));
  const Tensor example(graph::iota({e, n}, 0, indices.dtype(), indices.device()));
  // An index outside of its example must stay outside: it must not reach the rows of a neighbour.
  const Tensor within = (indices >= 0.0) & (indices < static_cast<double>(rows));
  const Tensor place = elementwise("where", {within, indices + example * static_cast<double>(rows),
                                             scalar_like(static_cast<double>(rows * e), indices)});
  if (rows * e > INT32_MAX) return std::nullopt;
  const Tensor sums =
      results_of(b.call.row(), {weft::reshape(place, {e * n}), weft::reshape(updates, {e * n, columns})}, {rows * e},
                 b.call.where())[0];
  return Tensors{weft::reshape(sums, {e, rows, columns})};
}

const std::unordered_map<const OpRow*, BatchRule>& rules() {
  static const auto& table = *new std::unordered_map<const OpRow*, BatchRule>{
      {&graph::cumsum_row(), along_axis},
      {&graph::cumprod_row(), along_axis},
      {&graph::logcumsumexp_row(), along_axis},
      {&graph::cummax_row(), along_axis},
      {&graph::cummin_row(), along_axis},
      {&graph::linear_recurrence_row(), along_axis},
      {&graph::sort_row(), along_axis},
      {&graph::scatter_along_row(), along_axis},
      {&graph::last_along_row(), along_axis},
      {&graph::put_along_row(), along_axis},
      {&graph::scatter_rows_row(), rows_of_examples},
      {&graph::attention_row(), attention_of_examples},
      {&graph::attention_backward_row(), attention_of_examples},
      {&graph::poisson_quantile_row(), of_stacks},
      {&graph::orthogonal_polynomial_row(), of_stacks},
      {&graph::solve_row(), of_stacks},
      {&graph::solve_triangular_row(), of_stacks},
      {&graph::slogdet_row(), of_stacks},
      {&graph::cholesky_row(), of_stacks},
      {&graph::lu_factor_row(), of_stacks},
      {&graph::pivot_order_row(), of_stacks},
      {&graph::qr_row(), of_stacks},
      {&graph::eigh_row(), of_stacks},
      {&graph::svd_row(), of_stacks},
      {&graph::matrix_exp_row(), of_stacks},
      {&graph::matrix_exp_frechet_row(), of_stacks},
  };
  return table;
}

}  // namespace

Tensor BatchedCall::mapped(std::size_t i) const {
  const Tensor& x = inputs[i];
  if (!x.defined() || is_mapped[i]) return x;
  Shape shape{examples};
  for (const Extent extent : x.shape()) shape.push_back(extent);
  return weft::expand(x, shape);
}

Tensors BatchedCall::all_mapped() const {
  Tensors list;
  for (std::size_t i = 0; i < inputs.size(); ++i) list.push_back(mapped(i));
  return list;
}

const BatchRule* batch_rule(const OpRow& row) {
  const auto found = rules().find(&row);
  return found == rules().end() ? nullptr : &found->second;
}

Batching batching_of(const OpRow& row) {
  if (row.elementwise || row.reduction) return Batching::elements;
  if (row.is_composite() || row.apply) return Batching::parts;
  if (batch_rule(row)) return Batching::rule;
  return row.decompose ? Batching::written_out : Batching::looped;
}

}  // namespace weft::autograd
