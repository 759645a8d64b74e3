// The keys of a config.json, or of an object in it. A key that is missing or has a value of another kind is a FileError
// "SOURCE: PATH.KEY fact".
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "weft/error.hpp"
#include "weft/shape.hpp"

namespace weft::io {

/// Refers to the JSON and to the name of its source, which must outlive it. null counts as missing.
class ConfigKeys {
 public:
  static constexpr Extent kSizeMax = 1 << 24;

  /// `path`: of the object in its file, for messages.
  ConfigKeys(const Json& json, const std::string& source, std::string path = "")
      : json_(json), source_(source), path_(std::move(path)) {
    if (!json.is_object()) fail("", "is not an object");
  }
  [[noreturn]] void fail(std::string_view key, std::string_view fact) const {
    throw FileError(fmt::format("{}: {}{}{} {}", source_, path_, path_.empty() || key.empty() ? "" : ".", key, fact));
  }
  /// The value of the first of the keys that is there and not null.
  const Json* find(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (auto it = json_.find(key); it != json_.end() && !it->is_null()) return &*it;
    return nullptr;
  }
  /// Whether the key is there, and null.
  bool is_null(const char* key) const {
    const auto it = json_.find(key);
    return it != json_.end() && it->is_null();
  }
  Extent size(std::initializer_list<const char*> keys, std::optional<Extent> fallback = {}) const {
    const Json* value = find(keys);
    if (!value) return missing(*keys.begin(), fallback);
    if (!value->is_number_integer() || *value < 0 || *value > kSizeMax)
      fail(*keys.begin(), fmt::format("is {}, not a whole number from 0 to {}", value->dump(), kSizeMax));
    return value->get<Extent>();
  }
  double number(std::initializer_list<const char*> keys, std::optional<double> fallback = {}) const {
    const Json* value = find(keys);
    if (!value) return missing(*keys.begin(), fallback);
    if (!value->is_number() || !std::isfinite(value->get<double>()))
      fail(*keys.begin(), fmt::format("is {}, not a number", value->dump()));
    return value->get<double>();
  }
  bool flag(const char* key, bool fallback) const {
    const Json* value = find({key});
    if (!value) return fallback;
    if (!value->is_boolean()) fail(key, fmt::format("is {}, not true or false", value->dump()));
    return value->get<bool>();
  }
  std::string text(std::initializer_list<const char*> keys, std::optional<std::string> fallback = {}) const {
    const Json* value = find(keys);
    if (!value) return missing(*keys.begin(), fallback);
    if (!value->is_string()) fail(*keys.begin(), fmt::format("is {}, not a string", value->dump()));
    return value->get<std::string>();
  }
  std::vector<double> numbers(const char* key) const {
    std::vector<double> list;
    const Json* value = find({key});
    if (!value) return list;
    if (!value->is_array()) fail(key, "is not a list of numbers");
    for (const Json& each : *value) {
      if (!each.is_number()) fail(key, "is not a list of numbers");
      list.push_back(each.get<double>());
    }
    return list;
  }
  const Json& json() const { return json_; }
  const std::string& source() const { return source_; }

 private:
  template <class T>
  T missing(const char* key, const std::optional<T>& fallback) const {
    if (!fallback) fail(key, "is missing; without it the model has no shape");
    return *fallback;
  }
  const Json& json_;
  const std::string& source_;
  std::string path_;
};

}  // namespace weft::io
