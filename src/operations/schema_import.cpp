#include "weft/operations/schema_import.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/quote.hpp"
#include "operations/names.hpp"
#include "schema/definitions.hpp"
#include "weft/error.hpp"
#include "weft/schema.hpp"

namespace weft::operations {
namespace {

constexpr std::string_view kDefinitionMembers[] = {"$defs", "definitions"};
constexpr int kReferencesMax = 20;

[[noreturn]] void refuse_schema(std::string_view place, std::string_view fact) {
  throw UsageError(fmt::format("JSON Schema import: {}: {}", place, fact));
}

const Value* member_of(const Value& value, std::string_view name) {
  return value.is_object() ? value.find(name) : nullptr;
}

class SchemaImport {
 public:
  SchemaImport(const Value& document, const SchemaImportOptions& options) : document_(document), options_(options) {
    if (!options.space.empty() || !member_of(document, "title")) {
      space_ = options.space;
    } else if (const Value& title = document["title"]; title.is_string()) {
      space_ = name_from(title.string());
    }
  }

  std::vector<Specification> read() {
    if (const Value* list = document_.is_array() ? &document_ : member_of(document_, "operations")) {
      if (!list->is_array()) refuse_schema("the document", "\"operations\" is not a list");
      for (std::size_t i = 0; i < list->elements().size(); ++i)
        add(specification_of_entry(list->elements()[i], fmt::format("operation {}", i)));
    } else {
      if (!document_.is_object()) refuse_schema("the document", "is neither an object nor a list");
      for (const std::string_view member : kDefinitionMembers)
        if (const Value* definitions = document_.find(member)) {
          if (!definitions->is_object())
            refuse_schema("the document", fmt::format("{} is not an object", quote(member)));
          for (const auto& [name, definition] : definitions->members()) read_definition(name, definition);
        }
    }
    if (found_.empty())
      refuse_schema("the document",
                    "has no operations: neither a list of them, nor a definition with \"input\" or "
                    "\"output\" among its properties");
    return std::move(found_);
  }

 private:
  void read_definition(const std::string& name, const Value& definition) {
    const Value* properties = member_of(definition, "properties");
    const Value* input = properties ? member_of(*properties, "input") : nullptr;
    const Value* output = properties ? member_of(*properties, "output") : nullptr;
    if (!input && !output) return;  // a type
    const std::string place = fmt::format("the definition {}", quote(name, 80));
    Specification s{.space = space_, .name = name, .kind = Kind::mutation};
    for (const auto& [key, text] : {std::pair("title", &s.title), std::pair("description", &s.description)})
      if (const Value* value = definition.find(key); value && value->is_string()) *text = value->string();
    if (input) s.input = complete(*input, place);
    if (output) s.output = complete(*output, place);
    add(std::move(s));
  }

  Specification specification_of_entry(const Value& given, const std::string& place) {
    const Value* tool = member_of(given, "function");
    const Value& entry = tool ? *tool : given;
    if (!entry.is_object()) refuse_schema(place, "is not an object");
    Value::Object whole;
    if (!entry.find("namespace")) whole.set("namespace", space_);
    if (!entry.find("type")) whole.set("type", name_of(Kind::mutation));
    for (const auto& [key, value] : entry.members()) {
      const bool is_input = key == "input" || key == "parameters" || key == "inputSchema";
      const bool is_output = key == "output" || key == "outputSchema";
      if (!is_input && !is_output) {
        if (!(tool && key == "strict")) whole.set(key, value);
        continue;
      }
      const std::string_view member = is_input ? "inputSchema" : "outputSchema";
      if (whole.find(member))
        refuse_schema(place, fmt::format("has two schemas of its {}", is_input ? "input" : "output"));
      whole.set(member, complete(value, place));
    }
    try {
      return specification_from(Value(std::move(whole)));
    } catch (Error& error) {
      error.add_context(fmt::format("reading {} of a JSON Schema document", place));
      throw;
    }
  }

  void add(Specification s) {
    const std::string place = fmt::format("the operation {}", quote(s.name, 80));
    if (found_.size() >= options_.operations_max)
      refuse_schema("the document", fmt::format("has more than {} operations", options_.operations_max));
    if (s.space.empty()) refuse_schema(place, "has no namespace: give one, or give the document a \"title\"");
    if (name_from(s.name) != s.name || name_from(s.space) != s.space)
      refuse_schema(place, fmt::format("{} cannot be called by that name; names are [A-Za-z_][A-Za-z0-9_-]*",
                                       quote(s.id(), 200)));
    if (!ids_.insert(s.id()).second) refuse_schema(place, "is given twice");
    try {
      schema::Schema{Value(s.input)};
      schema::Schema{Value(s.output)};
    } catch (Error& error) {
      error.add_context(fmt::format("reading {} of a JSON Schema document", place));
      throw;
    }
    found_.push_back(std::move(s));
  }

  const Value& definition(const std::string& name, const std::string& place) const {
    std::string at = name;
    for (int i = 0; i < kReferencesMax; ++i) {
      const Value* found = nullptr;
      for (const std::string_view member : kDefinitionMembers)
        if (const Value* all = member_of(document_, member); all && !found)
          found = member_of(*all, schema::unescaped(at));
      if (!found) refuse_schema(place, fmt::format("there is no definition {}", quote(at, 200)));
      // A definition that is nothing but a reference is what it refers to.
      const Value* reference = member_of(*found, "$ref");
      if (!reference || found->members().size() != 1 || !reference->is_string()) return *found;
      const std::string& target = reference->string();
      const auto slash = target.find('/', 2);
      if (!target.starts_with("#/") || slash == std::string::npos || target.find('/', slash + 1) != std::string::npos)
        return *found;
      at = target.substr(slash + 1);
    }
    refuse_schema(place, "references go in a circle");
  }

  Value complete(const Value& given, const std::string& place) const {
    if (member_of(given, "$defs") || member_of(given, "definitions")) return given;
    return schema::with_definitions(
        given, {.prefixes = {"#/$defs/", "#/definitions/"},
                .find = [&](const std::string& name) -> const Value& { return definition(name, place); },
                .refuse = [&](const std::string& fact) { refuse_schema(place, fact); }});
  }

  const Value& document_;
  const SchemaImportOptions& options_;
  std::string space_;
  std::set<std::string> ids_;
  std::vector<Specification> found_;
};

}  // namespace

std::vector<Specification> specifications_from_schema(const Value& document, const SchemaImportOptions& options) {
  return SchemaImport(document, options).read();
}

}  // namespace weft::operations
