#include "jinja/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/quote.hpp"

namespace weft::jinja {

Parameters::Parameters(std::string_view callee, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, std::size_t required, Names by_name)
    : callee_(callee), names_(names), values_(names.size(), nullptr) {
  const std::string takes = names_.empty() ? "no arguments" : fmt::format("{}", fmt::join(names_, ", "));
  if (arguments.positional.size() > names_.size())
    fail(fmt::format("{} is given {} arguments", callee_, arguments.positional.size()),
         fmt::format("it takes {}", takes));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end() || by_name == Names::refused)
      fail(fmt::format("{} takes no argument called {}", callee_, quote(name, 40)), fmt::format("it takes {}", takes));
    const auto i = static_cast<std::size_t>(found - names_.begin());
    if (values_[i]) fail(fmt::format("{} is given {} twice", callee_, quote(name, 40)));
    values_[i] = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (!values_[i]) fail(fmt::format("{} is not given {}", callee_, names_[i]), fmt::format("it takes {}", takes));
}

std::int64_t Parameters::integer(std::size_t i, std::int64_t fallback) const {
  if (!values_[i]) return fallback;
  return require_integer(*values_[i], fmt::format("{} of {}", names_[i], callee_));
}

TextPointer Parameters::text(std::size_t i) const {
  return require_text(*values_[i], fmt::format("{} of {}", names_[i], callee_));
}

TextPointer soft_text(const Value& value) { return value.is_text() ? value.text() : to_text(value); }

TextPointer require_text(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_text()) fail(fmt::format("{} is {}, not a string", what, described(value)), "convert it with | string");
  return value.text();
}

std::int64_t require_integer(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  const auto integer = value.integer();
  if (!integer) fail(fmt::format("{} is {}, not an integer", what, described(value)), "convert it with | int");
  return *integer;
}

std::optional<Value> take_named(Arguments& arguments, std::string_view name) {
  for (auto each = arguments.named.begin(); each != arguments.named.end(); ++each) {
    if (each->first != name) continue;
    Value value = std::move(each->second);
    arguments.named.erase(each);
    return value;
  }
  return std::nullopt;
}

}  // namespace weft::jinja
