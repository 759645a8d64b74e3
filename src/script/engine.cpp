#include "script/engine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "catalogue/op_values.hpp"
#include "graph/graph_state.hpp"
#include "runtime/devices.hpp"
#include "script/files.hpp"
#include "script/loader.hpp"
#include "script/loop.hpp"
#include "weft/memory_limit.hpp"

namespace weft::script {
namespace {

// Polled by the engine in loops, calls and regular expressions.
int interrupt(JSRuntime*, void* opaque) {
  Engine& engine = *static_cast<Engine*>(opaque);
  if (!engine.is_late() && !engine.turn_stop.stop_requested()) return 0;
  engine.ran_out_of_time = true;
  return 1;
}

void track_rejection(JSContext* context, JSValueConst promise, JSValueConst reason, bool is_handled, void* opaque) {
  auto& list = static_cast<Engine*>(opaque)->loop->rejections;
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& each) {
    return JS_VALUE_GET_PTR(each.first) == JS_VALUE_GET_PTR(promise);
  });
  if (!is_handled && found == list.end()) {
    list.emplace_back(JS_DupValue(context, promise), JS_DupValue(context, reason));
  } else if (is_handled && found != list.end()) {
    JS_FreeValue(context, found->first);
    JS_FreeValue(context, found->second);
    list.erase(found);
  }
}

std::string without_caller(std::string_view message) {
  const std::size_t at = message.find("\n  called at ");
  if (at == std::string_view::npos) return std::string(message);
  const std::size_t end = message.find('\n', at + 1);
  return std::string(message.substr(0, at)) + (end == std::string_view::npos ? "" : std::string(message.substr(end)));
}
// Messages name lines of the script, and not of this library, and ops as the script named them.
std::string for_script(const Engine& engine, std::string_view given) {
  std::string message = without_caller(given);
  for (const auto& [name, plain] : engine.own_names)
    for (std::size_t at = 0; (at = message.find(name, at)) != std::string::npos; at += plain.size())
      message.replace(at, name.size(), plain);
  return message;
}
}  // namespace

// ---- The engine -----------------------------------------------------------------------------------------------------------------

Engine::Engine(const IsolateOptions& given)
    : options(given), session({.threads = given.threads, .device = given.device}) {
  if (options.stack_limit < (std::size_t{64} << 10) || options.stack_limit > (std::size_t{4} << 20))
    throw UsageError(fmt::format("script: a stack of {} bytes; 64 KB to 4 MB are possible", options.stack_limit));
  loop = std::make_unique<Loop>(*this);
  files = std::make_unique<Files>(options.read_folders, options.write_folders);
  module_roots = real_folders(options.module_folders);
  runtime = JS_NewRuntime();
  if (!runtime) throw std::bad_alloc();
  JS_SetRuntimeOpaque(runtime, this);
  JS_SetMaxStackSize(runtime, options.stack_limit);
  JS_SetInterruptHandler(runtime, interrupt, this);
  JS_SetHostPromiseRejectionTracker(runtime, track_rejection, this);
  JS_SetCanBlock(runtime, false);
  context = JS_NewContext(runtime);
  if (!context) throw std::bad_alloc();
  JS_SetContextOpaque(context, this);
  outer = &SessionState::current();
  const auto in = session.enter();
  if (options.device_memory_limit) set_device_memory_limit(options.device_memory_limit);
  rows = graph::op_rows();
  try {
    define_prelude(*this);  // first: it has the classes of errors
    define_console(*this);
    define_timers(*this);
    define_tensor(*this);
    define_variable(*this);
    define_ops(*this);
    define_compile(*this);
    define_transforms(*this);
    define_hooks(*this);
    define_modules(*this);
    define_optimizers(*this);
    define_custom(*this);
    define_operations(*this);
    define_workflow(*this);
    define_files(*this);
    define_grid(*this);
    define_metatensor(*this);
    define_tree(*this);
    define_memory(*this);
    define_media(*this);
    define_senses(*this);
    define_net(*this);
    define_web(*this);  // after fetch and the console, which it extends
    define_loader(*this);
  } catch (const ScriptThrew&) {
    const Local error = take_exception();
    throw InternalError("script: " + inspect(*this, error.get()));
  }
  JS_SetMemoryLimit(runtime, options.memory_limit);
}

Engine::~Engine() {
  const auto in = session.enter();
  if (end_operations) end_operations();  // its calls may wait for this isolate
  loop->clear();
  operations.reset();
  if (!context) return;
  JS_SetMemoryLimit(runtime, 0);
  for (const auto& end : at_end) end();
  for (auto& [name, value] : exports) JS_FreeValue(context, value);
  for (auto& [name, value] : error_classes) JS_FreeValue(context, value);
  JS_FreeValue(context, stack_function);
  JS_FreeValue(context, drive_function);
  JS_FreeValue(context, expand_function);
  JS_FreeValue(context, pristine);
  loop.reset();
  JS_FreeContext(context);
  JS_FreeRuntime(runtime);
}

Local Engine::take_exception() { return {context, JS_GetException(context)}; }

JSValue Engine::throw_error(const char* name, std::string_view message) {
  const auto found = error_classes.find(name);
  if (found == error_classes.end())
    return JS_ThrowPlainError(context, "%.*s", static_cast<int>(std::min<std::size_t>(message.size(), 4000)),
                              message.data());
  const JSValue text = JS_NewStringLen(context, message.data(), message.size());
  if (JS_IsException(text)) return JS_EXCEPTION;
  JSValueConst arguments[] = {text};
  const JSValue error = JS_CallConstructor(context, found->second, 1, arguments);
  JS_FreeValue(context, text);
  return JS_IsException(error) ? JS_EXCEPTION : JS_Throw(context, error);
}

JSValue Engine::throw_current() {
  try {
    throw;
  } catch (const ScriptThrew&) {
    if (!JS_HasException(context)) return throw_error("InternalError", "script: an exception was lost");
    return JS_EXCEPTION;
  } catch (const AccessError& error) {
    return throw_error("AccessError", error.what());
  } catch (const DeviceMemoryError& error) {
    return throw_error("DeviceMemoryError", for_script(*this, error.what()));
  } catch (const operations::OperationError& error) {
    return throw_error("OperationError", fmt::format("{}: {}", error.code(), error.what()));
  } catch (const ShapeError& error) {
    return throw_error("ShapeError", for_script(*this, error.what()));
  } catch (const DTypeError& error) {
    return throw_error("DTypeError", for_script(*this, error.what()));
  } catch (const DeviceError& error) {
    return throw_error("DeviceError", for_script(*this, error.what()));
  } catch (const FileError& error) {
    return throw_error("FileError", for_script(*this, error.what()));
  } catch (const UsageError& error) {
    return throw_error("UsageError", for_script(*this, error.what()));
  } catch (const std::bad_alloc&) {
    return throw_error("DeviceMemoryError", "out of memory");
  } catch (const std::exception& error) {
    return throw_error("WeftError", for_script(*this, error.what()));
  }
}

void Engine::refuse(std::string_view function, std::string_view fact) {
  throw UsageError(fmt::format("{}: {}", function, fact));
}

// ---- Values ---------------------------------------------------------------------------------------------------------------------

Local Engine::call(JSValueConst function, JSValueConst self, Arguments arguments) {
  return checked(JS_Call(context, function, self, static_cast<int>(arguments.size()), arguments.data()));
}
Local Engine::call(JSValueConst function, JSValueConst self, std::initializer_list<JSValueConst> arguments) {
  std::vector<JSValueConst> list(arguments);
  return call(function, self, Arguments(list));
}

std::string Engine::text(JSValueConst value) {
  std::size_t size = 0;
  const char* const bytes = JS_ToCStringLen(context, &size, value);
  if (!bytes) throw ScriptThrew{};
  std::string text;
  try {
    text.assign(bytes, size);
  } catch (...) {
    JS_FreeCString(context, bytes);
    throw;
  }
  JS_FreeCString(context, bytes);
  return text;
}

double Engine::number(JSValueConst value, std::string_view what) {
  double number = 0;
  if (JS_IsNumber(value)) {
    JS_ToFloat64(context, &number, value);
    return number;
  }
  if (JS_IsBigInt(value)) return static_cast<double>(big_integer(value, what));
  if (JS_IsBool(value)) return JS_VALUE_GET_BOOL(value);
  throw UsageError(fmt::format("{} is {}, not a number", what, inspect(*this, value)));
}

std::int64_t Engine::big_integer(JSValueConst value, std::string_view what, bool unsigned_too) {
  std::int64_t whole = 0;
  checked(JS_ToBigInt64(context, &whole, value));  // modulo 2^64
  const std::string digits = text(value);
  if (digits == fmt::to_string(whole) || (unsigned_too && digits == fmt::to_string(static_cast<std::uint64_t>(whole))))
    return whole;
  throw UsageError(fmt::format("{} is {}n, which does not fit {}", what,
                               digits.size() > 40 ? digits.substr(0, 40) + "..." : digits,
                               unsigned_too ? "u64 or i64" : "i64"));
}

Extent Engine::integer(JSValueConst value, std::string_view what) {
  if (JS_IsBigInt(value)) return big_integer(value, what);
  const double real = number(value, what);
  if (std::trunc(real) != real || std::abs(real) > 0x1p53)
    throw UsageError(fmt::format("{} is {}, not a whole number", what, real));
  return static_cast<Extent>(real);
}

std::uint32_t Engine::length(JSValueConst array, std::string_view what, std::uint32_t most) {
  if (!JS_IsArray(array)) throw UsageError(fmt::format("{} is {}, not an array", what, inspect(*this, array)));
  std::int64_t length = 0;
  checked(JS_GetLength(context, array, &length));
  if (length < 0 || length > most)
    throw UsageError(fmt::format("{} has {} elements; at most {} are possible", what, length, most));
  return static_cast<std::uint32_t>(length);
}

bool Engine::is_plain_object(JSValueConst value) {
  return JS_IsObject(value) && JS_GetClassID(value) == 1 && !JS_IsArray(value);  // 1: JS_CLASS_OBJECT
}

std::vector<std::string> Engine::names(JSValueConst object) {
  JSPropertyEnum* properties = nullptr;
  std::uint32_t count = 0;
  checked(JS_GetOwnPropertyNames(context, &properties, &count, object, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY));
  std::vector<std::string> list;
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* const name = JS_AtomToCString(context, properties[i].atom);
    list.emplace_back(name ? name : "");
    JS_FreeCString(context, name);
  }
  JS_FreePropertyEnum(context, properties, count);
  return list;
}

DType Engine::dtype(JSValueConst value) {
  if (!JS_IsString(value)) throw UsageError(fmt::format("dtype is {}, not a name", inspect(*this, value)));
  const std::string name = text(value);
  for (const DType type : kAllDTypes)
    if (name_of(type) == name) return type;
  std::vector<std::string_view> names;
  for (const DType type : kAllDTypes) names.push_back(name_of(type));
  throw UsageError(fmt::format("dtype {} is unknown; there are {}", quote(name), fmt::join(names, ", ")));
}

std::vector<Extent> Engine::extents(JSValueConst value, std::string_view what) {
  if (JS_IsNumber(value) || JS_IsBigInt(value)) return {integer(value, what)};
  const std::uint32_t count = length(value, what, 4096);
  std::vector<Extent> list;
  for (std::uint32_t i = 0; i < count; ++i) list.push_back(integer(element(value, i).get(), what));
  return list;
}

// ---- Definitions ----------------------------------------------------------------------------------------------------------------

void Engine::method(JSValueConst on, const char* name, JSCFunction* function, int arguments) {
  checked(JS_DefinePropertyValueStr(context, on, name, JS_NewCFunction(context, function, name, arguments),
                                    JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE));
}

void Engine::getter(JSValueConst on, const char* name, JSCFunction* get, JSCFunction* set) {
  const JSAtom atom = JS_NewAtom(context, name);
  const int result =
      JS_DefinePropertyGetSet(context, on, atom, JS_NewCFunction(context, get, name, 0),
                              set ? JS_NewCFunction(context, set, name, 1) : JS_UNDEFINED, JS_PROP_CONFIGURABLE);
  JS_FreeAtom(context, atom);
  checked(result);
}

Local Engine::make_class(JSClassID& id, const char* name, JSClassCall* call, JSClassExoticMethods* exotic) {
  JS_NewClassID(runtime, &id);
  const JSClassDef definition{.class_name = name,
                              .finalizer =
                                  [](JSRuntime*, JSValueConst value) {
                                    JSClassID any = 0;
                                    delete static_cast<Handle*>(JS_GetAnyOpaque(value, &any));
                                  },
                              .gc_mark =
                                  [](JSRuntime* rt, JSValueConst value, JS_MarkFunc* mark) {
                                    JSClassID any = 0;
                                    if (auto* handle = static_cast<Handle*>(JS_GetAnyOpaque(value, &any)))
                                      handle->mark(rt, mark);
                                  },
                              .call = call,
                              .exotic = exotic};
  checked(JS_NewClass(runtime, id, &definition));
  Local prototype = object();
  JS_SetClassProto(context, id, JS_DupValue(context, prototype.get()));
  return prototype;
}

void define_symbol(Engine& engine, JSValueConst prototype, const char* symbol, JSCFunction* function) {
  const Local global(engine.context, JS_GetGlobalObject(engine.context));
  const Local symbols = engine.property(global.get(), "Symbol"), key = engine.property(symbols.get(), symbol);
  const JSAtom atom = JS_ValueToAtom(engine.context, key.get());
  const std::string name = fmt::format("[Symbol.{}]", symbol);
  const int result = JS_DefinePropertyValue(engine.context, prototype, atom,
                                            JS_NewCFunction(engine.context, function, name.c_str(), 0),
                                            JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
  JS_FreeAtom(engine.context, atom);
  engine.checked(result);
}

void add_export(Engine& engine, const char* name, Local value) { engine.exports.emplace_back(name, value.release()); }

}  // namespace weft::script
