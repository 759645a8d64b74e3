#include "schema/definitions.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/quote.hpp"

namespace weft::schema {
namespace {

constexpr std::string_view kDefinitions = "#/$defs/";
// Keywords whose values are data, and those whose values are schemas by name.
constexpr std::string_view kData[] = {"default", "const", "enum", "examples", "example"};
constexpr std::string_view kMaps[] = {"properties", "patternProperties", "dependentSchemas", "$defs", "definitions"};

bool is_one_of(std::string_view key, const auto& list) {
  return std::find(std::begin(list), std::end(list), key) != std::end(list);
}

class Completion {
 public:
  explicit Completion(const DefinitionRules& rules) : rules_(rules) {}

  Value run(const Value& schema) {
    Value whole = converted(schema, false, 0);
    std::map<std::string, Value> definitions;
    while (true) {
      const auto next = std::find_if(used_.begin(), used_.end(),
                                     [&](const std::string& name) { return !definitions.contains(name); });
      if (next == used_.end()) break;
      const std::string name = *next;
      if (definitions.size() >= rules_.definitions_max) rules_.refuse("uses too many schemas");
      definitions.emplace(name, converted(rules_.find(name), false, 0));
    }
    if (definitions.empty()) return whole;
    Value::Object all;
    for (auto& [name, value] : definitions) all.set(unescaped(name), std::move(value));
    whole.members().set("$defs", std::move(all));
    return whole;
  }

 private:
  Value converted(const Value& schema, bool is_map, int depth) {
    if (depth > rules_.depth_max) rules_.refuse("a schema is nested too deep");
    if (schema.is_array()) {
      Value::Array elements;
      for (const Value& each : schema.elements()) elements.push_back(converted(each, false, depth + 1));
      return elements;
    }
    if (!schema.is_object()) return schema;
    Value::Object out;
    for (const auto& [key, value] : schema.members()) {
      if (is_map)
        out.set(key, converted(value, false, depth + 1));
      else if (key == "$ref" && value.is_string())
        out.set(key, reference(value.string()));
      else
        out.set(key, is_one_of(key, kData) ? value : converted(value, is_one_of(key, kMaps), depth + 1));
    }
    return out;
  }

  std::string reference(const std::string& target) {
    for (const std::string_view prefix : rules_.prefixes)
      if (target.starts_with(prefix)) {
        const std::string path = target.substr(prefix.size());
        used_.insert(path.substr(0, path.find('/')));
        return std::string(kDefinitions) + path;
      }
    rules_.refuse(fmt::format("a schema refers to {}", quote(target, 200)));
    return target;
  }

  const DefinitionRules& rules_;
  std::set<std::string> used_;
};

}  // namespace

Value with_definitions(const Value& schema, const DefinitionRules& rules) { return Completion(rules).run(schema); }

std::string unescaped(std::string_view part) {
  std::string text(part);
  for (auto tilde = text.find('~'); tilde != std::string::npos; tilde = text.find('~', tilde + 1))
    text.replace(tilde, 2, text.substr(tilde, 2) == "~1" ? "/" : "~");
  return text;
}

}  // namespace weft::schema
