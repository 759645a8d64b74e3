// The update rules as a table, for programs that choose one by name.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/optim/base.hpp"

namespace weft::optim {

using OptionValues = std::map<std::string, OptionValue, std::less<>>;

struct OptionInfo {
  std::string name;      // "beta_1"
  OptionValue standard;  // its value if it is not given
  std::string doc;
};

/// An update rule. Rules of the table are never freed.
struct RuleInfo {
  struct Group {
    ParameterList parameters;
    OptionValues options = {};
  };
  std::string name;   // "rmsprop"
  std::string title;  // "RMSprop", the class
  std::string doc;
  std::vector<OptionInfo> options;
  /// Errors  UsageError: an option that the rule does not have, of another type or outside of its range.
  std::unique_ptr<Optimizer> (*make)(std::vector<Group> groups, std::function<bool(std::string_view)> matrix_filter);
  /// Elements of the state beside a parameter of that name and shape. Errors: as `make`.
  Extent (*state_numel)(const std::string& name, const Shape& parameter, const OptionValues& options,
                        const std::function<bool(std::string_view)>& matrix_filter);
};

/// All rules, in the order of the documentation.
std::span<const RuleInfo> rules();
/// The rule of a name or class, in any case. Errors: UsageError that lists the names.
const RuleInfo& rule_named(std::string_view name);
/// Options from NAME=VALUE, where VALUE is true, false or a number, as commands and files give them. Errors: UsageError for others.
OptionValues option_values(std::span<const std::string> given);
/// The optimiser of that name. Numbers are taken for each other (1 for 1.0). `matrix_filter` chooses Muon's matrices.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParameterList parameters, OptionValues options = {},
                                          std::function<bool(std::string_view)> matrix_filter = {});

}  // namespace weft::optim
