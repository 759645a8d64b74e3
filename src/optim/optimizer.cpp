#include "weft/optim/base.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "graph/autocast.hpp"
#include "graph/node.hpp"
#include "graph/op_families.hpp"
#include "optim/flat.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::optim {

graph::OpRows update_family();  // update_rows.cpp

namespace {

const bool updates_are_in_the_table = graph::add_family(update_family);

// Offsets that are multiples of 64 elements keep vector loads whole and GPU bindings aligned.
constexpr Extent kAlignedElements = 64;

// The part of one member in the value of a flat (or rank-0) Variable.
nn::NamedArray part_of(const nn::NamedArray& flat, const std::string& name, const Shape& shape, std::size_t& offset) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_bytes(flat.dtype);
  const auto begin = flat.bytes.begin() + static_cast<std::ptrdiff_t>(offset);
  offset += bytes;
  return {name, flat.dtype, shape, {begin, begin + static_cast<std::ptrdiff_t>(bytes)}};
}

}  // namespace

Variable float_variable(double value, std::string_view name, Device device) {
  const auto number = static_cast<float>(value);
  return Variable(tensor_from_bytes(&number, {}, DType::f32, device), name, false);
}

ParameterList::ParameterList(const nn::Module& module) {
  for (nn::NamedParameter& p : module.named_parameters())
    if (p.variable.requires_grad()) parameters.push_back(std::move(p));
}

ParameterList::ParameterList(const std::vector<Variable>& variables) {
  for (const Variable& v : variables)
    parameters.push_back({v.defined() ? v.name() : "", v, v.defined() && v.shape().rank() >= 2});
}

ParameterList::ParameterList(std::vector<nn::NamedParameter> list) : parameters(std::move(list)) {}

namespace {

/// Whether some of them are slices of a flat variable that also has other parameters, or another order.
bool lies_elsewhere(std::span<const Variable> variables) {
  const auto& shared = variables[0].cell()->shared;
  bool any = false, together = shared != nullptr;
  Extent offset = 0;
  for (const Variable& v : variables) {
    any |= v.cell()->shared != nullptr;
    together &= v.cell()->shared == shared && v.cell()->offset == offset;
    offset += v.numel();
  }
  return any && !(together && shared->shape[0] == offset);
}

Tensor values_of(std::span<const Variable> variables) {
  std::vector<Tensor> parts;
  for (const Variable& v : variables) parts.push_back(reshape(v.value(), {v.numel()}));
  return concat(parts, 0);
}

}  // namespace

Optimizer::Optimizer(ParameterList list, const Layout& layout)
    : parameters_(std::move(list.parameters)), clip_norm_(layout.sets[0].options.clip_norm) {
  if (parameters_.empty()) throw UsageError("optimizer: no parameters to train; is requires_grad off for all of them?");
  if (!(clip_norm_ >= 0) || std::isinf(clip_norm_))
    throw UsageError(fmt::format("optimizer: clip_norm is {}; it must be at least 0 (0: no clipping)", clip_norm_));
  std::set<std::string> names;
  std::map<const graph::Cell*, std::string> owners;
  std::size_t set = 0, end_of_set = layout.sets[0].parameters;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    while (i == end_of_set) end_of_set += layout.sets[++set].parameters;
    nn::NamedParameter& p = parameters_[i];
    if (p.name.empty()) p.name = fmt::format("parameter_{}", i);
    if (!p.variable.defined())
      throw UsageError(fmt::format("optimizer: parameter \"{}\" is a Variable without a value", p.name));
    if (!is_float(p.variable.dtype()))
      throw DTypeError(fmt::format("optimizer: parameter \"{}\" is {}; only floats have gradients", p.name,
                                   name_of(p.variable.dtype())));
    if (const auto [owner, is_new] = owners.emplace(p.variable.cell().get(), p.name); !is_new)
      throw UsageError(
          fmt::format("optimizer: \"{}\" and \"{}\" are one Variable; give it once", owner->second, p.name));
    if (!names.insert(p.name).second)
      throw UsageError(fmt::format("optimizer: two parameters are called \"{}\"; give each its own name", p.name));
    if (const auto& filter = layout.sets[set].options.decay_filter) p.decay = filter(p.name);
    variables_.push_back(p.variable);

    const bool decay = p.decay;
    const int kind = layout.kind ? layout.kind(p, set) : 0;
    const DType type = p.variable.dtype();
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.decay == decay && g.kind == kind && g.set == set && parameters_[g.members[0]].variable.dtype() == type;
    });
    if (group == groups_.end()) {
      groups_.push_back({.flat = {},
                         .members = {},
                         .decay = decay,
                         .kind = kind,
                         .set = set,
                         .description = layout.states(kind, set),
                         .state = {}});
      group = groups_.end() - 1;
    }
    group->members.push_back(i);
  }

  const Device device = variables_[0].device();
  step_ =
      Variable(tensor_from_bytes(std::vector<std::int32_t>{0}.data(), {}, DType::i32, device), "optimizer.step", false);
  // Numbers of an optimiser of f64 parameters are f64 too: 0.1 in f32 is 0.100000001.
  const bool wide = std::any_of(variables_.begin(), variables_.end(),
                                [](const Variable& variable) { return variable.dtype() == DType::f64; });
  for (const Layout::Set& each : layout.sets) {
    const double first = layout.sets[0].options.learning_rate, own = each.options.learning_rate;
    if (first == 0 && own != 0)
      throw UsageError(
          "optimizer: the first group has the learning rate 0, and others have a ratio to it; give it its own");
    rates_.emplace_back(zeros({}, wide ? DType::f64 : DType::f32, device), "optimizer.learning_rate", false);
    rate_ratios_.push_back(first == own ? 1 : own / first);
    exact_rates_.push_back(own);
    set_group_learning_rate(rates_.size() - 1, own);
  }
  for (Group& group : groups_) {
    std::stable_partition(group.members.begin(), group.members.end(),
                          [&](std::size_t i) { return variables_[i].numel() % kAlignedElements == 0; });
    std::vector<Variable> members;
    for (const std::size_t i : group.members) members.push_back(variables_[i]);
    const std::string name = group.decay ? "parameters.decay" : "parameters";
    group.is_copy = lies_elsewhere(members);
    group.flat = group.is_copy ? Variable(values_of(members), name, false) : flatten_together(members, name);
    for (const State& state : group.description) {
      Extent size = 0;
      for (const std::size_t member : group.members) size += state_shape(state, member).numel();
      group.state.emplace_back(full({size}, state.initial, group.flat.dtype(), device),
                               fmt::format("{}.{}", name, state.name), false);
    }
  }
}

Shape Optimizer::state_shape(const State& state, std::size_t member) const {
  return state.shape ? state.shape(shape_of(member)) : shape_of(member);
}

namespace {

const Tensor& given(const Tensor& learning_rate) {
  if (!learning_rate.defined() || learning_rate.rank() != 0)
    throw ShapeError(fmt::format("optimizer: the learning rate must be of rank 0, given {}",
                                 learning_rate.defined() ? learning_rate.shape().to_string() : "no value"));
  return learning_rate;
}

}  // namespace

Tensor Optimizer::step(std::span<const Tensor> gradients) { return step(gradients, Tensor(), nullptr); }

Tensor Optimizer::step(std::span<const Tensor> gradients, const Tensor& learning_rate) {
  return step(gradients, given(learning_rate), nullptr);
}

Tensor Optimizer::step(std::span<const Tensor> gradients, const Tensor& learning_rate, LossScale& scale) {
  return step(gradients, given(learning_rate), &scale);
}

Tensor Optimizer::step(std::span<const Tensor> gradients, LossScale& scale) {
  return step(gradients, Tensor(), &scale);
}

Tensor Optimizer::step(std::span<const Tensor> gradients, const Tensor& learning_rate, LossScale* scale) {
  if (gradients.size() != variables_.size())
    throw UsageError(fmt::format("optimizer: {} gradients for {} parameters; pass grad(loss, optimizer.parameters())",
                                 gradients.size(), variables_.size()));
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const std::string& name = parameters_[i].name;
    if (!gradients[i].defined())
      throw UsageError(
          fmt::format("optimizer: the gradient of \"{}\" has no value; pass grad(loss, optimizer.parameters())", name));
    if (gradients[i].shape() != variables_[i].shape())
      throw ShapeError(fmt::format("optimizer: the gradient of \"{}\" has shape {}, the parameter {}", name,
                                   gradients[i].shape().to_string(), variables_[i].shape().to_string()));
    if (gradients[i].dtype() != variables_[i].dtype())
      throw DTypeError(fmt::format("optimizer: the gradient of \"{}\" is {}, the parameter {}; cast the gradient", name,
                                   name_of(gradients[i].dtype()), name_of(variables_[i].dtype())));
  }

  const NoGrad no_grad;
  const graph::NoAutocast in_given_types;
  std::vector<Tensor> flat;
  Tensor squares;
  for (const Group& group : groups_) {
    std::vector<Tensor> parts;
    for (const std::size_t i : group.members) parts.push_back(reshape(gradients[i], {gradients[i].numel()}));
    flat.push_back(concat(parts, 0));
    const Tensor own = sum_of_squares(flat.back());
    squares = squares.defined() ? squares + cast(own, squares.dtype()) : own;
  }
  Tensor norm = elementwise("sqrt", {squares}), factor, finite;
  if (scale) {
    factor = 1.0 / cast(scale->factor(), norm.dtype());
    norm = norm * factor;
    finite = elementwise("isfinite", {norm});
    scale->update(finite);
  }
  if (clip_norm_ > 0) {
    const Tensor clip = clip_factor(norm, clip_norm_);
    factor = factor.defined() ? factor * clip : clip;
  }
  for (Group& group : groups_) {
    if (!group.is_copy) continue;
    std::vector<Variable> members;
    for (const std::size_t i : group.members) members.push_back(variables_[i]);
    group.flat.assign(values_of(members));
  }
  const Tensor step = step_.value(), next = step + 1.0;
  step_.assign(scale ? elementwise("where", {finite, next, step}) : next);
  const Tensor count = cast(next, DType::f32);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Tensor gradient = flat[i];
    const DType type = gradient.dtype();
    if (factor.defined()) gradient = gradient * cast(factor, type);
    const std::size_t set = groups_[i].set;
    Tensor rate = cast(learning_rate.defined() ? learning_rate : rates_[set].value(), type);
    if (const double ratio = rate_ratios_[set]; learning_rate.defined() && ratio != 1) rate = rate * ratio;
    update_if(finite, groups_[i], gradient, rate, cast(count, type));
    if (!groups_[i].is_copy) continue;
    Extent offset = 0;
    for (const std::size_t member : groups_[i].members) {
      Variable& variable = variables_[member];
      variable.assign(reshape(narrow(groups_[i].flat.value(), 0, offset, variable.numel()), variable.shape()));
      offset += variable.numel();
    }
  }
  return norm;
}

void Optimizer::update_if(const Tensor& finite, Group& group, const Tensor& gradient, const Tensor& learning_rate,
                          const Tensor& step) {
  if (!finite.defined()) return update(group, gradient, learning_rate, step);
  std::vector<Variable*> variables{&group.flat};
  for (Variable& state : group.state) variables.push_back(&state);
  std::vector<Tensor> before;
  for (const Variable* variable : variables) before.push_back(variable->value());
  update(group, gradient, learning_rate, step);
  for (std::size_t i = 0; i < variables.size(); ++i)
    variables[i]->assign(elementwise("where", {finite, variables[i]->value(), before[i]}));
}

void Optimizer::reset() {
  step_.assign(zeros({}, DType::i32, step_.device()));
  for (Group& group : groups_)
    for (std::size_t s = 0; s < group.state.size(); ++s) {
      Variable& state = group.state[s];
      state.assign(full(state.shape(), group.description[s].initial, state.dtype(), state.device()));
    }
}

void Optimizer::check_group(std::size_t group) const {
  if (group >= rates_.size())
    throw UsageError(fmt::format("optimizer: there is no group {}; there are {}", group, rates_.size()));
}

double Optimizer::learning_rate() const { return group_learning_rate(0); }

double Optimizer::group_learning_rate(std::size_t group) const {
  check_group(group);
  const Tensor rate = rates_[group].value();
  return rate.dtype() == DType::f64 ? rate.item<double>() : static_cast<double>(rate.item<float>());
}

void Optimizer::set_learning_rate(double rate) {
  const std::vector<double> ratios = rate_ratios_;
  for (std::size_t i = 0; i < ratios.size(); ++i) set_group_learning_rate(i, rate * ratios[i]);
  rate_ratios_ = ratios;  // also after a rate of 0
}

void Optimizer::set_group_learning_rate(std::size_t group, double rate) {
  check_group(group);
  if (!(rate >= 0) || std::isinf(rate))
    throw UsageError(fmt::format("optimizer: learning rate {} must be a number of at least 0", rate));
  const Device device = rates_[group].device();
  const auto narrow = static_cast<float>(rate);
  rates_[group].assign(rates_[group].dtype() == DType::f64 ? tensor_from_bytes(&rate, {}, DType::f64, device)
                                                           : tensor_from_bytes(&narrow, {}, DType::f32, device));
  exact_rates_[group] = rate;
  const double first = exact_rates_[0];
  for (std::size_t i = 0; i < rates_.size(); ++i)
    if (first > 0 && (i == group || group == 0)) rate_ratios_[i] = i == 0 ? 1 : exact_rates_[i] / first;
}

std::int64_t Optimizer::step_count() const { return step_.value().item<std::int32_t>(); }

std::vector<nn::NamedVariable> Optimizer::scalars() const {
  std::vector<nn::NamedVariable> list{{"step", step_}, {"learning_rate", rates_[0]}};
  for (std::size_t i = 1; i < rates_.size(); ++i) list.push_back({fmt::format("learning_rate.{}", i), rates_[i]});
  return list;
}

std::uint64_t Optimizer::state_bytes() const {
  std::uint64_t bytes = 0;
  for (const Group& group : groups_)
    for (const Variable& state : group.state)
      bytes += static_cast<std::uint64_t>(state.numel()) * size_bytes(state.dtype());
  return bytes;
}

nn::StateDict Optimizer::state_dict() const {
  nn::StateDict state = nn::read_state(scalars());
  for (const Group& group : groups_)
    for (std::size_t s = 0; s < group.state.size(); ++s) {
      const State& described = group.description[s];
      const nn::NamedArray flat = nn::read_state(std::vector<nn::NamedVariable>{{"", group.state[s]}})[0];
      std::size_t offset = 0;
      for (const std::size_t i : group.members)
        state.push_back(part_of(flat, described.name + "." + parameters_[i].name, state_shape(described, i), offset));
    }
  return state;
}

void Optimizer::load_state_dict(const nn::StateDict& given) {
  nn::StateDict state = given;
  // Files of earlier versions have the first group's rate only; the others keep their ratio.
  if (const nn::NamedArray* first = nn::find(given, "learning_rate"))
    for (std::size_t i = 1; i < rates_.size(); ++i) {
      if (nn::find(given, fmt::format("learning_rate.{}", i))) continue;
      const Tensor rate = tensor_from_bytes(first->bytes.data(), first->shape, first->dtype) * rate_ratios_[i];
      nn::NamedArray own{fmt::format("learning_rate.{}", i), first->dtype, first->shape, first->bytes};
      rate.copy_to(own.bytes.data(), own.bytes.size());
      state.push_back(std::move(own));
    }
  std::vector<nn::NamedShape> expected;
  for (const nn::NamedVariable& v : scalars()) expected.push_back({v.name, v.variable.dtype(), v.variable.shape()});
  for (const Group& group : groups_)
    for (const State& described : group.description)
      for (const std::size_t i : group.members) {
        const std::string name = described.name + "." + parameters_[i].name;
        expected.push_back({name, variables_[i].dtype(), state_shape(described, i)});
        if (described.older_name.empty() || nn::find(given, name)) continue;
        const std::string older = described.older_name + "." + parameters_[i].name;
        for (nn::NamedArray& each : state)
          if (each.name == older) each.name = name;
      }
  nn::check_state(expected, state, true, "optimizer");

  nn::write_state(scalars(), state, false, "optimizer");
  for (std::size_t i = 0; i < rates_.size(); ++i) exact_rates_[i] = group_learning_rate(i);
  if (exact_rates_[0] > 0)
    for (std::size_t i = 1; i < rates_.size(); ++i) rate_ratios_[i] = exact_rates_[i] / exact_rates_[0];
  for (Group& group : groups_)
    for (std::size_t s = 0; s < group.state.size(); ++s) {
      std::vector<std::byte> bytes;
      for (const std::size_t i : group.members) {
        const nn::NamedArray& part = *nn::find(state, group.description[s].name + "." + parameters_[i].name);
        bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
      }
      Variable& target = group.state[s];
      target.assign(tensor_from_bytes(bytes.data(), target.shape(), target.dtype(), target.device()));
    }
}

}  // namespace weft::optim
