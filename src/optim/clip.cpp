// Gradients as a whole: norms and clipping.
#include <fmt/format.h>

#include <algorithm>

#include "optim/flat.hpp"
#include "weft/ops.hpp"
#include "weft/optim/optimizer.hpp"

namespace weft::optim {

Tensor sum_of_squares(const Tensor& x) { return sum(elementwise("square", {x})); }

Tensor clip_factor(const Tensor& norm, double max_norm) {
  if (!(max_norm > 0))
    throw UsageError(fmt::format("clip_grad_norm: the largest norm is {}; it must be above 0", max_norm));
  return elementwise("minimum", {scalar_like(max_norm, norm) / (norm + 1e-6), scalar_like(1, norm)});
}

Clipped clip_grad_norm(std::span<const Tensor> gradients, double max_norm) {
  if (gradients.empty()) throw UsageError("clip_grad_norm: no gradients");
  std::vector<Tensor> flat;
  for (const Tensor& g : gradients) flat.push_back(reshape(g, {g.numel()}));
  const Tensor norm = elementwise("sqrt", {sum_of_squares(concat(flat, 0))});
  const Tensor factor = clip_factor(norm, max_norm);
  Clipped clipped{{}, norm};
  for (const Tensor& g : gradients) clipped.gradients.push_back(g * factor);
  return clipped;
}

std::vector<Tensor> normalize_gradients(std::span<const Tensor> gradients) {
  std::vector<Tensor> result;
  for (const Tensor& g : gradients) result.push_back(g / (elementwise("sqrt", {sum_of_squares(g)}) + 1e-8));
  return result;
}

}  // namespace weft::optim
