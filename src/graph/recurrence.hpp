// Recurrent cells along a sequence, as one call that devices have kernels for, and its gradient.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

enum class RecurrentCell { rnn, relu_rnn, gru, lstm };

struct RecurrenceAttributes {
  RecurrentCell cell = RecurrentCell::lstm;
  bool reverse = false;  // from the last step to the first
  bool bias = false;     // of a GRU: one is given for its products with h
  bool lengths = false;  // the steps of each sequence are given; a state stays as it is after the last
  bool d_c = false;      // backward: a gradient of c is given
};

/// Gates of a cell, which is also the number of rows of its weight for each channel.
inline Extent gates_of(RecurrentCell cell) {
  return cell == RecurrentCell::gru ? 3 : cell == RecurrentCell::lstm ? 4 : 1;
}

/// The operands of the two calls by name; those that a cell does not have are undefined.
struct Recurrence {
  Tensor gates;    // [T, N, gates H]: the products with x, and all biases but that of a GRU
  Tensor h, c;     // [N, H], the first states; c of an LSTM
  Tensor weight;   // [gates H, H]
  Tensor bias;     // [3 H]
  Tensor lengths;  // i32 [N]
};
struct RecurrenceBackward {
  Tensor all_h;  // [T, N, H], the first result
  Tensor all_c;  // [T, N, H], the second of an LSTM
  Tensor saved;  // [T, N, 4 H], the last of a GRU and an LSTM
  Tensor h, c, weight, lengths;
  Tensor d_h, d_c;  // [T, N, H]
};
Recurrence recurrence_of(const Call& call);
RecurrenceBackward recurrence_backward_of(const Call& call);

/// Results: h after each step; of an LSTM also c after each step; of a GRU (r, z, n, and what r multiplies) and an LSTM (i, f, g,
/// o) the gates, 0 after a sequence's last step.
const OpRow& recurrence_row();
/// Results: gradients of `gates` and of h; of a GRU that of the products with h [T, N, 3 H]; of an LSTM that of c.
const OpRow& recurrence_backward_row();

}  // namespace weft::graph
