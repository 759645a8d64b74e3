// weft ops list
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cli/commands.hpp"
#include "cli/op_json.hpp"
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

// "f32 f64", or with names where inputs differ: "table: any; indices: i32 u32".
std::string dtypes_text(const graph::OpRow& row) {
  if (row.inputs.empty()) return "";
  const std::string first = row.inputs[0].dtypes_text();
  std::vector<std::string> each;
  bool all_same = true;
  for (const graph::InputSpec& input : row.inputs) {
    all_same &= input.dtypes_text() == first;
    each.push_back(fmt::format("{}: {}", input.name, input.dtypes_text()));
  }
  return all_same ? first : fmt::format("{}", fmt::join(each, "; "));
}

OrderedJson described(const graph::CaseInput& input) {
  if (input.absent) return nullptr;
  OrderedJson json{{"shape", input.shape.vector()}, {"dtype", name_of(input.type)}};
  if (input.values.empty()) {
    json["lo"] = input.lo;
    json["hi"] = input.hi;
  } else {
    json["values"] = OrderedJson::array();
    for (const double value : input.values) json["values"].push_back(to_json(graph::AttributeValue(value)));
  }
  return json;
}

OrderedJson described(const auto& one) {  // a tested case, or one that is refused
  OrderedJson json{{"name", one.name}, {"inputs", OrderedJson::array()}, {"attributes", OrderedJson::object()}};
  for (const graph::CaseInput& input : one.inputs) json["inputs"].push_back(described(input));
  for (const auto& [name, value] : one.attributes) json["attributes"][name] = to_json(value);
  return json;
}

OrderedJson described(const graph::OpRow& row) {
  OrderedJson json;
  json["name"] = row.name;
  json["aliases"] = row.aliases;
  json["family"] = row.family;
  json["inputs"] = OrderedJson::array();
  for (const graph::InputSpec& input : row.inputs)
    json["inputs"].push_back({{"name", input.name},
                              {"optional", input.optional},
                              {"repeated", input.repeated},
                              {"dtypes", input.dtypes_text()}});
  json["attributes"] = OrderedJson::array();
  for (const graph::AttributeSpec& a : row.attributes) {
    OrderedJson attribute{
        {"name", a.name}, {"aliases", a.aliases}, {"type", name_of(a.type)}, {"required", !a.default_value}};
    if (a.default_value) attribute["default"] = to_json(*a.default_value);
    if (!a.choices.empty()) attribute["choices"] = a.choices;
    attribute["doc"] = a.doc;
    json["attributes"].push_back(std::move(attribute));
  }
  json["outputs"] = row.several_outputs ? "several" : "one";
  json["dtypes"] = dtypes_text(row);
  json["result"] = row.result;
  json["differentiable"] = row.differentiable;
  if (row.elementwise) add_row(json, *row.elementwise);
  if (row.reduction) add_row(json, *row.reduction);
  if (!row.formula.empty()) json["formula"] = row.formula;
  OrderedJson names = OrderedJson::object();
  if (!row.torch.empty()) names["torch"] = row.torch;
  if (!row.numpy.empty()) names["numpy"] = row.numpy;
  if (!row.onnx.empty()) names["onnx"] = row.onnx;
  json["names"] = names;
  json["cases"] = OrderedJson::array();
  for (const graph::OpCase& one : row.cases) {
    json["cases"].push_back(described(one));
    json["cases"].back()["gradients"] = row.differentiable && one.compares_gradients;
  }
  json["errors"] = OrderedJson::array();
  for (const graph::ErrorCase& one : row.errors) {
    json["errors"].push_back(described(one));
    json["errors"].back()["message"] = one.message;
  }
  json["doc"] = row.doc;
  return json;
}

// "clamp (clip)  x; min=-inf, max=inf".
std::string signature(const graph::OpRow& row) {
  std::vector<std::string> inputs, attributes;
  for (const graph::InputSpec& input : row.inputs)
    inputs.push_back(input.optional ? "[" + input.name + "]" : input.repeated ? input.name + "..." : input.name);
  for (const graph::AttributeSpec& a : row.attributes)
    attributes.push_back(a.default_value ? fmt::format("{}={}", a.name, graph::to_string(*a.default_value)) : a.name);
  return fmt::format("{}{}{}", fmt::join(inputs, ", "), inputs.empty() || attributes.empty() ? "" : "; ",
                     fmt::join(attributes, ", "));
}

int list(bool json) {
  if (json) {
    OrderedJson all{{"weft", WEFT_VERSION}, {"ops", OrderedJson::array()}};
    for (const graph::OpRow* row : graph::op_rows()) all["ops"].push_back(described(*row));
    fmt::print("{}\n", all.dump(2));
    return kOk;
  }
  std::string_view family;
  std::size_t aliases = 0;
  std::vector<const graph::OpRow*> rows = graph::op_rows();
  std::map<std::string_view, std::size_t> place;  // of a family: rows of one may be in several files
  for (const graph::OpRow* row : rows) place.emplace(row->family, place.size());
  std::stable_sort(rows.begin(), rows.end(), [&](const graph::OpRow* a, const graph::OpRow* b) {
    return place.at(a->family) < place.at(b->family);
  });
  for (const graph::OpRow* each : rows) {
    const graph::OpRow& row = *each;
    if (row.family != family) fmt::print("{}{}\n", family.empty() ? "" : "\n", row.family);
    family = row.family;
    aliases += row.aliases.size();
    std::string name = row.name;
    if (!row.aliases.empty()) name += fmt::format(" ({})", fmt::join(row.aliases, ", "));
    fmt::print("  {:<34}  {:<44}  {}\n", name, signature(row), row.doc);
  }
  fmt::print("\n{} ops, {} further names. Inputs come before the semicolon, attributes with their defaults after it.\n",
             rows.size(), aliases);
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
