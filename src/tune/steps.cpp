#include "tune/steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/optim/table.hpp"

namespace weft::tune {
namespace {

void check_numbers(const TunerOptions& o) {
  struct Bound {
    const char* name;
    double value, least, most;
  };
  const Bound bounds[] = {{"accumulate", static_cast<double>(o.accumulate), 1, 1 << 16},
                          {"weight_decay", o.weight_decay, 0, 1e3},
                          {"beta_1", o.beta_1, 0, 0.999999},
                          {"beta_2", o.beta_2, 0, 0.999999},
                          {"clip_norm", o.clip_norm, 0, 1e6}};
  for (const Bound& b : bounds)
    if (!(b.value >= b.least && b.value <= b.most))
      throw UsageError(fmt::format("tune: {} is {}; give {} to {}", b.name, b.value, b.least, b.most));
  if (o.precision != DType::f32 && o.precision != DType::f16 && o.precision != DType::bf16)
    throw UsageError(fmt::format("tune: a precision of {}; choose f32, f16 or bf16", weft::name_of(o.precision)));
}

optim::OptionValues option_values_of(const TunerOptions& o) {
  const optim::RuleInfo& rule = optim::rule_named(o.optimizer);
  const TunerOptions usual;
  optim::OptionValues options;
  const auto put = [&](const char* name, double value) {
    if (std::any_of(rule.options.begin(), rule.options.end(), [&](const auto& option) { return option.name == name; }))
      options[name] = value;
  };
  put("weight_decay", o.weight_decay);
  const bool is_adamw = rule.name == usual.optimizer;
  if (is_adamw || o.beta_1 != usual.beta_1) put("beta_1", o.beta_1);
  if (is_adamw || o.beta_2 != usual.beta_2) put("beta_2", o.beta_2);
  for (const auto& [name, value] : optim::option_values(o.optimizer_options)) options[name] = value;
  return options;
}

/// Muon is for the matrices between tables of tokens and the head.
bool is_hidden_matrix(std::string_view name) {
  return name.find("embed") == std::string_view::npos && !name.starts_with("lm_head");
}

std::unique_ptr<optim::Optimizer> optimizer_of(const TunerOptions& o, const std::vector<Variable>& variables) {
  check_numbers(o);
  optim::OptionValues options = option_values_of(o);
  options["clip_norm"] = o.clip_norm;
  return optim::make_optimizer(o.optimizer, variables, std::move(options), is_hidden_matrix);
}

}  // namespace

std::uint64_t trained_bytes(const TunerOptions& o, std::span<const std::pair<std::string, Shape>> parameters) {
  const optim::RuleInfo& rule = optim::rule_named(o.optimizer);
  const optim::OptionValues options = option_values_of(o);
  Extent numbers = 0;
  for (const auto& [name, shape] : parameters)
    numbers += shape.numel() * (o.accumulate > 1 ? 2 : 1) + rule.state_numel(name, shape, options, is_hidden_matrix);
  return static_cast<std::uint64_t>(numbers) * sizeof(float);
}

Steps::Steps(const std::vector<Variable>& variables, const TunerOptions& options, Device device, Function measured)
    : accumulate_(options.accumulate),
      device_(device),
      measured_(std::move(measured)),
      options_(options),
      optimizer_(optimizer_of(options, variables)),
      compiled_step_([this](std::span<const Tensor> given) {
        if (sum_) return std::vector<Tensor>{update(sum_->take_mean(), given[0])};
        Measure measure = measured_(given.subspan(1), true);
        measure.results.insert(measure.results.begin(), update(gradients(measure.objective), given[0]));
        return measure.results;
      }),
      compiled_add_([this](std::span<const Tensor> given) {
        Measure measure = measured_(given, true);
        sum_->add(gradients(measure.objective));
        return measure.results;
      }),
      compiled_loss_([this](std::span<const Tensor> given) { return measured_(given, false).results; }) {
  if (options.precision == DType::f16) scale_.emplace(optim::LossScaleOptions{}, device);
  if (accumulate_ > 1) sum_.emplace(optimizer_->parameters());
}

std::vector<Tensor> Steps::gradients(const Tensor& loss) const {
  return grad(scale_ ? scale_->apply(loss) : loss, optimizer_->parameters());
}

Tensor Steps::update(std::span<const Tensor> gradients, const Tensor& rate) {
  return scale_ ? optimizer_->step(gradients, rate, *scale_) : optimizer_->step(gradients, rate);
}

Steps::Result Steps::step(std::span<const Arguments> batches, double learning_rate) {
  if (static_cast<Extent>(batches.size()) != accumulate_)
    throw UsageError(fmt::format("tune: a step of {} batches; the tuner accumulates {}", batches.size(), accumulate_));
  const auto number = static_cast<float>(learning_rate);
  const Tensor rate = tensor_from_bytes(&number, {}, DType::f32, device_);
  if (!sum_) {
    Arguments given = batches[0];
    given.insert(given.begin(), rate);
    std::vector<Tensor> results = compiled_step_(given);
    const Tensor norm = results[0];
    results.erase(results.begin());
    return {norm, std::move(results)};
  }
  std::vector<Tensor> sums;
  for (const Arguments& batch : batches) {
    const std::vector<Tensor> results = compiled_add_(batch);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (sums.size() <= i)
        sums.push_back(results[i]);
      else
        sums[i] = sums[i] + results[i];
    }
  }
  for (Tensor& sum : sums) sum = sum / static_cast<double>(batches.size());
  return {compiled_step_(std::span(&rate, 1))[0], std::move(sums)};
}

std::uint64_t Steps::planned_bytes(const Arguments& given) {
  Arguments all = given;
  const float zero = 0;
  if (!sum_) all.insert(all.begin(), tensor_from_bytes(&zero, {}, DType::f32, device_));
  Compiled& pass = sum_ ? compiled_add_ : compiled_step_;
  pass.prepare(all);
  return pass.scratch_bytes();
}

std::uint64_t Steps::planned_measure_bytes(const Arguments& given) {
  compiled_loss_.prepare(given);
  return compiled_loss_.scratch_bytes();
}

std::uint64_t Steps::trained_bytes() const {
  std::vector<std::pair<std::string, Shape>> parameters;
  for (const Variable& variable : optimizer_->parameters()) parameters.emplace_back(variable.name(), variable.shape());
  return tune::trained_bytes(options_, parameters);
}

nn::StateDict Steps::state_dict(std::span<const nn::NamedVariable> trained) const {
  nn::StateDict all;
  const auto add = [&](const char* prefix, const nn::StateDict& part) {
    for (const nn::NamedArray& array : part) {
      all.push_back(array);
      all.back().name.insert(0, prefix);
    }
  };
  add("adapter.", nn::read_state(trained));
  add("optimizer.", optimizer_->state_dict());
  if (scale_) add("loss_scale.", scale_->state_dict());
  add("", nn::read_state(std::vector<nn::NamedVariable>{{"random_state", random_state()}}));
  return all;
}

void Steps::load_state_dict(std::span<const nn::NamedVariable> trained, const nn::StateDict& state) {
  std::map<std::string, nn::StateDict> parts;
  for (const nn::NamedArray& array : state) {
    const std::size_t dot = array.name.find('.');
    nn::StateDict& part = parts[array.name.substr(0, dot)];
    part.push_back(array);
    if (dot != std::string::npos) part.back().name.erase(0, dot + 1);
  }
  nn::write_state(trained, parts["adapter"], true, "adapter");
  optimizer_->load_state_dict(parts["optimizer"]);
  if (scale_) scale_->load_state_dict(parts["loss_scale"]);
  nn::write_state(std::vector<nn::NamedVariable>{{"random_state", random_state()}}, parts["random_state"], true,
                  "random numbers");
}

}  // namespace weft::tune
