#include "weft/optim/table.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "base/quote.hpp"
#include "optim/rule.hpp"

namespace weft::optim {
namespace {

// ---- Options ------------------------------------------------------------------------------------------------------------

const char* allowed(Range range) {
  switch (range) {
    case Range::any: return "a number";
    case Range::not_negative: return "a number of at least 0";
    case Range::positive: return "a number above 0";
    case Range::share: break;
  }
  return "in [0, 1)";
}

bool is_in(Range range, double value) {
  if (!std::isfinite(value)) return false;
  switch (range) {
    case Range::any: return true;
    case Range::not_negative: return value >= 0;
    case Range::positive: return value > 0;
    case Range::share: break;
  }
  return value >= 0 && value < 1;
}

template <class Options>
void check_options(const Options& options) {
  const Rule<Options>& rule = rule_of(options);
  for (const Field<Options>& field : fields_of<Options>()) {
    const double value =
        std::visit([&](const auto member) { return static_cast<double>(options.*member); }, field.member);
    if (!is_in(field.range, value))
      throw UsageError(fmt::format("{}: {} is {}; it must be {}", rule.title, field.name, value, allowed(field.range)));
  }
  if (rule.check) rule.check(options);
}

template <class Options>
void assign(Options& options, const std::string& name, const OptionValue& value) {
  const char* const title = rule_of(options).title;
  std::string known;
  for (const Field<Options>& field : fields_of<Options>()) {
    if (name != field.name) {
      known += (known.empty() ? "" : ", ") + std::string(field.name);
      continue;
    }
    const auto refuse = [&](const char* wanted) {
      throw UsageError(fmt::format("{}: the option {} must be {}", title, quote(name), wanted));
    };
    const bool is_flag = std::holds_alternative<bool>(value);
    const double number = std::visit([](const auto v) { return static_cast<double>(v); }, value);
    if (const auto* flag = std::get_if<bool Options::*>(&field.member)) {
      if (!is_flag) refuse("true or false");
      options.*(*flag) = std::get<bool>(value);
    } else if (const auto* whole = std::get_if<Extent Options::*>(&field.member)) {
      if (is_flag || number != std::floor(number) || std::abs(number) > 1e9) refuse("a whole number");
      options.*(*whole) = static_cast<Extent>(number);
    } else {
      if (is_flag) refuse("a number");
      options.*std::get<double Options::*>(field.member) = number;
    }
    return;
  }
  throw UsageError(fmt::format("{}: there is no option {}; there are {}", title, quote(name), known));
}

}  // namespace

// ---- Updates ------------------------------------------------------------------------------------------------------------

std::vector<Tensor> Update::parts(const Tensor& flat, std::span<const Shape> shapes) {
  std::vector<Tensor> list;
  Extent offset = 0;
  for (const Shape& shape : shapes) {
    list.push_back(reshape(narrow(flat, 0, offset, shape.numel()), shape));
    offset += shape.numel();
  }
  return list;
}
std::vector<Tensor> Update::parts(const Tensor& flat) const { return parts(flat, shapes); }

Tensor Update::join(std::span<const Tensor> parts) {
  std::vector<Tensor> list;
  for (const Tensor& part : parts) list.push_back(reshape(part, {part.numel()}));
  return concat(list, 0);
}

template <class Options>
RuleOptimizer<Options>::RuleOptimizer(std::vector<ParameterGroup<Options>> groups)
    : Optimizer(
          [&] {
            ParameterList all{std::vector<nn::NamedParameter>{}};
            for (const auto& group : groups)
              all.parameters.insert(all.parameters.end(), group.parameters.parameters.begin(),
                                    group.parameters.parameters.end());
            return all;
          }(),
          [&] {
            if (groups.empty()) throw UsageError("optimizer: no groups of parameters");
            Layout layout;
            for (const auto& group : groups) {
              check_options(group.options);
              layout.sets.push_back(
                  {group.parameters.parameters.size(),
                   {group.options.learning_rate, group.options.clip_norm, group.options.decay_filter}});
            }
            const Rule<Options>& rule = rule_of(groups[0].options);
            if (rule.kind)
              layout.kind = [&groups, &rule](const nn::NamedParameter& p, std::size_t set) {
                return rule.kind(groups[set].options, p);
              };
            layout.states = [&groups, &rule](int kind, std::size_t set) {
              std::vector<State> states;
              for (StateRow& row : rule.states(groups[set].options, kind))
                states.push_back({std::move(row.name), row.initial, row.shape, std::move(row.older_name)});
              return states;
            };
            return layout;
          }()) {
  for (auto& group : groups) options_.push_back(std::move(group.options));
}

template <class Options>
void RuleOptimizer<Options>::set_group_option(std::size_t group, const std::string& name, OptionValue value) {
  check_group(group);
  if (name == "learning_rate")
    return set_group_learning_rate(group, std::visit([](const auto v) { return static_cast<double>(v); }, value));
  Options changed = options_[group];
  assign(changed, name, value);
  check_options(changed);
  const Rule<Options>& rule = rule_of(changed);
  for (const Group& each : groups()) {
    if (each.set != group) continue;
    const int kind = rule.kind ? rule.kind(changed, parameter(each.members[0])) : 0;
    const std::vector<StateRow> states = rule.states(changed, kind);
    bool has_states = kind == each.kind && states.size() <= each.description.size();
    for (std::size_t i = 0; has_states && i < states.size(); ++i)
      has_states = states[i].name == each.description[i].name;
    if (!has_states)
      throw UsageError(fmt::format("{}: {} needs another state than the optimiser has; make it with this option",
                                   rule.title, quote(name)));
  }
  options_[group] = std::move(changed);
  if (group == 0) set_clip_norm(options_[0].clip_norm);
}

template <class Options>
void RuleOptimizer<Options>::update(Group& group, const Tensor& gradient, const Tensor& learning_rate,
                                    const Tensor& step) {
  const Options& o = options_[group.set];
  const Rule<Options>& rule = rule_of(o);
  Update u{.parameter = group.flat.value(),
           .gradient = o.maximize ? -gradient : gradient,
           .rate = learning_rate,
           .step = step,
           .state = {},
           .kind = group.kind,
           .shapes = {}};
  for (const std::size_t member : group.members) u.shapes.push_back(shape_of(member));
  for (const Variable& state : group.state) u.state.push_back(state.value());
  if constexpr (requires { o.weight_decay; }) {
    if (group.decay && o.weight_decay != 0) {
      switch (rule.decay(o)) {
        case Decay::coupled: u.gradient = u.gradient + u.parameter * o.weight_decay; break;
        case Decay::decoupled: u.parameter = u.parameter * (1.0 - learning_rate * o.weight_decay); break;
        case Decay::own: u.decay = o.weight_decay; break;
      }
    }
  }
  const Tensor next = rule.update(o, u);
  for (std::size_t s = 0; s < group.state.size(); ++s) group.state[s].assign(u.state[s]);
  group.flat.assign(next);
}

// ---- The table ----------------------------------------------------------------------------------------------------------

namespace {

template <class Options>
std::unique_ptr<Optimizer> made(std::vector<RuleInfo::Group> groups,
                                std::function<bool(std::string_view)> matrix_filter) {
  std::vector<ParameterGroup<Options>> list;
  for (RuleInfo::Group& group : groups) {
    Options options;
    for (const auto& [name, value] : group.options) assign(options, name, value);
    if constexpr (requires { options.matrix_filter; }) options.matrix_filter = matrix_filter;
    list.push_back({std::move(group.parameters), std::move(options)});
  }
  return std::make_unique<RuleOptimizer<Options>>(std::move(list));
}

template <class Options>
Extent state_numel(const std::string& name, const Shape& parameter, const OptionValues& values,
                   const std::function<bool(std::string_view)>& matrix_filter) {
  Options options;
  if constexpr (requires { options.matrix_filter; }) options.matrix_filter = matrix_filter;
  for (const auto& [name, value] : values) assign(options, name, value);
  const Rule<Options>& rule = rule_of(options);
  const nn::NamedParameter named{name, Variable(zeros(parameter)), parameter.rank() >= 2};
  Extent count = 0;
  for (const StateRow& row : rule.states(options, rule.kind ? rule.kind(options, named) : 0))
    count += (row.shape ? row.shape(parameter) : parameter).numel();
  return count;
}

template <class Options>
RuleInfo info() {
  const Options standard;
  const Rule<Options>& rule = rule_of(standard);
  RuleInfo row{rule.name, rule.title, rule.doc, {}, made<Options>, state_numel<Options>};
  for (const Field<Options>& field : fields_of<Options>())
    row.options.push_back({field.name,
                           std::visit([&](const auto member) { return OptionValue(standard.*member); }, field.member),
                           field.doc});
  return row;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return result;
}

}  // namespace

template class RuleOptimizer<SgdOptions>;
template class RuleOptimizer<AdamOptions>;
template class RuleOptimizer<AdamWOptions>;
template class RuleOptimizer<RMSpropOptions>;
template class RuleOptimizer<AdagradOptions>;
template class RuleOptimizer<AdadeltaOptions>;
template class RuleOptimizer<AdamaxOptions>;
template class RuleOptimizer<NAdamOptions>;
template class RuleOptimizer<RAdamOptions>;
template class RuleOptimizer<ASGDOptions>;
template class RuleOptimizer<RpropOptions>;
template class RuleOptimizer<LionOptions>;
template class RuleOptimizer<AdafactorOptions>;
template class RuleOptimizer<LAMBOptions>;
template class RuleOptimizer<MuonOptions>;

std::span<const RuleInfo> rules() {
  static const auto* const table = new std::vector<RuleInfo>{
      info<SgdOptions>(),       info<AdamOptions>(),     info<AdamWOptions>(),  info<RMSpropOptions>(),
      info<AdagradOptions>(),   info<AdadeltaOptions>(), info<AdamaxOptions>(), info<NAdamOptions>(),
      info<RAdamOptions>(),     info<ASGDOptions>(),     info<RpropOptions>(),  info<LionOptions>(),
      info<AdafactorOptions>(), info<LAMBOptions>(),     info<MuonOptions>()};
  return *table;
}

const RuleInfo& rule_named(std::string_view name) {
  std::string known;
  for (const RuleInfo& rule : rules()) {
    if (rule.name == lower(name)) return rule;
    known += (known.empty() ? "" : ", ") + rule.name;
  }
  throw UsageError(fmt::format("there is no optimizer {}; there are {}", quote(name), known));
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, ParameterList parameters, OptionValues options,
                                          std::function<bool(std::string_view)> matrix_filter) {
  std::vector<RuleInfo::Group> groups;
  groups.push_back({std::move(parameters), std::move(options)});
  return rule_named(name).make(std::move(groups), std::move(matrix_filter));
}

OptionValues option_values(std::span<const std::string> given) {
  OptionValues options;
  for (const std::string& each : given) {
    const std::size_t equals = each.find('=');
    const std::string name = each.substr(0, equals), value = equals == std::string::npos ? "" : each.substr(equals + 1);
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value == "true" || value == "false")
      options[name] = value == "true";
    else if (!value.empty() && error == std::errc() && end == value.data() + value.size())
      options[name] = number;
    else
      throw UsageError(
          fmt::format("--optimizer-option {}: give NAME=VALUE, where VALUE is true, false or a number", quote(each)));
  }
  return options;
}

}  // namespace weft::optim
