// Gradients, compiled functions, kernels written in Python, random numbers, sessions.
#include <fmt/format.h>

#include <atomic>

#include "graph/node.hpp"
#include "graph/trace_scope.hpp"
#include "handle.hpp"
#include "io/svg_chart.hpp"
#include "nanobind/stl/map.h"
#include "runtime/devices.hpp"
#include "weft/autocast.hpp"
#include "weft/checkpoint.hpp"
#include "weft/compile.hpp"
#include "weft/custom_kernel.hpp"
#include "weft/grad.hpp"
#include "weft/nn/init.hpp"
#include "weft/ops.hpp"
#include "weft/session.hpp"

namespace weft::python {
namespace {

// A Python callable that C++ keeps: it may be called and freed on any thread.
class Callable {
 public:
  explicit Callable(nb::object function)
      : function_(new nb::object(std::move(function)), [](nb::object* kept) {
          if (!Py_IsInitialized()) return;
          const nb::gil_scoped_acquire gil;
          delete kept;
        }) {}
  const nb::object& get() const { return *function_; }

 private:
  std::shared_ptr<nb::object> function_;
};

nb::list list_of(std::span<const Tensor> tensors) {
  nb::list list;
  for (const Tensor& each : tensors) list.append(wrapped(each));
  return list;
}

std::vector<Tensor> traced(const Callable& function, std::span<const Tensor> arguments) {
  const nb::gil_scoped_acquire gil;
  const nb::object result = function.get()(list_of(arguments));
  return values_from(result.ptr(), "compile: a result");
}

// A function traced once for each set of shapes.
struct CompiledObject {
  Compiled compiled;
  PyObject* function;  // kept by `compiled`; for Python's search for cycles
};
int traverse_compiled(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<CompiledObject>(self)->function);
  return 0;
}
int clear_compiled(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  CompiledObject& object = *nb::inst_ptr<CompiledObject>(self);
  object.function = nullptr;
  object.compiled = Compiled(
      [](std::span<const Tensor>) -> std::vector<Tensor> { throw UsageError("compile: the function is being freed"); });
  return 0;
}
PyType_Slot compiled_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_compiled)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_compiled)},
                                {0, nullptr}};

// What tells the traces of a compiled function apart: the structure of its arguments, the types and shapes of tensors, and values that
// are not tensors. The tensors are taken out, with those that floats and arrays become.
class ArgumentKey {
 public:
  void add(PyObject* value, int depth = 0) {
    if (is_tensor(value)) return add_tensor(value);
    if (PyFloat_Check(value)) {  // changes from call to call: an argument of rank 0
      return add_tensor(wrapped(tensor_from(value, DType::f32, true).to(default_device())).ptr());
    }
    if (depth > kDepthMax)
      raise(PyExc_ValueError, "compile: arguments are nested deeper than 32, or contain themselves");
    PyTypeObject* const type = Py_TYPE(value);
    if (type == &PyTuple_Type) {
      begin('t', PyTuple_Size(value));
      for (Py_ssize_t i = 0; i < PyTuple_Size(value); ++i) add(PyTuple_GetItem(value, i), depth + 1);
    } else if (type == &PyList_Type) {
      begin('l', PyList_Size(value));
      for (Py_ssize_t i = 0; i < PyList_Size(value); ++i) add(PyList_GetItem(value, i), depth + 1);
    } else if (type == &PyDict_Type) {
      begin('d', PyDict_Size(value));
      PyObject *key = nullptr, *member = nullptr;
      for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &member);) {
        parts_.append(nb::handle(key));
        add(member, depth + 1);
      }
    } else if (type != &PyLong_Type && type != &PyBool_Type && type != &PyUnicode_Type && value != Py_None &&
               nb::hasattr(nb::handle(reinterpret_cast<PyObject*>(type)), "__array_interface__")) {
      add_tensor(wrapped(tensor_from(value).to(default_device())).ptr());
    } else {  // 1, True and 1.0 are equal, and not the same
      text_ += 'v';
      parts_.append(nb::handle(reinterpret_cast<PyObject*>(type)));
      parts_.append(nb::handle(value));
    }
  }

  // (key, tensors)
  nb::tuple result() const {
    const nb::bytes text(text_.data(), text_.size());
    if (nb::len(parts_) == 0) return nb::make_tuple(text, tensors_);
    return nb::make_tuple(nb::make_tuple(text, nb::tuple(parts_)), tensors_);
  }

 private:
  static constexpr int kDepthMax = 32;

  void begin(char kind, Py_ssize_t size) {
    text_ += kind;
    number(size);
  }
  void number(std::int64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void add_tensor(PyObject* object) {
    const Handle& handle = handle_of(object);
    const Shape& shape = handle.shape();
    const Device device = handle.device();
    text_ += 'x';
    text_ += static_cast<char>(handle.dtype());
    text_ += static_cast<char>(device.kind);
    text_ += static_cast<char>(device.index);
    text_ += static_cast<char>(shape.rank());
    for (const Extent extent : shape) number(extent);
    tensors_.append(nb::handle(object));
  }

  std::string text_;
  nb::list tensors_, parts_;
};

struct NoGradScope {
  NoGradScope() = default;
  NoGradScope(const NoGradScope&) = delete;
  std::vector<std::unique_ptr<NoGrad>> entered;
};
struct AutocastScope {
  explicit AutocastScope(DType type) : type(type) {}
  AutocastScope(const AutocastScope&) = delete;
  DType type;
  std::vector<std::unique_ptr<Autocast>> entered;
};
struct SessionObject {
  explicit SessionObject(const SessionOptions& options) : session(std::make_unique<Session>(options)) {}
  SessionObject(const SessionObject&) = delete;
  std::unique_ptr<Session> session;
  std::vector<std::pair<PyThreadState*, std::unique_ptr<Session::Entered>>> entered;
};
// Whether a module trains: a compiled function that reads it is traced once for each value.
struct Switch {
  std::shared_ptr<std::atomic<bool>> on;
};

// Elements of an operand of a kernel, as an object that NumPy takes without a copy.
struct KernelElements {
  void* data;
  std::vector<Extent> shape;
  const char* typestr;
  bool read_only;
};
const char* typestr_of(DType type) {
  switch (type) {
    case DType::f32: return "<f4";
    case DType::f64: return "<f8";
    case DType::f16: return "<f2";
    case DType::boolean: return "|b1";
    case DType::i8: return "|i1";
    case DType::i16: return "<i2";
    case DType::i32: return "<i4";
    case DType::i64: return "<i8";
    case DType::u8: return "|u1";
    case DType::u16: return "<u2";
    case DType::u32: return "<u4";
    case DType::u64: return "<u8";
    default: throw DTypeError(fmt::format("a kernel in Python: NumPy has no type {}", name_of(type)));
  }
}

template <class T>
void add_elements(nb::list& list, const KernelArguments& arguments, std::size_t i, bool is_input) {
  const Shape& shape = is_input ? arguments.input_shape(i) : arguments.output_shape(i);
  void* data = is_input ? const_cast<T*>(arguments.input<T>(i).data()) : arguments.output<T>(i).data();
  list.append(nb::cast(KernelElements{data, shape.vector(), typestr_of(dtype_of<T>), is_input}));
}
void add_elements(nb::list& list, const KernelArguments& arguments, std::size_t i, bool is_input, DType type) {
  switch (type) {
#define CASE(dtype, host) \
  case DType::dtype: return add_elements<host>(list, arguments, i, is_input)
    CASE(f32, float);
    CASE(f64, double);
    CASE(f16, Float16);
    CASE(boolean, bool);
    CASE(i8, std::int8_t);
    CASE(i16, std::int16_t);
    CASE(i32, std::int32_t);
    CASE(i64, std::int64_t);
    CASE(u8, std::uint8_t);
    CASE(u16, std::uint16_t);
    CASE(u32, std::uint32_t);
    CASE(u64, std::uint64_t);
#undef CASE
    default: typestr_of(type);
  }
}

std::vector<ValueType> types_from(const nb::object& list) {
  const nb::object items = nb::steal(PySequence_Tuple(list.ptr()));
  if (!items.is_valid()) raise();
  std::vector<ValueType> types;
  for (Py_ssize_t i = 0; i < PyTuple_Size(items.ptr()); ++i) {
    const nb::object pair = nb::steal(PySequence_Tuple(PyTuple_GetItem(items.ptr(), i)));
    if (!pair.is_valid()) raise();
    if (PyTuple_Size(pair.ptr()) != 2)
      raise(PyExc_TypeError, "register_kernel: `shape` returns a list of pairs (dtype, shape)");
    std::vector<Extent> extents = integers_from(PyTuple_GetItem(pair.ptr(), 1));
    for (const Extent extent : extents)
      if (extent < 0) raise(PyExc_ValueError, "register_kernel: `shape` gives a negative extent");
    types.push_back({dtype_from(PyTuple_GetItem(pair.ptr(), 0)), Shape(std::move(extents))});
  }
  return types;
}
nb::list types_list(const std::vector<ValueType>& types) {
  nb::list list;
  for (const ValueType& each : types)
    list.append(nb::make_tuple(wrapped(each.dtype), nb::tuple(nb::cast(each.shape.vector()))));
  return list;
}

void add_kernel(const std::string& name, const std::vector<std::string>& inputs, nb::object shape, nb::object cpu,
                const std::string& wgsl, const std::string& workgroups, int workgroup_size, nb::object gradient,
                const std::vector<std::pair<std::string, double>>& attributes, const std::string& doc) {
  KernelDefinition definition;
  definition.name = name;
  definition.inputs = inputs;
  definition.attributes = attributes;
  definition.wgsl = wgsl;
  if (!workgroups.empty()) definition.workgroups = workgroups;
  definition.workgroup_size = workgroup_size;
  definition.doc = doc;
  definition.shape = [call = Callable(std::move(shape))](const std::vector<ValueType>& types,
                                                         const KernelAttributes& values) {
    const nb::gil_scoped_acquire gil;
    return types_from(call.get()(types_list(types), values));
  };
  // The number of results is that of the shape rule, which every call runs first.
  const std::size_t input_count = inputs.size();
  if (!cpu.is_none())
    definition.cpu = [call = Callable(std::move(cpu)), rule = definition.shape, input_count,
                      attributes](const KernelArguments& arguments) {
      std::vector<ValueType> types;
      KernelAttributes values;
      for (std::size_t i = 0; i < input_count; ++i)
        types.push_back({arguments.input_type(i), arguments.input_shape(i)});
      for (const auto& [key, unused] : attributes) values[key] = arguments.attribute(key);
      const std::vector<ValueType> results = rule(types, values);
      const nb::gil_scoped_acquire gil;
      nb::list given, wanted;
      for (std::size_t i = 0; i < input_count; ++i) add_elements(given, arguments, i, true, types[i].dtype);
      for (std::size_t i = 0; i < results.size(); ++i) add_elements(wanted, arguments, i, false, results[i].dtype);
      call.get()(given, wanted, values);
    };
  if (!gradient.is_none())
    definition.gradient = [call = Callable(std::move(gradient))](const KernelGradient& g) {
      const nb::gil_scoped_acquire gil;
      nb::list flowing;
      for (const Tensor& each : g.output_gradients) flowing.append(each.defined() ? wrapped(each) : nb::none());
      const nb::object result = call.get()(list_of(g.inputs), list_of(g.outputs), flowing, g.attributes);
      const nb::object items = nb::steal(PySequence_Tuple(result.ptr()));
      if (!items.is_valid()) raise();
      std::vector<Tensor> gradients;
      for (Py_ssize_t i = 0; i < PyTuple_Size(items.ptr()); ++i) {
        PyObject* each = PyTuple_GetItem(items.ptr(), i);
        gradients.push_back(each == Py_None ? Tensor() : value_from(each, "register_kernel: a gradient"));
      }
      return gradients;
    };
  register_kernel(std::move(definition));
}

}  // namespace

void bind_functions(nb::module_& m) {
  m.def(
      "_grad",
      [](nb::object output, nb::object inputs, nb::object seed) {
        const Tensor y = value_from(output.ptr(), "grad");
        const std::vector<Tensor> list = values_from(inputs.ptr(), "grad");
        const Tensor weight = seed.is_none() ? Tensor() : value_from(seed.ptr(), "grad: seed");
        return list_of(grad(y, list, weight));
      },
      nb::arg("output"), nb::arg("inputs"), nb::arg("seed").none());
  m.def(
      "evaluate",
      [](nb::args tensors) {
        std::vector<Tensor> list;
        for (nb::handle each : tensors) list.push_back(value_from(each.ptr(), "evaluate"));
        const nb::gil_scoped_release free;
        list.empty() ? eval_pending() : eval(list);
      },
      nb::arg("tensors"), nb::sig("def evaluate(*tensors: Tensor) -> None"),
      "Computes all the tensors in one run; without any, every pending update of a Variable.");
  m.def(
      "explain",
      [](nb::object tensor, bool source) {
        const Tensor x = value_from(tensor.ptr(), "explain");
        const nb::gil_scoped_release free;
        return explain(x, source);
      },
      nb::arg("tensor"), nb::arg("source") = false, nb::sig("def explain(tensor: Tensor, source: bool = False) -> str"),
      "The plan that would compute the tensor: kernels, shapes, bytes, FLOPs.");
  m.def(
      "checkpoint",
      [](nb::object function, nb::args inputs) {
        std::vector<Tensor> list;
        for (nb::handle each : inputs) list.push_back(value_from(each.ptr(), "checkpoint"));
        return wrapped(checkpoint(
            [&](std::span<const Tensor> given) {
              const nb::object result = function(*nb::tuple(list_of(given)));
              return value_from(result.ptr(), "checkpoint: the result");
            },
            list));
      },
      nb::arg("function"), nb::arg("inputs"),
      nb::sig("def checkpoint(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor"),
      "function(*inputs), whose inside is computed once more for gradients, so that only the inputs are kept.");

  m.def(
      "_key",
      [](nb::tuple arguments, nb::dict named) {
        ArgumentKey key;
        key.add(arguments.ptr());
        if (PyDict_Size(named.ptr()) > 0) key.add(named.ptr());
        return key.result();
      },
      nb::arg("arguments"), nb::arg("named"),
      nb::sig("def _key(arguments: tuple[object, ...], named: dict[str, object]) -> tuple[object, list[Tensor]]"));
  nb::class_<CompiledObject>(m, "_Compiled", nb::type_slots(compiled_slots))
      .def("__init__",
           [](CompiledObject* self, nb::object function) {
             PyObject* borrowed = function.ptr();
             new (self) CompiledObject{Compiled([call = Callable(std::move(function))](std::span<const Tensor> given) {
                                         return traced(call, given);
                                       }),
                                       borrowed};
           })
      .def("__call__",
           [](CompiledObject& self, nb::object arguments) {
             const std::vector<Tensor> list = values_from(arguments.ptr(), "compile: an argument");
             std::vector<Tensor> results;
             if (graph::TraceScope::current()) {
               results = self.compiled(list);
             } else {
               const nb::gil_scoped_release free;
               results = self.compiled(list);
             }
             return list_of(results);
           })
      .def(
          "explain", [](const CompiledObject& self, bool source) { return self.compiled.explain(source); },
          nb::arg("source") = false)
      .def("profile",
           [](CompiledObject& self, nb::object arguments) {
             const std::vector<Tensor> list = values_from(arguments.ptr(), "profile");
             const nb::gil_scoped_release free;
             return self.compiled.profile(list);
           })
      .def_prop_ro("trace_count", [](const CompiledObject& self) { return self.compiled.trace_count(); })
      .def_prop_ro("kernel_count", [](const CompiledObject& self) { return self.compiled.kernel_count(); });
  m.def(
      "is_tracing", [] { return graph::TraceScope::current() != nullptr; }, "Whether a function is being compiled.");

  nb::class_<NoGradScope>(m, "_NoGrad")
      .def(nb::init<>())
      .def("__enter__", [](NoGradScope& self) { self.entered.push_back(std::make_unique<NoGrad>()); })
      .def("__exit__", [](NoGradScope& self, nb::args) {
        if (!self.entered.empty()) self.entered.pop_back();
      });
  m.def("is_grad_enabled", [] { return grad_enabled(); });
  nb::class_<AutocastScope>(m, "_Autocast")
      .def("__init__", [](AutocastScope* self, nb::object type) { new (self) AutocastScope(dtype_from(type.ptr())); })
      .def("__enter__", [](AutocastScope& self) { self.entered.push_back(std::make_unique<Autocast>(self.type)); })
      .def("__exit__", [](AutocastScope& self, nb::args) {
        if (!self.entered.empty()) self.entered.pop_back();
      });
  nb::class_<SessionObject>(m, "Session",
                            "Devices, plans, random state and threads of their own. A `with` block works in it.")
      .def(
          "__init__",
          [](SessionObject* self, int threads, nb::object device) {
            SessionOptions options;
            options.threads = threads;
            if (!device.is_none()) options.device = device_from(device.ptr());
            new (self) SessionObject(options);
          },
          nb::arg("threads") = 0, nb::arg("device") = nb::none(),
          nb::sig("def __init__(self, threads: int = 0, device: DeviceLike | None = None) -> None"))
      .def(
          "__enter__",
          [](nb::handle object) {
            SessionObject& self = nb::cast<SessionObject&>(object);
            self.entered.emplace_back(PyThreadState_Get(),
                                      std::unique_ptr<Session::Entered>(new Session::Entered(self.session->enter())));
            return nb::borrow(object);
          },
          nb::sig("def __enter__(self) -> Session"))
      .def(
          "__exit__",
          [](SessionObject& self, nb::args) {
            for (auto it = self.entered.rbegin(); it != self.entered.rend(); ++it)
              if (it->first == PyThreadState_Get()) {
                self.entered.erase(std::next(it).base());
                return;
              }
          },
          nb::arg("args"), nb::sig("def __exit__(self, *args: object) -> None"))
      .def(
          "copy",
          [](const SessionObject& self, nb::object tensor) {
            const Tensor x = value_from(tensor.ptr(), "copy");
            const nb::gil_scoped_release free;
            Tensor y = self.session->copy(x);
            const nb::gil_scoped_acquire again;
            return wrapped(y);
          },
          nb::sig("def copy(self, tensor: Tensor) -> Tensor"))
      .def_prop_ro("threads", [](const SessionObject& self) { return self.session->threads(); });
  nb::class_<Switch>(m, "_Switch")
      .def("__init__", [](Switch* self, bool on) { new (self) Switch{std::make_shared<std::atomic<bool>>(on)}; })
      .def("read",
           [](const Switch& self) {
             const bool value = *self.on;
             if (auto* scope = graph::TraceScope::current()) scope->note(self.on, value);
             return value;
           })
      .def("set", [](const Switch& self, bool on) { *self.on = on; });

  nb::class_<KernelElements>(m, "_KernelElements").def_prop_ro("__array_interface__", [](const KernelElements& e) {
    nb::dict interface;
    interface["shape"] = nb::tuple(nb::cast(e.shape));
    interface["typestr"] = e.typestr;
    interface["data"] = nb::make_tuple(nb::steal(PyLong_FromVoidPtr(e.data)), e.read_only);
    interface["version"] = 3;
    return interface;
  });
  m.def("_register_kernel", &add_kernel, nb::arg("name"), nb::arg("inputs"), nb::arg("shape"), nb::arg("cpu").none(),
        nb::arg("wgsl"), nb::arg("workgroups"), nb::arg("workgroup_size"), nb::arg("gradient").none(),
        nb::arg("attributes"), nb::arg("doc"));

  m.def("manual_seed", &manual_seed, nb::arg("seed"), "Seeds the generator of random numbers.");
  m.def("_generator_seed", [] {
    const nb::gil_scoped_release free;
    // While a function is traced nothing may be evaluated; the seed is in memory, unless it was set a moment ago.
    if (graph::TraceScope::current())
      if (const graph::NodeRef node = graph::committed_of(*random_state().cell())) {
        std::uint32_t state[2];
        runtime::backend_of(node->device).download(*runtime::buffer_of(*node), 0, 2, DType::u32, state);
        return state[0];
      }
    return random_state().value().to_vector<std::uint32_t>().at(0);
  });
  m.def("_draw", [](const std::string& kind, double a, double b, std::vector<Extent> shape, std::uint64_t seed,
                    const std::string& name) {
    const nn::Init init = kind == "normal"    ? nn::Init::normal(b, a)
                          : kind == "uniform" ? nn::Init::uniform(a, b)
                                              : nn::Init::constant(a);
    for (const Extent extent : shape)
      if (extent < 0) throw ShapeError(fmt::format("parameter \"{}\": the negative extent {}", name, extent));
    const Shape extents(std::move(shape));
    const nb::gil_scoped_release free;
    const std::vector<float> values = nn::draw(init, extents.numel(), seed, name);
    Tensor made = tensor_from_bytes(values.data(), extents, DType::f32);
    const nb::gil_scoped_acquire again;
    return wrapped(made);
  });
  m.def("_set_default_device", [](nb::object device) { set_default_device(device_from(device.ptr())); });
  m.def("_default_device", [] { return default_device(); });
  m.def(
      "synchronize",
      [](nb::object device) {
        const Device on = device.is_none() ? default_device() : device_from(device.ptr());
        const nb::gil_scoped_release free;
        synchronize(on);
      },
      nb::arg("device") = nb::none(), nb::sig("def synchronize(device: DeviceLike | None = None) -> None"));
  m.def(
      "devices",
      [] {
        std::vector<DeviceInfo> found;
        {
          const nb::gil_scoped_release free;
          found = list_devices();
        }
        nb::list list;
        for (const DeviceInfo& each : found) {
          nb::dict entry;
          entry["device"] = each.device;
          entry["hardware"] = each.hardware;
          entry["is_software"] = each.is_software;
          list.append(entry);
        }
        return list;
      },
      nb::sig("def devices() -> list[dict[str, Any]]"), "Every device of this machine.");
  m.def(
      "set_product_precision",
      [](const std::string& name) {
        compile_settings().products = name == "exact"  ? ProductPrecision::exact
                                      : name == "high" ? ProductPrecision::high
                                      : name == "medium"
                                          ? ProductPrecision::medium
                                          : throw UsageError("product precision is exact, high or medium");
      },
      nb::arg("name"), "The precision of f32 products on a GPU: exact, high or medium.");
  m.def("_svg_chart", [](const std::string& title, const std::string& x_label, const std::string& y_label,
                         const std::map<std::string, std::vector<std::pair<double, double>>>& series) {
    io::Chart chart{title, x_label, y_label, {}};
    for (const auto& [name, points] : series) {
      chart.series.push_back({name, {}});
      for (const auto& [x, y] : points) chart.series.back().points.push_back({x, y});
    }
    return io::svg_chart(chart);
  });
}

}  // namespace weft::python
