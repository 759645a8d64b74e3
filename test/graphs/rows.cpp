#include "graphs/rows.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "ops/parse.hpp"
#include "ops/table.hpp"

namespace weft::test {
namespace {

using graph::OpRow;
using scalar::Op;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool jumps(Op op) {
  switch (op) {
    case Op::sign:
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc:
    case Op::rem:
    case Op::copysign:
    case Op::is_nan:
    case Op::select:
    case Op::abs:
    case Op::min:
    case Op::max: return true;
    default: return scalar::gives_bool(op);
  }
}

bool is_exact(Op op, bool sums) {
  switch (op) {
    case Op::input:
    case Op::constant:
    case Op::neg:
    case Op::abs:
    case Op::sign:
    case Op::min:
    case Op::max:
    case Op::select:
    case Op::copysign:
    case Op::is_nan:
    case Op::logical_not:
    case Op::logical_and:
    case Op::logical_or:
    case Op::bit_not:
    case Op::bit_and:
    case Op::bit_or:
    case Op::bit_xor:
    case Op::shl:
    case Op::shr: return true;
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc:
    case Op::add:
    case Op::sub:
    case Op::mul: return sums;
    default: return scalar::gives_bool(op);
  }
}

bool all_exact(const scalar::Expression& expression, bool sums) {
  return std::all_of(expression.code.begin(), expression.code.end(),
                     [&](const scalar::Instruction& i) { return is_exact(i.op, sums); });
}
bool all_exact(const OpRow& row, bool sums) {
  if (row.elementwise) return all_exact(ops::forward(*row.elementwise), sums);
  const ops::ReduceExpressions& texts = ops::expressions(*row.reduction);
  const bool adds =
      row.reduction->reduction == scalar::Reduction::sum || row.reduction->reduction == scalar::Reduction::prod;
  return (sums || !adds) && row.reduction->center.empty() && all_exact(texts.pre, sums) && all_exact(texts.post, sums);
}

}  // namespace

bool may_jump(const OpRow& row) {
  if (row.elementwise) {
    const auto& code = ops::forward(*row.elementwise).code;
    return !row.elementwise->kinks.empty() || !row.differentiable ||
           std::any_of(code.begin(), code.end(), [](const scalar::Instruction& i) { return jumps(i.op); });
  }
  if (row.reduction)
    return row.reduction->reduction != scalar::Reduction::sum || row.reduction->result != ops::Result::same ||
           is_one_of(row.name, {"norm"});
  if (is_one_of(row.family,
                {"order", "decomposition", "pooling", "indexing", "random", "cache", "update", "special", "distance"}))
    return true;
  return is_one_of(row.name, {"sparsemax",
                              "entmax15",
                              "cummax",
                              "cummin",
                              "cumprod",
                              "aminmax",
                              "vector_norm",
                              "nansum",
                              "nanmean",
                              "l1_loss",
                              "huber_loss",
                              "smooth_l1_loss",
                              "hinge_embedding_loss",
                              "margin_ranking_loss",
                              "cosine_embedding_loss",
                              "triplet_margin_loss",
                              "multi_margin_loss",
                              "binary_cross_entropy",
                              "gaussian_nll_loss",
                              "kl_div",
                              "prelu",
                              "allclose",
                              "grid_sample",
                              "cast",
                              "corrcoef",
                              "rnn",
                              "recurrence",
                              "nextafter",
                              "frexp",
                              "round_decimals",
                              "masked_softmax",
                              "gumbel_softmax"});
}

bool selects(const OpRow& row) {
  if (row.elementwise || row.reduction) return all_exact(row, false);
  if (is_one_of(row.family, {"view", "layout"})) return row.name != "overlap_add";
  return is_one_of(row.name, {"full",
                              "zeros",
                              "ones",
                              "arange",
                              "zeros_like",
                              "ones_like",
                              "cast",
                              "detach",
                              "eye",
                              "full_like",
                              "embedding",
                              "take_along_axis",
                              "one_hot",
                              "cummax",
                              "cummin",
                              "unfold",
                              "max_pool1d",
                              "max_pool2d",
                              "max_pool3d",
                              "max_unpool1d",
                              "max_unpool2d",
                              "max_unpool3d",
                              "sort",
                              "argsort",
                              "topk",
                              "kthvalue",
                              "mode",
                              "searchsorted",
                              "bucketize",
                              "isin",
                              "aminmax",
                              "gather",
                              "scatter",
                              "scatter_along_axis",
                              "last_along_axis",
                              "index_select",
                              "index_copy",
                              "index_fill",
                              "take",
                              "masked_fill",
                              "masked_scatter",
                              "nonzero",
                              "masked_select",
                              "unique",
                              "unique_consecutive",
                              "select_scatter",
                              "slice_scatter",
                              "diagonal_scatter",
                              "as_strided_scatter",
                              "msort",
                              "repeat_slices",
                              "write_rows",
                              "randint",
                              "randperm"});
}

bool is_exact_for_few_bits(const OpRow& row) {
  if (row.elementwise || row.reduction) return all_exact(row, true);
  if (row.family == "product") return true;
  return selects(row) || is_one_of(row.name, {"scatter_add", "scatter_add_rows", "scatter_add_along_axis", "cumsum",
                                              "diff", "overlap_add", "index_add", "put", "index_put", "bincount"});
}

bool has_few_bits(std::span<const double> numbers, DType type) {
  const bool wide = weft::element(type).bits > 16;
  const double quantum = wide ? 0x1p-8 : 0x1p-2, most = wide ? 0x1p10 : 4;
  return std::all_of(numbers.begin(), numbers.end(), [&](double x) {
    return std::isfinite(x) && std::fabs(x) <= most && x == std::floor(x / quantum) * quantum;
  });
}

bool is_smooth_near(const ops::ElementwiseRow& row, const std::vector<std::vector<double>>& columns) {
  const scalar::Expression& f = ops::forward(row);
  std::vector<std::string> names(row.inputs.begin(), row.inputs.end());
  for (const ops::Attribute& a : row.attributes) names.emplace_back(a.name);
  std::vector<scalar::Expression> kinks;
  for (std::string_view text : row.kinks) kinks.push_back(scalar::parse(text, names));
  std::vector<double> at(columns.size());
  for (std::size_t e = 0; e < columns[0].size(); ++e) {
    for (std::size_t i = 0; i < columns.size(); ++i) at[i] = columns[i][e];
    for (std::size_t i = 0; i < row.inputs.size(); ++i) {
      const double x = at[i], step = 1e-3 * std::max(1.0, std::fabs(x));
      auto moved = [&](const scalar::Expression& g, double by) {
        at[i] = x + by;
        const double value = scalar::evaluate(g, at);
        at[i] = x;
        return value;
      };
      const double below = moved(f, -step), here = moved(f, 0), above = moved(f, step);
      if (!(std::fabs(above - below) <= 0.05 * (1 + std::fabs(here)))) return false;
      // A slope that differs on the two sides is a kink.
      if (!(std::fabs(above + below - 2 * here) <= 0.1 * step * (1 + std::fabs(here)))) return false;
      for (const scalar::Expression& kink : kinks)
        if (moved(kink, -step) * moved(kink, step) <= 0) return false;
    }
  }
  return true;
}

std::vector<graph::OpCase> drawn_cases(const OpRow& row) {
  constexpr Extent kElementsMax = 3000;
  const std::vector<Extent> shape{2, 3};
  if (row.name == "full") return {{"half", {}, {{"shape", shape}, {"value", 0.5}}}};
  if (row.name == "zeros" || row.name == "ones") return {{"two axes", {}, {{"shape", shape}}}};
  if (row.name == "arange") return {{"five", {}, {{"n", Extent{5}}}}};
  if (row.name == "detach") return {{"two axes", {{{2, 3}}}}};
  std::vector<graph::OpCase> cases;
  for (const graph::OpCase& one : row.cases) {
    Extent elements = 0;
    for (const graph::CaseInput& input : one.inputs) elements += input.shape.numel();
    if (elements <= kElementsMax) cases.push_back(one);
  }
  if (cases.empty() && !row.cases.empty())
    cases.push_back(*std::min_element(row.cases.begin(), row.cases.end(), [](const auto& a, const auto& b) {
      Extent of_a = 0, of_b = 0;
      for (const auto& input : a.inputs) of_a += input.shape.numel();
      for (const auto& input : b.inputs) of_b += input.shape.numel();
      return of_a < of_b;
    }));
  return cases;
}

}  // namespace weft::test
