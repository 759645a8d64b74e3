// Products of several matrices in the order of the fewest multiplications.
#include <fmt/format.h>

#include <limits>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops.hpp"
#include "weft/ops/contraction.hpp"

namespace weft {
namespace graph {
namespace {

// extents[i] and extents[i + 1] are rows and columns of factor i; a vector is a row or a column.
std::vector<Extent> extents_of_chain(const Call& c) {
  const Tensors& factors = c.inputs();
  const std::size_t count = factors.size();
  if (count < 2) c.usage_error("takes two factors or more");
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor& x = factors[i];
    const bool is_vector = x.rank() == 1 && (i == 0 || i + 1 == count);
    if (!is_vector && x.rank() != 2)
      c.shape_error(fmt::format(
          "factor {} has {} axes; it must be a matrix, and only the first and the last may be vectors", i, x.rank()));
    if (x.dtype() != factors[0].dtype()) c.dtype_error("the dtypes differ; cast them");
    const Extent rows = is_vector && i == 0 ? 1 : x.dim(0), columns = is_vector && i > 0 ? 1 : x.dim(-1);
    if (i > 0 && extents.back() != rows)
      c.shape_error(fmt::format("factor {} has {} columns, and factor {} has {} rows", i - 1, extents.back(), i, rows));
    if (i == 0) extents.push_back(rows);
    extents.push_back(columns);
  }
  return extents;
}

class MatrixChain {
 public:
  MatrixChain(Tensors factors, std::vector<Extent> extents)
      : factors_(std::move(factors)), extents_(std::move(extents)) {
    const std::size_t n = factors_.size();
    costs_.assign(n, std::vector<double>(n, 0));
    cuts_.assign(n, std::vector<std::size_t>(n, 0));
    for (std::size_t length = 2; length <= n; ++length)
      for (std::size_t from = 0; from + length <= n; ++from) {
        const std::size_t to = from + length - 1;
        costs_[from][to] = std::numeric_limits<double>::infinity();
        for (std::size_t cut = from; cut < to; ++cut) {
          const double cost = costs_[from][cut] + costs_[cut + 1][to] +
                              static_cast<double>(extents_[from]) * static_cast<double>(extents_[cut + 1]) *
                                  static_cast<double>(extents_[to + 1]);
          if (cost < costs_[from][to]) costs_[from][to] = cost, cuts_[from][to] = cut;
        }
      }
  }
  Tensor product(std::size_t from, std::size_t to, Where where) const {
    if (from == to) return factors_[from];
    const std::size_t cut = cuts_[from][to];
    return weft::matmul(product(from, cut, where), product(cut + 1, to, where), where);
  }

 private:
  Tensors factors_;
  std::vector<Extent> extents_;
  std::vector<std::vector<double>> costs_;      // of the product of factors from..to
  std::vector<std::vector<std::size_t>> cuts_;  // the last factor of its left part
};

const OpRow& multi_dot_row() {
  static const OpRow row{
      .name = "multi_dot",
      .aliases = {"chain_matmul"},
      .family = "product",
      .inputs = {{.name = "factors", .dtypes = ops::DTypes::floats, .repeated = true}},
      .result = "that of the factors",
      .doc =
          "The product of matrices in the order of the fewest multiplications; the first and the last may be vectors.",
      .torch = "torch.linalg.multi_dot(factors)",
      .numpy = "np.linalg.multi_dot(factors)",
      .infer =
          [](const Call& c) {
            const std::vector<Extent> extents = extents_of_chain(c);
            Shape shape;
            if (c.input(0).rank() == 2) shape.push_back(extents.front());
            if (c.inputs().back().rank() == 2) shape.push_back(extents.back());
            return std::vector<Result>{{c.input(0).dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            return Tensors{MatrixChain(c.inputs(), extents_of_chain(c)).product(0, c.inputs().size() - 1, c.where())};
          },
      .cases = {{"four", {{{5, 2}}, {{2, 6}}, {{6, 3}}, {{3, 4}}}}, {"vectors", {{{4}}, {{4, 5}}, {{5}}}}},
      .errors = {{"extents", {{{2, 3}}, {{4, 5}}}, {}, "factor 0 has 3 columns, and factor 1 has 4 rows"},
                 {"a batch", {{{2, 3}}, {{2, 3, 4}}, {{4, 5}}}, {}, "factor 1 has 3 axes"},
                 {"one", {{{2, 3}}}, {}, "takes two factors or more"}}};
  return row;
}

}  // namespace

OpRows chain_rows() { return {&multi_dot_row()}; }

}  // namespace graph

Tensor multi_dot(std::span<const Tensor> factors, Where where) {
  return graph::call(graph::multi_dot_row(), graph::Tensors(factors.begin(), factors.end()), graph::Words{}, where);
}

}  // namespace weft
