// Converts JSON to values of templates, and back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "jinja/value.hpp"

namespace weft::jinja {

/// JSON whose objects keep the order of their keys, which templates print.
using OrderedJson = nlohmann::ordered_json;

/// Parses all of `text`. Errors as `parse_json`.
OrderedJson parse_ordered_json(std::string_view text, std::string_view source, const JsonLimits& limits = {});

/// The value of a JSON document; its strings are from the user or not. Fault for an integer beyond 64 bits and for strings that
/// are not UTF-8; messages call the document `name`.
Value from_json(const OrderedJson& json, bool from_user, std::string_view name);

struct JsonStyle {
  bool ascii = false;     ///< other characters as \uXXXX
  bool sorted = false;    ///< keys in order
  bool indented = false;  ///< items on separate lines
  std::string indent;     ///< the indent of each level
  std::string between = ", ", behind_key = ": ";
};
/// JSON as from Python's json.dumps. Fault for values without a JSON form (undefined values, functions).
TextPointer to_json(const Value& value, const JsonStyle& style);

}  // namespace weft::jinja
