#include "weft/nn/clustering.hpp"

#include <fmt/format.h>

#include "weft/ops.hpp"

namespace weft::nn {

Tensor gumbel_softmax(const Tensor& x, double temperature, bool hard, int axis, Where where) {
  if (!x.defined()) throw UsageError("gumbel_softmax: the tensor has no value");
  return weft::gumbel_softmax(x, rand(x.shape(), 0, 1, x.dtype(), where), temperature, hard, axis, where);
}

KMeans::KMeans(Extent inputs, Extent centres, double temperature, bool features)
    : temperature_(temperature),
      features_(features),
      centres_(parameter("centres", {centres, inputs}, Init::normal(1))) {
  if (inputs < 1 || centres < 1)
    throw ShapeError(fmt::format("k-means: {} inputs and {} centres; each is at least 1", inputs, centres));
}

Tensor KMeans::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) { return soft_kmeans(x, centres_, temperature_, features_, where); });
}

std::string KMeans::describe() const {
  return fmt::format("KMeans {} centres of {}", centres_.shape()[0], centres_.shape()[1]);
}

}  // namespace weft::nn
