// A value of a JSON document with its path, read strictly: anything unexpected is a FileError that names the place.
#pragma once

#include <fmt/format.h>
#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::text {

class JsonNode {
 public:
  JsonNode(simdjson::dom::element value, std::string_view source, std::string path = "")
      : value_(value), source_(source), path_(std::move(path)) {}

  /// FileError "source: path: fact".
  [[noreturn]] void fail(std::string_view fact) const {
    throw FileError(fmt::format("{}: {}{}{}", source_, path_, path_.empty() ? "" : ": ", fact));
  }
  /// The same for an item of this array.
  [[noreturn]] void fail_item(std::size_t index, std::string_view fact) const {
    throw FileError(fmt::format("{}: {}[{}]: {}", source_, path_, index, fact));
  }
  /// Runs `make`; a UsageError in it becomes a FileError of this place.
  template <class Make>
  auto guarded(Make make) const {
    try {
      return make();
    } catch (const UsageError& error) {
      fail(error.what());
    }
  }

  simdjson::dom::element value() const { return value_; }
  std::string_view source() const { return source_; }
  const std::string& path() const { return path_; }
  bool is_null() const { return value_.is_null(); }
  bool is_object() const { return value_.is_object(); }
  bool is_array() const { return value_.is_array(); }
  bool is_string() const { return value_.is_string(); }

  /// Members; keys that occur twice are refused. FileError if this is not an object.
  JsonNode at(std::string_view key) const {
    if (const auto found = find(key)) return *found;
    fail(fmt::format("{} is missing", quote(key)));
  }
  /// Nothing if the member is missing or null.
  std::optional<JsonNode> find(std::string_view key) const {
    std::optional<JsonNode> found;
    for (const auto member : object()) {
      if (member.key != key) continue;
      if (found) fail(fmt::format("{} occurs twice; keep one", quote(key)));
      found.emplace(member.value, source_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
    }
    if (found && found->is_null()) found.reset();
    return found;
  }
  std::vector<JsonNode> items(std::size_t most) const {
    const simdjson::dom::array array = this->array();
    std::vector<JsonNode> nodes;
    for (const auto item : array) {
      if (nodes.size() == most) fail(fmt::format("more than {} items", most));
      nodes.emplace_back(item, source_, fmt::format("{}[{}]", path_, nodes.size()));
    }
    return nodes;
  }

  simdjson::dom::object object() const {
    simdjson::dom::object object;
    if (value_.get(object)) fail(fmt::format("{}, not an object", kind()));
    return object;
  }
  simdjson::dom::array array() const {
    simdjson::dom::array array;
    if (value_.get(array)) fail(fmt::format("{}, not an array", kind()));
    return array;
  }
  std::string_view string() const {
    std::string_view text;
    if (value_.get(text)) fail(fmt::format("{}, not a string", kind()));
    return text;
  }
  bool boolean() const {
    bool flag = false;
    if (value_.get(flag)) fail(fmt::format("{}, not true or false", kind()));
    return flag;
  }
  std::uint64_t integer(std::uint64_t least, std::uint64_t most) const {
    std::uint64_t number = 0;
    if (value_.get(number) || number < least || number > most)
      fail(fmt::format("{}, not an integer in [{}, {}]", kind(), least, most));
    return number;
  }
  double number() const {
    double number = 0;
    if (value_.get(number)) fail(fmt::format("{}, not a number", kind()));
    return number;
  }

  // Members with defaults, for null too.
  std::string string_or(std::string_view key, std::string_view otherwise) const {
    const auto found = find(key);
    return std::string(found ? found->string() : otherwise);
  }
  bool boolean_or(std::string_view key, bool otherwise) const {
    const auto found = find(key);
    return found ? found->boolean() : otherwise;
  }
  std::uint64_t integer_or(std::string_view key, std::uint64_t otherwise, std::uint64_t least,
                           std::uint64_t most) const {
    const auto found = find(key);
    return found ? found->integer(least, most) : otherwise;
  }

  /// What the value is, for messages: "is \"abc\"", "is 17", "is an array".
  std::string kind() const {
    switch (value_.type()) {
      case simdjson::dom::element_type::ARRAY: return "is an array";
      case simdjson::dom::element_type::OBJECT: return "is an object";
      case simdjson::dom::element_type::STRING: return fmt::format("is {}", quote(std::string_view(value_), 40));
      case simdjson::dom::element_type::NULL_VALUE: return "is null";
      default: return fmt::format("is {}", simdjson::minify(value_));
    }
  }

 private:
  simdjson::dom::element value_;
  std::string_view source_;
  std::string path_;
};

}  // namespace weft::text
