// The optimiser of a run.
#pragma once

#include <memory>

#include "weft/optim/optimizer.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

/// The configuration's rule with its options over some parameters, clipped if `clip`.
/// Errors  UsageError: an unknown rule, or an option that it does not have.
std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config, optim::ParameterList parameters, bool clip);
/// Elements of the rule's state beside all parameters of a model.
Extent state_numel(const RunConfig& config, const nn::Module& model);
/// The options that the rule gets.
optim::OptionValues optimizer_options(const RunConfig& config);

}  // namespace weft::train
