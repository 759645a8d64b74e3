// Helpers that rows of losses share.
#pragma once

#include "graph/op.hpp"
#include "weft/nn/losses.hpp"
#include "weft/ops.hpp"

namespace weft::graph {

template <class S>
AttributeSpec reduction_field() {
  return field("reduction", &S::reduction, "of the losses of single elements", {.choices = {"mean", "sum", "none"}});
}

inline Tensor reduced(const Tensor& values, nn::Reduction reduction) {
  if (reduction == nn::Reduction::none) return values;
  return reduction == nn::Reduction::sum ? sum(values) : mean(values);
}

inline Result reduced_like(DType type, const Shape& shape, nn::Reduction reduction) {
  return {type, reduction == nn::Reduction::none ? shape : Shape{}};
}

}  // namespace weft::graph
