// Compiled functions: the script's function is traced once, and calls replay its plan.
#include <fmt/format.h>

#include <cmath>

#include "script/engine.hpp"
#include "weft/compile.hpp"
#include "weft/ops.hpp"

namespace weft::script {
namespace {

struct CompiledHandle final : Handle {
  CompiledHandle(Engine& engine, JSValue function)
      : Handle(engine), function(function), compiled([this](std::span<const Tensor> given) { return trace(given); }) {}
  ~CompiledHandle() override { JS_FreeValueRT(engine.runtime, function); }
  std::string_view kind() const override { return "compiled function"; }
  void mark(JSRuntime* runtime, JS_MarkFunc* mark) override { JS_MarkValue(runtime, function, mark); }

  // What the function returned: a tensor, an array or an object of tensors, or nothing.
  enum class Form : std::uint8_t { unknown, none, one, array, object };

  std::vector<Tensor> trace(std::span<const Tensor> given) {
    struct Depth {
      Engine& engine;
      explicit Depth(Engine& engine) : engine(engine) { ++engine.depth; }
      ~Depth() { --engine.depth; }
    } const depth(engine);
    std::vector<Local> held;
    std::vector<JSValueConst> arguments;
    for (const Tensor& tensor : given) {
      held.push_back(engine.make(tensor));
      arguments.push_back(held.back().get());
    }
    const Local result = engine.call(function, JS_UNDEFINED, Arguments(arguments));
    if (JS_IsPromise(result.get())) throw UsageError("compile: the function is async; a compiled function cannot wait");
    std::vector<Tensor> tensors;
    Form now = Form::none;
    std::vector<std::string> names;
    if (const Tensor one = engine.tensor_or_none(result.get()); one.defined()) {
      now = Form::one;
      tensors.push_back(one);
    } else if (JS_IsArray(result.get())) {
      now = Form::array;
      tensors = engine.tensors(result.get(), "compile: a result");
    } else if (engine.is_plain_object(result.get())) {
      now = Form::object;
      names = engine.names(result.get());
      for (const std::string& name : names)
        tensors.push_back(engine.tensor(engine.property(result.get(), name.c_str()).get(), "compile: " + name));
    } else if (!engine.is_nullish(result.get())) {
      throw UsageError(fmt::format("compile: the function gave {}, not tensors", inspect(engine, result.get())));
    }
    if (form != Form::unknown && (form != now || members != names))
      throw UsageError("compile: the function gives results of another form than before");
    form = now;
    members = std::move(names);
    return tensors;
  }

  Local call(Arguments given) {
    std::vector<Tensor> tensors;
    for (const JSValueConst& value : given) {
      if (JS_IsNumber(value)) {
        const auto number = static_cast<float>(engine.number(value, "an argument"));
        tensors.push_back(weft::tensor<float>(number));
      } else {
        tensors.push_back(engine.tensor(value, "compile: an argument"));
      }
    }
    const std::vector<Tensor> results = compiled(tensors);
    switch (form) {
      case Form::one: return engine.make(results.at(0));
      case Form::array: return engine.make_array(results);
      case Form::object: {
        Local object = engine.object();
        for (std::size_t i = 0; i < members.size(); ++i)
          engine.set(object.get(), members[i].c_str(), engine.make(results.at(i)));
        return object;
      }
      default: return {};
    }
  }

  JSValue function;
  Compiled compiled;
  Form form = Form::unknown;
  std::vector<std::string> members;
};

CompiledHandle& compiled_of(Engine& engine, JSValueConst value) {
  auto* const handle = static_cast<CompiledHandle*>(static_cast<Handle*>(JS_GetOpaque(value, engine.compiled_class)));
  if (!handle) Engine::refuse("compile", "this is not a compiled function");
  return *handle;
}

JSValue call_compiled(JSContext* context, JSValueConst function, JSValueConst, int count, JSValueConst* arguments,
                      int) {
  Engine& engine = Engine::of(context);
  const Local held(context, JS_DupValue(context, function));
  try {
    engine.count_work();
    return compiled_of(engine, function).call(Arguments(arguments, static_cast<std::size_t>(count))).release();
  } catch (...) {
    return engine.throw_current();
  }
}

Local compile_function(Engine& engine, JSValueConst, Arguments arguments) {
  if (!JS_IsFunction(engine.context, at(arguments, 0))) Engine::refuse("compile", "the argument is not a function");
  JSValue object = JS_NewObjectClass(engine.context, static_cast<int>(engine.compiled_class));
  Local made = engine.checked(object);
  JS_SetOpaque(object, static_cast<Handle*>(new CompiledHandle(engine, JS_DupValue(engine.context, arguments[0]))));
  return made;
}

Local explain_compiled(Engine& engine, JSValueConst self, Arguments arguments) {
  return engine.string(compiled_of(engine, self).compiled.explain(JS_ToBool(engine.context, at(arguments, 0)) > 0));
}
Local kernel_count(Engine& engine, JSValueConst self, Arguments) {
  const auto count = compiled_of(engine, self).compiled.kernel_count();
  return {engine.context, JS_NewInt64(engine.context, static_cast<std::int64_t>(count))};
}
Local trace_count(Engine& engine, JSValueConst self, Arguments) {
  const auto count = compiled_of(engine, self).compiled.trace_count();
  return {engine.context, JS_NewInt64(engine.context, static_cast<std::int64_t>(count))};
}
Local explain_tensor(Engine& engine, JSValueConst, Arguments arguments) {
  return engine.string(weft::explain(engine.tensor(at(arguments, 0), "explain: the tensor"),
                                     JS_ToBool(engine.context, at(arguments, 1)) > 0));
}

}  // namespace

void define_compile(Engine& engine) {
  const Local prototype = engine.make_class(engine.compiled_class, "Compiled", call_compiled);
  const Local functions(engine.context, JS_GetFunctionProto(engine.context));
  engine.checked(JS_SetPrototype(engine.context, prototype.get(), functions.get()));
  engine.method(prototype.get(), "explain", native<explain_compiled>, 0);
  engine.getter(prototype.get(), "kernelCount", native<kernel_count>);
  engine.getter(prototype.get(), "traceCount", native<trace_count>);
  add_function<compile_function>(engine, "compile", 1);
  add_function<explain_tensor>(engine, "explain", 1);
}

}  // namespace weft::script
