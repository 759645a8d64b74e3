#include "op_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <variant>
#include <vector>

#include "catalogue/op_values.hpp"

namespace weft::python {
namespace {

using graph::AttributeSpec;
using graph::AttributeType;
using graph::OpRow;

std::string type_text(const AttributeSpec& spec) {
  switch (spec.type) {
    case AttributeType::integer: return "int";
    case AttributeType::number: return "float";
    case AttributeType::boolean: return "bool";
    case AttributeType::integers: return "int | Sequence[int]";
    case AttributeType::pairs: return "Sequence[tuple[int, int]]";
    case AttributeType::dtype: return "DTypeLike";
    case AttributeType::choice: {
      std::string words;
      for (const std::string& word : spec.choices) words += (words.empty() ? "\"" : ", \"") + word + "\"";
      return words.empty() ? "str" : "Literal[" + words + "]";
    }
  }
  return "object";
}

std::string default_text(const AttributeSpec& spec) {
  if (!spec.default_value) return "";
  if (const auto* flag = std::get_if<bool>(&*spec.default_value)) return *flag ? "True" : "False";
  if (std::holds_alternative<std::monostate>(*spec.default_value)) return "None";
  if (const auto* number = std::get_if<double>(&*spec.default_value); number && !std::isfinite(*number))
    return std::isnan(*number) ? "None" : *number > 0 ? "1e999" : "-1e999";  // literals, for inspect
  if (const auto* list = std::get_if<std::vector<Extent>>(&*spec.default_value)) {
    std::string text = "(";
    for (const Extent each : *list) text += std::to_string(each) + ", ";
    if (list->size() > 1) text.resize(text.size() - 2);
    if (list->size() == 1) text.resize(text.size() - 1);
    return text + ")";
  }
  return operations::value_of(*spec.default_value).to_json();
}

}  // namespace

std::string signature_of(const OpRow& row, int first, bool with_types) {
  std::vector<std::string> required, optional;
  std::string repeated;
  const auto add = [&](const std::string& name, const std::string& type, const std::string& by_default) {
    std::string text = with_types ? name + ": " + type : name;
    if (!by_default.empty()) text += (with_types ? " = " : "=") + by_default;
    (by_default.empty() ? required : optional).push_back(text);
  };
  for (const graph::InputSpec& input : row.inputs) {
    if (input.repeated)
      repeated = with_types ? "*" + input.name + ": Operand | Sequence[Operand]" : "*" + input.name;
    else
      add(input.name, input.optional ? "Operand | None" : "Operand", input.optional ? "None" : "");
  }
  const auto positional = [&](std::size_t i) {
    if (first <= 0) return i;
    const auto place = static_cast<std::size_t>(first);
    return i == 0 ? place : i <= place ? i - 1 : i;
  };
  std::vector<std::string> attributes;
  for (std::size_t i = 0; i < row.attributes.size(); ++i) {
    const AttributeSpec& spec = row.attributes[positional(i)];
    std::string type = type_text(spec);
    if (spec.default_value) type += " | None";
    if (!repeated.empty()) {
      const std::string by_default = default_text(spec);
      attributes.push_back(with_types ? spec.name + ": " + type + (by_default.empty() ? "" : " = " + by_default)
                                      : spec.name + (by_default.empty() ? "" : "=" + by_default));
    } else {
      add(spec.name, type, default_text(spec));
    }
  }
  std::string text;
  const auto append = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  for (const std::string& each : required) append(each);
  for (const std::string& each : optional) append(each);
  if (!repeated.empty()) append(repeated);
  for (const std::string& each : attributes) append(each);
  if (row.inputs.empty() && with_types) append("*, device: DeviceLike | None = None");
  text = "(" + text + ")";
  if (with_types) text += row.several_outputs ? " -> tuple[Tensor, ...]" : " -> Tensor";
  return text;
}

std::string doc_of(const OpRow& row) {
  std::string text = row.doc;
  if (!row.formula.empty()) text += "\n\n    " + row.formula;
  std::string names;
  for (const AttributeSpec& spec : row.attributes) {
    std::string others;
    for (const std::string& alias : spec.aliases) others += (others.empty() ? " (also " : ", ") + alias;
    if (!others.empty()) others += ")";
    if (!spec.doc.empty() || !others.empty()) names += fmt::format("\n{}{}: {}", spec.name, others, spec.doc);
  }
  if (!names.empty()) text += "\n" + names;
  text += "\n\nResult dtype: " + row.result + ".";
  if (!row.differentiable) text += " No gradient.";
  if (!row.torch.empty()) text += "\nIn PyTorch: " + row.torch;
  return text;
}

}  // namespace weft::python
