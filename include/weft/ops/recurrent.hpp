// Recurrent layers: a cell applied step by step along the first axis.
#pragma once

#include "weft/tensor.hpp"

namespace weft {

/// The results of a recurrent layer: h of each step [T, N, H], and the state after the last step [N, H]. `c` is for LSTMs.
struct RecurrentStates {
  Tensor output, h, c;
};
struct RecurrentWeights {
  Tensor input;        ///< [gates H, I]
  Tensor hidden;       ///< [gates H, H]
  Tensor input_bias;   ///< [gates H] or undefined; give both biases or none
  Tensor hidden_bias;  ///< the same
  /// Integers [N]: the steps of each sequence, or undefined if all have T. After its last step a sequence gives zeros, and its
  /// state stays. With `reverse` it begins at its own last step.
  Tensor lengths = {};
};

// All take x [T, N, I] and first states [N, H]. Products with x are one product for all steps; then one kernel takes the states
// through all steps, and another one takes gradients back, on the CPU and on GPUs: a plan does not grow with T. `reverse` goes from
// the last step to the first. Dtypes: floats; states of f16 and bf16 are in f32 between the steps. Errors: ShapeError for operands that
// do not fit, and for no steps; DTypeError.

/// h = tanh(Wi x + bi + Wh h + bh), or with `relu` max(., 0) in place of tanh.
[[nodiscard]] RecurrentStates rnn(const Tensor& x, const Tensor& h, const RecurrentWeights& weights, bool relu = false,
                                  bool reverse = false, Where where = Where::current());
/// r, z = sigmoid(.), n = tanh(Win x + bin + r (Whn h + bhn)), h = (1 - z) n + z h. Gates in the order r, z, n.
/// Source    Cho et al. 2014, arXiv:1406.1078
[[nodiscard]] RecurrentStates gru(const Tensor& x, const Tensor& h, const RecurrentWeights& weights,
                                  bool reverse = false, Where where = Where::current());
/// i, f, o = sigmoid(.), g = tanh(.), c = f c + i g, h = o tanh(c). Gates in the order i, f, g, o.
/// Source    Hochreiter and Schmidhuber 1997, "Long short-term memory"
[[nodiscard]] RecurrentStates lstm(const Tensor& x, const Tensor& h, const Tensor& c, const RecurrentWeights& weights,
                                   bool reverse = false, Where where = Where::current());

}  // namespace weft
