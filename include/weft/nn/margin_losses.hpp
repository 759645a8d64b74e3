// Losses of pairs and distributions, and losses with margins. Formulas are for single elements; `reduction` combines them.
// Predictions are floats, and shapes are equal unless a loss says otherwise (ShapeError).
#pragma once

#include <functional>

#include "weft/nn/losses.hpp"

namespace weft::nn {

/// d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, with d = prediction - target; beta 0 is |d|.
Tensor smooth_l1(const Tensor& prediction, const Tensor& target, double beta = 1, Reduction reduction = Reduction::mean,
                 Where where = Where::current());
/// t (ln t - x), where x is the logarithm of a probability and t a probability, or with `log_target` its logarithm.
/// `batch_mean` divides the sum by the first extent, as in the definition of the divergence.
struct KlOptions {
  bool log_target = false, batch_mean = false;
  Reduction reduction = Reduction::mean;
};
Tensor kl_div(const Tensor& log_probabilities, const Tensor& target, const KlOptions& options = {},
              Where where = Where::current());
/// e^x - t x, or x - t ln(x + eps) where x is not a logarithm; `full` adds Stirling's estimate of ln t! for t > 1.
struct PoissonOptions {
  bool log_input = true, full = false;
  double eps = 1e-8;
  Reduction reduction = Reduction::mean;
};
Tensor poisson_nll(const Tensor& prediction, const Tensor& target, const PoissonOptions& options = {},
                   Where where = Where::current());
/// (ln v + (x - t)^2 / v) / 2 with v = max(variance, eps), through which the gradient passes; `full` adds ln(2 pi) / 2.
Tensor gaussian_nll(const Tensor& prediction, const Tensor& target, const Tensor& variance, bool full = false,
                    double eps = 1e-6, Reduction reduction = Reduction::mean, Where where = Where::current());
/// x where the target is 1, max(0, margin - x) where it is -1.
Tensor hinge_embedding(const Tensor& x, const Tensor& target, double margin = 1, Reduction reduction = Reduction::mean,
                       Where where = Where::current());
/// max(0, margin - target (x - y)) for targets 1 (x should be larger) and -1.
Tensor margin_ranking(const Tensor& x, const Tensor& y, const Tensor& target, double margin = 0,
                      Reduction reduction = Reduction::mean, Where where = Where::current());
/// ln(1 + e^(-target x)) for targets 1 and -1.
Tensor soft_margin(const Tensor& x, const Tensor& target, Reduction reduction = Reduction::mean,
                   Where where = Where::current());
/// The mean over the last axis of the binary cross-entropies of logits with targets in [0, 1].
Tensor multilabel_soft_margin(const Tensor& logits, const Tensor& targets, Reduction reduction = Reduction::mean,
                              Where where = Where::current());
/// sum over c other than t of max(0, margin - x_t + x_c)^p / classes. Shapes: x [..., classes], targets integers [...].
Tensor multi_margin(const Tensor& x, const Tensor& targets, double p = 1, double margin = 1,
                    Reduction reduction = Reduction::mean, Where where = Where::current());
/// 1 - cos(x, y) where the target is 1, max(0, cos(x, y) - margin) where it is -1. Shapes: x, y [..., D], target [...].
Tensor cosine_embedding(const Tensor& x, const Tensor& y, const Tensor& target, double margin = 0,
                        Reduction reduction = Reduction::mean, Where where = Where::current());
/// max(0, |a - p| - |a - n| + margin) over the last axis, with (sum |d + eps|^p)^(1/p) as the distance of a row. `swap` uses |p
/// - n| instead of |a - n| where it is smaller. Shapes: three of [..., D].
struct TripletOptions {
  double margin = 1, p = 2, eps = 1e-6;
  bool swap = false;
  Reduction reduction = Reduction::mean;
};
Tensor triplet_margin(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                      const TripletOptions& options = {}, Where where = Where::current());

/// The distance of each row of the second tensor from that of the first: one number a row.
using Distance = std::function<Tensor(const Tensor&, const Tensor&)>;
struct TripletDistanceOptions {
  Distance distance = {};  ///< none: pairwise_distance of p = 2
  double margin = 1;
  bool swap = false;
  Reduction reduction = Reduction::mean;
};
/// max(0, d(a, p) - d(a, n) + margin) with a distance of your own; `swap` uses d(p, n) instead of d(a, n) where it is smaller.
/// Shapes    three that the distance takes. Errors: ShapeError for distances of two pairs that do not broadcast
Tensor triplet_margin_with_distance(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                    const TripletDistanceOptions& options = {}, Where where = Where::current());

}  // namespace weft::nn
