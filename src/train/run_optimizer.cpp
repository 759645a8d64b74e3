#include "train/run_optimizer.hpp"

#include <algorithm>

namespace weft::train {
namespace {

// Muon is for the matrices between embeddings and head.
bool is_hidden_matrix(std::string_view name) {
  return name.find("embedding") == std::string_view::npos && !name.starts_with("head.");
}

}  // namespace

optim::OptionValues optimizer_options(const RunConfig& config) {
  const optim::RuleInfo& rule = optim::rule_named(config.optimizer);
  optim::OptionValues options;
  const std::pair<const char*, double> of_all_rules[] = {{"learning_rate", config.learning_rate},
                                                         {"weight_decay", config.weight_decay},
                                                         {"beta_1", config.beta_1},
                                                         {"beta_2", config.beta_2}};
  for (const auto& [name, value] : of_all_rules)
    if (std::any_of(rule.options.begin(), rule.options.end(), [&](const auto& option) { return option.name == name; }))
      options[name] = value;
  for (const auto& [name, value] : config.optimizer_options) options[name] = value;
  return options;
}

Extent state_numel(const RunConfig& config, const nn::Module& model) {
  const optim::RuleInfo& rule = optim::rule_named(config.optimizer);
  const optim::OptionValues options = optimizer_options(config);
  Extent count = 0;
  const std::function<void(const nn::Module&, const std::string&)> add = [&](const nn::Module& module,
                                                                             const std::string& prefix) {
    for (const auto& [name, shape] : module.own_parameters())
      count += rule.state_numel(prefix + name, shape, options, is_hidden_matrix);
    for (const auto& [name, child] : module.children()) add(*child, prefix + name + ".");
  };
  add(model, "");
  return count;
}

std::unique_ptr<optim::Optimizer> make_optimizer(const RunConfig& config, optim::ParameterList parameters, bool clip) {
  optim::OptionValues options = optimizer_options(config);
  options["clip_norm"] = clip ? config.clip_norm : 0;
  return optim::make_optimizer(config.optimizer, std::move(parameters), std::move(options), is_hidden_matrix);
}

}  // namespace weft::train
