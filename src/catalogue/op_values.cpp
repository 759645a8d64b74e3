#include "catalogue/op_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::operations {
namespace {

using graph::AttributeSpec;
using graph::AttributeType;
using graph::AttributeValue;

// An integer of 64 bits, also written as 3.0.
std::optional<Extent> whole(const Value& value) {
  if (!value.is_number() || !value.is_integer()) return std::nullopt;
  if (value.kind() == Value::Kind::number && std::abs(value.number()) > 0x1p53) return std::nullopt;
  if (compare_numbers(value, INT64_MAX) > 0) return std::nullopt;
  return value.integer();
}

// An element of a list of numbers.
std::optional<double> number_in_list(const Value& value) {
  if (value.is_number()) return value.number();
  if (value.kind() != Value::Kind::string) return std::nullopt;
  const std::string& word = value.string();
  if (word == "inf" || word == "-inf") return (word == "inf" ? 1 : -1) * std::numeric_limits<double>::infinity();
  return word == "nan" ? std::optional(std::numeric_limits<double>::quiet_NaN()) : std::nullopt;
}

// nullopt for a value that no attribute can have.
std::optional<AttributeValue> attribute_value(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null: return std::monostate{};
    case Value::Kind::boolean: return value.boolean();
    case Value::Kind::string: return value.string();
    case Value::Kind::number: return value.number();
    case Value::Kind::integer: {
      const auto number = whole(value);
      return number ? std::optional<AttributeValue>(*number) : std::nullopt;
    }
    case Value::Kind::object:
    case Value::Kind::tensor: return std::nullopt;
    case Value::Kind::array: break;
  }
  std::vector<Extent> list;
  graph::Numbers numbers;  // of a list that is not of integers only
  graph::Pairs pairs;
  for (const Value& element : value.elements()) {
    if (const auto real = number_in_list(element)) numbers.push_back(*real);
    if (const auto number = whole(element)) {
      list.push_back(*number);
    } else if (number_in_list(element)) {
      continue;
    } else if (element.is_array() && element.elements().size() == 2 && whole(element[0]) && whole(element[1])) {
      pairs.emplace_back(*whole(element[0]), *whole(element[1]));
    } else {
      return std::nullopt;
    }
  }
  if (!numbers.empty() && !pairs.empty()) return std::nullopt;
  if (numbers.size() > list.size()) return numbers;
  if (!pairs.empty()) return pairs;
  return list;
}

Value integer_schema(const AttributeSpec& spec) {
  Value::Object schema{{"type", "integer"}};
  if (std::isfinite(spec.least)) schema.set("minimum", static_cast<Extent>(spec.least));
  if (std::isfinite(spec.most)) schema.set("maximum", static_cast<Extent>(spec.most));
  return schema;
}

Value number_schema(const AttributeSpec& spec) {
  Value::Object number{{"type", "number"}};
  if (std::isfinite(spec.least)) number.set("minimum", spec.least);
  if (std::isfinite(spec.most)) number.set("maximum", spec.most);
  Value::Array words;
  if (!std::isfinite(spec.most)) words.push_back("inf");
  if (!std::isfinite(spec.least)) words.push_back("-inf");
  if (!std::isfinite(spec.most) && !std::isfinite(spec.least)) words.push_back("nan");
  if (words.empty()) return number;
  return Value::object({{"anyOf", Value::array({std::move(number), Value::object({{"enum", std::move(words)}})})}});
}

Value attribute_schema(const AttributeSpec& spec) {
  Value schema;
  switch (spec.type) {
    case AttributeType::integer: schema = integer_schema(spec); break;
    case AttributeType::number: schema = number_schema(spec); break;
    case AttributeType::boolean: schema = Value::object({{"type", "boolean"}}); break;
    case AttributeType::integers:
      schema = Value::object(
          {{"anyOf", Value::array({Value::object({{"type", "array"}, {"items", Value::object({{"type", "integer"}})}}),
                                   Value::object({{"type", "integer"}})})}});
      break;
    case AttributeType::numbers: {
      Value each = number_schema(spec);
      schema = Value::object({{"anyOf", Value::array({Value::object({{"type", "array"}, {"items", each}}), each})}});
      break;
    }
    case AttributeType::pairs:
      schema = Value::object({{"type", "array"},
                              {"items", Value::object({{"type", "array"},
                                                       {"items", Value::object({{"type", "integer"}})},
                                                       {"minItems", 2},
                                                       {"maxItems", 2}})}});
      break;
    case AttributeType::dtype: {
      Value::Array names;
      for (const DType type : kAllDTypes) names.push_back(name_of(type));
      schema = Value::object({{"enum", std::move(names)}});
      break;
    }
    case AttributeType::choice: {
      Value::Array words(spec.choices.begin(), spec.choices.end());
      schema = Value::object({{"enum", std::move(words)}});
      break;
    }
  }
  // Null means the default, or an integer that is not given.
  if (spec.default_value)
    schema = Value::object({{"anyOf", Value::array({std::move(schema), Value::object({{"type", "null"}})})}});
  if (!spec.doc.empty()) schema.members().set("description", spec.doc);
  if (spec.default_value) schema.members().set("default", value_of(*spec.default_value));
  return schema;
}

Value operand_schema(const graph::InputSpec& input) {
  Value rule = true;
  if (input.dtypes != ops::DTypes::all || !input.only.empty()) {
    Value::Array names;
    for (const DType type : kAllDTypes)
      if (input.allows(type)) names.push_back(name_of(type));
    rule = Value::object({{"dtypes", std::move(names)}});
  }
  Value::Array forms{Value::object({{"x-tensor", std::move(rule)}}), Value::object({{"type", "number"}})};
  if (input.optional) forms.push_back(Value::object({{"type", "null"}}));
  return Value::object({{"anyOf", std::move(forms)}});
}

}  // namespace

graph::CaseAttributes attributes_from(const graph::OpRow& row, const Value& object) {
  if (!object.is_object()) throw UsageError(fmt::format("{}: attributes are not an object {{name: value}}", row.name));
  graph::CaseAttributes values;
  for (const auto& [name, value] : object.members()) {
    const AttributeSpec& spec = graph::attribute_of(row, name);
    const auto attribute = attribute_value(value);
    if (!attribute || !graph::converted(spec, *attribute))
      throw UsageError(
          fmt::format("{}: attribute {} is {}, not {}", row.name, name, quote(value.to_json()), wanted(spec)));
    values.emplace_back(name, *attribute);
  }
  return values;
}

Value value_of(const AttributeValue& value) {
  struct Visitor {
    Value operator()(std::monostate) const { return nullptr; }
    Value operator()(double v) const {
      if (std::isfinite(v)) return v;
      return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";
    }
    Value operator()(const graph::Pairs& pairs) const {
      Value::Array list;
      for (const auto& [first, second] : pairs) list.push_back(Value::array({first, second}));
      return list;
    }
    Value operator()(DType v) const { return name_of(v); }
    Value operator()(Extent v) const { return v; }
    Value operator()(bool v) const { return v; }
    Value operator()(const std::vector<Extent>& v) const { return Value::Array(v.begin(), v.end()); }
    Value operator()(const std::string& v) const { return v; }
    Value operator()(const graph::Numbers& numbers) const {
      Value::Array list;
      for (const double each : numbers) list.push_back((*this)(each));
      return list;
    }
  };
  return std::visit(Visitor{}, value);
}

Tensor number_operand(double number, std::optional<DType> common, Device device) {
  const bool is_whole = std::trunc(number) == number && std::abs(number) < 0x1p31;
  DType type = common.value_or(DType::f32);
  if (!is_float(type) && !is_whole) type = DType::f32;
  if (type == DType::boolean || (is_integer(type) && !element(type).is_signed && number < 0)) type = DType::i32;
  return full({}, number, type, device);
}

Value input_schema(const graph::OpRow& row) {
  Value::Object properties;
  Value::Array required;
  for (const graph::InputSpec& input : row.inputs) {
    Value schema = operand_schema(input);
    if (input.repeated) schema = Value::object({{"type", "array"}, {"minItems", 1}, {"items", std::move(schema)}});
    properties.set(input.name, std::move(schema));
    if (!input.optional) required.push_back(input.name);
  }
  for (const AttributeSpec& spec : row.attributes) {
    properties.set(spec.name, attribute_schema(spec));
    if (!spec.default_value) required.push_back(spec.name);
  }
  Value::Object schema{{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema.set("required", std::move(required));
  schema.set("additionalProperties", false);
  return schema;
}

Value output_schema(const graph::OpRow& row) {
  const Value tensor = Value::object({{"x-tensor", true}});
  const char* name = row.several_outputs ? "results" : "result";
  const Value results = row.several_outputs ? Value::object({{"type", "array"}, {"items", tensor}}) : tensor;
  return Value::object({{"type", "object"},
                        {"properties", Value::object({{name, results}})},
                        {"required", Value::array({name})},
                        {"additionalProperties", false}});
}

graph::Tensors apply_to(const graph::OpRow& row, const Value& object) {
  std::vector<const Value*> operands;
  Value::Object attributes;
  for (const auto& [name, value] : object.members()) {
    const bool is_input = std::any_of(row.inputs.begin(), row.inputs.end(),
                                      [&name = name](const auto& input) { return input.name == name; });
    if (!is_input) attributes.set(name, value);
  }
  for (const graph::InputSpec& input : row.inputs) {
    const Value* given = object.find(input.name);
    if (given && input.repeated)
      for (const Value& each : given->elements()) operands.push_back(&each);
    else
      operands.push_back(given);
  }
  while (!operands.empty() && (!operands.back() || operands.back()->is_null())) operands.pop_back();
  graph::Tensors tensors(operands.size());
  std::optional<DType> common;
  Device device = default_device();
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i] && operands[i]->is_tensor()) {
      tensors[i] = operands[i]->tensor();
      device = tensors[i].device();
    }
  const bool has_numbers =
      std::any_of(operands.begin(), operands.end(), [](const Value* each) { return each && each->is_number(); });
  for (std::size_t i = 0; has_numbers && i < tensors.size(); ++i)
    if (tensors[i].defined()) common = common ? promote(*common, tensors[i].dtype()) : tensors[i].dtype();
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i] && operands[i]->is_number()) tensors[i] = number_operand(operands[i]->number(), common, device);
  return graph::apply(row, std::move(tensors), attributes_from(row, attributes));
}

}  // namespace weft::operations
