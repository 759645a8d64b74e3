// Ops of the script's own: elementwise ones from text, and ones with kernels. The table of ops belongs to the process, so names get
// a prefix there that no other script has.
#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "base/threads.hpp"
#include "base/xxh64.hpp"
#include "script/engine.hpp"
#include "script/functions.hpp"
#include "weft/custom_kernel.hpp"
#include "weft/custom_op.hpp"

namespace weft::script {
namespace {

constexpr int kPerIsolate = 256, kPerProcess = 10'000;  // the table never shrinks

void count_registration(Engine& engine) {
  static std::atomic<int> all = 0;
  if (++engine.registrations > kPerIsolate || ++all > kPerProcess)
    throw UsageError(fmt::format("register: a script may register {} ops", kPerIsolate));
}

std::string checked_name(const std::string& name) {
  if (name.empty() || name.size() > 40) throw UsageError("register: the name has 1 to 40 characters");
  if (graph::find_op_row(name))
    throw UsageError(fmt::format("register: there is an op {} already; choose another name", name));
  return name;
}

std::vector<std::string> texts(Engine& engine, JSValueConst array, std::string_view what) {
  std::vector<std::string> list;
  if (JS_IsUndefined(array)) return list;
  const std::uint32_t count = engine.length(array, what, 64);
  for (std::uint32_t i = 0; i < count; ++i) list.push_back(engine.text(engine.element(array, i).get()));
  return list;
}

// {axis: 0}: attributes with their defaults.
std::vector<std::pair<std::string, double>> defaults(Engine& engine, JSValueConst object) {
  std::vector<std::pair<std::string, double>> list;
  if (JS_IsUndefined(object)) return list;
  for (const std::string& key : engine.names(object))
    list.emplace_back(key, engine.number(engine.property(object, key.c_str()).get(), key));
  return list;
}

Local function_of(Engine& engine, const std::string& name, const std::string& plain) {
  engine.own_names.emplace_back(name, plain);
  return function_of_row(engine, graph::op_row(name));
}

// registerOp({name, inputs, forward, attributes, gradients, doc}): the op as a function.
Local register_elementwise(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 0), "registerOp");
  OpDefinition definition{.name = checked_name(options.text("name", "")),
                          .inputs = texts(engine, options.value("inputs").get(), "registerOp: inputs"),
                          .forward = options.text("forward", "")};
  definition.attributes = defaults(engine, options.value("attributes").get());
  definition.gradients = texts(engine, options.value("gradients").get(), "registerOp: gradients");
  definition.doc = options.text("doc", "");
  options.finish();
  // The same definition in another isolate is the same op.
  std::string whole = definition.forward;
  for (const auto* list : {&definition.inputs, &definition.gradients})
    for (const std::string& text : *list) whole += '\0' + text;
  for (const auto& [name, value] : definition.attributes) whole += fmt::format("\0{}={}", name, value);
  const std::string plain = definition.name;
  definition.name = fmt::format("script_{:012x}_{}", xxh64(whole + '\0' + plain) & 0xffffffffffff, plain);
  count_registration(engine);
  register_op(definition);
  return function_of(engine, definition.name, plain);
}

// ---- Kernels --------------------------------------------------------------------------------------------------------------------

// Functions of the script that the op calls. They live as long as the isolate; afterwards the op is refused.
struct Callbacks {
  Engine* engine = nullptr;
  std::thread::id thread = std::this_thread::get_id();
  JSValue shape = JS_UNDEFINED, cpu = JS_UNDEFINED, gradient = JS_UNDEFINED;
  std::string name;
  bool only_like = false;  // no shape function: results like input 0

  void check() const {
    if (!engine) throw UsageError(fmt::format("{}: the script that registered it has ended", name));
    if (std::this_thread::get_id() != thread)
      throw UsageError(fmt::format("{}: a kernel in JavaScript runs on the thread of its script only", name));
  }
};

Local attributes_object(Engine& engine, const KernelAttributes& attributes) {
  Local object = engine.object();
  for (const auto& [name, value] : attributes)
    engine.set(object.get(), name.c_str(), Local(engine.context, JS_NewFloat64(engine.context, value)));
  return object;
}
Local shape_array(Engine& engine, const Shape& shape) {
  Local list = engine.array();
  for (int i = 0; i < shape.rank(); ++i)
    engine.set(list.get(), static_cast<std::uint32_t>(i), Local(engine.context, JS_NewInt64(engine.context, shape[i])));
  return list;
}

std::vector<ValueType> inferred_types(const Callbacks& callbacks, const std::vector<ValueType>& inputs,
                                      const KernelAttributes& attributes) {
  if (callbacks.only_like) return {inputs.at(0)};
  callbacks.check();
  Engine& engine = *callbacks.engine;
  const Local list = engine.array();
  std::uint32_t i = 0;
  for (const ValueType& input : inputs) {
    Local type = engine.object();
    engine.set(type.get(), "dtype", engine.string(weft::name_of(input.dtype)));
    engine.set(type.get(), "shape", shape_array(engine, input.shape));
    engine.set(list.get(), i++, std::move(type));
  }
  const Local given = attributes_object(engine, attributes);
  const Local result = engine.call(callbacks.shape, JS_UNDEFINED, {list.get(), given.get()});
  std::vector<ValueType> types;
  const std::uint32_t count = engine.length(result.get(), callbacks.name + ": the types", 16);
  for (std::uint32_t k = 0; k < count; ++k) {
    const Local type = engine.element(result.get(), k);
    types.push_back({engine.dtype(engine.property(type.get(), "dtype").get()),
                     Shape(engine.extents(engine.property(type.get(), "shape").get(), callbacks.name + ": a shape"))});
  }
  return types;
}

template <class T>
void copy_in(const KernelArguments& k, std::size_t i, std::vector<std::byte>& bytes) {
  const auto elements = k.input<T>(i);
  const auto* const begin = reinterpret_cast<const std::byte*>(elements.data());
  bytes.assign(begin, begin + sizeof(T) * static_cast<std::size_t>(elements.size()));
}
// The types that kernels in JavaScript compute with.
template <class F>
void with_type(DType type, const std::string& name, F&& f) {
  switch (type) {
    case DType::f32: return f(float());
    case DType::f64: return f(double());
    case DType::i32: return f(std::int32_t());
    case DType::u32: return f(std::uint32_t());
    default:
      throw DTypeError(
          fmt::format("{}: a kernel in JavaScript takes f32, f64, i32 and u32, not {}", name, weft::name_of(type)));
  }
}

// cpu([inputs], [results], {attributes, inputShapes, outputShapes}): reads typed arrays, and fills typed arrays.
void run_kernel(const Callbacks& callbacks, const KernelArguments& k, std::size_t inputs, std::size_t outputs) {
  callbacks.check();
  Engine& engine = *callbacks.engine;
  const Local reads = engine.array(), writes = engine.array(), facts = engine.object();
  const Local read_shapes = engine.array(), write_shapes = engine.array();
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < inputs; ++i) {
    with_type(k.input_type(i), callbacks.name, [&](auto zero) { copy_in<decltype(zero)>(k, i, bytes); });
    engine.set(reads.get(), static_cast<std::uint32_t>(i), typed_array(engine, k.input_type(i), bytes));
    engine.set(read_shapes.get(), static_cast<std::uint32_t>(i), shape_array(engine, k.input_shape(i)));
  }
  std::vector<DType> types;
  for (std::size_t i = 0; i < outputs; ++i) {
    // The dtype of a result is found by asking.
    for (const DType type : {DType::f32, DType::f64, DType::i32, DType::u32}) {
      try {
        with_type(type, callbacks.name, [&](auto zero) { (void)k.output<decltype(zero)>(i); });
        types.push_back(type);
        break;
      } catch (const DTypeError&) {
      }
    }
    if (types.size() != i + 1)
      throw DTypeError(fmt::format("{}: a result is neither f32, f64, i32 nor u32", callbacks.name));
    bytes.assign(size_bytes(types[i]) * static_cast<std::size_t>(k.output_shape(i).numel()), std::byte{0});
    engine.set(writes.get(), static_cast<std::uint32_t>(i), typed_array(engine, types[i], bytes));
    engine.set(write_shapes.get(), static_cast<std::uint32_t>(i), shape_array(engine, k.output_shape(i)));
  }
  engine.set(facts.get(), "inputShapes", Local(engine.context, JS_DupValue(engine.context, read_shapes.get())));
  engine.set(facts.get(), "outputShapes", Local(engine.context, JS_DupValue(engine.context, write_shapes.get())));
  struct Running {
    Engine& engine;
    ~Running() { engine.in_kernel = false; }
  } const running{engine};
  engine.in_kernel = true;
  engine.call(callbacks.cpu, JS_UNDEFINED, {reads.get(), writes.get(), facts.get()});
  for (std::size_t i = 0; i < outputs; ++i) {
    const std::vector<std::byte> made = bytes_of_buffer(
        engine, engine.element(writes.get(), static_cast<std::uint32_t>(i)).get(), callbacks.name + ": the results");
    with_type(types[i], callbacks.name, [&](auto zero) {
      const auto out = k.output<decltype(zero)>(i);
      if (made.size() != sizeof(zero) * static_cast<std::size_t>(out.size()))
        throw ShapeError(fmt::format("{}: the kernel resized its result", callbacks.name));
      std::copy(made.begin(), made.end(), reinterpret_cast<std::byte*>(out.data()));
    });
  }
}

std::vector<Tensor> kernel_gradient(const Callbacks& callbacks, const KernelGradient& g) {
  callbacks.check();
  Engine& engine = *callbacks.engine;
  Local given = engine.object();
  engine.set(given.get(), "inputs", engine.make_array(g.inputs));
  engine.set(given.get(), "outputs", engine.make_array(g.outputs));
  Local gradients = engine.array();
  for (std::size_t i = 0; i < g.output_gradients.size(); ++i)
    engine.set(gradients.get(), static_cast<std::uint32_t>(i),
               g.output_gradients[i].defined() ? engine.make(g.output_gradients[i]) : Local(engine.context, JS_NULL));
  engine.set(given.get(), "outputGradients", std::move(gradients));
  engine.set(given.get(), "attributes", attributes_object(engine, g.attributes));
  const Local result = engine.call(callbacks.gradient, JS_UNDEFINED, {given.get()});
  std::vector<Tensor> list;
  const std::uint32_t count = engine.length(result.get(), callbacks.name + ": the gradients", 64);
  for (std::uint32_t i = 0; i < count; ++i)
    list.push_back(engine.tensor_or_none(engine.element(result.get(), i).get()));
  return list;
}

// registerKernel({name, inputs, attributes, outputs, shape, cpu, wgsl, workgroupSize, workgroups, gradient, doc})
Local register_with_kernels(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 0), "registerKernel");
  const std::string plain = checked_name(options.text("name", ""));
  const auto callbacks = std::make_shared<Callbacks>();
  callbacks->engine = &engine;
  callbacks->name = plain;
  KernelDefinition definition{.name = fmt::format("script_{:x}_{}", next_kernel_number(), plain)};
  definition.inputs = texts(engine, options.value("inputs").get(), "registerKernel: inputs");
  definition.attributes = defaults(engine, options.value("attributes").get());
  definition.wgsl = options.text("wgsl", "");
  definition.workgroup_size = static_cast<int>(std::clamp<Extent>(options.integer("workgroupSize", 64), 0, 1 << 20));
  definition.workgroups = options.text("workgroups", definition.workgroups);
  definition.doc = options.text("doc", "");
  const Extent outputs = options.integer("outputs", 1);
  if (outputs < 1 || outputs > 16) Engine::refuse("registerKernel", "1 to 16 results are possible");
  const auto keep = [&](const char* name, JSValue& to) {
    const Local value = options.value(name);
    if (JS_IsUndefined(value.get())) return false;
    if (!JS_IsFunction(engine.context, value.get()))
      Engine::refuse("registerKernel", fmt::format("{} is not a function", name));
    to = JS_DupValue(engine.context, value.get());
    engine.at_end.push_back([callbacks, &engine, value = to] {
      callbacks->engine = nullptr;
      JS_FreeValue(engine.context, value);
    });
    return true;
  };
  callbacks->only_like = !keep("shape", callbacks->shape);
  definition.shape = [callbacks](const std::vector<ValueType>& inputs, const KernelAttributes& attributes) {
    return inferred_types(*callbacks, inputs, attributes);
  };
  if (keep("cpu", callbacks->cpu)) {
    set_thread_count(1);  // so that the kernel runs on the script's own thread
    engine.has_kernels = true;
    definition.cpu = [callbacks, inputs = definition.inputs.size(), outputs](const KernelArguments& k) {
      run_kernel(*callbacks, k, inputs, static_cast<std::size_t>(outputs));
    };
  }
  if (keep("gradient", callbacks->gradient))
    definition.gradient = [callbacks](const KernelGradient& g) { return kernel_gradient(*callbacks, g); };
  options.finish();
  count_registration(engine);
  const std::string name = definition.name;
  register_kernel(std::move(definition));
  return function_of(engine, name, plain);
}

}  // namespace

std::uint64_t next_kernel_number() {
  static std::atomic<std::uint64_t> next = 1;
  return next++;
}

void define_custom(Engine& engine) {
  add_function<register_elementwise>(engine, "registerOp", 1);
  add_function<register_with_kernels>(engine, "registerKernel", 1);
}

}  // namespace weft::script
