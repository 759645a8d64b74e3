// Options given as an object of values: members of known names and kinds.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quote.hpp"
#include "weft/error.hpp"
#include "weft/value.hpp"

namespace weft {

/// Reads members of an object; null is an object without members. `what` names it in messages: "splice". What is not given keeps its
/// value. Errors of all: UsageError that names the member.
class ValueOptions {
 public:
  ValueOptions(const Value& options, std::string_view what) : options_(options), what_(what) {
    if (!options.is_object() && !options.is_null())
      throw UsageError(fmt::format("{}: the options are {}, not an object", what_, name_of(options.kind())));
  }

  template <class T>
  ValueOptions& read(const char* name, T& to) {
    known_.emplace_back(name);
    const Value* const given = options_.is_object() ? options_.find(name) : nullptr;
    if (!given || given->is_null()) return *this;
    try {
      to = value_of<T>(*given);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("{}: {}: {}", what_, name, error.what()));
    }
    return *this;
  }
  template <class T>
  ValueOptions& read(const char* name, std::optional<T>& to) {
    T value{};
    if (options_.is_object() && options_.find(name) && !options_.find(name)->is_null())
      to = (read(name, value), value);
    else
      known_.emplace_back(name);
    return *this;
  }

  /// Refuses members that nothing read.
  void finish() const {
    if (!options_.is_object()) return;
    for (const auto& [key, value] : options_.members())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        throw UsageError(
            fmt::format("{}: there is no option {}; known are {}", what_, quote(key), fmt::join(known_, ", ")));
  }

 private:
  template <class T>
  static T value_of(const Value& given) {
    if constexpr (std::same_as<T, Value>)
      return given;
    else if constexpr (std::same_as<T, bool>)
      return given.boolean();
    else if constexpr (std::same_as<T, std::string>)
      return given.string();
    else if constexpr (std::floating_point<T>)
      return static_cast<T>(given.number());
    else if constexpr (std::unsigned_integral<T>)
      return static_cast<T>(given.unsigned_integer());
    else if constexpr (std::signed_integral<T>)
      return static_cast<T>(given.integer());
    else {
      T list;
      for (const Value& each : given.elements()) list.push_back(value_of<typename T::value_type>(each));
      return list;
    }
  }

  const Value& options_;
  std::string what_;
  std::vector<std::string> known_;
};

}  // namespace weft
