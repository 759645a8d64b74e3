#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "weft/ops.hpp"
#include "weft/optim/optimizer.hpp"

namespace weft::optim {

SGD::SGD(ParameterList parameters, SgdOptions options)
    : Optimizer(std::move(parameters), {options.learning_rate, options.clip_norm, options.decay_filter},
                options.momentum != 0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}),
      options_(std::move(options)) {
  for (const auto& [name, value] : {std::pair{"momentum", options_.momentum}, {"weight decay", options_.weight_decay}})
    if (!(value >= 0) || std::isinf(value))
      throw UsageError(fmt::format("SGD: {} {} must be a number of at least 0", name, value));
  if (!std::isfinite(options_.dampening))
    throw UsageError(fmt::format("SGD: dampening {} must be a number", options_.dampening));
  if (options_.nesterov && (options_.momentum <= 0 || options_.dampening != 0))
    throw UsageError("SGD: Nesterov's form needs momentum above 0 and dampening 0");
}

void SGD::update(Group& group, const Tensor& gradient, const Tensor& learning_rate, const Tensor& step) {
  const Tensor p = group.flat.value();
  Tensor g = options_.maximize ? -gradient : gradient;
  if (options_.weight_decay != 0 && group.decay) g = g + p * options_.weight_decay;
  if (options_.momentum != 0) {
    Tensor b = group.state[0].value() * options_.momentum + g * (1 - options_.dampening);
    if (options_.dampening != 0) b = elementwise("where", {step <= scalar_like(1, step), g, b});
    group.state[0].assign(b);
    g = options_.nesterov ? g + b * options_.momentum : b;
  }
  group.flat.assign(p - learning_rate * g);
}

}  // namespace weft::optim
