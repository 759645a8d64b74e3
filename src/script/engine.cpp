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
  if (!engine.stopping && !engine.is_late()) return 0;
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

// ---- Handles --------------------------------------------------------------------------------------------------------------------

Handle::Handle(Engine& engine) : engine(engine), before(engine.newest) {
  if (before) before->after = this;
  engine.newest = this;
  ++engine.handles;
  if (engine.options.track_handles) {
    // The place comes from the stack of an error: "    at f (file.js:3:5)".
    const Local stack(engine.context, JS_Call(engine.context, engine.stack_function, JS_UNDEFINED, 0, nullptr));
    if (JS_IsException(stack.get())) JS_FreeValue(engine.context, JS_GetException(engine.context));
    const char* const text = JS_IsString(stack.get()) ? JS_ToCString(engine.context, stack.get()) : nullptr;
    std::string_view rest = text ? text : "", place;
    while (!rest.empty() && place.empty()) {
      const std::string_view row = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), row.size() + 1));
      if (row.find("(native)") != std::string_view::npos || row.find(':') == std::string_view::npos ||
          row.find("weft:") != std::string_view::npos)
        continue;
      place = row.substr(row.find("at ") == std::string_view::npos ? 0 : row.find("at ") + 3);
    }
    const auto [found, is_new] = engine.line_numbers.try_emplace(std::string(place), engine.lines.size());
    if (is_new) engine.lines.emplace_back(place);
    line = found->second;
    if (text) JS_FreeCString(engine.context, text);
  }
}

Handle::~Handle() {
  if (before) before->after = after;
  if (after) after->before = before;
  if (engine.newest == this) engine.newest = before;
  --engine.handles;
}

std::uint64_t TensorHandle::bytes() const {
  if (!value.defined() || !value.node()->storage) return 0;
  return bytes_of(value.dtype(), static_cast<std::size_t>(value.numel()));
}
std::uint64_t VariableHandle::bytes() const {
  return value.defined() ? bytes_of(value.dtype(), static_cast<std::size_t>(value.numel())) : 0;
}

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
    define_modules(*this);
    define_optimizers(*this);
    define_custom(*this);
    define_operations(*this);
    define_files(*this);
    define_net(*this);
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
  if (JS_IsBigInt(value)) {
    std::int64_t whole = 0;
    checked(JS_ToBigInt64(context, &whole, value));
    return static_cast<double>(whole);
  }
  if (JS_IsBool(value)) return JS_VALUE_GET_BOOL(value);
  throw UsageError(fmt::format("{} is {}, not a number", what, inspect(*this, value)));
}

Extent Engine::integer(JSValueConst value, std::string_view what) {
  if (JS_IsBigInt(value)) {
    std::int64_t whole = 0;
    checked(JS_ToBigInt64(context, &whole, value));
    return whole;
  }
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

// ---- Tensors --------------------------------------------------------------------------------------------------------------------

Local Engine::make(Tensor tensor) {
  check_handles();
  JSValue object = JS_NewObjectClass(context, static_cast<int>(tensor_class));
  if (JS_IsException(object)) throw ScriptThrew{};
  Local owned(context, object);
  JS_SetOpaque(object, static_cast<Handle*>(new TensorHandle(*this, std::move(tensor))));
  return owned;
}

Local Engine::make(Variable variable) {
  check_handles();
  JSValue object = JS_NewObjectClass(context, static_cast<int>(variable_class));
  if (JS_IsException(object)) throw ScriptThrew{};
  Local owned(context, object);
  JS_SetOpaque(object, static_cast<Handle*>(new VariableHandle(*this, std::move(variable))));
  return owned;
}

Tensor Engine::tensor_or_none(JSValueConst value) {
  if (in_kernel && (tensor_handle(value) || variable_handle(value)))
    throw UsageError("a kernel computes with its typed arrays only; tensors cannot be used inside");
  if (const TensorHandle* handle = tensor_handle(value)) {
    if (!handle->value.defined()) throw UsageError("the tensor was disposed; make another, or dispose it later");
    return handle->value;
  }
  if (const VariableHandle* handle = variable_handle(value)) {
    if (!handle->value.defined()) throw UsageError("the variable was disposed; make another, or dispose it later");
    return handle->value.value();
  }
  return {};
}

Tensor Engine::tensor(JSValueConst value, std::string_view what) {
  Tensor tensor = tensor_or_none(value);
  if (!tensor.defined()) throw UsageError(fmt::format("{} is {}, not a tensor", what, inspect(*this, value)));
  return tensor;
}

Tensor Engine::operand(JSValueConst value, const Tensor& like, std::string_view what) {
  if (!JS_IsNumber(value) && !JS_IsBool(value) && !JS_IsBigInt(value)) return tensor(value, what);
  const std::optional<DType> type = like.defined() ? std::optional<DType>(like.dtype()) : std::nullopt;
  return operations::number_operand(number(value, what), type, like.defined() ? like.device() : default_device());
}

std::vector<Tensor> Engine::tensors(JSValueConst array, std::string_view what) {
  const std::uint32_t count = length(array, what, 1u << 16);
  std::vector<Tensor> list;
  for (std::uint32_t i = 0; i < count; ++i) {
    const Local value = element(array, i);
    list.push_back(tensor(value.get(), what));
  }
  return list;
}

Local Engine::make_array(std::span<const Tensor> tensors) {
  Local list = array();
  for (std::size_t i = 0; i < tensors.size(); ++i) set(list.get(), static_cast<std::uint32_t>(i), make(tensors[i]));
  return list;
}

void Engine::evaluate(const Tensor& tensor) {
  try {
    tensor.eval();
  } catch (const DeviceMemoryError&) {
    JS_RunGC(runtime);
    tensor.eval();
  }
}

void Engine::check_host_bytes(std::uint64_t bytes) const {
  if (bytes > options.memory_limit)
    throw UsageError(
        fmt::format("{} bytes would be read, and the script may hold {}; read a part", bytes, options.memory_limit));
}

void Engine::count_work() {
  constexpr std::uint32_t kInterval = 64;
  constexpr std::size_t kBarrier = 4096, kTracedMax = 200'000, kTogether = 64;
  if (++work % kInterval != 0) return;
  if (is_late() || stopping) ran_out_of_time = true;  // the next poll ends the script
  graph::NodeTable& table = graph::GraphState::current().table;
  const std::size_t live = table.live();
  if (depth > 0) {
    if (live > kTracedMax)
      throw UsageError(fmt::format("compile: the function makes more than {} values; make it shorter", kTracedMax));
    return;
  }
  if (live < next_barrier) return;
  std::vector<Tensor> held;
  for (const Handle* handle = newest; handle; handle = handle->before)
    if (const Tensor* value = handle->tensor(); value && value->defined() && !value->node()->storage)
      held.push_back(*value);
  // Groups of a few values often have equal plans, which are found again.
  for (std::size_t i = 0; i < held.size(); i += kTogether) {
    weft::eval(std::span(held).subspan(i, std::min(kTogether, held.size() - i)));
    if (is_late() || stopping) break;
  }
  next_barrier = 2 * table.live() + kBarrier;
}

void Engine::check_handles() {
  if (handles < options.memory_limit >> 10) return;  // a handle takes about 1 KB of memory that the engine does not see
  JS_RunGC(runtime);
  if (handles < options.memory_limit >> 10) return;
  JS_ThrowOutOfMemory(context);
  throw ScriptThrew{};
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

void define_disposal(Engine& engine, JSValueConst prototype, JSCFunction* dispose) {
  const Local global(engine.context, JS_GetGlobalObject(engine.context));
  const Local symbols = engine.property(global.get(), "Symbol"), symbol = engine.property(symbols.get(), "dispose");
  const JSAtom atom = JS_ValueToAtom(engine.context, symbol.get());
  const int result = JS_DefinePropertyValue(engine.context, prototype, atom,
                                            JS_NewCFunction(engine.context, dispose, "[Symbol.dispose]", 0),
                                            JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE);
  JS_FreeAtom(engine.context, atom);
  engine.checked(result);
}

void add_export(Engine& engine, const char* name, Local value) { engine.exports.emplace_back(name, value.release()); }

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

// ---- Options --------------------------------------------------------------------------------------------------------------------

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

}  // namespace weft::script
