// Arguments of filters, tests, methods and functions, sorted onto named parameters.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.hpp"

namespace weft::jinja {

class Parameters {
 public:
  enum class Names { allowed, refused };
  /// Fault unless the arguments fit: `callee` names what is called, for messages ("the filter join"), `names` the
  /// parameters, of which the first `required` must be given.
  Parameters(std::string_view callee, const Arguments& arguments, std::initializer_list<std::string_view> names,
             std::size_t required = 0, Names by_name = Names::allowed);

  /// The argument, or nullptr if it was not given.
  const Value* operator[](std::size_t i) const { return values_[i]; }
  bool given(std::size_t i) const { return values_[i] != nullptr; }
  /// Whether it was given, and is neither none nor undefined.
  bool set(std::size_t i) const { return values_[i] && !values_[i]->is_none(); }
  std::int64_t integer(std::size_t i, std::int64_t fallback) const;
  bool flag(std::size_t i, bool fallback) const { return values_[i] ? truth(*values_[i]) : fallback; }
  /// A string; Fault for anything else.
  TextPointer text(std::size_t i) const;

 private:
  std::string callee_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

/// A string unchanged, Markup too; str() of anything else.
TextPointer soft_text(const Value& value);
/// The string in `value`; else a Fault that names `what` needs it.
TextPointer require_text(const Value& value, std::string_view what);
/// The integer in `value` (or in a bool); else a Fault that names `what` needs it.
std::int64_t require_integer(const Value& value, std::string_view what);
/// Removes the argument of this name, if there is one.
std::optional<Value> take_named(Arguments& arguments, std::string_view name);

}  // namespace weft::jinja
