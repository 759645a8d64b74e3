// Evaluation, compiled functions, random numbers, sessions, devices.
#include <fmt/format.h>

#include <atomic>

#include "callable.hpp"
#include "graph/node.hpp"
#include "graph/trace_scope.hpp"
#include "handle.hpp"
#include "io/svg_chart.hpp"
#include "nanobind/stl/map.h"
#include "runtime/devices.hpp"
#include "weft/compile.hpp"
#include "weft/memory_limit.hpp"
#include "weft/ops.hpp"
#include "weft/session.hpp"

namespace weft::python {
namespace {

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
      add_tensor(wrapped(tensor_from(value, {}, false).to(default_device())).ptr());  // the plan runs at once
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

struct SessionObject {
  explicit SessionObject(const SessionOptions& options) : session(std::make_unique<Session>(options)) {}
  SessionObject(const SessionObject&) = delete;
  std::unique_ptr<Session> session;
  std::vector<std::pair<PyThreadState*, std::unique_ptr<Session::Entered>>> entered;
};
}  // namespace

void bind_functions(nb::module_& m) {
  m.def(
      "evaluate",
      [](nb::args tensors) {
        std::vector<Tensor> list;
        for (nb::handle each : tensors) list.push_back(value_from(each.ptr(), "evaluate"));
        const std::vector<Tensor> before = list;
        {
          const nb::gil_scoped_release free;
          list.empty() ? eval_pending() : eval(list);
        }
        for (std::size_t i = 0; i < list.size(); ++i) keep_evaluated(nb::handle(tensors[i]).ptr(), before[i], list[i]);
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
             new (self) CompiledObject{Compiled(tensor_function(std::move(function), "compile: a result")), borrowed};
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
  m.def("manual_seed", &manual_seed, nb::arg("seed"), "Seeds the generator of random numbers.");
  m.def("_random_state", [] { return wrap_variable(random_state()); });
  m.def("set_device_memory_limit", &set_device_memory_limit, nb::arg("bytes"),
        "Limits the bytes of values and plans of this thread's session on each device; 0: no limit. Later requests "
        "beyond it "
        "are DeviceMemoryErrors.");
  m.def(
      "device_memory_used",
      [](nb::object device) {
        return device_memory_used(device.is_none() ? default_device() : device_from(device.ptr()));
      },
      nb::arg("device") = nb::none(), nb::sig("def device_memory_used(device: DeviceLike | None = None) -> int"),
      "Bytes that values of this thread's session occupy on the device.");
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
        const std::vector<DeviceInfo> found = without_gil([&] { return list_devices(); });
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
