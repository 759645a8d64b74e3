// The engine of an isolate: QuickJS with C++ values. Native functions throw C++ exceptions, which become errors of the script.
#pragma once

#include <quickjs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/op.hpp"
#include "weft/script.hpp"
#include "weft/session.hpp"
#include "weft/tensor.hpp"

namespace weft::script {

/// Thrown where an exception of the script is pending in the context.
struct ScriptThrew {};

/// An access that was not granted. It becomes an `AccessError` of the script.
class AccessError : public Error {
  using Error::Error;
};

/// An owned value.
class Local {
 public:
  Local() = default;
  Local(JSContext* context, JSValue value) : context_(context), value_(value) {}
  Local(Local&& other) noexcept : context_(other.context_), value_(std::exchange(other.value_, JS_UNDEFINED)) {}
  Local& operator=(Local&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(value_, other.value_);
    return *this;
  }
  ~Local() {
    if (context_) JS_FreeValue(context_, value_);
  }
  JSValueConst get() const { return value_; }
  JSValue release() { return std::exchange(value_, JS_UNDEFINED); }

 private:
  JSContext* context_ = nullptr;
  JSValue value_ = JS_UNDEFINED;
};

using Arguments = std::span<JSValueConst>;
struct Engine;
struct Loop;
struct Files;
class SourceCompiler;
class KeptValues;

/// A native object behind a handle of the script. They are in a list, so that an isolate knows what is alive.
struct Handle {
  explicit Handle(Engine& engine);
  virtual ~Handle();
  Handle(const Handle&) = delete;
  virtual std::string_view kind() const = 0;
  /// The tensor it holds, or null.
  virtual const Tensor* tensor() const { return nullptr; }
  virtual std::uint64_t bytes() const { return 0; }
  /// Values of the script that it refers to, for the search for cycles.
  virtual void mark(JSRuntime*, JS_MarkFunc*) {}

  Engine& engine;
  Handle *before = nullptr, *after = nullptr;
  int line = 0;  // index in Engine::lines
};

struct TensorHandle final : Handle {
  TensorHandle(Engine& engine, Tensor value) : Handle(engine), value(std::move(value)) {}
  std::string_view kind() const override { return "Tensor"; }
  const Tensor* tensor() const override { return &value; }
  std::uint64_t bytes() const override;
  Tensor value;  // undefined after `dispose`
};
struct VariableHandle final : Handle {
  VariableHandle(Engine& engine, Variable value) : Handle(engine), value(std::move(value)) {}
  std::string_view kind() const override { return "Variable"; }
  std::uint64_t bytes() const override;
  Variable value;
};

struct Engine {
  explicit Engine(const IsolateOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  static Engine& of(JSContext* context) { return *static_cast<Engine*>(JS_GetContextOpaque(context)); }

  // ---- Errors
  /// Takes the pending exception.
  Local take_exception();
  /// Throws ScriptThrew for an exception.
  Local checked(JSValue value) {
    if (JS_IsException(value)) throw ScriptThrew{};
    return {context, value};
  }
  void checked(int result) {
    if (result < 0) throw ScriptThrew{};
  }
  /// Makes the current C++ exception one of the script.
  JSValue throw_current();
  JSValue throw_error(const char* name, std::string_view message);
  /// Throws UsageError in the name of the function.
  [[noreturn]] static void refuse(std::string_view function, std::string_view fact);

  // ---- Values
  Local string(std::string_view text) { return checked(JS_NewStringLen(context, text.data(), text.size())); }
  Local object() { return checked(JS_NewObject(context)); }
  Local array() { return checked(JS_NewArray(context)); }
  Local property(JSValueConst of, const char* name) { return checked(JS_GetPropertyStr(context, of, name)); }
  Local element(JSValueConst of, std::uint32_t index) { return checked(JS_GetPropertyUint32(context, of, index)); }
  void set(JSValueConst of, const char* name, Local value) {
    checked(JS_DefinePropertyValueStr(context, of, name, value.release(), JS_PROP_C_W_E));
  }
  void set(JSValueConst of, std::uint32_t index, Local value) {
    checked(JS_DefinePropertyValueUint32(context, of, index, value.release(), JS_PROP_C_W_E));
  }
  Local call(JSValueConst function, JSValueConst self, Arguments arguments);
  Local call(JSValueConst function, JSValueConst self, std::initializer_list<JSValueConst> arguments);
  std::string text(JSValueConst value);
  double number(JSValueConst value, std::string_view what);
  Extent integer(JSValueConst value, std::string_view what);
  /// The bits of a BigInt. Errors: UsageError if it does not fit i64, or u64 where that is `unsigned_too`.
  std::int64_t big_integer(JSValueConst value, std::string_view what, bool unsigned_too = false);
  /// Length of an array. Errors: UsageError if it is not an array, or longer than `most`.
  std::uint32_t length(JSValueConst array, std::string_view what, std::uint32_t most = 1u << 24);
  bool is_plain_object(JSValueConst value);
  /// Names of an object's own enumerable properties, in their order.
  std::vector<std::string> names(JSValueConst object);
  bool is_nullish(JSValueConst value) const { return JS_IsUndefined(value) || JS_IsNull(value); }
  DType dtype(JSValueConst value);
  std::vector<Extent> extents(JSValueConst value, std::string_view what);

  // ---- Handles
  Local make(Tensor tensor);
  Local make(Variable variable);
  /// Null if the value is not a handle of this kind.
  TensorHandle* tensor_handle(JSValueConst value) const {
    return static_cast<TensorHandle*>(static_cast<Handle*>(JS_GetOpaque(value, tensor_class)));
  }
  VariableHandle* variable_handle(JSValueConst value) const {
    return static_cast<VariableHandle*>(static_cast<Handle*>(JS_GetOpaque(value, variable_class)));
  }
  /// The tensor of a Tensor or Variable. Errors: UsageError naming `what`.
  Tensor tensor(JSValueConst value, std::string_view what);
  /// Undefined if the value is neither.
  Tensor tensor_or_none(JSValueConst value);
  /// A tensor, or a number that becomes one beside `like`.
  Tensor operand(JSValueConst value, const Tensor& like, std::string_view what);
  std::vector<Tensor> tensors(JSValueConst array, std::string_view what);
  Local make_array(std::span<const Tensor> tensors);
  /// Computes the value. If memory is short, values that only cycles hold are freed first.
  void evaluate(const Tensor& tensor);
  /// Called by everything that makes graph nodes: computes what waits before the graph takes too much memory.
  void count_work();

  /// Throws ScriptThrew, out of memory, if the script holds too many handles.
  void check_handles();
  /// Errors: UsageError if the script may not hold so many bytes.
  void check_host_bytes(std::uint64_t bytes) const;

  /// Defines a native function on an object.
  void method(JSValueConst on, const char* name, JSCFunction* function, int arguments);
  void getter(JSValueConst on, const char* name, JSCFunction* get, JSCFunction* set = nullptr);
  /// Makes a class of handles with its prototype.
  Local make_class(JSClassID& id, const char* name, JSClassCall* call = nullptr,
                   JSClassExoticMethods* exotic = nullptr);

  /// Whether what runs now should end.
  bool is_late() const { return stopping || (deadline && std::chrono::steady_clock::now() >= *deadline); }

  const IsolateOptions& options;
  Session session;
  JSRuntime* runtime = nullptr;
  JSContext* context = nullptr;
  JSClassID tensor_class = 0, variable_class = 0, compiled_class = 0, module_class = 0, optimizer_class = 0,
            scale_class = 0, subscription_class = 0, grid_class = 0, metatensor_class = 0, memory_class = 0,
            sense_class = 0;
  std::vector<const graph::OpRow*> rows;  // the magic numbers of functions of ops
  std::map<std::string, JSValue, std::less<>> error_classes;
  std::vector<std::pair<std::string, JSValue>> exports;  // of the module "weft"

  JSValue stack_function = JS_UNDEFINED;   // gives the lines of the calls that are under way
  JSValue drive_function = JS_UNDEFINED;   // gives what an async iterator has to a function
  JSValue expand_function = JS_UNDEFINED;  // calls the components of a tree
  JSValue pristine = JS_UNDEFINED;         // functions of built-in objects, as they were before the script
  std::size_t console_indent = 0;          // of console.group

  Handle* newest = nullptr;
  std::size_t handles = 0;
  std::vector<std::string> lines{""};  // lines that made handles
  std::map<std::string, int, std::less<>> line_numbers;
  std::uint32_t work = 0;
  std::size_t next_barrier = 4096;  // living values at which all held ones are computed
  int depth = 0;                    // of traces of compiled functions, and of functions under a transform
  std::vector<std::shared_ptr<void>> own_gradients;  // of customGradient, by number
  std::shared_ptr<KeptValues> kept;                  // see hooks.hpp
  int registrations = 0;
  bool in_kernel = false;    // a kernel in JavaScript runs: its plan is in use, so tensors are not available
  bool has_kernels = false;  // ops with kernels in JavaScript, which run on this thread only
  std::vector<std::pair<std::string, std::string>>
      own_names;                              // names in the table of ops, and those that the script gave
  std::vector<std::function<void()>> at_end;  // before the context is freed

  std::optional<std::chrono::steady_clock::time_point> deadline;
  std::stop_token turn_stop;  // of the call whose function runs now
  std::atomic<bool> stopping = false, ran_out_of_time = false;
  bool refused_memory = false;
  SessionState* outer = nullptr;     // the session in which the isolate was made
  std::shared_ptr<void> operations;  // see operations_api.cpp
  std::function<void()> end_operations;
  std::unique_ptr<Loop> loop;
  std::unique_ptr<Files> files;
  std::unique_ptr<SourceCompiler> compiler;  // made at the first source that needs it
  std::vector<std::filesystem::path> module_roots;
};

/// While it lives, the script has some more memory: telling what happened needs it.
class MemoryForErrors {
 public:
  explicit MemoryForErrors(Engine& engine) : engine_(engine) {
    JS_SetMemoryLimit(engine.runtime, engine.options.memory_limit + (std::size_t{16} << 20));
  }
  ~MemoryForErrors() { JS_SetMemoryLimit(engine_.runtime, engine_.options.memory_limit); }
  MemoryForErrors(const MemoryForErrors&) = delete;

 private:
  Engine& engine_;
};

/// While it exists the engine computes nothing of its own accord, because a transform sees the graph.
class Untouched {
 public:
  explicit Untouched(Engine& engine) : engine_(engine) { ++engine_.depth; }
  ~Untouched() { --engine_.depth; }
  Untouched(const Untouched&) = delete;

 private:
  Engine& engine_;
};

/// A native function over C++ values as QuickJS calls it.
using Function = Local (*)(Engine& engine, JSValueConst self, Arguments arguments);
template <Function function>
JSValue native(JSContext* context, JSValueConst self, int count, JSValueConst* arguments) {
  Engine& engine = Engine::of(context);
  try {
    return function(engine, self, Arguments(arguments, static_cast<std::size_t>(count))).release();
  } catch (...) {
    return engine.throw_current();
  }
}

/// An argument, or undefined.
inline JSValueConst at(Arguments arguments, std::size_t i) {
  return i < arguments.size() ? arguments[i] : JS_UNDEFINED;
}

/// Options given as an object. Members that nobody asked for are refused at the end.
class Options {
 public:
  /// Errors: UsageError unless the value is an object or undefined.
  Options(Engine& engine, JSValueConst value, std::string_view function);
  double number(const char* name, double otherwise);
  Extent integer(const char* name, Extent otherwise);
  bool boolean(const char* name, bool otherwise);
  std::string text(const char* name, std::string_view otherwise);
  std::optional<std::vector<Extent>> list(const char* name);
  /// Changes a member of a struct of options, if it is given.
  Options& read(const char* name, double& to) { return to = number(name, to), *this; }
  Options& read(const char* name, Extent& to) { return to = integer(name, to), *this; }
  Options& read(const char* name, bool& to) { return to = boolean(name, to), *this; }
  /// Undefined if it is not given.
  Local value(const char* name);
  /// Errors: UsageError that lists what is known.
  void finish();

 private:
  Engine& engine_;
  JSValueConst object_;
  std::string function_;
  std::vector<std::string> known_;
};

// ---- The parts of the module "weft", each in its file. They define exports.

void define_tensor(Engine& engine);
void define_ops(Engine& engine);
void define_variable(Engine& engine);
void define_compile(Engine& engine);
void define_transforms(Engine& engine);
void define_hooks(Engine& engine);
void define_modules(Engine& engine);
void define_optimizers(Engine& engine);
void define_custom(Engine& engine);
void define_operations(Engine& engine);
void define_workflow(Engine& engine);
void define_files(Engine& engine);
void define_grid(Engine& engine);
void define_metatensor(Engine& engine);
void define_tree(Engine& engine);
void define_memory(Engine& engine);
void define_media(Engine& engine);
void define_senses(Engine& engine);
void define_console(Engine& engine);
void define_timers(Engine& engine);
void define_net(Engine& engine);
void define_web(Engine& engine);
void define_loader(Engine& engine);
/// Parts written as scripts themselves.
void define_prelude(Engine& engine);

/// Defines a method under a well-known symbol, such as "dispose", which `using x = ...` calls at the end of the block.
void define_symbol(Engine& engine, JSValueConst prototype, const char* symbol, JSCFunction* function);
/// An export of the module "weft".
void add_export(Engine& engine, const char* name, Local value);
/// A function of `arguments` arguments as an export of the module "weft".
template <Function function>
void add_function(Engine& engine, const char* name, int arguments) {
  add_export(engine, name, engine.checked(JS_NewCFunction(engine.context, native<function>, name, arguments)));
}

/// Nested arrays, a typed array or a buffer as a tensor.
Tensor tensor_from(Engine& engine, JSValueConst data, std::optional<DType> type, std::optional<Shape> shape,
                   std::optional<Device> device);
/// The bytes of a buffer or of a view of one; copied, because scripts may detach it.
std::vector<std::byte> bytes_of_buffer(Engine& engine, JSValueConst value, std::string_view what);
/// A typed array for elements of this type.
Local typed_array(Engine& engine, DType type, std::span<const std::byte> bytes);
/// A value as `console.log` shows it.
std::string inspect(Engine& engine, JSValueConst value);
/// A component tree with its components called, as a value.
Value tree_from(Engine& engine, JSValueConst element);
/// Values of operations.
Value value_from(Engine& engine, JSValueConst value);
Local value_to(Engine& engine, const Value& value);
/// An error of the script with its lines, and how the run ended because of it.
Result result_of(Engine& engine, JSValueConst error);

/// "crossEntropy" for "cross_entropy"; "cross_entropy" for "crossEntropy".
std::string camel(std::string_view name);
std::string snake(std::string_view name);

}  // namespace weft::script
