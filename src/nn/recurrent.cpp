#include "weft/nn/recurrent.hpp"

#include <fmt/format.h>

#include "weft/ops.hpp"

namespace weft::nn {

Recurrent::Recurrent(Cell cell, Extent inputs, Extent width, RecurrentOptions options)
    : cell_(cell), inputs_(inputs), width_(width), options_(options) {
  if (inputs < 1 || width < 1 || options.layers < 1)
    throw ShapeError(fmt::format("recurrent network: {} inputs, width {}, {} layers; each is at least 1", inputs, width,
                                 options.layers));
  if (!(options.dropout >= 0 && options.dropout < 1))
    throw UsageError(fmt::format("recurrent network: dropout {} must be in [0, 1)", options.dropout));
  const Extent gates = cell == Cell::rnn ? 1 : cell == Cell::gru ? 3 : 4, directions = options.bidirectional ? 2 : 1;
  const Init init = Init::kaiming_uniform(width);
  for (Extent layer = 0; layer < options.layers; ++layer)
    for (Extent direction = 0; direction < directions; ++direction) {
      const auto named = [&](const char* name) {
        return fmt::format("{}_l{}{}", name, layer, direction ? "_reverse" : "");
      };
      const Extent from = layer == 0 ? inputs : directions * width;
      weights_.push_back(parameter(named("weight_ih"), {gates * width, from}, init));
      weights_.push_back(parameter(named("weight_hh"), {gates * width, width}, init));
      if (!options.bias) continue;
      weights_.push_back(parameter(named("bias_ih"), {gates * width}, init));
      weights_.push_back(parameter(named("bias_hh"), {gates * width}, init));
    }
}

RecurrentResult Recurrent::run(const Tensor& given, const Tensor& h, const Tensor& c, const Tensor& lengths,
                               Where where) const {
  if (given.rank() != 3 || given.dim(2) != inputs_)
    throw ShapeError(fmt::format("recurrent network: x {} is not [{}, {}]", given.shape().to_string(),
                                 options_.batch_first ? "batch, steps" : "steps, batch", inputs_));
  Tensor x = options_.batch_first ? transpose(given, 0, 1) : given;
  const Extent directions = options_.bidirectional ? 2 : 1, states = options_.layers * directions;
  const Shape state{states, x.dim(1), width_};
  for (const Tensor& first : {h, c})
    if (first.defined() && first.shape() != state)
      throw ShapeError(
          fmt::format("recurrent network: a first state {} is not {}", first.shape().to_string(), state.to_string()));
  const auto first = [&](const Tensor& from, Extent i) {
    return from.defined() ? select(from, 0, i) : zeros({x.dim(1), width_}, x.dtype(), x.device());
  };
  std::vector<Tensor> last_h, last_c;
  std::size_t next = 0;
  for (Extent layer = 0; layer < options_.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (Extent direction = 0; direction < directions; ++direction) {
      RecurrentWeights w{weights_[next], weights_[next + 1], {}, {}, lengths};
      if (options_.bias) w.input_bias = weights_[next + 2], w.hidden_bias = weights_[next + 3];
      next += options_.bias ? 4 : 2;
      const Extent i = layer * directions + direction;
      const bool reverse = direction == 1;
      const RecurrentStates y = cell_ == Cell::rnn   ? rnn(x, first(h, i), w, options_.relu, reverse, where)
                                : cell_ == Cell::gru ? gru(x, first(h, i), w, reverse, where)
                                                     : lstm(x, first(h, i), first(c, i), w, reverse, where);
      outputs.push_back(y.output);
      last_h.push_back(y.h);
      if (y.c.defined()) last_c.push_back(y.c);
    }
    x = outputs.size() > 1 ? concat(outputs, -1) : outputs[0];
    if (options_.dropout > 0 && is_training() && layer + 1 < options_.layers) x = dropout(x, options_.dropout, where);
  }
  return {options_.batch_first ? transpose(x, 0, 1) : x, stack(last_h, 0),
          last_c.empty() ? Tensor() : stack(last_c, 0)};
}

std::string Recurrent::describe() const {
  const char* names[] = {"RNN", "GRU", "LSTM"};
  return fmt::format("{} {} -> {}{}{}", names[static_cast<int>(cell_)], inputs_, width_,
                     options_.layers > 1 ? fmt::format(", {} layers", options_.layers) : "",
                     options_.bidirectional ? ", both ways" : "");
}

}  // namespace weft::nn
