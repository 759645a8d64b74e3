// weft ops list
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/op_registry.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The texts of a row, gradients also where they are derived.
void add_row(OrderedJson& json, const ops::ElementwiseRow& row) {
  json["formula"] = row.forward;
  std::vector<std::string> names(row.inputs.begin(), row.inputs.end());
  for (const ops::Attribute& a : row.attributes) names.emplace_back(a.name);
  names.emplace_back("output");
  names.emplace_back("g");
  json["gradients"] = OrderedJson::object();
  if (row.differentiable) {
    const std::vector<scalar::Expression>& gradients = ops::gradients(row);
    for (std::size_t i = 0; i < row.inputs.size(); ++i)
      json["gradients"][std::string(row.inputs[i])] = scalar::to_text(gradients[i], names);
  }
  json["tested"] = OrderedJson::array();
  for (std::size_t i = 0; i < row.inputs.size(); ++i)
    json["tested"].push_back({row.tested.of(i).lo, row.tested.of(i).hi});
  OrderedJson attributes = OrderedJson::object();
  for (const ops::Attribute& a : row.attributes) attributes[std::string(a.name)] = a.tested;
  json["tested_attributes"] = attributes;
  json["kinks"] = std::vector<std::string>(row.kinks.begin(), row.kinks.end());
  json["max_ulp"] = row.max_ulp.value;
  json["ulp_floor"] = row.ulp_floor;
  json["second_order"] = row.differentiable && row.second_order;
}

void add_row(OrderedJson& json, const ops::ReduceRow& row) {
  json["formula"] = {{"center", row.center},
                     {"pre", row.pre},
                     {"reduction", scalar::name_of(row.reduction.value)},
                     {"post", row.post}};
  json["tested"] = {{row.tested.lo, row.tested.hi}};
  OrderedJson attributes = OrderedJson::object();
  for (const ops::Attribute& a : row.attributes) attributes[std::string(a.name)] = a.tested;
  json["tested_attributes"] = attributes;
  json["max_ulp"] = row.max_ulp.value;
  json["ulp_floor"] = row.ulp_floor;
  json["allows_empty"] = row.allows_empty;
}

OrderedJson described(const OpSpec& spec) {
  OrderedJson json;
  json["name"] = spec.name;
  json["aliases"] = spec.aliases;
  json["family"] = spec.family;
  json["inputs"] = OrderedJson::array();
  for (const InputSpec& input : spec.inputs)
    json["inputs"].push_back({{"name", input.name}, {"optional", input.optional}, {"repeated", input.repeated}});
  json["attributes"] = OrderedJson::array();
  for (const AttributeSpec& a : spec.attributes) {
    OrderedJson attribute{
        {"name", a.name}, {"aliases", a.aliases}, {"type", name_of(a.type)}, {"required", !a.default_value}};
    if (a.default_value) attribute["default"] = *a.default_value;
    if (!a.choices.empty()) attribute["choices"] = a.choices;
    attribute["doc"] = a.doc;
    json["attributes"].push_back(std::move(attribute));
  }
  json["outputs"] = spec.several_outputs ? "several" : "one";
  json["dtypes"] = spec.dtypes;
  json["result"] = spec.result;
  json["differentiable"] = spec.differentiable;
  if (spec.row) add_row(json, *spec.row);
  if (spec.reduce) add_row(json, *spec.reduce);
  json["doc"] = spec.doc;
  return json;
}

// "clamp (clip)  x; min=-inf, max=inf".
std::string signature(const OpSpec& spec) {
  std::vector<std::string> inputs, attributes;
  for (const InputSpec& input : spec.inputs)
    inputs.push_back(input.optional ? "[" + input.name + "]" : input.repeated ? input.name + "..." : input.name);
  for (const AttributeSpec& a : spec.attributes)
    attributes.push_back(!a.default_value ? a.name
                         : a.default_value->is_string()
                             ? fmt::format("{}={}", a.name, a.default_value->get<std::string>())
                             : fmt::format("{}={}", a.name, a.default_value->dump()));
  return fmt::format("{}{}{}", fmt::join(inputs, ", "), inputs.empty() || attributes.empty() ? "" : "; ",
                     fmt::join(attributes, ", "));
}

int list(bool json) {
  if (json) {
    OrderedJson all{{"weft", WEFT_VERSION}, {"ops", OrderedJson::array()}};
    for (const OpSpec& spec : op_specs()) all["ops"].push_back(described(spec));
    fmt::print("{}\n", all.dump(2));
    return kOk;
  }
  std::string_view family;
  std::size_t aliases = 0;
  for (const OpSpec& spec : op_specs()) {
    if (spec.family != family) fmt::print("{}{}\n", family.empty() ? "" : "\n", spec.family);
    family = spec.family;
    aliases += spec.aliases.size();
    std::string name = spec.name;
    if (!spec.aliases.empty()) name += fmt::format(" ({})", fmt::join(spec.aliases, ", "));
    fmt::print("  {:<34}  {:<44}  {}\n", name, signature(spec), spec.doc);
  }
  fmt::print(
      "\n{} ops, {} further names. Inputs come before the semicolon, attributes with their defaults behind it.\n",
      op_specs().size(), aliases);
  return kOk;
}

}  // namespace

void set_up_ops(CLI::App& app, Action& action) {
  app.require_subcommand(1);
  CLI::App* sub = app.add_subcommand("list", "list every op: names, inputs, attributes, meaning");
  auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "for machines, with dtypes, gradients, tested ranges and accuracy");
  sub->callback([&action, json] { action = [json] { return list(*json); }; });
}

}  // namespace weft::cli
