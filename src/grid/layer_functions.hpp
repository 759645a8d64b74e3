// The functions of layers over the public ops, so that gradients, fusion and all devices follow.
#pragma once

#include <span>
#include <vector>

#include "weft/grid/description.hpp"
#include "weft/tensor.hpp"

namespace weft::grid {

/// Width of keys and values: key heads times the width of a head.
Extent key_width(const Layer& layer);
/// Axes of space of a convolution; 0 for other types.
int axes_of_space(LayerType type);

// Results before the activation. `w` are the parameters in the order of storage. Errors: ShapeError for an x that does not fit.
using Weights = std::span<const Tensor>;
Tensor dense(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor self_attention(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor gated_unit(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor root_mean_square_norm(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor mean_variance_norm(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor convolution(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor transposed_convolution(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor recurrent(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor long_short_term_memory(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor embedded(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor assignment(const Layer& layer, Weights w, const Tensor& x, Where where);
Tensor any_softmax(const Layer& layer, Weights w, const Tensor& x, Where where);

/// What a layer keeps of the steps of sequences that it has read, for the steps that follow.
struct StepState {
  Extent position = 0;       ///< steps read so far
  std::vector<Tensor> kept;  ///< attention: rotated keys, and values, that later steps see; rnn: h; lstm: h and c
};
// The same for steps that follow those of `state`, which is then that of all of them.
Tensor self_attention_steps(const Layer& layer, Weights w, const Tensor& x, StepState& state, Where where);
Tensor recurrent_steps(const Layer& layer, Weights w, const Tensor& x, StepState& state, Where where);
Tensor long_short_term_memory_steps(const Layer& layer, Weights w, const Tensor& x, StepState& state, Where where);

Tensor activate(Activation activation, const Tensor& x, Where where);

/// alpha-entmax along the last axis for alpha in (1, 2): p = max((alpha - 1) x - t, 0)^(1 / (alpha - 1)) with t such that p adds up
/// to 1. Gradient: s (g - sum(s g) / sum(s)) with s = p^(2 - alpha) where p > 0, else 0.
/// Source: Peters, Niculae and Martins 2019, arXiv:1905.05702.
Tensor entmax(const Tensor& x, double alpha, Where where);

}  // namespace weft::grid
