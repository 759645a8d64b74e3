// References to results in templates: "$.step.losses[0]".
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "weft/value.hpp"

namespace weft::workflow {

/// A member by its name, or an element by its index. A number behind a dot may be either.
struct Step {
  std::string name;
  std::optional<std::uint64_t> index;
  bool is_bracket = false;
};
struct Reference {
  std::string name;  ///< what comes first
  std::vector<Step> steps;
};

/// Whether a text is a reference, or one that is written with a second $ to be a text.
bool is_reference(std::string_view text);
bool is_escaped(std::string_view text);
/// Errors: UsageError.
Reference parse_reference(std::string_view text);

/// Visits the references in a value with their JSON pointers.
void for_each_reference(const Value& value, const std::string& path,
                        const std::function<void(const std::string& text, const std::string& path)>& visit);

/// The value with results in place of its references. `find` returns the value of a name, or null. Errors: UsageError that
/// quotes the reference.
Value resolved(const Value& value, const std::function<const Value*(std::string_view name)>& find);

/// "an integer", "a string", for messages.
std::string with_article(Value::Kind kind);

/// "a~b/c" as a part of a JSON pointer.
std::string pointer_part(std::string_view name);

}  // namespace weft::workflow
