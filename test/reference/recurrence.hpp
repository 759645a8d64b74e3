// The meaning of recurrent cells along a sequence and of their gradient, element by element in double.
#pragma once

#include <cmath>
#include <functional>

#include "compile/call_attributes.hpp"
#include "graph/recurrence.hpp"
#include "reference/values.hpp"

namespace weft::reference {

/// Reads the operands of a call one after another; those that are not given read as 0.
class RecurrenceOperands {
 public:
  using Element = std::function<double(Extent)>;
  RecurrenceOperands(const kernel::CallKernel& k, std::vector<Values>& buffers) : k_(k), buffers_(buffers) {}
  Element next(bool given = true) {
    if (!given) return [](Extent) { return 0.0; };
    const std::size_t at = at_++;
    return [this, at](Extent i) { return read(k_.reads[at], i, buffers_); };
  }

 private:
  const kernel::CallKernel& k_;
  std::vector<Values>& buffers_;
  std::size_t at_ = 0;
};

inline double logistic(double x) { return 1 / (1 + std::exp(-x)); }

inline void run_recurrence(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  using graph::RecurrentCell;
  const auto a = kernel::attributes_of<graph::RecurrenceAttributes>(k);
  const bool is_lstm = a.cell == RecurrentCell::lstm, is_gru = a.cell == RecurrentCell::gru;
  const Extent steps = k.shapes[0][0], batch = k.shapes[0][1], width = k.shapes[1][1], gates = graph::gates_of(a.cell);
  RecurrenceOperands in(k, buffers);
  const auto x = in.next(), first_h = in.next(), first_c = in.next(is_lstm), weight = in.next(), bias = in.next(a.bias),
             lengths = in.next(a.lengths);
  for (Extent n = 0; n < batch; ++n) {
    Values h, c;
    for (Extent i = 0; i < width; ++i) {
      h.push_back(first_h(n * width + i));
      c.push_back(first_c(n * width + i));
    }
    for (Extent s = 0; s < steps; ++s) {
      const Extent t = a.reverse ? steps - 1 - s : s, row = t * batch + n;
      const bool has = !a.lengths || static_cast<double>(t) < lengths(n);
      const Values before = h;
      for (Extent i = 0; i < width; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const auto from_x = [&](Extent gate) { return x(row * gates * width + gate * width + i); };
        const auto from_h = [&](Extent gate) {
          double sum = bias(gate * width + i);
          for (Extent j = 0; j < width; ++j)
            sum += weight((gate * width + i) * width + j) * before[static_cast<std::size_t>(j)];
          return sum;
        };
        double saved[4] = {};
        if (has && is_lstm) {
          for (const Extent gate : {0, 1, 2, 3}) {
            const double sum = from_x(gate) + from_h(gate);
            saved[gate] = gate == 2 ? std::tanh(sum) : logistic(sum);
          }
          c[at] = saved[1] * c[at] + saved[0] * saved[2];
          h[at] = saved[3] * std::tanh(c[at]);
        } else if (has && is_gru) {
          saved[0] = logistic(from_x(0) + from_h(0));
          saved[1] = logistic(from_x(1) + from_h(1));
          saved[3] = from_h(2);
          saved[2] = std::tanh(from_x(2) + saved[0] * saved[3]);
          h[at] = (1 - saved[1]) * saved[2] + saved[1] * before[at];
        } else if (has) {
          const double sum = from_x(0) + from_h(0);
          h[at] = a.cell == RecurrentCell::rnn ? std::tanh(sum) : std::max(sum, 0.0);
        }
        write(k.outs[0], row * width + i, h[at], buffers);
        if (is_lstm) write(k.outs[1], row * width + i, c[at], buffers);
        if (is_lstm || is_gru)
          for (const Extent gate : {0, 1, 2, 3})
            write(k.outs.back(), row * 4 * width + gate * width + i, saved[gate], buffers);
      }
    }
  }
}

inline void run_recurrence_backward(const kernel::CallKernel& k, std::vector<Values>& buffers) {
  using graph::RecurrentCell;
  const auto a = kernel::attributes_of<graph::RecurrenceAttributes>(k);
  const bool is_lstm = a.cell == RecurrentCell::lstm, is_gru = a.cell == RecurrentCell::gru;
  const Extent steps = k.shapes[0][0], batch = k.shapes[0][1], width = k.shapes[0][2], gates = graph::gates_of(a.cell);
  RecurrenceOperands in(k, buffers);
  const auto all_h = in.next(), all_c = in.next(is_lstm), saved = in.next(is_lstm || is_gru), first_h = in.next(),
             first_c = in.next(is_lstm), weight = in.next(), lengths = in.next(a.lengths), given_h = in.next(),
             given_c = in.next(a.d_c);
  for (Extent n = 0; n < batch; ++n) {
    Values carry(static_cast<std::size_t>(width), 0.0), carry_c = carry;
    for (Extent s = steps; s-- > 0;) {
      const Extent t = a.reverse ? steps - 1 - s : s, row = t * batch + n;
      const Extent earlier = (a.reverse ? t + 1 : t - 1) * batch + n;  // the row of the state that this step began with
      const bool has = !a.lengths || static_cast<double>(t) < lengths(n);
      Values next(static_cast<std::size_t>(width), 0.0), product(static_cast<std::size_t>(gates * width), 0.0);
      for (Extent i = 0; i < width; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double d_h = given_h(row * width + i) + carry[at];
        const double before = s > 0 ? all_h(earlier * width + i) : first_h(n * width + i);
        const auto gate = [&](Extent g) { return saved(row * 4 * width + g * width + i); };
        double d_gates[4] = {}, d_products[4] = {};
        carry_c[at] += given_c(row * width + i);
        next[at] = has ? 0 : d_h;
        if (has && is_lstm) {
          const double squashed = std::tanh(all_c(row * width + i));
          const double d_c = carry_c[at] + d_h * gate(3) * (1 - squashed * squashed);
          const double before_c = s > 0 ? all_c(earlier * width + i) : first_c(n * width + i);
          d_gates[0] = d_c * gate(2) * gate(0) * (1 - gate(0));
          d_gates[1] = d_c * before_c * gate(1) * (1 - gate(1));
          d_gates[2] = d_c * gate(0) * (1 - gate(2) * gate(2));
          d_gates[3] = d_h * squashed * gate(3) * (1 - gate(3));
          carry_c[at] = d_c * gate(1);
        } else if (has && is_gru) {
          d_gates[2] = d_h * (1 - gate(1)) * (1 - gate(2) * gate(2));
          d_gates[1] = d_h * (before - gate(2)) * gate(1) * (1 - gate(1));
          d_gates[0] = d_gates[2] * gate(3) * gate(0) * (1 - gate(0));
          next[at] = d_h * gate(1);
        } else if (has) {
          const double h = all_h(row * width + i);
          d_gates[0] = a.cell == RecurrentCell::rnn ? d_h * (1 - h * h) : h > 0 ? d_h : 0;
        }
        for (Extent g = 0; g < gates; ++g) {
          d_products[g] = is_gru && g == 2 ? d_gates[2] * gate(0) : d_gates[g];
          product[static_cast<std::size_t>(g * width + i)] = d_products[g];
          write(k.outs[0], (row * gates + g) * width + i, d_gates[g], buffers);
          if (is_gru) write(k.outs[2], (row * gates + g) * width + i, d_products[g], buffers);
        }
      }
      for (Extent j = 0; j < gates * width; ++j)
        for (Extent i = 0; i < width; ++i)
          next[static_cast<std::size_t>(i)] += product[static_cast<std::size_t>(j)] * weight(j * width + i);
      carry = next;
    }
    for (Extent i = 0; i < width; ++i) {
      write(k.outs[1], n * width + i, carry[static_cast<std::size_t>(i)], buffers);
      if (is_lstm) write(k.outs[2], n * width + i, carry_c[static_cast<std::size_t>(i)], buffers);
    }
  }
}

}  // namespace weft::reference
