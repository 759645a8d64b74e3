// Schemas that are parts of a larger document, made complete: they take along the definitions that they refer to.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/value.hpp"

namespace weft::schema {

struct DefinitionRules {
  std::vector<std::string_view> prefixes;  ///< of references to definitions: "#/components/schemas/"
  /// The definition of a name, which is a part of a JSON pointer, as in the reference.
  std::function<const Value&(const std::string& name)> find;
  /// Throws, for the fact that it is given.
  std::function<void(const std::string& fact)> refuse;
  std::size_t definitions_max = 2'000;
  int depth_max = 50;  ///< of nested schemas
};

/// The schema, whose references lead to its own "$defs", with all definitions that it refers to, directly or through others.
/// Values of `default`, `const`, `enum` and `examples` stay as they are.
Value with_definitions(const Value& schema, const DefinitionRules& rules);

/// A part of a JSON pointer without its escapes: "a~1b" is "a/b".
std::string unescaped(std::string_view part);

}  // namespace weft::schema
