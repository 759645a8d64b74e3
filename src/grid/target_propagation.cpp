#include "weft/grid/target_propagation.hpp"

#include <fmt/format.h>

#include "grid/sources.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::grid {
namespace {

/// An update of a parameter, before the rate.
struct Change {
  Variable parameter;
  Tensor by;
};

/// What a layer does about its target.
struct Response {
  Tensor input_change;  // how the target of its input differs from the input; undefined: not at all
  Tensor skip_change;
  std::vector<Change> changes;
};

double batch_of(const Tensor& x) { return x.rank() == 0 ? 1 : static_cast<double>(x.dim(0)); }

// ---- Chain rule ----------------------------------------------------------------------------------------------------------

Response respond_by_gradients(const Network& network, std::size_t index, const Tensor& given, const Tensor& given_skip,
                              const Tensor& target, double scale, Where where) {
  // Nodes of their own, so that gradients with respect to input and skip are told apart.
  const Tensor x = alias(detach(given)), skip = given_skip.defined() ? alias(detach(given_skip)) : Tensor();
  const Tensor y = network.run_layer(index, x, skip, nullptr, where);
  const std::vector<Variable> parameters = network.layer(index).parameters();
  std::vector<Tensor> inputs(parameters.begin(), parameters.end());
  const bool reaches_input = is_float(x.dtype());
  if (reaches_input) inputs.push_back(x);
  if (skip.defined() && is_float(skip.dtype())) inputs.push_back(skip);
  Response response;
  if (inputs.empty()) return response;
  const std::vector<Tensor> gradients = grad(y, inputs, detach(target - y), where);
  for (std::size_t i = 0; i < parameters.size(); ++i)
    response.changes.push_back({parameters[i], gradients[i] * (1 / batch_of(given))});
  std::size_t next = parameters.size();
  if (reaches_input) response.input_change = gradients[next++] * scale;
  if (next < gradients.size()) response.skip_change = gradients[next] * scale;
  return response;
}

// ---- Gaps ----------------------------------------------------------------------------------------------------------------

/// sum_o w_oj t_o / sum_o |w_oj| - x_j where the denominator is above 0.01, else 0. Several weights are added up.
Tensor change_by_weights(const std::vector<Tensor>& weights, const Tensor& target, const Tensor& x) {
  Tensor numerator, denominator;
  for (const Tensor& w : weights) {
    const Tensor n = matmul(target, w), d = sum(elementwise("abs", {w}), {0});
    numerator = numerator.defined() ? numerator + n : n;
    denominator = denominator.defined() ? denominator + d : d;
  }
  const Tensor rows = reshape(x, numerator.shape());
  const Tensor quotient = numerator / elementwise("maximum", {denominator, scalar_like(0.01, denominator)});
  const Tensor change =
      elementwise("where", {expand(denominator > 0.01, rows.shape()), quotient - rows, scalar_like(0, rows)});
  return reshape(change, x.shape());
}

/// The mean over the batch of the sum over rows of g x^T: [out, in].
Tensor outer(const Tensor& g, const Tensor& x, double batch) {
  const Tensor a = reshape(g, {-1, g.dim(-1)}), b = reshape(x, {-1, x.dim(-1)});
  return matmul(transpose(a), b) * (1 / batch);
}
Tensor total(const Tensor& g, double batch) { return sum(reshape(g, {-1, g.dim(-1)}), {0}) * (1 / batch); }

/// What a recurrent layer gave one step earlier: [B, S, H] moved on along S, zeros at first.
Tensor step_before(const Tensor& y) {
  if (y.rank() < 3) return zeros_like(y);
  return narrow(pad(y, {{0, 0}, {1, 0}, {0, 0}}), 1, 0, y.dim(1));
}

Response respond_by_gaps(const LayerModule& module, const Tensor& x, const Tensor& y, const Tensor& target,
                         Where where) {
  const Layer& layer = module.layer();
  const std::vector<Tensor> w = module.weights();
  const std::vector<Variable> parameters = module.parameters();
  const Tensor g = target - y;
  const double batch = batch_of(x);
  Response response;
  const auto change = [&](std::size_t parameter, const Tensor& by, double factor) {
    response.changes.push_back({parameters[parameter], factor == 1 ? by : by * factor});
  };
  // The input as rows of the layer's width, also where axes are joined.
  const auto rows = [&] { return reshape(x, {-1, layer.inputs}); };
  switch (layer.type) {
    case LayerType::dense:
      response.input_change = change_by_weights({w[0]}, target, x);
      change(0, outer(g, rows(), batch), 1);
      break;
    case LayerType::rnn:
      response.input_change = change_by_weights({w[0]}, target, x);
      change(0, outer(g, rows(), batch), 1);
      change(1, outer(g, step_before(y), batch), 0.5);
      change(2, total(g, batch), 1);
      break;
    case LayerType::lstm:
      response.input_change = change_by_weights({w[0], w[3], w[6], w[9]}, target, x);
      for (std::size_t gate = 0; gate < 12; gate += 3) {
        change(gate, outer(g, rows(), batch), 0.25);
        change(gate + 1, outer(g, step_before(y), batch), 0.1);
        change(gate + 2, total(g, batch), 0.25);
      }
      break;
    case LayerType::attention:
      response.input_change = change_by_weights({w[0]}, target, x);
      change(0, outer(g, rows(), batch), 0.5);
      break;
    case LayerType::swiglu: {
      const Tensor inner = swiglu(linear(rows(), w[0], w[3], where), linear(rows(), w[1], w[4], where), where);
      change(2, outer(g, inner, batch), 0.1);
      break;
    }
    case LayerType::rms_norm:
    case LayerType::layer_norm: change(0, total(g, batch), 0.01); break;
    default: break;
  }
  // Other layers leave their input as its own target.
  if (!response.input_change.defined() && is_float(x.dtype())) response.input_change = zeros_like(x);
  return response;
}

}  // namespace

// ---- The step ------------------------------------------------------------------------------------------------------------

TargetPropagation::TargetPropagation(Network& network, TargetOptions options) : network_(network), options_(options) {
  const auto check = [](const char* name, double value, double least, double most) {
    if (!(value >= least && value <= most))
      throw UsageError(fmt::format("target propagation: {} is {}; it is in [{}, {}]", name, value, least, most));
  };
  check("gradient_scale", options.gradient_scale, 0, 1e6);
  check("learning_rate", options.learning_rate, 0, 1e6);
  check("budget_min", options.budget_min, 0, 1);
}

namespace {

/// The skip of a layer is what its source read; disabled sources are passed over.
void find_skips(const Description& d, const std::vector<std::ptrdiff_t>& sources, std::vector<std::ptrdiff_t>& skips) {
  for (const std::ptrdiff_t source : sources) {
    std::ptrdiff_t at = source;
    while (at >= 0 && d.layers[static_cast<std::size_t>(at)].disabled) at = sources[static_cast<std::size_t>(at)];
    skips.push_back(at < 0 ? -1 : sources[static_cast<std::size_t>(at)]);
  }
}

}  // namespace

std::vector<LinkState> TargetPropagation::step(const Tensor& x, const Tensor& target, Where where) {
  if (!x.defined()) throw UsageError("target propagation: x has no value");
  const Description& d = network_.description();
  Activity a;
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    const std::ptrdiff_t source = source_in_pass(d, i);
    const auto from = static_cast<std::size_t>(source);
    const Tensor input = source < 0 ? x : a.outputs[from];
    const Tensor skip = source < 0 ? Tensor() : d.layers[from].disabled ? a.skips[from] : a.inputs[from];
    a.outputs.push_back(network_.run_layer(i, input, skip, nullptr, where));
    a.inputs.push_back(input);
    a.skips.push_back(skip);
    a.sources.push_back(source);
  }
  find_skips(d, a.sources, a.skip_sources);
  return step(a, target, where);
}

std::vector<LinkState> TargetPropagation::step(const Systolic& mesh, const Tensor& target, Where where) {
  if (&mesh.network() != &network_) throw UsageError("target propagation: the mesh runs another network");
  if (!mesh.output().defined())
    throw UsageError("target propagation: nothing has reached the last layer of the mesh; let it tick on");
  const Description& d = network_.description();
  Activity a;
  for (std::size_t i = 0; i < d.layers.size(); ++i) {
    const Coordinate at = d.coordinate(i);
    a.inputs.push_back(mesh.input(at));
    a.outputs.push_back(mesh.output(at));
    a.sources.push_back(mesh.source(i));
    a.skips.push_back(a.sources[i] < 0 ? Tensor() : mesh.input(d.coordinate(static_cast<std::size_t>(a.sources[i]))));
  }
  find_skips(d, a.sources, a.skip_sources);
  return step(a, target, where);
}

std::vector<LinkState> TargetPropagation::step(const Activity& a, const Tensor& target, Where where) {
  const Description& d = network_.description();
  const std::size_t count = d.layers.size();
  if (!target.defined() || target.shape() != a.outputs.back().shape())
    throw ShapeError(fmt::format("target propagation: the target is {}, the output {}",
                                 target.defined() ? target.shape().to_string() : "undefined",
                                 a.outputs.back().shape().to_string()));
  // How the target of each output differs from it: what later layers ask for, and what earlier ones (by links) ask for afterwards.
  std::vector<Tensor> wanted(count), wanted_late(count);
  std::size_t asking = count;
  const auto ask = [&](std::ptrdiff_t source, const Tensor& change) {
    if (source < 0 || !change.defined()) return;
    const auto from = static_cast<std::size_t>(source);
    if (!a.outputs[from].defined() || a.outputs[from].shape() != change.shape())
      return;  // the source has moved on since
    Tensor& sum = from < asking ? wanted[from] : wanted_late[from];
    sum = sum.defined() ? sum + change : change;
  };
  wanted.back() = detach(target) - detach(a.outputs.back());
  std::vector<Change> updates;
  const auto respond = [&](std::size_t i, const Tensor& change_wanted) {
    const std::ptrdiff_t source = a.sources[i];
    const Tensor actual = detach(a.outputs[i]), aim = actual + change_wanted;
    LinkState state{to_string(d.coordinate(i)), aim, {}, {}};
    const Tensor norms = norm(actual) * norm(aim);
    state.budget = (sum(actual * aim) / elementwise("maximum", {norms, scalar_like(1e-12, norms)}) + 1.0) * 0.5;
    state.gap = elementwise("sqrt", {mean(elementwise("square", {change_wanted}))});
    const Tensor rate =
        elementwise("where", {state.budget >= options_.budget_min, (state.budget * 0.5 + 0.5) * options_.learning_rate,
                              scalar_like(0, state.budget)});
    const Response response =
        options_.mode == TargetMode::chain_rule
            ? respond_by_gradients(network_, i, a.inputs[i], a.skips[i], aim, options_.gradient_scale, where)
            : respond_by_gaps(network_.layer(i), detach(a.inputs[i]), actual, aim, where);
    for (const Change& change : response.changes) updates.push_back({change.parameter, change.by * rate});
    ask(source, response.input_change);
    ask(a.skip_sources[i], response.skip_change);
    return state;
  };
  std::vector<LinkState> states;
  while (asking-- > 0) {
    if (!wanted[asking].defined() || !a.inputs[asking].defined()) continue;
    if (d.layers[asking].disabled)
      ask(a.sources[asking], wanted[asking]);
    else
      states.insert(states.begin(), respond(asking, wanted[asking]));
  }
  // Layers that earlier ones read respond to these too, once: what they ask for in turn would go round for ever.
  asking = 0;
  const std::vector<Tensor> late = wanted_late;
  for (std::size_t i = count; i-- > 0;)
    if (late[i].defined() && a.inputs[i].defined() && !d.layers[i].disabled) respond(i, late[i]);
  // After all layers have responded: their targets come from the parameters that gave the outputs.
  const NoGrad no_grad;
  for (Change& update : updates) update.parameter.assign(update.parameter + update.by);
  return states;
}

}  // namespace weft::grid
