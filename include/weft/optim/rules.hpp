// Update rules: the options of each and its formula. In formulas g is the gradient (with `maximize` times -1), p the parameter, t the
// number of the update from 1, rate the learning rate, and ' marks values of Adam that are corrected for their start at 0.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "weft/optim/base.hpp"

namespace weft::optim {

/// Parameters with options of their own, such as those of a head that learns faster.
template <class Options>
struct ParameterGroup {
  ParameterList parameters;
  Options options = {};
};

/// The optimiser of a rule's options. Each rule below is one of these.
///
/// Errors  UsageError: an option outside of its range, no parameters, or one parameter twice.
template <class Options>
class RuleOptimizer final : public Optimizer {
 public:
  explicit RuleOptimizer(ParameterList parameters, Options options = {})
      : RuleOptimizer(std::vector<ParameterGroup<Options>>{{std::move(parameters), std::move(options)}}) {}
  /// Several groups, each with its options. The learning rate of `step` and set_learning_rate is that of the first group, and
  /// those of the others keep their ratio to it. Gradients are clipped by the first group's norm, over all parameters.
  explicit RuleOptimizer(std::vector<ParameterGroup<Options>> groups);
  void set_group_option(std::size_t group, const std::string& name, OptionValue value) override;

 private:
  void update(Group& group, const Tensor& gradient, const Tensor& learning_rate, const Tensor& step) override;
  std::vector<Options> options_;
};

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double weight_decay = 0;  // added to the gradient (L2)
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// g = gradient + weight_decay * p; b = momentum * b + (1 - dampening) * g (the first time: b = g); d = g + momentum * b if
/// nesterov, else b (without momentum: g); p = p - rate * d. State: momentum_buffer (b).
using SGD = RuleOptimizer<SgdOptions>;

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // added to the gradient (L2)
  bool amsgrad = false;
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p = p - rate * m' / (sqrt(v') + epsilon), with m' = m / (1 - b1^t) and
/// v' = v / (1 - b2^t). amsgrad takes the largest v so far. weight_decay * p is added to the gradient (L2).
/// State: exp_avg (m), exp_avg_sq (v), max_exp_avg_sq. Sources: Kingma and Ba 2014, arXiv:1412.6980; Reddi et al. 2018,
/// arXiv:1904.09237.
using Adam = RuleOptimizer<AdamOptions>;

struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // decoupled
  bool amsgrad = false;
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// Adam, but parameters that decay are multiplied by 1 - rate * weight_decay instead (decoupled decay).
/// Source: Loshchilov and Hutter 2017, arXiv:1711.05101.
using AdamW = RuleOptimizer<AdamWOptions>;

struct RMSpropOptions {
  double learning_rate = 1e-2;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double momentum = 0;
  bool centered = false;
  double weight_decay = 0;  // added to the gradient (L2)
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// v = alpha v + (1 - alpha) g^2; centered: a = alpha a + (1 - alpha) g and v' = v - a^2, else v' = v; d = g / (sqrt(v') + epsilon);
/// with momentum: b = momentum b + d and d = b; p = p - rate * d. State: square_avg (v), momentum_buffer (b), grad_avg (a).
/// Sources: Tieleman and Hinton 2012, lecture 6.5 of Neural Networks for Machine Learning; Graves 2013, arXiv:1308.0850.
using RMSprop = RuleOptimizer<RMSpropOptions>;

struct AdagradOptions {
  double learning_rate = 1e-2;
  double rate_decay = 0;
  double initial_accumulator = 0;
  double epsilon = 1e-10;
  double weight_decay = 0;  // added to the gradient (L2)
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// s = s + g^2, which begins with initial_accumulator; p = p - rate / (1 + (t - 1) rate_decay) * g / (sqrt(s) + epsilon).
/// State: sum (s). Source: Duchi, Hazan and Singer 2011, Journal of Machine Learning Research 12.
using Adagrad = RuleOptimizer<AdagradOptions>;

struct AdadeltaOptions {
  double learning_rate = 1;
  double rho = 0.9;
  double epsilon = 1e-6;
  double weight_decay = 0;  // added to the gradient (L2)
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// v = rho v + (1 - rho) g^2; d = sqrt(u + epsilon) / sqrt(v + epsilon) * g; u = rho u + (1 - rho) d^2; p = p - rate * d.
/// State: square_avg (v), acc_delta (u). Source: Zeiler 2012, arXiv:1212.5701.
using Adadelta = RuleOptimizer<AdadeltaOptions>;

struct AdamaxOptions {
  double learning_rate = 2e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // added to the gradient (L2)
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// m = b1 m + (1 - b1) g; u = max(b2 u, |g| + epsilon); p = p - rate / (1 - b1^t) * m / u. State: exp_avg (m), exp_inf (u).
/// Source: Kingma and Ba 2014, arXiv:1412.6980, section 7.
using Adamax = RuleOptimizer<AdamaxOptions>;

struct NAdamOptions {
  double learning_rate = 2e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double momentum_decay = 4e-3;
  bool decoupled = false;  // decay as AdamW, not L2
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// Adam with Nesterov's momentum: mu_t = b1 (1 - 0.96^(t momentum_decay) / 2), P = mu_1 ... mu_t, p = p - rate * ((1 - mu_t) g / (1 - P)
/// + mu_(t+1) m / (1 - P mu_(t+1))) / (sqrt(v') + epsilon). State: mu_product (P), exp_avg (m), exp_avg_sq (v).
/// Source: Dozat 2016, Incorporating Nesterov Momentum into Adam.
using NAdam = RuleOptimizer<NAdamOptions>;

struct RAdamOptions {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // decay as AdamW, not L2
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// Adam with a rectified rate: r_inf = 2 / (1 - b2) - 1, r = r_inf - 2 t b2^t / (1 - b2^t); if r > 5, p = p - rate * m' * sqrt(((r - 4)
/// (r - 2) r_inf) / ((r_inf - 4) (r_inf - 2) r)) * sqrt(1 - b2^t) / (sqrt(v) + epsilon), else p = p - rate * m'.
/// State: exp_avg (m), exp_avg_sq (v). Source: Liu et al. 2019, arXiv:1908.03265.
using RAdam = RuleOptimizer<RAdamOptions>;

struct ASGDOptions {
  double learning_rate = 1e-2;
  double lambd = 1e-4;
  double alpha = 0.75;
  double averaging_start = 1e6;  // the step after which the mean is taken
  double weight_decay = 0;       // added to the gradient (L2)
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// n = rate / (1 + lambd rate (t - 1))^alpha; p = (1 - lambd n) p - n g; the mean of the parameters from averaging_start on is in the
/// state: a = a + (p - a) / max(1, t - 1 - averaging_start). State: ax (a).
/// Source: Polyak and Juditsky 1992, SIAM Journal on Control and Optimization 30.
using ASGD = RuleOptimizer<ASGDOptions>;

struct RpropOptions {
  double learning_rate = 1e-2;
  double shrink = 0.5;
  double grow = 1.2;
  double least_step = 1e-6;
  double largest_step = 50;
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// Each element has a step size s, which begins with the learning rate of the first update: s = s * grow where the gradient keeps its
/// sign, and s * shrink where it changes, which also leaves that update out; s stays in [least_step, largest_step];
/// p = p - sign(g) * s. For whole batches. State: prev (the last gradient), step_size (s).
/// Source: Riedmiller and Braun 1993, A direct adaptive method for faster backpropagation learning.
using Rprop = RuleOptimizer<RpropOptions>;

struct LionOptions {
  double learning_rate = 1e-4;
  double beta_1 = 0.9;
  double beta_2 = 0.99;
  double weight_decay = 0;  // decoupled
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// p = p (1 - rate * weight_decay) - rate * sign(b1 m + (1 - b1) g); m = b2 m + (1 - b2) g. State: exp_avg (m).
/// Source: Chen et al. 2023, arXiv:2302.06675.
using Lion = RuleOptimizer<LionOptions>;

struct AdafactorOptions {
  double learning_rate = 1e-2;
  double beta_2_decay = -0.8;
  double epsilon_1 = 0;  // 0: the distance from 1 to the next number of the dtype
  double epsilon_2 = 1e-3;
  double clip_threshold = 1;
  double weight_decay = 0;  // decoupled
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// w = t^beta_2_decay. For parameters of rank 2 and above, rows r and columns c of the mean squares of g over the last axis and the one
/// before it are kept in place of v: r = r + w (mean_j g_ij^2 - r), c = c + w (mean_i g_ij^2 - c), v_ij = r_i c_j / max(mean(r), epsilon_1);
/// others keep v = v + w (g^2 - v). u = g / sqrt(max(v, epsilon_1^2)); p = p (1 - rate * weight_decay) - min(rate, 1 / sqrt(t)) *
/// max(epsilon_2, rms(p)) * u / max(1, rms(u) / clip_threshold), where p in rms is that before the decay. State: row_var (r), col_var (c), variance (v).
/// Source: Shazeer and Stern 2018, arXiv:1804.04235.
using Adafactor = RuleOptimizer<AdafactorOptions>;

struct LAMBOptions {
  double learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;  // part of the direction, see below
  bool maximize = false;
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// For each parameter: d = m' / (sqrt(v') + epsilon) + weight_decay * p with Adam's m' and v'; p = p - rate * |p| / |d| * d, where a norm is 0:
/// p = p - rate * d. State: exp_avg (m), exp_avg_sq (v). Source: You et al. 2019, arXiv:1904.00962.
using LAMB = RuleOptimizer<LAMBOptions>;

struct MuonOptions {
  double learning_rate = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  double epsilon = 1e-7;
  Extent iterations = 5;
  double weight_decay = 0.1;  // decoupled
  bool match_adamw = true;
  double beta_1 = 0.9;
  double beta_2 = 0.95;
  double adam_epsilon = 1e-8;
  bool maximize = false;
  std::function<bool(std::string_view)> matrix_filter = {};  // chooses by name among parameters of rank 2 and above
  double clip_norm = 0;
  std::function<bool(std::string_view)> decay_filter = {};
};
/// Matrices move along the nearest orthogonal matrix of their momentum: b = momentum b + (1 - momentum) g; d = (1 - momentum) g + momentum b
/// if nesterov, else b; o = five steps x = 3.4445 x - 4.775 (x x^T) x + 2.0315 (x x^T)^2 x from x = d / max(|d|, epsilon);
/// p = p (1 - rate * weight_decay) - rate * f * o, for a matrix of m rows and n columns with f = 0.2 sqrt(max(m, n)) if match_adamw, which gives
/// updates the size of AdamW's, else sqrt(max(1, m / n)). Parameters of rank 3 and above are matrices of their first axis and the rest.
/// Parameters of rank 0 and 1, and those that matrix_filter leaves out (embeddings and heads, as the paper does), are updated by AdamW with
/// the same rate and decay, beta_1, beta_2 and adam_epsilon. State: momentum_buffer (b); exp_avg and exp_avg_sq of the others.
/// Sources: Jordan et al. 2024, Muon: An optimizer for hidden layers in neural networks; Liu et al. 2025, arXiv:2502.16982.
using Muon = RuleOptimizer<MuonOptions>;

}  // namespace weft::optim
