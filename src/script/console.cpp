// Values as text, and the console. Showing a value runs no code of the script: getters are named, not called.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>
#include <vector>

#include "base/quote.hpp"
#include "script/engine.hpp"

namespace weft::script {
namespace {

constexpr int kDepth = 4;
constexpr std::uint32_t kElements = 100;
constexpr std::size_t kTextMax = std::size_t{1} << 20;

class Inspector {
 public:
  explicit Inspector(Engine& engine) : engine_(engine) {}

  void show(JSValueConst value, int depth) {
    if (text.size() > kTextMax) return;
    JSContext* const c = engine_.context;
    if (JS_IsString(value)) {
      text += depth < 0 ? raw(value) : quote(raw(value), 10'000);
    } else if (!JS_IsObject(value)) {
      show_plain(value);
    } else if (const TensorHandle* tensor = engine_.tensor_handle(value)) {
      show_tensor(tensor->value);
    } else if (const VariableHandle* variable = engine_.variable_handle(value)) {
      text += "Variable ";
      show_tensor(variable->value.defined() ? variable->value.value() : Tensor());
    } else if (JS_IsProxy(value)) {
      text += "[Proxy]";
    } else if (JS_IsError(value)) {
      show_error(value);
    } else if (JS_IsFunction(c, value)) {
      text += "[Function" + named(value, "name") + "]";
    } else if (JS_IsPromise(value)) {
      constexpr const char* kStates[] = {"pending", "fulfilled", "rejected"};
      text += fmt::format("Promise {{ {} }}", kStates[JS_PromiseState(c, value)]);
    } else if (JS_IsDate(value) || JS_IsRegExp(value)) {
      text += raw(pristine(JS_IsDate(value) ? "date" : "regexp", value).get());
    } else if (std::find(shown_.begin(), shown_.end(), JS_VALUE_GET_PTR(value)) != shown_.end()) {
      text += "[Circular]";
    } else if (depth >= kDepth) {
      text += JS_IsArray(value) ? "[Array]" : "[Object]";
    } else {
      shown_.push_back(JS_VALUE_GET_PTR(value));
      if (JS_IsMap(value) || JS_IsSet(value))
        show_collection(value, std::max(depth, 0));
      else
        show_members(value, std::max(depth, 0));
      shown_.pop_back();
    }
  }

  std::string text;

 private:
  // Texts that cannot be made are empty; showing a value never fails.
  std::string raw(JSValueConst value) {
    std::size_t size = 0;
    const char* const bytes = JS_ToCStringLen(engine_.context, &size, value);
    if (!bytes) {
      JS_FreeValue(engine_.context, JS_GetException(engine_.context));
      return "";
    }
    std::string made(bytes, size);
    JS_FreeCString(engine_.context, bytes);
    return made;
  }

  /// Neither a string nor an object.
  void show_plain(JSValueConst value) {
    JSContext* const c = engine_.context;
    if (JS_IsSymbol(value)) {
      const JSAtom atom = JS_ValueToAtom(c, value);
      const char* const name = JS_AtomToCString(c, atom);
      text += fmt::format("Symbol({})", name ? name : "");
      JS_FreeCString(c, name);
      JS_FreeAtom(c, atom);
      return;
    }
    double number = 1;
    if (JS_IsNumber(value)) JS_ToFloat64(c, &number, value);
    text += number == 0 && std::signbit(number) ? "-0" : raw(value);
    if (JS_IsBigInt(value)) text += 'n';
  }

  /// The result of a function that the script cannot have changed.
  Local pristine(const char* name, JSValueConst argument) {
    const Local function = own(engine_.pristine, name);
    const JSValue result = JS_Call(engine_.context, function.get(), JS_UNDEFINED, 1, &argument);
    if (JS_IsException(result)) JS_FreeValue(engine_.context, JS_GetException(engine_.context));
    return {engine_.context, result};
  }

  // Map(1) { "a" => 1 }, Set(1) { 1 }
  void show_collection(JSValueConst value, int depth) {
    const bool is_map = JS_IsMap(value);
    const Local list = pristine(is_map ? "entries" : "elements", value);
    std::int64_t length = 0;
    if (JS_IsArray(list.get())) JS_GetLength(engine_.context, list.get(), &length);
    const std::int64_t count = is_map ? length / 2 : length, least = std::min<std::int64_t>(count, kElements);
    text += fmt::format("{}({}) {{", is_map ? "Map" : "Set", count);
    const auto element = [&](std::int64_t i) {
      const Local each(engine_.context, JS_GetPropertyInt64(engine_.context, list.get(), i));
      show(each.get(), depth + 1);
    };
    for (std::int64_t i = 0; i < least; ++i) {
      text += i > 0 ? ", " : " ";
      element(is_map ? 2 * i : i);
      if (!is_map) continue;
      text += " => ";
      element(2 * i + 1);
    }
    if (count > least) text += fmt::format(", ... {} more", count - least);
    text += count > 0 ? " }" : "}";
  }

  /// The name of the class of a plain object; empty for objects of no class.
  std::string class_of(JSValueConst object) {
    const Local prototype(engine_.context, JS_GetPrototype(engine_.context, object));
    if (!JS_IsObject(prototype.get()) || JS_IsProxy(prototype.get())) return "";
    const Local constructor = own(prototype.get(), "constructor");
    if (!JS_IsObject(constructor.get()) || JS_IsProxy(constructor.get())) return "";
    const std::string name = named(constructor.get(), "name");
    return name.empty() || name == " Object" ? "" : name.substr(1) + " ";
  }

  // Quotes names that are not identifiers.
  static std::string key_text(std::string_view name) {
    const auto is_word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
             c < 0;
    };
    const bool is_plain = !name.empty() && std::all_of(name.begin(), name.end(), is_word);
    return is_plain ? std::string(name) : quote(name, 1000);
  }

  // An own property that is a value, not a getter.
  Local own(JSValueConst object, JSAtom name, bool& is_getter) {
    JSPropertyDescriptor found{};
    is_getter = false;
    const int result = JS_GetOwnProperty(engine_.context, &found, object, name);
    if (result < 0) JS_FreeValue(engine_.context, JS_GetException(engine_.context));
    if (result <= 0) return {};
    is_getter = (found.flags & JS_PROP_GETSET) != 0;
    JS_FreeValue(engine_.context, found.getter);
    JS_FreeValue(engine_.context, found.setter);
    return {engine_.context, found.value};
  }
  Local own(JSValueConst object, const char* name) {
    const JSAtom atom = JS_NewAtom(engine_.context, name);
    bool is_getter = false;
    Local value = own(object, atom, is_getter);
    JS_FreeAtom(engine_.context, atom);
    return value;
  }
  std::string named(JSValueConst object, const char* property) {
    const Local name = own(object, property);
    const std::string made = JS_IsString(name.get()) ? raw(name.get()) : "";
    return made.empty() ? "" : " " + made;
  }

  void show_tensor(const Tensor& tensor) {
    if (!tensor.defined()) {
      text += "Tensor (disposed)";
      return;
    }
    try {
      engine_.check_host_bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
      std::ostringstream out;
      out << tensor;
      text += out.str();
      while (text.ends_with('\n')) text.pop_back();
    } catch (const Error&) {  // inside a compiled function, or too large
      text += fmt::format("Tensor {} {}", weft::name_of(tensor.dtype()), tensor.shape().to_string());
    }
  }

  // "TypeError: message" and the lines of its stack. The class is found without getters.
  void show_error(JSValueConst error) {
    Local prototype(engine_.context, JS_DupValue(engine_.context, error));
    std::string name;
    for (int i = 0; i < 8 && name.empty() && JS_IsObject(prototype.get()) && !JS_IsProxy(prototype.get()); ++i) {
      name = named(prototype.get(), "name");
      prototype = Local(engine_.context, JS_GetPrototype(engine_.context, prototype.get()));
    }
    const std::string message = named(error, "message");
    std::string stack;
    {
      const Local lines(engine_.context, JS_GetPropertyStr(engine_.context, error, "stack"));
      if (JS_IsException(lines.get())) JS_FreeValue(engine_.context, JS_GetException(engine_.context));
      if (JS_IsString(lines.get())) stack = raw(lines.get());
    }
    text += (name.empty() ? "Error" : name.substr(1)) + (message.empty() ? "" : ":" + message);
    std::istringstream lines(stack);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t at = line.find("at ");
      if (at == std::string::npos || line.find("(native)") != std::string::npos ||
          line.find("weft:") != std::string::npos)
        continue;
      text += "\n    " + line.substr(at);
    }
  }

  void show_members(JSValueConst object, int depth) {
    JSContext* const c = engine_.context;
    const bool is_array = JS_IsArray(object) || JS_GetTypedArrayType(object) >= 0;
    if (JS_GetTypedArrayType(object) >= 0) {
      const Local prototype(c, JS_GetPrototype(c, object));
      const Local constructor = own(prototype.get(), "constructor");
      if (JS_IsObject(constructor.get())) text += named(constructor.get(), "name").substr(1) + " ";
    } else if (!is_array && JS_GetClassID(object) == 1) {
      text += class_of(object);
    } else if (!is_array) {
      const JSAtom name = JS_GetClassName(engine_.runtime, JS_GetClassID(object));
      const char* const bytes = JS_AtomToCString(c, name);
      text += fmt::format("{} ", bytes ? bytes : "");
      JS_FreeCString(c, bytes);
      JS_FreeAtom(c, name);
    }
    JSPropertyEnum* names = nullptr;
    std::uint32_t count = 0;
    if (JS_GetOwnPropertyNames(c, &names, &count, object, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY) < 0) {
      JS_FreeValue(c, JS_GetException(c));
      text += "{}";
      return;
    }
    text += is_array ? "[" : "{";
    std::uint32_t next = 0;  // index of an array
    for (std::uint32_t i = 0; i < count && i < kElements; ++i) {
      text += i > 0 ? ", " : is_array ? "" : " ";
      const char* const bytes = JS_AtomToCString(c, names[i].atom);
      const std::string name = bytes ? bytes : "";
      JS_FreeCString(c, bytes);
      std::uint32_t index = 0;
      const bool is_element =
          is_array && std::from_chars(name.data(), name.data() + name.size(), index).ptr == name.data() + name.size();
      if (is_element && index > next) text += holes(index - next) + ", ";
      if (is_element) next = index + 1;
      if (!is_element) text += key_text(name) + ": ";
      bool is_getter = false;
      const Local value = own(object, names[i].atom, is_getter);
      if (is_getter)
        text += "[Getter]";
      else
        show(value.get(), depth + 1);
    }
    if (count > kElements) text += fmt::format(", ... {} more", count - kElements);
    std::int64_t length = 0;
    if (JS_IsArray(object) && count <= kElements && JS_GetLength(c, object, &length) == 0 && length > next)
      text += (count ? ", " : "") + holes(static_cast<std::uint64_t>(length) - next);
    text += is_array ? "]" : count ? " }" : "}";
    JS_FreePropertyEnum(c, names, count);
  }

  static std::string holes(std::uint64_t count) {
    return fmt::format("<{} empty item{}>", count, count == 1 ? "" : "s");
  }

  Engine& engine_;
  std::vector<void*> shown_;  // the objects around the one that is shown
};

std::string shown(Engine& engine, JSValueConst value, int depth) {
  Inspector inspector(engine);
  inspector.show(value, depth);
  return inspector.text;
}

// A directive of a format text. Showing a value runs no code of the script, so %s, %d and %j show objects as %o does.
std::string directive(Engine& engine, char kind, JSValueConst value) {
  if (kind == 'c') return "";
  if (JS_IsObject(value) || kind == 'o' || kind == 'O' || kind == 'j') return shown(engine, value, 0);
  if (kind == 's') return shown(engine, value, -1);
  double number = NAN;
  if (JS_IsSymbol(value) || JS_IsBigInt(value) || JS_ToFloat64(engine.context, &number, value) < 0)
    return JS_IsBigInt(value) ? shown(engine, value, -1) : "NaN";
  if (kind == 'i') number = std::trunc(number);
  return shown(engine, Local(engine.context, JS_NewFloat64(engine.context, number)).get(), -1);
}

// Puts values into the directives of the first one; `used` receives how many there were.
std::string formatted(Engine& engine, Arguments arguments, std::size_t& used) {
  const std::string format = shown(engine, arguments[0], -1);
  std::string text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    const char kind = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (kind == '%') {
      text += '%';
      ++i;
    } else if (kind != '\0' && std::string_view("sdifoOjc").find(kind) != std::string_view::npos &&
               used < arguments.size()) {
      text += directive(engine, kind, arguments[used++]);
      ++i;
    } else {
      text += format[i];
    }
  }
  return text;
}

template <bool is_error>
Local print(Engine& engine, JSValueConst, Arguments arguments) {
  if (!engine.options.print) return {};
  std::string line;
  std::size_t used = 0;
  if (arguments.size() > 1 && JS_IsString(arguments[0])) line = formatted(engine, arguments, used = 1);
  for (std::size_t i = used; i < arguments.size(); ++i) line += (i ? " " : "") + shown(engine, arguments[i], -1);
  if (engine.console_indent > 0) {
    const std::string space(engine.console_indent, ' ');
    for (std::size_t at = 0; at != std::string::npos; at = line.find('\n', at)) {
      if (at > 0) ++at;
      line.insert(at, space);
      at += space.size();
    }
  }
  engine.options.print(line, is_error);
  return {};
}

}  // namespace

std::string inspect(Engine& engine, JSValueConst value) { return shown(engine, value, 0); }

void define_console(Engine& engine) {
  const Local global(engine.context, JS_GetGlobalObject(engine.context));
  Local console = engine.object();
  for (const char* name : {"log", "info", "debug"}) engine.method(console.get(), name, native<print<false>>, 1);
  for (const char* name : {"error", "warn"}) engine.method(console.get(), name, native<print<true>>, 1);
  engine.set(global.get(), "console", std::move(console));
}

}  // namespace weft::script
