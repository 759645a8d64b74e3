#include "weft/grid/systolic.hpp"

#include "graph/trace_scope.hpp"
#include "grid/sources.hpp"
#include "weft/grad.hpp"

namespace weft::grid {

Systolic::Systolic(const Network& network, Options options)
    : network_(network),
      options_(options),
      inputs_(network.description().layers.size()),
      outputs_(network.description().layers.size()) {}

void Systolic::set_output(const Coordinate& at, const Tensor& y) { outputs_[network_.description().index(at)] = y; }
const Tensor& Systolic::output(const Coordinate& at) const { return outputs_[network_.description().index(at)]; }
const Tensor& Systolic::input(const Coordinate& at) const { return inputs_[network_.description().index(at)]; }

std::ptrdiff_t Systolic::source(std::size_t index) const { return source_of(network_.description(), index); }

void Systolic::tick(Where where) {
  std::vector<Tensor> inputs = inputs_, outputs = outputs_;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::ptrdiff_t from = source(i);
    const Tensor& x = from < 0 ? input_ : outputs_[static_cast<std::size_t>(from)];
    if (!x.defined()) continue;
    // The skip is what the source read to give x, one tick earlier.
    const Tensor skip = from < 0 ? Tensor() : inputs_[static_cast<std::size_t>(from)];
    outputs[i] = network_.run_layer(i, x, skip, nullptr, where);
    inputs[i] = network_.description().layers[i].disabled ? skip : x;
  }
  if (!options_.keeps_gradients) {
    std::vector<Tensor> made;
    for (auto* values : {&inputs, &outputs})
      for (Tensor& value : *values)
        if (value.defined()) {
          value = detach(value);
          made.push_back(value);
        }
    if (!graph::TraceScope::current()) eval(made);
  }
  inputs_ = std::move(inputs);
  outputs_ = std::move(outputs);
  ++tick_count_;
}

void Systolic::ticks(int count, Where where) {
  for (int i = 0; i < count; ++i) tick(where);
}

void Systolic::reset() {
  input_ = {};
  inputs_.assign(inputs_.size(), {});
  outputs_.assign(outputs_.size(), {});
  tick_count_ = 0;
}

}  // namespace weft::grid
