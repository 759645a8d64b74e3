// Objects of options, and names in the manner of JavaScript.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/quote.hpp"
#include "script/engine.hpp"

namespace weft::script {

Options::Options(Engine& engine, JSValueConst value, std::string_view function)
    : engine_(engine), object_(value), function_(function) {
  if (!JS_IsUndefined(value) && !engine.is_plain_object(value))
    throw UsageError(fmt::format("{}: the options are {}, not an object", function, inspect(engine, value)));
}

Local Options::value(const char* name) {
  known_.emplace_back(name);
  if (JS_IsUndefined(object_)) return {};
  return engine_.property(object_, name);
}
double Options::number(const char* name, double otherwise) {
  const Local given = value(name);
  return JS_IsUndefined(given.get()) ? otherwise : engine_.number(given.get(), function_ + ": " + name);
}
Extent Options::integer(const char* name, Extent otherwise) {
  const Local given = value(name);
  return JS_IsUndefined(given.get()) ? otherwise : engine_.integer(given.get(), function_ + ": " + name);
}
bool Options::boolean(const char* name, bool otherwise) {
  const Local given = value(name);
  if (JS_IsUndefined(given.get())) return otherwise;
  if (!JS_IsBool(given.get()))
    throw UsageError(
        fmt::format("{}: {} is {}, neither true nor false", function_, name, inspect(engine_, given.get())));
  return JS_VALUE_GET_BOOL(given.get());
}
std::string Options::text(const char* name, std::string_view otherwise) {
  const Local given = value(name);
  if (JS_IsUndefined(given.get())) return std::string(otherwise);
  if (!JS_IsString(given.get()))
    throw UsageError(fmt::format("{}: {} is {}, not a text", function_, name, inspect(engine_, given.get())));
  return engine_.text(given.get());
}
std::optional<std::vector<Extent>> Options::list(const char* name) {
  const Local given = value(name);
  if (JS_IsUndefined(given.get())) return std::nullopt;
  return engine_.extents(given.get(), function_ + ": " + name);
}

void Options::finish() {
  if (JS_IsUndefined(object_)) return;
  for (const std::string& name : engine_.names(object_))
    if (std::find(known_.begin(), known_.end(), name) == known_.end())
      throw UsageError(
          fmt::format("{}: unknown option {}; known are {}", function_, quote(name), fmt::join(known_, ", ")));
}

std::string camel(std::string_view name) {
  std::string made;
  for (std::size_t i = 0; i < name.size(); ++i)
    if (name[i] == '_' && i > 0 && i + 1 < name.size() && name[i + 1] >= 'a' && name[i + 1] <= 'z')
      made += static_cast<char>(name[++i] - 'a' + 'A');
    else
      made += name[i];
  return made;
}
std::string snake(std::string_view name) {
  std::string made;
  for (const char c : name) {
    if (c >= 'A' && c <= 'Z') {
      made += '_';
      made += static_cast<char>(c - 'A' + 'a');
    } else {
      made += c;
    }
  }
  return made;
}

}  // namespace weft::script
