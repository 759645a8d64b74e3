#include "cli/op_registry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/quote.hpp"
#include "ops/names.hpp"

namespace weft::cli {
namespace {

std::string text_of(ops::DTypes dtypes) {
  std::string names;
  for (DType type : kComputeDTypes)
    if (ops::allows(dtypes, type)) names += (names.empty() ? "" : " ") + std::string(name_of(type));
  return names;
}

std::string_view text_of(ops::Result result) {
  switch (result) {
    case ops::Result::same: return "that of the inputs";
    case ops::Result::floating: return "float";
    case ops::Result::boolean: return "bool";
    case ops::Result::integer: return "i32";
  }
  throw InternalError("op registry: unknown rule of the result's dtype");
}

Json json_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

std::vector<AttributeSpec> attributes_of(const auto& row) {
  std::vector<AttributeSpec> specs;
  for (const ops::Attribute& a : row.attributes)
    specs.push_back({std::string(a.name), AttributeType::number, json_number(a.default_value), std::string(a.doc)});
  return specs;
}

std::vector<double> row_numbers(const Arguments& arguments, const auto& row) {
  std::vector<double> values;
  for (const ops::Attribute& a : row.attributes) values.push_back(arguments.number(a.name));
  return values;
}

OpSpec elementwise_spec(const ops::ElementwiseRow& row) {
  static constexpr std::string_view kFamilies[] = {"unary", "binary", "ternary"};
  OpSpec spec{.name = std::string(row.name),
              .aliases = {row.aliases.begin(), row.aliases.end()},
              .family = std::string(kFamilies[std::min<std::size_t>(row.inputs.size(), 3) - 1]),
              .attributes = attributes_of(row),
              .dtypes = std::string(text_of(row.dtypes)),
              .result = std::string(text_of(row.result)),
              .differentiable = row.differentiable,
              .doc = std::string(row.doc),
              .row = &row};
  for (std::string_view input : row.inputs) spec.inputs.push_back({std::string(input)});
  spec.apply = [&row](const Arguments& a) {
    return std::vector<Tensor>{elementwise(row.name, a.inputs(), row_numbers(a, row))};
  };
  return spec;
}

OpSpec reduce_spec(const ops::ReduceRow& row) {
  OpSpec spec{.name = std::string(row.name),
              .aliases = {row.aliases.begin(), row.aliases.end()},
              .family = "reduction",
              .inputs = {{"x"}},
              .attributes = attributes_of(row),
              .dtypes = std::string(text_of(row.dtypes)),
              .result = std::string(text_of(row.result)),
              .differentiable = row.differentiable,
              .doc = std::string(row.doc),
              .reduce = &row};
  for (AttributeSpec& a : spec.attributes)
    if (a.name == "correction") a.aliases = {"ddof"};
  spec.attributes.push_back({"axes",
                             AttributeType::integers,
                             Json::array(),
                             "axes to reduce; none given: all of them",
                             {"axis", "dim", "dims"}});
  spec.attributes.push_back(
      {"keepdims", AttributeType::boolean, false, "whether reduced axes stay, with extent 1", {"keepdim"}});
  spec.apply = [&row](const Arguments& a) {
    return std::vector<Tensor>{
        reduce(row.name, a.input(0), a.axes("axes"), {.keepdims = a.boolean("keepdims")}, row_numbers(a, row))};
  };
  return spec;
}

struct Registry {
  std::vector<OpSpec> specs;
  std::unordered_map<std::string_view, const OpSpec*> by_name;
  std::vector<std::string_view> names;
};

const Registry& registry() {
  static const Registry& r = *[] {
    auto* made = new Registry;
    for (const ops::ElementwiseRow* row : ops::elementwise_rows()) made->specs.push_back(elementwise_spec(*row));
    for (const ops::ReduceRow& row : ops::reduce_rows()) made->specs.push_back(reduce_spec(row));
    for (auto* family : {&shape_ops, &composite_ops})
      for (OpSpec& spec : family()) made->specs.push_back(std::move(spec));
    auto enter = [&](std::string_view name, const OpSpec& spec) {
      if (!made->by_name.emplace(name, &spec).second)
        throw InternalError(fmt::format("op registry: two ops are called {}", name));
      made->names.push_back(name);
    };
    for (const OpSpec& spec : made->specs) {
      enter(spec.name, spec);
      for (const std::string& alias : spec.aliases) enter(alias, spec);
    }
    return made;
  }();
  return r;
}

bool is_number(const Json& value) {
  return value.is_number() || (value.is_string() && (value == "inf" || value == "-inf" || value == "nan"));
}
// An integer, also written as 3.0, of 64 bits.
bool is_whole(const Json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= INT64_MAX;
  if (value.is_number_integer()) return true;
  return value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>() &&
         std::abs(value.get<double>()) <= 0x1p53;
}

bool fits(const AttributeSpec& attribute, const Json& value) {
  switch (attribute.type) {
    case AttributeType::integer: return is_whole(value);
    case AttributeType::number: return is_number(value);
    case AttributeType::boolean: return value.is_boolean();
    case AttributeType::integers:
      return is_whole(value) || (value.is_array() && std::all_of(value.begin(), value.end(), is_whole));
    case AttributeType::pairs:
      return value.is_array() && std::all_of(value.begin(), value.end(), [](const Json& pair) {
               return pair.is_array() && pair.size() == 2 && is_whole(pair[0]) && is_whole(pair[1]);
             });
    case AttributeType::dtype: return value.is_string() && dtype_from_name(value.get<std::string>()).has_value();
    case AttributeType::choice:
      return value.is_string() && std::find(attribute.choices.begin(), attribute.choices.end(),
                                            value.get<std::string>()) != attribute.choices.end();
  }
  return false;
}

std::string wanted(const AttributeSpec& attribute) {
  switch (attribute.type) {
    case AttributeType::integer: return "an integer";
    case AttributeType::number: return "a number (or \"inf\", \"-inf\", \"nan\")";
    case AttributeType::boolean: return "true or false";
    case AttributeType::integers: return "a list of integers";
    case AttributeType::pairs: return "a list of pairs [before, after]";
    case AttributeType::dtype: return "\"f32\", \"f64\", \"i32\", \"u32\" or \"bool\"";
    case AttributeType::choice: return fmt::format("one of {}", fmt::join(attribute.choices, ", "));
  }
  return "";
}

std::string known_attributes(const OpSpec& spec) {
  if (spec.attributes.empty()) return fmt::format("{} has none", spec.name);
  std::vector<std::string> names;
  for (const AttributeSpec& a : spec.attributes) names.push_back(a.name);
  return fmt::format("{} has {}", spec.name, fmt::join(names, ", "));
}

const AttributeSpec& attribute_of(const OpSpec& spec, const std::string& name) {
  for (const AttributeSpec& a : spec.attributes)
    if (a.name == name || std::find(a.aliases.begin(), a.aliases.end(), name) != a.aliases.end()) return a;
  throw UsageError(fmt::format("{}: unknown attribute {}; {}", spec.name, quote(name), known_attributes(spec)));
}

std::map<std::string, Json> checked(const OpSpec& spec, const Json& given) {
  if (!given.is_object()) throw UsageError(fmt::format("{}: attributes are not an object {{name: value}}", spec.name));
  std::map<std::string, Json> values;
  for (const auto& [name, value] : given.items()) {
    const AttributeSpec& attribute = attribute_of(spec, name);
    if (value.is_null() && attribute.default_value) continue;
    if (!fits(attribute, value))
      throw UsageError(fmt::format("{}: attribute {} is {}, not {}", spec.name, name,
                                   quote(value.dump(-1, ' ', false, Json::error_handler_t::replace)),
                                   wanted(attribute)));
    if (!values.emplace(attribute.name, value).second)
      throw UsageError(
          fmt::format("{}: attribute {} is given twice, by its name and by an alias", spec.name, attribute.name));
  }
  for (const AttributeSpec& attribute : spec.attributes) {
    if (values.contains(attribute.name)) continue;
    if (!attribute.default_value)
      throw UsageError(fmt::format("{}: attribute {} is missing ({})", spec.name, attribute.name, attribute.doc));
    values.emplace(attribute.name, *attribute.default_value);
  }
  return values;
}

void check_inputs(const OpSpec& spec, std::vector<Tensor>& inputs) {
  std::vector<std::string> names;
  for (const InputSpec& input : spec.inputs)
    names.push_back(input.name + (input.optional ? " (optional)" : input.repeated ? "..." : ""));
  const std::string signature = names.empty() ? "it takes none" : fmt::format("it takes {}", fmt::join(names, ", "));
  const bool repeated = !spec.inputs.empty() && spec.inputs.back().repeated;
  if (inputs.size() > spec.inputs.size() && !repeated)
    throw UsageError(fmt::format("{}: {} inputs are given; {}", spec.name, inputs.size(), signature));
  inputs.resize(std::max(inputs.size(), spec.inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const InputSpec& input = spec.inputs[std::min(i, spec.inputs.size() - 1)];
    if (!inputs[i].defined() && !input.optional)
      throw UsageError(fmt::format("{}: input {} is missing; {}", spec.name, input.name, signature));
  }
}

}  // namespace

std::string_view name_of(AttributeType type) {
  static constexpr std::string_view kNames[] = {"integer", "number", "boolean", "integers", "pairs", "dtype", "choice"};
  return kNames[static_cast<int>(type)];
}

const Json& Arguments::value(std::string_view name) const {
  const auto found = attributes_.find(std::string(name));
  if (found == attributes_.end())
    throw InternalError(fmt::format("{}: attribute {} is not described", spec_.name, name));
  return found->second;
}

namespace {
Extent whole(const Json& value) {
  return value.is_number_float() ? static_cast<Extent>(value.get<double>()) : value.get<Extent>();
}
int narrowed(const OpSpec& spec, std::string_view name, Extent value) {
  if (value < INT32_MIN || value > INT32_MAX)
    throw UsageError(fmt::format("{}: attribute {} is {}, beyond 32 bits", spec.name, name, value));
  return static_cast<int>(value);
}
}  // namespace

Extent Arguments::integer(std::string_view name) const { return whole(value(name)); }

Extent Arguments::integer_or(std::string_view name, Extent fallback) const {
  return value(name).is_null() ? fallback : integer(name);
}

int Arguments::small(std::string_view name) const { return narrowed(spec_, name, integer(name)); }

double Arguments::number(std::string_view name) const {
  const Json& v = value(name);
  if (v.is_number()) return v.get<double>();
  return v == "nan"   ? std::numeric_limits<double>::quiet_NaN()
         : v == "inf" ? std::numeric_limits<double>::infinity()
                      : -std::numeric_limits<double>::infinity();
}

bool Arguments::boolean(std::string_view name) const { return value(name).get<bool>(); }

std::vector<Extent> Arguments::integers(std::string_view name) const {
  const Json& v = value(name);
  if (!v.is_array()) return {whole(v)};
  std::vector<Extent> result;
  for (const Json& element : v) result.push_back(whole(element));
  return result;
}

Axes Arguments::axes(std::string_view name) const {
  Axes result;
  for (Extent axis : integers(name)) result.push_back(narrowed(spec_, name, axis));
  return result;
}

std::vector<std::pair<Extent, Extent>> Arguments::pairs(std::string_view name) const {
  std::vector<std::pair<Extent, Extent>> result;
  for (const Json& pair : value(name)) result.emplace_back(whole(pair[0]), whole(pair[1]));
  return result;
}

DType Arguments::dtype(std::string_view name) const { return *dtype_from_name(value(name).get<std::string>()); }

std::string Arguments::word(std::string_view name) const { return value(name).get<std::string>(); }

std::span<const OpSpec> op_specs() { return registry().specs; }

const OpSpec& find_op(std::string_view name) {
  const Registry& r = registry();
  const auto found = r.by_name.find(name);
  if (found != r.by_name.end()) return *found->second;
  const std::string_view nearest = nearest_name(name, r.names);
  throw UsageError(fmt::format("no op is called {}.{} All of them: weft ops list", quote(name),
                               nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
}

std::vector<Tensor> apply_op(const OpSpec& spec, std::vector<Tensor> inputs, const Json& attributes) {
  check_inputs(spec, inputs);
  return spec.apply(Arguments(spec, std::move(inputs), checked(spec, attributes)));
}

}  // namespace weft::cli
