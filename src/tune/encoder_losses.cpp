#include "tune/encoder_losses.hpp"

#include "weft/nn/losses.hpp"
#include "weft/ops.hpp"

namespace weft::tune {
namespace {

/// Rows of length 1.
Tensor normalized(const Tensor& rows) { return rows / maximum(sqrt(sum(rows * rows, {1}, {.keepdims = true})), 1e-12); }

/// Cosines of the first half of the rows with the second.
Tensor cosines(const Tensor& rows) {
  const Extent pairs = rows.dim(0) / 2;
  const Tensor all = normalized(rows);
  return sum(narrow(all, 0, 0, pairs) * narrow(all, 0, pairs, pairs), {1});
}

}  // namespace

Scored class_loss(const Tensor& scores, const Tensor& targets) {
  return {cross_entropy(scores, targets, -100), scores};
}

Scored label_loss(const Tensor& scores, const Tensor& targets) {
  return {nn::binary_cross_entropy(scores, targets), scores};
}

Scored value_loss(const Tensor& scores, const Tensor& targets) {
  return {nn::mse(reshape(scores, targets.shape()), targets), scores};
}

Scored ranking_loss(const Tensor& rows, Extent anchors, double scale) {
  const Tensor all = normalized(rows), candidates = narrow(all, 0, anchors, rows.dim(0) - anchors),
               scores = matmul(narrow(all, 0, 0, anchors), transpose(candidates));
  return {cross_entropy(scores * scale, arange(anchors, DType::i32, rows.device()), -100), scores};
}

Scored cosine_loss(const Tensor& rows, const Tensor& targets) {
  const Tensor made = cosines(rows);
  return {nn::mse(made, targets), made};
}

// The sum has a 1 beside the pairs that are ordered; the largest exponent is taken out of it.
Scored cosent_loss(const Tensor& rows, const Tensor& targets, double scale) {
  const Tensor made = cosines(rows), scaled = made * scale;
  const Tensor differences = unsqueeze(scaled, 1) - unsqueeze(scaled, 0),
               is_lower = less(unsqueeze(targets, 1), unsqueeze(targets, 0)),
               counted = where(is_lower, differences, full({1, 1}, -1e30, DType::f32, rows.device()));
  const Tensor most = maximum(amax(reshape(counted, {counted.shape().numel()}), {0}), 0.0);
  const Tensor total = exp(-most) + sum(exp(reshape(counted, {counted.shape().numel()}) - most), {0});
  return {most + log(total), made};
}

}  // namespace weft::tune
