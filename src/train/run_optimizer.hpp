// The optimiser of a run.
#pragma once

#include <memory>

#include "weft/optim/optimizer.hpp"
#include "weft/train/config.hpp"

namespace weft::train {

/// The configuration's rule with its options over some parameters, clipped if `clip`.
/// Errors  UsageError: an unknown rule, or an option that it does not have.
std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config, optim::ParameterList parameters, bool clip);
/// The options that the rule gets.
optim::OptionValues optimizer_options(const RunConfig& config);

}  // namespace weft::train
