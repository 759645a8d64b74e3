// Recurrent networks: layers of cells along a sequence, with the parameter names and gate orders of PyTorch.
#pragma once

#include <string>
#include <vector>

#include "weft/nn/module.hpp"
#include "weft/ops/recurrent.hpp"

namespace weft::nn {

struct RecurrentOptions {
  Extent layers = 1;
  bool bias = true;
  bool batch_first = false;    ///< x is [N, T, I], not [T, N, I], and so is the output
  bool bidirectional = false;  ///< each layer reads the sequence in both directions, and its two outputs are joined
  double dropout = 0;          ///< between layers, while training
  bool relu = false;           ///< of RNN: max(., 0) in place of tanh
};
/// The results of a recurrent network: the last layer's h of each step [T, N, directions H], and the last state of each layer
/// and direction [layers directions, N, H]; `c` is for LSTMs.
using RecurrentResult = RecurrentStates;

/// Parameters of layer l: weight_ih_l0 [gates H, I or directions H], weight_hh_l0 [gates H, H], bias_ih_l0, bias_hh_l0 [gates
/// H], uniform in +-1/sqrt(H); the backward direction has the same names with "_reverse" appended.
class Recurrent : public Module {
 public:
  std::string describe() const override;

  bool runs_hooks() const override { return false; }

 protected:
  enum class Cell { rnn, gru, lstm };
  /// Errors: ShapeError for an extent below 1; UsageError unless 0 <= dropout < 1.
  Recurrent(Cell cell, Extent inputs, Extent width, RecurrentOptions options);
  /// Undefined first states are zeros.
  RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& lengths, Where where) const;

 private:
  Cell cell_;
  Extent inputs_, width_;
  RecurrentOptions options_;
  std::vector<Parameter> weights_;  // of each layer and direction: those of the input, of h, and the biases
};

// `lengths` are the steps of each sequence of a padded batch, integers [N] in any order (PyTorch's packed sequences): outputs
// after a sequence's last step are zeros, the last states are those of its last step, and the way back begins there.

class RNN : public Recurrent {
 public:
  RNN(Extent inputs, Extent width, RecurrentOptions options = {}) : Recurrent(Cell::rnn, inputs, width, options) {}
  RecurrentResult operator()(const Tensor& x, const Tensor& h = {}, const Tensor& lengths = {},
                             Where where = Where::current()) const {
    return run(x, h, {}, lengths, where);
  }
};
class GRU : public Recurrent {
 public:
  GRU(Extent inputs, Extent width, RecurrentOptions options = {}) : Recurrent(Cell::gru, inputs, width, options) {}
  RecurrentResult operator()(const Tensor& x, const Tensor& h = {}, const Tensor& lengths = {},
                             Where where = Where::current()) const {
    return run(x, h, {}, lengths, where);
  }
};
class LSTM : public Recurrent {
 public:
  LSTM(Extent inputs, Extent width, RecurrentOptions options = {}) : Recurrent(Cell::lstm, inputs, width, options) {}
  RecurrentResult operator()(const Tensor& x, const Tensor& h = {}, const Tensor& c = {}, const Tensor& lengths = {},
                             Where where = Where::current()) const {
    return run(x, h, c, lengths, where);
  }
};

}  // namespace weft::nn
