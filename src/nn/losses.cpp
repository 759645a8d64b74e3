#include "weft/nn/losses.hpp"

#include <fmt/format.h>

#include "weft/ops.hpp"

namespace weft::nn {
namespace {

Tensor reduced(const Tensor& values, Reduction reduction) {
  if (reduction == Reduction::none) return values;
  return reduction == Reduction::sum ? sum(values) : mean(values);
}

// Losses do not broadcast: [n, 1] beside [n] would silently compare all pairs.
void require_equal_shapes(const char* loss, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape())
    throw ShapeError(fmt::format(
        "{}: the shapes of prediction and target differ; reshape one of them\n  prediction  {} {}\n  target      {} {}",
        loss, name_of(a.dtype()), a.shape().to_string(), name_of(b.dtype()), b.shape().to_string()));
}

}  // namespace

Tensor mse(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  require_equal_shapes("mse", prediction, target);
  return reduced(elementwise("square", {prediction - target}), reduction);
}

Tensor l1(const Tensor& prediction, const Tensor& target, Reduction reduction) {
  require_equal_shapes("l1", prediction, target);
  return reduced(elementwise("abs", {prediction - target}), reduction);
}

Tensor huber(const Tensor& prediction, const Tensor& target, double delta, Reduction reduction) {
  require_equal_shapes("huber", prediction, target);
  if (!(delta > 0)) throw UsageError(fmt::format("huber: delta {} must be above 0", delta));
  const Tensor d = prediction - target, size = elementwise("abs", {d});
  return reduced(elementwise("where", {size < scalar_like(delta, size), elementwise("square", {d}) * 0.5,
                                       (size - delta / 2) * delta}),
                 reduction);
}

Tensor binary_cross_entropy(const Tensor& logits, const Tensor& targets, Reduction reduction) {
  require_equal_shapes("binary_cross_entropy", logits, targets);
  const Tensor tail = elementwise("log1p", {elementwise("exp", {-elementwise("abs", {logits})})});
  return reduced(elementwise("relu", {logits}) - logits * targets + tail, reduction);
}

Tensor nll(const Tensor& log_probabilities, const Tensor& targets, Reduction reduction) {
  if (log_probabilities.rank() != targets.rank() + 1)
    throw ShapeError(fmt::format("nll: log_probabilities {} must have one axis more than targets {}",
                                 log_probabilities.shape().to_string(), targets.shape().to_string()));
  return reduced(-squeeze(take_along_axis(log_probabilities, unsqueeze(targets, -1), -1), -1), reduction);
}

}  // namespace weft::nn
