// Mixtures of experts. Letters: n rows, C width, H hidden width, E experts, K experts of a row.
#pragma once

#include <string>

#include "weft/nn/layers.hpp"

namespace weft::nn {

struct MixtureOptions {
  Extent top_k = 2;  ///< experts that a row passes through
};

/// Rows sorted by expert, as `grouped_matmul` reads them.
struct Routing {
  Tensor weights;        ///< [n, K]: softmax over the scores of the chosen experts
  Tensor experts;        ///< i32 [n, K], the best first
  Tensor ends;           ///< i32 [E]: where the rows of each expert end, in the sorted order
  Tensor order;          ///< i32 [n K]: the places (row K + choice) in the sorted order
  Tensor probabilities;  ///< [n, E]: softmax over all scores
};
/// Chooses the K best experts of each row. Shapes: scores [n, E]. Errors: ShapeError; UsageError unless 1 <= K <= E.
/// Gradient: to weights and probabilities; choices have none.
[[nodiscard]] Routing route(const Tensor& scores, Extent top_k, Where where = Where::current());
/// E sum_e f_e P_e, with f_e the share of the choices that fell on expert e and P_e the mean probability of e: 1 where the
/// experts have equal shares, E where one has all. Gradient: to the probabilities.
/// Source  Fedus, Zoph and Shazeer 2021, arXiv:2101.03961
[[nodiscard]] Tensor balance_loss(const Routing& routing, Where where = Where::current());

struct MixtureResult {
  Tensor output;        ///< as the input
  Tensor balance_loss;  ///< a scalar, to be added to the loss times a small factor such as 0.01
  Routing routing;
};
/// y = sum over the K chosen experts of w_e down_e(silu(gate_e x) * up_e x). A router (Linear without bias) scores the experts;
/// each expert's products take the rows that chose it in one grouped product, so time and memory grow with K and not with E.
/// Parameters: router.weight [E, C]; gates, ups [E, H, C]; downs [E, C, H], uniform in +-1/sqrt(inputs).
/// Shapes: x [..., C] -> [..., C]. The gradient reaches the router through the weights.
class Mixture : public Module {
 public:
  /// Errors: ShapeError for an extent below 1; UsageError unless 1 <= top_k <= experts.
  Mixture(Extent width, Extent hidden, Extent experts, MixtureOptions options = {});
  MixtureResult forward(const Tensor& x, Where where = Where::current()) const;
  /// The output of `forward`; hooks of the module run here.
  Tensor operator()(const Tensor& x, Where where = Where::current()) const {
    return with_hooks(x, [&](const Tensor& given) { return forward(given, where).output; });
  }
  std::string describe() const override;
  double own_flops() const override;

 private:
  Extent width_, hidden_, experts_, top_k_;
  Child<Linear> router_;
  Parameter gates_, ups_, downs_;
};

}  // namespace weft::nn
