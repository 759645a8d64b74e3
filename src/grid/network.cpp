#include "weft/grid/network.hpp"

#include <fmt/format.h>

#include "graph/trace_scope.hpp"
#include "grid/layer_functions.hpp"
#include "grid/layer_rows.hpp"
#include "grid/sources.hpp"
#include "grid/step_states.hpp"
#include "weft/ops.hpp"

namespace weft::grid {

// ---- Layers -------------------------------------------------------------------------------------------------------------

LayerModule::LayerModule(const Layer& layer, bool is_inside) : layer_(layer) {
  if (is_inside && layer.link) return;  // another layer runs in its place, with its own parameters
  for (const ParameterSpec& p : parameters_of(layer)) master_.push_back(parameter(p.name, p.shape, p.init));
  const auto own = [&](const Layer& inner, const std::string& name) {
    auto module = std::make_unique<LayerModule>(inner, true);
    add(name, *module);
    return module;
  };
  for (std::size_t i = 0; i < layer.children.size(); ++i) inside_.push_back(own(layer.children[i], std::to_string(i)));
  if (!layer.gate.empty()) gate_ = own(layer.gate[0], "gate");
}

std::vector<Tensor> LayerModule::weights() const {
  std::vector<Tensor> weights;
  for (const nn::Parameter& p : master_) weights.push_back(quantised(p, layer_.dtype));
  return weights;
}

std::string LayerModule::describe() const {
  const Layer& l = layer_;
  std::string text(name_of(l.type));
  for (const LayerField& field : layer_fields())
    if (const auto* extent = std::get_if<Extent Layer::*>(&field.member))
      if (field.is_used_by(l.type) && field.least == 1) text += fmt::format(" {} {}", field.name, l.**extent);
  if (row_of(l.type).activates) text += fmt::format(", {}", name_of(l.activation));
  if (l.dtype != DType::f32) text += fmt::format(", {}", weft::name_of(l.dtype));
  if (l.link) text += fmt::format(", link to {}", to_string(*l.link));
  return l.disabled ? text + ", disabled" : text;
}

double LayerModule::own_flops() const {
  if (layer_.disabled || axes_of_space(layer_.type) > 0 || layer_.type == LayerType::embedding) return 0;
  double flops = 0;
  for (const nn::Parameter& p : master_)
    if (p.shape().rank() == 2) flops += 2 * static_cast<double>(p.shape().numel());
  return flops;
}

// ---- One pass -----------------------------------------------------------------------------------------------------------

/// Runs layers of a network, and those inside of them.
class Runner {
 public:
  Runner(const Network& network, std::vector<LayerPass>* made, StepStates* states, Where where)
      : network_(network), made_(made), states_(states), where_(where) {}

  Tensor run(const LayerModule& module, const std::string& path, const Tensor& x, const Tensor& skip) {
    const Layer& layer = module.layer();
    if (layer.disabled) return x;
    try {
      LayerPass made{path, &module, x, {}, {}};
      const LayerRow& row = row_of(layer.type);
      switch (layer.type) {
        case LayerType::parallel: made.before = parallel(module, path, x, skip); break;
        case LayerType::sequential: made.before = sequential(module, path, x, skip); break;
        case LayerType::residual: made.before = skip.defined() && skip.shape() == x.shape() ? x + skip : x; break;
        default: made.before = forward(module, path, x);
      }
      made.after = row.activates ? activate(layer.activation, made.before, where_) : made.before;
      if (made_) made_->push_back(made);
      return made.after;
    } catch (Error& error) {
      error.add_context(fmt::format("running layer {} ({})", path, name_of(layer.type)));
      throw;
    }
  }

 private:
  Tensor forward(const LayerModule& module, const std::string& path, const Tensor& x) {
    const Layer& layer = module.layer();
    const LayerRow& row = row_of(layer.type);
    if (!states_) return row.forward(layer, module.weights(), x, where_);
    if (axes_of_space(layer.type) > 0)
      throw UsageError(fmt::format("{}: reads across steps, so it cannot take them part by part", name_of(layer.type)));
    if (!row.forward_steps) return row.forward(layer, module.weights(), x, where_);
    return row.forward_steps(layer, module.weights(), x, (*states_)[path], where_);
  }

  /// The layer that runs in the place of a child.
  const LayerModule& resolved(const LayerModule& child) const {
    const std::optional<Coordinate>& link = child.layer().link;
    return link ? network_.layer(*link) : child;
  }

  Tensor sequential(const LayerModule& module, const std::string& path, Tensor x, Tensor skip) {
    for (std::size_t i = 0; i < module.inside().size(); ++i) {
      const LayerModule& child = resolved(*module.inside()[i]);
      const Tensor y = run(child, fmt::format("{}/{}", path, i), x, skip);
      if (!child.layer().disabled) skip = x;
      x = y;
    }
    return x;
  }

  Tensor parallel(const LayerModule& module, const std::string& path, const Tensor& x, const Tensor& skip) {
    const Layer& layer = module.layer();
    std::vector<Tensor> parts;
    for (std::size_t i = 0; i < module.inside().size(); ++i)
      parts.push_back(run(resolved(*module.inside()[i]), fmt::format("{}/{}", path, i), x, skip));
    if (layer.combine == Combine::concat) return concat(parts, static_cast<int>(layer.axis), where_);
    for (std::size_t i = 1; i < parts.size(); ++i)
      if (parts[i].shape() != parts[0].shape())
        throw ShapeError(fmt::format("parallel: child 0 gives {} and child {} gives {}; {} takes equal ones",
                                     parts[0].shape().to_string(), i, parts[i].shape().to_string(),
                                     name_of(layer.combine)));
    Tensor shares;
    if (layer.combine == Combine::filter) {
      const Tensor scores = run(resolved(*module.gate()), path + "/gate", x, skip);
      if (scores.rank() == 0 || scores.dim(-1) != static_cast<Extent>(parts.size()) ||
          !leads(scores.shape(), parts[0].shape()))
        throw ShapeError(fmt::format("parallel: the gate gives {}; it takes a score for each of {} children of {}",
                                     scores.shape().to_string(), parts.size(), parts[0].shape().to_string()));
      shares = softmax(scores, -1, where_);
    }
    Tensor total;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Tensor part = shares.defined() ? parts[i] * share(shares, i, parts[i].rank()) : parts[i];
      total = total.defined() ? total + part : part;
    }
    return layer.combine == Combine::average ? total * (1 / static_cast<double>(parts.size())) : total;
  }

  /// Whether the axes of scores [a..., n] are the first axes of a result [a..., b...].
  static bool leads(const Shape& scores, const Shape& result) {
    if (scores.rank() - 1 > result.rank()) return false;
    for (int i = 0; i + 1 < scores.rank(); ++i)
      if (scores[i] != result[i]) return false;
    return true;
  }

  /// Share `i` [a...] as [a..., 1...] of this rank.
  Tensor share(const Tensor& shares, std::size_t i, int rank) const {
    const Tensor one = select(shares, -1, static_cast<Extent>(i), where_);
    Shape shape = one.shape();
    while (shape.rank() < rank) shape.push_back(1);
    return reshape(one, shape, where_);
  }

  const Network& network_;
  std::vector<LayerPass>* made_;
  StepStates* states_;
  Where where_;
};

// ---- Networks -----------------------------------------------------------------------------------------------------------

Network::Network(Description description)
    : description_(std::move(description)), is_current_(std::make_shared<std::atomic<bool>>(true)) {
  check(description_);
  for (std::size_t i = 0; i < description_.layers.size(); ++i) {
    layers_.push_back(std::make_unique<LayerModule>(description_.layers[i]));
    if (is_fresh(description_.layers[i])) continue;  // nothing to train or to show
    const Coordinate at = description_.coordinate(i);
    add(fmt::format("z{}y{}x{}l{}", at.z, at.y, at.x, at.layer), *layers_.back());
  }
}

Tensor Network::run_layer(std::size_t index, const Tensor& x, const Tensor& skip, std::vector<LayerPass>* made,
                          Where where) const {
  return run_layer(index, x, skip, made, nullptr, where);
}

Tensor Network::run_layer(std::size_t index, const Tensor& x, const Tensor& skip, std::vector<LayerPass>* made,
                          StepStates* states, Where where) const {
  if (graph::TraceScope* trace = graph::TraceScope::current()) trace->note(is_current_, *is_current_);
  return Runner(*this, made, states, where).run(layer(index), to_string(description_.coordinate(index)), x, skip);
}

std::ptrdiff_t source_in_pass(const Description& d, std::size_t index) {
  const std::ptrdiff_t source = source_of(d, index);
  if (source >= static_cast<std::ptrdiff_t>(index))
    throw UsageError(
        fmt::format("network: layer {} reads layer {}, which a pass runs later; run ticks (grid::Systolic)",
                    to_string(d.coordinate(index)), to_string(d.coordinate(static_cast<std::size_t>(source)))));
  return source;
}

Pass Network::pass(const Tensor& x, Where where) const { return pass(x, nullptr, where); }

Pass Network::pass(const Tensor& x, StepStates* states, Where where) const {
  if (!x.defined()) throw UsageError("network: x has no value");
  Pass result;
  std::vector<Tensor> inputs, outputs;  // of each layer of the grid
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::ptrdiff_t source = source_in_pass(description_, i);
    const auto from = static_cast<std::size_t>(source);
    const Tensor skip = source < 0 ? Tensor() : inputs[from];
    inputs.push_back(source < 0 ? x : outputs[from]);
    outputs.push_back(run_layer(i, inputs.back(), skip, &result.layers, states, where));
    // A disabled layer is not there for the next one either: its skip is that of the layer before.
    if (description_.layers[i].disabled) inputs.back() = skip;
  }
  result.output = outputs.back();
  return result;
}

Tensor Network::operator()(const Tensor& given, Where where) const {
  return with_hooks(given, [&](const Tensor& x) { return pass(x, where).output; });
}

void Network::changed() {
  *is_current_ = false;
  is_current_ = std::make_shared<std::atomic<bool>>(true);
}

namespace {

void set_type(Layer& layer, DType type) {
  if (is_fresh(layer)) return;
  layer.dtype = type;
  for (auto* inside : {&layer.children, &layer.gate})
    for (Layer& child : *inside)
      if (!child.link) set_type(child, type);
}

void check_type(DType type) {
  if (!is_number_type(type))
    throw UsageError(fmt::format("morph: {} is not a type of parameters", weft::name_of(type)));
}

void add_memory(const LayerModule& module, Memory& memory) {
  for (const nn::Parameter& p : module.master()) {
    const auto count = static_cast<std::size_t>(p.shape().numel());
    memory.parameters += count;
    memory.master_bytes += bytes_of(DType::f32, count);
    memory.packed_bytes += packed_bytes(module.layer().dtype, count);
  }
  for (const auto& child : module.inside()) add_memory(*child, memory);
  if (module.gate()) add_memory(*module.gate(), memory);
}

}  // namespace

void Network::morph(DType type) {
  check_type(type);
  for (Layer& layer : description_.layers) set_type(layer, type);
  changed();
}

void Network::morph(const Coordinate& at, DType type) {
  check_type(type);
  set_type(description_.at(at), type);
  changed();
}

void Network::set_disabled(const Coordinate& at, bool disabled) {
  Layer& layer = description_.at(at);
  if (is_fresh(layer) && !disabled)
    throw UsageError(
        fmt::format("network: layer {} is fresh, so there is nothing to enable; describe it first", to_string(at)));
  layer.disabled = disabled;
  changed();
}

void Network::set_activation(const Coordinate& at, Activation activation) {
  Layer& layer = description_.at(at);
  if (!row_of(layer.type).activates)
    throw UsageError(
        fmt::format("network: layer {} is {}, which has no activation", to_string(at), name_of(layer.type)));
  layer.activation = activation;
  changed();
}

Memory Network::memory() const {
  Memory memory;
  for (const auto& layer : layers_) add_memory(*layer, memory);
  return memory;
}

std::unique_ptr<Network> Network::clone() const {
  auto copy = std::make_unique<Network>(description_);
  copy->load_state_dict(state_dict());
  copy->train(is_training());
  return copy;
}

std::string Network::describe() const {
  const Description& d = description_;
  return fmt::format("Network {} x {} x {} cells of {} layers", d.depth, d.rows, d.columns, d.layers_per_cell);
}

}  // namespace weft::grid
