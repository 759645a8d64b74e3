// Losses, steps of optimisers, and the choice of boxes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "onnx/apply.hpp"
#include "weft/ops/indexing.hpp"

namespace weft::onnx {
namespace {

using A = Application;

// -weight[t] x[n, t, ..] at the targets t [N, ..] of x [N, C, ..], reduced. Targets that are ignored count nowhere.
Tensor likelihood_loss(A& a, const Tensor& x, std::size_t target_at, std::size_t weight_at) {
  const Tensor target = cast(a[target_at], DType::i32);
  if (x.rank() != target.rank() + 1) a.shape_error("targets do not fit");
  Tensor chosen = target, counted;
  if (a.attribute("ignore_index")) {
    counted = ne(target, static_cast<double>(a.integer("ignore_index")));
    chosen = where(counted, target, zeros_like(target));
  }
  Tensor loss = -squeeze(gather(x, 1, unsqueeze(chosen, 1)), 1);
  Tensor weights;
  if (a.has(weight_at)) weights = reshape(index_select(a[weight_at], 0, flatten(chosen)), chosen.shape());
  if (counted.defined()) weights = (weights.defined() ? weights : ones_like(loss)) * cast(counted, x.dtype());
  if (weights.defined()) loss = loss * weights;
  const std::string_view reduction = a.word("reduction", "mean");
  if (reduction == "none") return loss;
  if (reduction == "sum") return sum(loss);
  if (reduction != "mean") a.usage_error(fmt::format("unknown reduction {}", reduction));
  return weights.defined() ? sum(loss) / sum(weights) : mean(loss);
}
void negative_likelihood(A& a) { a.give(likelihood_loss(a, a[0], 1, 2)); }
void cross_entropy_of(A& a) {
  const Tensor logs = log_softmax(a[0], 1);
  a.give(0, likelihood_loss(a, logs, 1, 2));
  a.give(1, logs);
}

// ---- Steps of optimisers: inputs are R, T, then each kind of tensor for all parameters --------------------------------

std::size_t parameters_of(const A& a, std::size_t kinds) {
  if (a.input_count() < 2 || (a.input_count() - 2) % kinds) a.usage_error("the number of inputs does not fit");
  return (a.input_count() - 2) / kinds;
}
Tensor regular(const A& a, const Tensor& x, const Tensor& g) { return g + x * a.number("norm_coefficient", 0); }

void adagrad(A& a) {
  const std::size_t n = parameters_of(a, 3);
  const Tensor rate = a[0] / (cast(a[1], a[0].dtype()) * a.number("decay_factor", 0) + 1.0);
  for (std::size_t i = 0; i < n; ++i) {
    const Tensor& x = a[2 + i];
    const Tensor g = regular(a, x, a[2 + n + i]), h = a[2 + 2 * n + i] + square(g);
    a.give(i, x - rate * g / (sqrt(h) + a.number("epsilon", 1e-6f)));
    a.give(n + i, h);
  }
}
void momentum_step(A& a) {
  const std::size_t n = parameters_of(a, 3);
  const double alpha = a.number("alpha", 0), beta = a.number("beta", 0);
  const Tensor share =
      where(gt(a[1], 0.0), full({}, beta, a[0].dtype(), a.device()), full({}, 1, a[0].dtype(), a.device()));
  const bool nesterov = a.word("mode", "standard") == "nesterov";
  for (std::size_t i = 0; i < n; ++i) {
    const Tensor& x = a[2 + i];
    const Tensor g = regular(a, x, a[2 + n + i]), v = a[2 + 2 * n + i] * alpha + share * g;
    a.give(i, x - a[0] * (nesterov ? g + v * alpha : v));
    a.give(n + i, v);
  }
}
void adam_step(A& a) {
  const std::size_t n = parameters_of(a, 4);
  const double alpha = a.number("alpha", 0.9f), beta = a.number("beta", 0.999f);
  const Tensor t = cast(a[1], a[0].dtype());
  const Tensor rate = where(gt(t, 0.0), a[0] * sqrt(1.0 - pow(beta, t)) / (1.0 - pow(alpha, t)), a[0]);
  for (std::size_t i = 0; i < n; ++i) {
    const Tensor& x = a[2 + i];
    const Tensor g = regular(a, x, a[2 + n + i]);
    const Tensor v = a[2 + 2 * n + i] * alpha + g * (1 - alpha), h = a[2 + 3 * n + i] * beta + square(g) * (1 - beta);
    const Tensor next = x - rate * v / (sqrt(h) + a.number("epsilon", 1e-6f));
    a.give(i, next * (1 - a.number("norm_coefficient_post", 0)));
    a.give(n + i, v);
    a.give(2 * n + i, h);
  }
}

// ---- Boxes -----------------------------------------------------------------------------------------------------------------

// Of boxes that overlap the one with the best score, for each image and class. On the host: their number depends on values.
void suppress_boxes(A& a) {
  const std::vector<double> boxes = a.numbers_of(0), scores = a.numbers_of(1);
  const Shape &b = a[0].shape(), &s = a[1].shape();
  if (b.rank() != 3 || s.rank() != 3 || b[2] != 4 || s[0] != b[0] || s[2] != b[1])
    a.shape_error("boxes and scores do not fit");
  const Extent most = a.has(2) ? a.integer_of(2) : 0;
  const double overlap = a.has(3) ? a.number_of(3) : 0;
  const double least = a.has(4) ? a.number_of(4) : -kInfinity;
  const bool centred = a.integer("center_point_box", 0) == 1;
  struct Box {
    double y1, x1, y2, x2;
    double area() const { return (y2 - y1) * (x2 - x1); }
  };
  const auto box = [&](Extent image, Extent i) {
    const double* p = boxes.data() + (image * b[1] + i) * 4;
    if (centred) return Box{p[1] - p[3] / 2, p[0] - p[2] / 2, p[1] + p[3] / 2, p[0] + p[2] / 2};
    return Box{std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]), std::max(p[1], p[3])};
  };
  const auto shared = [](const Box& p, const Box& q) {
    const double h = std::min(p.y2, q.y2) - std::max(p.y1, q.y1), w = std::min(p.x2, q.x2) - std::max(p.x1, q.x1);
    const double common = std::max(h, 0.0) * std::max(w, 0.0), all = p.area() + q.area() - common;
    return all > 0 ? common / all : 0;
  };
  std::vector<Extent> found;
  for (Extent image = 0; image < s[0]; ++image)
    for (Extent kind = 0; kind < s[1]; ++kind) {
      const double* score = scores.data() + (image * s[1] + kind) * s[2];
      std::vector<Extent> order;
      for (Extent i = 0; i < s[2]; ++i)
        if (score[i] > least) order.push_back(i);
      std::stable_sort(order.begin(), order.end(), [&](Extent i, Extent j) { return score[i] > score[j]; });
      std::vector<Box> kept;
      for (const Extent i : order) {
        if (static_cast<Extent>(kept.size()) >= most) break;
        const Box candidate = box(image, i);
        if (std::any_of(kept.begin(), kept.end(), [&](const Box& k) { return shared(k, candidate) > overlap; }))
          continue;
        kept.push_back(candidate);
        found.insert(found.end(), {image, kind, i});
      }
    }
  a.give(a.make(found, {static_cast<Extent>(found.size() / 3), 3}));
}

constexpr Operator kLossOperators[] = {
    {"NegativeLogLikelihoodLoss", negative_likelihood},
    {"SoftmaxCrossEntropyLoss", cross_entropy_of},
    {"Adagrad", adagrad},
    {"Momentum", momentum_step},
    {"Adam", adam_step},
    {"NonMaxSuppression", suppress_boxes},
};

}  // namespace

std::span<const Operator> loss_operators() { return kLossOperators; }

}  // namespace weft::onnx
