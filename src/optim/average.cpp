#include "weft/optim/average.hpp"

#include <fmt/format.h>

#include "graph/autocast.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::optim {

AveragedWeights::AveragedWeights(ParameterList parameters, Options options)
    : options_(options), parameters_(std::move(parameters.parameters)) {
  if (parameters_.empty()) throw UsageError("AveragedWeights: no parameters to average");
  if (!(options_.decay >= 0 && options_.decay < 1))
    throw UsageError(fmt::format("AveragedWeights: decay is {}; it must be in [0, 1)", options_.decay));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    nn::NamedParameter& p = parameters_[i];
    if (p.name.empty()) p.name = fmt::format("parameter_{}", i);
    averages_.emplace_back(p.variable.value(), "average." + p.name, false);
  }
  count_ = Variable(zeros({}, DType::i32, parameters_[0].variable.device()), "average.count", false);
}

void AveragedWeights::update() {
  const NoGrad no_grad;
  const graph::NoAutocast in_given_types;
  const Tensor before = count_.value(), next = before + 1.0;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const Tensor p = parameters_[i].variable.value(), average = averages_[i].value();
    const DType type = p.dtype();
    // The share of the new value: all of it at first.
    const Tensor share = options_.decay == 0
                             ? 1.0 / cast(next, type)
                             : where(before <= 0.0, scalar_like(1, p), scalar_like(1 - options_.decay, p));
    averages_[i].assign(average + (p - average) * share);
  }
  count_.assign(next);
}

void AveragedWeights::swap() {
  const NoGrad no_grad;
  std::vector<Tensor> both;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    both.push_back(averages_[i].value());
    both.push_back(parameters_[i].variable.value());
  }
  eval(both);
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    parameters_[i].variable.assign(both[2 * i]);
    averages_[i].assign(both[2 * i + 1]);
  }
}

std::vector<Tensor> AveragedWeights::values() const {
  std::vector<Tensor> list;
  for (const Variable& average : averages_) list.push_back(average.value());
  return list;
}

std::int64_t AveragedWeights::update_count() const { return count_.value().item<std::int32_t>(); }

std::vector<nn::NamedVariable> AveragedWeights::variables() const {
  std::vector<nn::NamedVariable> list = {{"n_averaged", count_}};
  for (std::size_t i = 0; i < averages_.size(); ++i) list.push_back({parameters_[i].name, averages_[i]});
  return list;
}

nn::StateDict AveragedWeights::state_dict() const { return nn::read_state(variables()); }

void AveragedWeights::load_state_dict(const nn::StateDict& state) {
  nn::write_state(variables(), state, true, "averaged weights");
}

}  // namespace weft::optim
