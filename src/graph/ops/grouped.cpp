// Products of groups of rows with a matrix each.
#include "graph/grouped.hpp"

#include "graph/op_families.hpp"
#include "weft/ops.hpp"
#include "weft/ops/grouped.hpp"
#include "weft/ops/scans.hpp"

namespace weft {
namespace graph {
namespace {

/// The group of each row: how many ends are not after it. The largest end so far counts, so that ends that decrease make
/// empty groups, as in the kernels.
Tensor groups_of_rows(const Tensor& ends, Extent n) {
  const Extent groups = ends.dim(0);
  if (groups == 0) return full({n}, 0, DType::i32, ends.device());
  const Tensor row(iota({n, groups}, 0, DType::i32, ends.device()));
  const Tensor last = weft::cummax(cast(ends, DType::i32)).values;
  return sum(cast(weft::unsqueeze(last, 0) <= row, DType::i32), {1});
}

Tensor call_grouped(const OpRow& row, const Tensors& inputs, const GroupedAttributes& a, Where where) {
  for (std::size_t i = 0; i < 3; ++i)
    if (!inputs[i].defined()) throw UsageError(row.name + ": " + row.inputs[i].name + " has no value");
  const DType type = inputs[0].dtype();
  if (!is_narrow(type) || inputs[1].dtype() != type) return call(row, inputs, words_of(row.attributes, a), where);
  const DType wide = compute_type(type);
  const Tensors widened = {weft::cast(inputs[0], wide, where), weft::cast(inputs[1], wide, where), inputs[2]};
  return weft::cast(call(row, widened, words_of(row.attributes, a), where), type, where);
}

void check_groups(const Call& c) {
  if (c.input(2).rank() != 1) c.shape_error("ends are not [groups]");
  if (c.input(0).dtype() != c.input(1).dtype())
    c.dtype_error(c.row().inputs[0].name + " and " + c.row().inputs[1].name + " differ in dtype; cast one");
}

CaseInput ends_of(std::vector<double> values) {
  return {.shape = {static_cast<Extent>(values.size())}, .type = DType::i32, .values = std::move(values)};
}

}  // namespace

const OpRow& grouped_matmul_row() {
  static const OpRow row{
      .name = "grouped_matmul",
      .aliases = {"grouped_mm"},
      .family = "product",
      .inputs = {{"x", ops::DTypes::floats},
                 {"weights", ops::DTypes::floats},
                 {"ends", ops::DTypes::all, false, false, {DType::i32}}},
      .attributes = {field("transposed", &GroupedAttributes::transposed, "each matrix is [m, k]")},
      .doc = "Rows of x [n, k], sorted by group, times the matrix of their group in weights [groups, k, m].",
      .formula = "y_r = x_r W_g for rows ends[g - 1] <= r < ends[g]; 0 for rows after the last end",
      .torch =
          "(lambda g, w: torch.einsum('nk,nkm->nm', x, torch.cat([w, torch.zeros_like(w[:1])])[g]))"
          "((ends.long().cummax(0)[0][None, :] <= torch.arange(len(x))[:, None]).sum(1), "
          "weights.transpose(1, 2) if transposed else weights)",
      .infer =
          [](const Call& c) {
            check_groups(c);
            const Tensor &x = c.input(0), &weights = c.input(1);
            const int k = c.attributes<GroupedAttributes>().transposed ? 2 : 1;
            if (x.rank() != 2 || weights.rank() != 3 || weights.dim(k) != x.dim(1))
              c.shape_error("not x [n, k] with weights [groups, k, m], or transposed [groups, m, k]");
            if (weights.dim(0) != c.input(2).dim(0)) c.shape_error("not an end for each matrix of weights");
            return std::vector<Result>{{x.dtype(), {x.dim(0), weights.dim(3 - k)}}};
          },
      .decompose =
          [](const Call& c) {
            const bool transposed = c.attributes<GroupedAttributes>().transposed;
            const Tensor &x = c.input(0), &given = c.input(1);
            const Tensor weights = transposed ? weft::transpose(given, 1, 2) : given;
            const Extent n = x.dim(0), k = weights.dim(1), m = weights.dim(2), groups = weights.dim(0);
            if (groups == 0) return Tensors{full({n, m}, 0, x.dtype(), x.device())};
            const Tensor of_row =  // an index outside reads zeros
                weft::embedding(weft::reshape(weights, {groups, k * m}), groups_of_rows(c.input(2), n));
            return Tensors{weft::squeeze(weft::matmul(weft::unsqueeze(x, 1), weft::reshape(of_row, {n, k, m})), 1)};
          },
      .gradient =
          [](const GradientCall& g) {
            const bool transposed = g.call.attributes<GroupedAttributes>().transposed;
            const Tensor &x = g.call.input(0), &weights = g.call.input(1), &ends = g.call.input(2),
                         &dy = g.gradients[0];
            return Tensors{weft::grouped_matmul(dy, weights, ends, !transposed, g.call.where()),
                           transposed ? weft::grouped_outer(dy, x, ends, g.call.where())
                                      : weft::grouped_outer(x, dy, ends, g.call.where()),
                           Tensor()};
          },
      .form = KernelForm::routine,
      .flops =
          [](const Call& c) {
            return 2.0 * static_cast<double>(c.input(0).numel()) *
                   static_cast<double>(c.input(1).dim(c.attributes<GroupedAttributes>().transposed ? 1 : 2));
          },
      .cases = {{"three groups", {{{7, 5}}, {{3, 5, 6}}, ends_of({2, 2, 6})}},
                {"transposed", {{{9, 4}}, {{2, 7, 4}}, ends_of({3, 9})}, {{"transposed", true}}},
                {"ends out of order", {{{6, 3}}, {{4, 3, 5}}, ends_of({4, 1, 5, 90})}},
                {"many rows", {{{70, 33}}, {{5, 33, 40}}, ends_of({1, 20, 21, 60, 70})}},
                {"no rows", {{{0, 3}}, {{2, 3, 4}}, ends_of({0, 0})}}},
      .errors = {{"another width", {{{4, 3}}, {{2, 5, 6}}, ends_of({1, 4})}, {}, "not x [n, k] with weights"},
                 {"too few ends", {{{4, 3}}, {{2, 3, 6}}, ends_of({4})}, {}, "not an end for each matrix"},
                 {"ends of floats", {{{4, 3}}, {{2, 3, 6}}, {{2}}}, {}, "ends takes i32"}},
      .apply =
          [](const Arguments& a) {
            return Tensors{weft::grouped_matmul(a.input(0), a.input(1), a.input(2), a.boolean("transposed"))};
          }};
  return row;
}

const OpRow& grouped_outer_row() {
  static const OpRow row{
      .name = "grouped_outer",
      .family = "product",
      .inputs = {{"x", ops::DTypes::floats},
                 {"y", ops::DTypes::floats},
                 {"ends", ops::DTypes::all, false, false, {DType::i32}}},
      .doc = "For each group of rows the sum of x_r^T y_r: the gradient of grouped_matmul to its weights.",
      .formula = "W_g = sum of x_r^T y_r over rows ends[g - 1] <= r < ends[g]",
      .torch =
          "(lambda g: torch.einsum('nk,nm,ng->gkm', x, y, "
          "(g[:, None] == torch.arange(len(ends))[None, :]).to(x.dtype)))"
          "((ends.long().cummax(0)[0][None, :] <= torch.arange(len(x))[:, None]).sum(1))",
      .infer =
          [](const Call& c) {
            check_groups(c);
            const Tensor &x = c.input(0), &y = c.input(1);
            if (x.rank() != 2 || y.rank() != 2 || x.dim(0) != y.dim(0)) c.shape_error("not x [n, k] with y [n, m]");
            return std::vector<Result>{{x.dtype(), {c.input(2).dim(0), x.dim(1), y.dim(1)}}};
          },
      .decompose =
          [](const Call& c) {
            const Tensor &x = c.input(0), &y = c.input(1);
            const Extent n = x.dim(0), k = x.dim(1), m = y.dim(1), groups = c.input(2).dim(0);
            const Tensor products = weft::unsqueeze(x, 2) * weft::unsqueeze(y, 1);
            const Tensor added =
                weft::scatter_add(groups_of_rows(c.input(2), n), weft::reshape(products, {n, k * m}), groups);
            return Tensors{weft::reshape(added, {groups, k, m})};
          },
      .gradient =
          [](const GradientCall& g) {
            const Tensor &x = g.call.input(0), &y = g.call.input(1), &ends = g.call.input(2), &dw = g.gradients[0];
            return Tensors{weft::grouped_matmul(y, dw, ends, true, g.call.where()),
                           weft::grouped_matmul(x, dw, ends, false, g.call.where()), Tensor()};
          },
      .form = KernelForm::routine,
      .flops =
          [](const Call& c) {
            return 2.0 * static_cast<double>(c.input(0).numel()) * static_cast<double>(c.input(1).dim(1));
          },
      .cases = {{"three groups", {{{7, 5}}, {{7, 6}}, ends_of({2, 2, 6})}},
                {"ends out of order", {{{6, 3}}, {{6, 5}}, ends_of({4, 1, 5, 90})}},
                {"many rows", {{{70, 33}}, {{70, 40}}, ends_of({1, 20, 21, 60, 70})}},
                {"no rows", {{{0, 3}}, {{0, 4}}, ends_of({0, 0})}}},
      .errors = {{"other rows", {{{4, 3}}, {{5, 6}}, ends_of({1, 4})}, {}, "not x [n, k] with y [n, m]"}},
      .apply = [](const Arguments& a) { return Tensors{weft::grouped_outer(a.input(0), a.input(1), a.input(2))}; }};
  return row;
}

OpRows grouped_rows() { return {&grouped_matmul_row(), &grouped_outer_row()}; }

}  // namespace graph

Tensor grouped_matmul(const Tensor& x, const Tensor& weights, const Tensor& ends, bool transposed, Where where) {
  return graph::call_grouped(graph::grouped_matmul_row(), {x, weights, ends}, {transposed}, where);
}

Tensor grouped_outer(const Tensor& x, const Tensor& y, const Tensor& ends, Where where) {
  return graph::call_grouped(graph::grouped_outer_row(), {x, y, ends}, {}, where);
}

}  // namespace weft
