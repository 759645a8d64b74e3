// Values as text, and the console. Showing a value runs no code of the script: getters are named, not called.
#include <fmt/format.h>

#include <cmath>
#include <sstream>

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
      text += JS_IsSymbol(value) ? "Symbol()" : raw(value);
      if (JS_IsBigInt(value)) text += 'n';
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
      text += JS_IsDate(value) ? "[Date]" : "[RegExp]";
    } else if (depth >= kDepth) {
      text += JS_IsArray(value) ? "[Array]" : "[Object]";
    } else {
      show_members(value, std::max(depth, 0));
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
    } else if (!is_array && JS_GetClassID(object) != 1) {
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
    for (std::uint32_t i = 0; i < count && i < kElements; ++i) {
      text += i > 0 ? ", " : is_array ? "" : " ";
      if (!is_array) {
        const char* const name = JS_AtomToCString(c, names[i].atom);
        text += fmt::format("{}: ", name ? name : "");
        JS_FreeCString(c, name);
      }
      bool is_getter = false;
      const Local value = own(object, names[i].atom, is_getter);
      if (is_getter)
        text += "[Getter]";
      else
        show(value.get(), depth + 1);
    }
    if (count > kElements) text += fmt::format(", ... {} more", count - kElements);
    text += is_array ? "]" : count ? " }" : "}";
    JS_FreePropertyEnum(c, names, count);
  }

  Engine& engine_;
};

template <bool is_error>
Local print(Engine& engine, JSValueConst, Arguments arguments) {
  if (!engine.options.print) return {};
  std::string line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    Inspector inspector(engine);
    inspector.show(arguments[i], -1);
    line += (i ? " " : "") + inspector.text;
  }
  engine.options.print(line, is_error);
  return {};
}

}  // namespace

std::string inspect(Engine& engine, JSValueConst value) {
  Inspector inspector(engine);
  inspector.show(value, 0);
  return inspector.text;
}

void define_console(Engine& engine) {
  const Local global(engine.context, JS_GetGlobalObject(engine.context));
  Local console = engine.object();
  for (const char* name : {"log", "info", "debug"}) engine.method(console.get(), name, native<print<false>>, 1);
  for (const char* name : {"error", "warn"}) engine.method(console.get(), name, native<print<true>>, 1);
  engine.set(global.get(), "console", std::move(console));
}

}  // namespace weft::script
