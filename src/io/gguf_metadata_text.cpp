// Metadata of GGUF as the text of safetensors: numbers as decimal text, arrays as JSON.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/json.hpp"
#include "base/quote.hpp"
#include "base/utf8.hpp"
#include "io/convert_model.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr const char* kTypesKey = "gguf.types";

[[noreturn]] void refuse(const std::string& source, const std::string& key, std::string_view what) {
  throw FileError(fmt::format("{}: metadata {}: {}; --no-metadata leaves metadata behind", source, quote(key), what));
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, std::string>)
    return value;
  else if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::integral<T>)
    return std::to_string(value);
  else
    return fmt::format("{}", value);  // the shortest text that gives the same bits; nan and inf too
}

template <class T>
std::optional<T> parsed(const std::string& text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_same_v<T, bool>) {
    return text == "true" ? std::optional(true) : text == "false" ? std::optional(false) : std::nullopt;
  } else {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
  }
}

/// Calls `use` with a value of each C++ type of a GGUF value except arrays, until one has the name.
template <class Use>
bool with_named_type(std::string_view name, const Use& use) {
  const auto attempt = [&](auto value) {
    if (name_of(type_of(GgufValue(value))) != name) return false;
    use(value);
    return true;
  };
  return attempt(std::uint8_t{}) || attempt(std::int8_t{}) || attempt(std::uint16_t{}) || attempt(std::int16_t{}) ||
         attempt(std::uint32_t{}) || attempt(std::int32_t{}) || attempt(float{}) || attempt(bool{}) ||
         attempt(std::string{}) || attempt(std::uint64_t{}) || attempt(std::int64_t{}) || attempt(double{});
}

/// An array as JSON: texts, true and false; numbers as texts, so that each keeps its bits.
std::string array_text(const GgufArray& array, const std::string& source, const std::string& key) {
  Json json = Json::array();
  std::visit(
      [&](const auto& elements) {
        for (std::size_t i = 0; i < elements.size(); ++i) {
          const typename std::remove_cvref_t<decltype(elements)>::value_type element = elements[i];
          std::string text = text_of(element);
          if (find_invalid_utf8(text)) refuse(source, key, fmt::format("element {} is not UTF-8", i));
          json.push_back(std::move(text));
        }
      },
      array);
  return json.dump();
}

GgufArray array_of(const std::string& text, std::string_view type, const std::string& source, const std::string& key) {
  const Json json = parse_json(text, fmt::format("{}: metadata {}", source, quote(key)), {.max_depth = 1});
  if (!json.is_array()) refuse(source, key, "is not an array");
  GgufArray array;
  const bool known = with_named_type(type, [&](auto element) {
    using T = decltype(element);
    std::vector<T> elements;
    elements.reserve(json.size());
    for (const Json& item : json) {
      const auto value = item.is_string() ? parsed<T>(item.get_ref<const std::string&>()) : std::nullopt;
      if (!value) refuse(source, key, fmt::format("element {} is not a {} written as text", elements.size(), type));
      elements.push_back(*value);
    }
    array = std::move(elements);
  });
  if (!known) refuse(source, key, fmt::format("its element type {} is unknown", quote(type)));
  return array;
}

}  // namespace

SafetensorsMetadata metadata_as_text(const GgufMetadata& metadata) {
  SafetensorsMetadata result;
  nlohmann::ordered_json types = nlohmann::ordered_json::object();  // in the order of the file
  for (const auto& [key, value] : metadata.entries()) {
    if (const GgufArray* array = std::get_if<GgufArray>(&value)) {
      result[key] = array_text(*array, metadata.source(), key);
      types[key] = fmt::format("[{}]", name_of(element_type_of(*array)));
      continue;
    }
    types[key] = std::string(name_of(type_of(value)));
    std::visit(
        [&](const auto& v) {
          if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(v)>, GgufArray>) result[key] = text_of(v);
        },
        value);
    if (find_invalid_utf8(result[key])) refuse(metadata.source(), key, "the text is not UTF-8");
  }
  if (!types.empty()) result[kTypesKey] = types.dump();
  return result;
}

GgufMetadata metadata_from_text(const SafetensorsMetadata& text, const std::string& source) {
  GgufMetadata result(source);
  const auto typed = text.find(kTypesKey);
  if (typed != text.end()) {
    parse_json(typed->second, fmt::format("{}: metadata \"{}\"", source, kTypesKey), {.max_depth = 1});
    const auto types = nlohmann::ordered_json::parse(typed->second);
    if (!types.is_object()) refuse(source, kTypesKey, "is not an object");
    for (const auto& [key, type_json] : types.items()) {
      const auto value = text.find(key);
      if (value == text.end()) refuse(source, key, fmt::format("is in {}, but missing", kTypesKey));
      if (!type_json.is_string()) refuse(source, key, fmt::format("its type in {} is not a string", kTypesKey));
      const std::string type = type_json.template get<std::string>();
      if (type.size() > 2 && type.front() == '[' && type.back() == ']') {
        result.set(key, array_of(value->second, std::string_view(type).substr(1, type.size() - 2), source, key));
        continue;
      }
      const bool known = with_named_type(type, [&](auto element) {
        const auto parsed_value = parsed<decltype(element)>(value->second);
        if (!parsed_value) refuse(source, key, fmt::format("{} is not a {}", quote(value->second), type));
        result.set(key, *parsed_value);
      });
      if (!known) refuse(source, key, fmt::format("its type {} is unknown", quote(type)));
    }
  }
  for (const auto& [key, value] : text)
    if (key != kTypesKey && !result.contains(key)) result.set(key, value);
  return result;
}

}  // namespace weft::io
