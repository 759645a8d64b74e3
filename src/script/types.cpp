// Declarations of "weft" for TypeScript: the nouns by hand, every op from the table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "script/declarations.hpp"
#include "script/functions.hpp"

namespace weft::script {
namespace {

using graph::AttributeSpec;
using graph::AttributeType;
using graph::OpRow;

const std::set<std::string_view> kReserved = {"var",  "function", "class", "default", "delete",
                                              "with", "in",       "new",   "do",      "if"};
// Exports and methods of the nouns above, which ops do not replace.
const std::set<std::string_view> kExports = {
    "tensor",     "variable", "create", "dispatch", "read",     "write",   "einsum",     "grad",
    "compile",    "explain",  "fetch",  "h",        "nn",       "optim",   "operations", "workflow",
    "files",      "vjp",      "jvp",    "vmap",     "jacobian", "hessian", "checkpoint", "grid",
    "metatensor", "tree",     "memory", "image",    "audio",    "vision",  "speech",     "encoder"};
const std::set<std::string_view> kMethods = {
    "shape",    "dtype",     "device", "rank",     "size",          "item",    "toArray",     "read",       "readSync",
    "eval",     "evalAsync", "to",     "get",      "backward",      "dispose", "label",       "isDisposed", "named",
    "toString", "value",     "assign", "gradient", "clearGradient", "name",    "requiresGrad"};

std::string type_of(const AttributeSpec& spec) {
  std::string text;
  switch (spec.type) {
    case AttributeType::integer:
    case AttributeType::number: text = "number"; break;
    case AttributeType::boolean: text = "boolean"; break;
    case AttributeType::integers: text = "Extents"; break;
    case AttributeType::numbers: text = "AxisNumbers"; break;
    case AttributeType::pairs: text = "Pairs"; break;
    case AttributeType::dtype: text = "DType"; break;
    case AttributeType::choice: text = fmt::format("\"{}\"", fmt::join(spec.choices, "\" | \"")); break;
  }
  return spec.default_value ? text + " | null" : text;
}

// Names that are no identifiers of TypeScript get a "_".
std::string identifier(const std::string& name) {
  const std::string made = camel(name);
  return kReserved.contains(made) ? made + "_" : made;
}

// The parameter lists of a row, from input `first` on: attributes by name, and one after another.
std::vector<std::string> parameter_lists(const OpRow& row, std::size_t first) {
  std::vector<std::string> required, all;
  bool any_optional = false;
  for (std::size_t i = first; i < row.inputs.size(); ++i) {
    const graph::InputSpec& input = row.inputs[i];
    const std::string type = input.repeated ? "readonly Operand[]" : "Operand";
    any_optional = any_optional || input.optional;
    if (!input.optional) required.push_back(fmt::format("{}: {}", identifier(input.name), type));
    all.push_back(any_optional ? fmt::format("{}?: {} | null", identifier(input.name), type)
                               : fmt::format("{}: {}", identifier(input.name), type));
  }
  if (row.attributes.empty()) return {fmt::format("{}", fmt::join(all, ", "))};
  std::vector<std::string> members;
  bool needs_attributes = false, optional = any_optional;
  std::vector<std::string> positional = all;
  for (const AttributeSpec& spec : row.attributes) {
    needs_attributes = needs_attributes || !spec.default_value;
    std::vector<std::string> names{camel(spec.name)};
    if (names[0] != spec.name) names.push_back(spec.name);
    for (const std::string& alias : spec.aliases) names.push_back(camel(alias));
    std::sort(names.begin() + 1, names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& name : names)
      members.push_back(
          fmt::format("{}{}: {}", name, spec.default_value || names.size() > 1 ? "?" : "", type_of(spec)));
    optional = optional || spec.default_value;
    positional.push_back(fmt::format("{}{}: {}", identifier(spec.name), optional ? "?" : "", type_of(spec)));
  }
  const std::string attributes = fmt::format("{{ {} }}", fmt::join(members, "; "));
  std::vector<std::string> lists;
  auto by_name = [&](std::vector<std::string> inputs, bool can_be_left_out) {
    inputs.push_back(fmt::format("attributes{}: {}", can_be_left_out ? "?" : "", attributes));
    lists.push_back(fmt::format("{}", fmt::join(inputs, ", ")));
  };
  by_name(required, !needs_attributes);
  if (any_optional) by_name(all, true);
  lists.push_back(fmt::format("{}", fmt::join(positional, ", ")));
  return lists;
}

std::string doc_of(const OpRow& row) {
  std::string text = row.doc;
  for (std::size_t at = 0; (at = text.find("*/", at)) != std::string::npos;) text.replace(at, 2, "* /");
  return text;
}

}  // namespace

std::string type_declarations() {
  std::string text = std::string(kNounDeclarations) + std::string(kServiceDeclarations);
  std::vector<std::string> types;
  for (const DType type : kAllDTypes) types.push_back(fmt::format("\"{}\"", weft::name_of(type)));
  text.replace(text.find("%DTYPES%"), 8, fmt::format("{}", fmt::join(types, " | ")));
  std::string methods;
  std::set<std::string> functions_made, methods_made;
  for (const OpRow* row : graph::op_rows()) {
    if (is_of_script(*row)) continue;
    const char* const result = row->several_outputs ? "Tensor[]" : "Tensor";
    for (const std::string& name : script_names(*row)) {
      if (!kExports.contains(name) && functions_made.insert(name).second) {
        const bool is_reserved = kReserved.contains(name);
        const std::string declared = is_reserved ? name + "_" : name;
        text += fmt::format("  /** {} */\n", doc_of(*row));
        for (const std::string& list : parameter_lists(*row, 0))
          text += fmt::format("  {}function {}({}): {};\n", is_reserved ? "" : "export ", declared, list, result);
        if (is_reserved) text += fmt::format("  export {{ {} as {} }};\n", declared, name);
      }
      if (!is_method(*row) || kMethods.contains(name) || !methods_made.insert(name).second) continue;
      methods += fmt::format("    /** {} */\n", doc_of(*row));
      for (const std::string& list : parameter_lists(*row, 1)) {
        methods += fmt::format("    {}({}): {};\n", name, list, result);
        if (has_in_place(*row)) methods += fmt::format("    {}_({}): this;\n", name, list);
      }
    }
  }
  // Losses that nn takes from the table.
  text += "\n  export namespace nn {\n";
  for (const OpRow* row : graph::op_rows())
    if (row->family == "loss" && !is_of_script(*row))
      if (const std::string name = name_of_loss(*row);
          kNounDeclarations.find("function " + name + "(") == std::string_view::npos)
        text += fmt::format("    const {}: typeof import(\"weft\").{};\n", name, camel(row->name));
  text += "  }\n";
  text += "\n  /** Every op whose first input is this value. */\n  export interface Ops {\n" + methods + "  }\n}\n";
  return text + std::string(kGlobalDeclarations);
}

}  // namespace weft::script
