// weft.Tensor and weft.Variable: operators, indexing, memory shared with other libraries.
#include <fmt/format.h>

#include "autograd/variable_hooks.hpp"
#include "base/quote.hpp"
#include "callable.hpp"
#include "handle.hpp"
#include "io/dlpack.hpp"
#include "runtime/host_memory.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/layout.hpp"

namespace weft::python {
namespace {

// ---- Operators --------------------------------------------------------------------------------------------------------

Tensor binary(std::string_view name, PyObject* a, PyObject* b) {
  if (is_tensor(a) && is_tensor(b)) return elementwise(name, {handle_of(a).value(), handle_of(b).value()});
  const std::vector<Tensor> operands = resolved({operand_from(a), operand_from(b)});
  return elementwise(name, operands, {});
}

template <const char* kName>
PyObject* operation(PyObject* a, PyObject* b) {
  if (!is_operand(a) || !is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] { return wrap(binary(kName, a, b)); });
}
// The new value of a Variable; a Tensor keeps its own, and Python's name gets another.
template <const char* kName>
PyObject* assignment(PyObject* a, PyObject* b) {
  if (!is_tensor(a) || !is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] {
    const Variable variable = handle_of(a).variable;
    if (!variable.defined()) return wrap(binary(kName, a, b));
    if (variable.requires_grad() && grad_enabled())
      throw UsageError(fmt::format(
          "variable \"{}\" requires gradients, and is changed in place; do that under weft.no_grad(), or assign()",
          variable.name()));
    Tensor next = binary(kName, a, b);
    if (next.shape() != variable.shape()) next = expand(next, variable.shape());
    const nb::gil_scoped_release free;
    Variable(variable).assign(next);
    const nb::gil_scoped_acquire again;
    Py_INCREF(a);
    return a;
  });
}

// Names as template arguments.
constexpr char k_add[] = "add";
constexpr char k_sub[] = "sub";
constexpr char k_mul[] = "mul";
constexpr char k_div[] = "div";
constexpr char k_floor_divide[] = "floor_divide";
constexpr char k_remainder[] = "remainder";
constexpr char k_bitwise_and[] = "bitwise_and";
constexpr char k_bitwise_or[] = "bitwise_or";
constexpr char k_bitwise_xor[] = "bitwise_xor";
constexpr char k_bitwise_left_shift[] = "bitwise_left_shift";
constexpr char k_bitwise_right_shift[] = "bitwise_right_shift";

PyObject* power(PyObject* a, PyObject* b, PyObject* modulo) {
  if (modulo != Py_None || !is_operand(a) || !is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] { return wrap(binary("pow", a, b)); });
}
PyObject* product(PyObject* a, PyObject* b) {
  if (!is_operand(a) || !is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] {
    const std::vector<Tensor> operands = resolved({operand_from(a), operand_from(b)});
    return wrap(matmul(operands[0], operands[1]));
  });
}
PyObject* negative(PyObject* a) {
  return guarded([&] { return wrap(elementwise("neg", {handle_of(a).value()})); });
}
PyObject* positive(PyObject* a) {
  Py_INCREF(a);
  return a;
}
PyObject* absolute(PyObject* a) {
  return guarded([&] { return wrap(elementwise("abs", {handle_of(a).value()})); });
}
PyObject* inverted(PyObject* a) {
  return guarded([&] { return wrap(~Term(handle_of(a).value())); });
}
PyObject* compare(PyObject* a, PyObject* b, int op) {
  static const char* const kNames[] = {"lt", "le", "eq", "ne", "gt", "ge"};  // in the order of Py_LT and so on
  if (!is_operand(b)) Py_RETURN_NOTIMPLEMENTED;
  return guarded([&] { return wrap(binary(kNames[op], a, b)); });
}
Py_hash_t hash_of(PyObject* a) { return static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(a) >> 4); }

// ---- Single elements ----------------------------------------------------------------------------------------------------

PyObject* item_of(const Tensor& tensor) {
  if (tensor.numel() != 1)
    throw ShapeError(
        fmt::format("item: the tensor has {} elements {}; item takes one", tensor.numel(), tensor.shape().to_string()));
  const auto read = [&]<class T>(T) {
    const nb::gil_scoped_release free;
    return tensor.item<T>();
  };
  switch (tensor.dtype()) {
    case DType::f32: return PyFloat_FromDouble(static_cast<double>(read(float{})));
    case DType::f64: return PyFloat_FromDouble(read(double{}));
    case DType::boolean: return PyBool_FromLong(read(bool{}));
    case DType::i64: return PyLong_FromLongLong(read(std::int64_t{}));
    case DType::u64: return PyLong_FromUnsignedLongLong(read(std::uint64_t{}));
    default: break;
  }
  const bool whole = is_integer(tensor.dtype());
  const Tensor on_cpu = [&] {
    const nb::gil_scoped_release free;
    return tensor.to(kCpu);
  }();
  const Tensor wide = cast(on_cpu, whole ? DType::i64 : DType::f64);
  const nb::gil_scoped_release free;
  if (whole) {
    const auto value = wide.item<std::int64_t>();
    const nb::gil_scoped_acquire again;
    return PyLong_FromLongLong(value);
  }
  const auto value = wide.item<double>();
  const nb::gil_scoped_acquire again;
  return PyFloat_FromDouble(value);
}
PyObject* to_float(PyObject* a) {
  return guarded([&]() -> PyObject* {
    const nb::object item = nb::steal(item_of(handle_of(a).value()));
    return item.is_valid() ? PyNumber_Float(item.ptr()) : nullptr;
  });
}
PyObject* to_int(PyObject* a) {
  return guarded([&]() -> PyObject* {
    const nb::object item = nb::steal(item_of(handle_of(a).value()));
    return item.is_valid() ? PyNumber_Long(item.ptr()) : nullptr;
  });
}
PyObject* to_index(PyObject* a) {
  return guarded([&]() -> PyObject* {
    const Tensor tensor = handle_of(a).value();
    if (!is_integer(tensor.dtype()) || tensor.numel() != 1)
      raise(PyExc_TypeError, "only integer tensors with one element can be used as an index");
    return item_of(tensor);
  });
}
int is_true(PyObject* a) {
  int result = -1;
  PyObject* done = guarded([&]() -> PyObject* {
    const Tensor tensor = handle_of(a).value();
    if (tensor.numel() != 1)
      raise(PyExc_ValueError,
            fmt::format("the truth of a tensor {} is ambiguous; use any() or all()", tensor.shape().to_string()));
    nb::object item = nb::steal(item_of(tensor));
    if (!item.is_valid()) return nullptr;
    result = PyObject_IsTrue(item.ptr());
    return item.release().ptr();
  });
  Py_XDECREF(done);
  return done ? result : -1;
}

// ---- Lengths -----------------------------------------------------------------------------------------------------

Py_ssize_t length(PyObject* self) {
  Py_ssize_t result = -1;
  PyObject* done = guarded([&]() -> PyObject* {
    const Tensor x = handle_of(self).value();
    if (x.rank() == 0) raise(PyExc_TypeError, "len() of a tensor of rank 0");
    result = x.dim(0);
    Py_RETURN_NONE;
  });
  Py_XDECREF(done);
  return done ? result : -1;
}

// ---- Memory -------------------------------------------------------------------------------------------------------------

// Elements in host memory with NumPy's array interface. NumPy keeps this object as the base of the array.
struct Elements {
  runtime::HostView view;
  Shape shape;
  std::string typestr;
};

Elements elements_of(const Tensor& tensor) {
  static const std::pair<DType, const char*> kTypes[] = {
      {DType::f32, "<f4"}, {DType::f64, "<f8"}, {DType::f16, "<f2"}, {DType::boolean, "|b1"},
      {DType::i8, "|i1"},  {DType::i16, "<i2"}, {DType::i32, "<i4"}, {DType::i64, "<i8"},
      {DType::u8, "|u1"},  {DType::u16, "<u2"}, {DType::u32, "<u4"}, {DType::u64, "<u8"}};
  const nb::gil_scoped_release free;
  for (const auto& [type, text] : kTypes)
    if (type == tensor.dtype()) return {runtime::view_host(tensor), tensor.shape(), text};
  throw DTypeError(
      fmt::format("numpy: NumPy has no type {}; cast the tensor, for example to f32", name_of(tensor.dtype())));
}

nb::object tuple_of(const Shape& shape) {
  nb::object tuple = nb::steal(PyTuple_New(shape.rank()));
  for (int i = 0; i < shape.rank(); ++i) PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(shape[i]));
  return tuple;
}

template <class M>
nb::object capsule_of(M* managed, const char* name) {
  PyObject* capsule = PyCapsule_New(managed, name, [](PyObject* self) {
    // A capsule that was used has another name, and its user frees the array.
    const char* own = PyCapsule_GetName(self);
    if (own && std::string_view(own).starts_with("dltensor")) {
      auto* unused = static_cast<M*>(PyCapsule_GetPointer(self, own));
      if (unused && unused->deleter) unused->deleter(unused);
    }
  });
  if (!capsule) {
    managed->deleter(managed);
    raise();
  }
  return nb::steal(capsule);
}

void assign(Handle& handle, PyObject* next) {
  Tensor value = tensor_from(next);
  if (!is_tensor(next) && value.dtype() != handle.variable.dtype()) value = cast(value, handle.variable.dtype());
  const nb::gil_scoped_release free;
  handle.variable.assign(value);
}

Variable variable_of(const Handle& handle, const char* what) {
  if (!handle.variable.defined())
    throw UsageError(
        fmt::format("{}: only Variables have it; make one with weft.Variable(x) or "
                    "weft.tensor(..., requires_grad=True)",
                    what));
  return handle.variable;
}

// A hook may refer to its Variable, which keeps the hook.
int traverse_variable(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  int stopped = 0;
  visit_hooks_of_last(nb::inst_ptr<VariableHandle>(self)->variable, [&](const GradientHook& hook) {
    const auto* function = hook.target<PythonHook>();
    if (function && stopped == 0) stopped = visit(function->call.get().ptr(), arg);
  });
  return stopped;
}
int clear_variable(PyObject* self) {
  if (nb::inst_ready(self)) remove_hooks(nb::inst_ptr<VariableHandle>(self)->variable);
  return 0;
}
PyType_Slot variable_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_variable)},
                                {Py_tp_clear, reinterpret_cast<void*>(clear_variable)},
                                {0, nullptr}};

PyType_Slot tensor_slots[] = {
#define SLOT(slot, function) \
  { slot, reinterpret_cast<void*>(function) }
    SLOT(Py_nb_add, operation<k_add>),
    SLOT(Py_nb_subtract, operation<k_sub>),
    SLOT(Py_nb_multiply, operation<k_mul>),
    SLOT(Py_nb_true_divide, operation<k_div>),
    SLOT(Py_nb_floor_divide, operation<k_floor_divide>),
    SLOT(Py_nb_remainder, operation<k_remainder>),
    SLOT(Py_nb_power, power),
    SLOT(Py_nb_matrix_multiply, product),
    SLOT(Py_nb_and, operation<k_bitwise_and>),
    SLOT(Py_nb_or, operation<k_bitwise_or>),
    SLOT(Py_nb_xor, operation<k_bitwise_xor>),
    SLOT(Py_nb_lshift, operation<k_bitwise_left_shift>),
    SLOT(Py_nb_rshift, operation<k_bitwise_right_shift>),
    SLOT(Py_nb_inplace_add, assignment<k_add>),
    SLOT(Py_nb_inplace_subtract, assignment<k_sub>),
    SLOT(Py_nb_inplace_multiply, assignment<k_mul>),
    SLOT(Py_nb_inplace_true_divide, assignment<k_div>),
    SLOT(Py_nb_negative, negative),
    SLOT(Py_nb_positive, positive),
    SLOT(Py_nb_absolute, absolute),
    SLOT(Py_nb_invert, inverted),
    SLOT(Py_nb_float, to_float),
    SLOT(Py_nb_int, to_int),
    SLOT(Py_nb_index, to_index),
    SLOT(Py_nb_bool, is_true),
    SLOT(Py_tp_richcompare, compare),
    SLOT(Py_tp_hash, hash_of),
    SLOT(Py_mp_subscript, element_of),
    SLOT(Py_mp_length, length),
#undef SLOT
    {0, nullptr}};

}  // namespace

void bind_tensor(nb::module_& m) {
  nb::class_<DTypeObject>(m, "dtype", "The type of a tensor's elements. Equal to its name: weft.float32 == \"f32\".")
      .def(
          "__init__", [](DTypeObject* self, nb::object like) { new (self) DTypeObject{dtype_from(like.ptr())}; },
          nb::arg("like"))
      .def_prop_ro(
          "name", [](DTypeObject t) { return std::string(name_of(t.type)); }, "\"f32\".")
      .def_prop_ro(
          "itemsize", [](DTypeObject t) { return size_bytes(t.type); },
          "Bytes of an element; 1 for elements below 8 bits.")
      .def_prop_ro("is_floating_point", [](DTypeObject t) { return is_float(t.type); })
      .def("__repr__", [](DTypeObject t) { return fmt::format("weft.{}", name_of(t.type)); })
      .def("__hash__", [](DTypeObject t) { return static_cast<int>(t.type); })
      .def("__reduce__",
           [m](DTypeObject t) { return nb::make_tuple(m.attr("dtype"), nb::make_tuple(std::string(name_of(t.type)))); })
      .def(
          "__eq__",
          [](DTypeObject t, nb::object other) -> nb::object {
            try {
              return nb::bool_(dtype_from(other.ptr()) == t.type);
            } catch (nb::python_error& error) {
              if (!error.matches(PyExc_TypeError)) throw;
              return nb::borrow(Py_NotImplemented);
            }
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"));
  nb::class_<Device>(m, "device", "The place of a tensor: cpu, webgpu:0, trace.")
      .def(
          "__init__", [](Device* self, nb::object like) { new (self) Device(device_from(like.ptr())); },
          nb::arg("like"))
      .def_prop_ro("type",
                   [](Device d) {
                     const std::string text = d.to_string();
                     return text.substr(0, text.find(':'));
                   })
      .def_ro("index", &Device::index)
      .def("__str__", [](Device d) { return d.to_string(); })
      .def("__repr__", [](Device d) { return fmt::format("weft.device('{}')", d.to_string()); })
      .def("__hash__", [](Device d) { return static_cast<int>(d.kind) * 1000 + d.index; })
      .def(
          "__eq__",
          [](Device d, nb::object other) -> nb::object {
            if (!nb::isinstance<Device>(other) && !PyUnicode_Check(other.ptr())) return nb::borrow(Py_NotImplemented);
            try {
              return nb::bool_(device_from(other.ptr()) == d);
            } catch (const Error&) {
              return nb::bool_(false);
            }
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"));

  nb::class_<Elements>(m, "_Elements").def_prop_ro("__array_interface__", [](const Elements& e) {
    nb::dict interface;
    interface["shape"] = tuple_of(e.shape);
    interface["typestr"] = e.typestr;
    interface["data"] = nb::make_tuple(nb::steal(PyLong_FromVoidPtr(const_cast<void*>(e.view.data))), true);
    interface["version"] = 3;
    return interface;
  });

  nb::class_<Handle> tensor(
      m, "Tensor", nb::type_slots(tensor_slots), nb::is_weak_referenceable(),
      "A value of known shape, dtype and device, which is computed when it is asked for and never "
      "changes. Ops are methods and functions of the same names.");
  tensor_type = reinterpret_cast<PyTypeObject*>(tensor.ptr());
  const auto count = [](const Handle& h) { return h.shape().numel(); };
  tensor
      .def(
          "__init__",
          [](Handle* self, nb::object data, nb::object dtype) {
            new (self) Handle{tensor_from(data.ptr(), dtype_if_given(dtype), true), {}, {}};
          },
          nb::arg("data"), nb::arg("dtype") = nb::none(),
          nb::sig("def __init__(self, data: ArrayLike, dtype: DTypeLike | None = None) -> None"))
      .def_prop_ro(
          "shape", [](const Handle& h) { return tuple_of(h.shape()); }, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const Handle& h) { return wrapped(h.dtype()); }, nb::sig("def dtype(self) -> dtype"))
      .def_prop_ro("device", &Handle::device)
      .def_prop_ro("ndim", [](const Handle& h) { return h.shape().rank(); })
      .def_prop_ro("size", count, "Number of elements.")
      .def("numel", count, "Number of elements.")
      .def_prop_ro("nbytes",
                   [](const Handle& h) { return bytes_of(h.dtype(), static_cast<std::size_t>(h.shape().numel())); })
      .def_prop_ro(
          "T",
          [](const Handle& h) {
            const Tensor x = h.value();
            Axes order;
            for (int i = x.rank(); i-- > 0;) order.push_back(i);
            return wrapped(permute(x, order));
          },
          nb::sig("def T(self) -> Tensor"), "Its axes in reverse order.")
      .def_prop_ro(
          "mT", [](const Handle& h) { return wrapped(transpose(h.value())); }, nb::sig("def mT(self) -> Tensor"),
          "Its last two axes swapped.")
      .def_prop_ro("label", [](const Handle& h) { return h.value().label(); })
      .def(
          "named", [](const Handle& h, const std::string& label) { return wrapped(h.value().named(label)); },
          nb::arg("label"), nb::sig("def named(self, label: str) -> Tensor"),
          "The same value with a name for messages.")
      .def(
          "eval",
          [](nb::handle self) {
            const Tensor before = handle_of(self.ptr()).value(), x = before;
            {
              const nb::gil_scoped_release free;
              x.eval();
            }
            keep_evaluated(self.ptr(), before, x);
            return nb::borrow(self);
          },
          nb::sig("def eval(self) -> Tensor"),
          "Computes the value now, and lets go of what it was made from, unless that includes a Variable that requires "
          "a "
          "gradient. Asking for elements keeps it all.")
      .def(
          "item", [](const Handle& h) { return nb::steal(item_of(h.value())); },
          nb::sig("def item(self) -> bool | int | float"), "The one element of a tensor with one element.")
      .def("_value", [](const Handle& h) { return wrapped(h.value()); })
      .def(
          "_set",
          [](Handle& h, nb::object value) {
            if (h.variable.defined())
              assign(h, value.ptr());
            else
              h.tensor = value_from(value.ptr(), "_set");
          },
          nb::arg("value"))
      // Another Variable of the same name, whose dtype, device and shape may differ.
      .def(
          "_set_variable",
          [](Handle& h, nb::object value) {
            const Variable old = variable_of(h, "_set_variable");
            h.variable = Variable(value_from(value.ptr(), "_set_variable"), old.name(), old.requires_grad());
          },
          nb::arg("value"))
      // From now on a Variable; its class stays Tensor.
      .def("_become_variable",
           [](Handle& h) {
             if (h.variable.defined()) return;
             h.variable = Variable(h.tensor, "", true);
             h.tensor = {};
             h.origin = {};
           })
      .def_prop_ro("_is_variable", [](const Handle& h) { return h.variable.defined(); })
      .def_prop_ro("_origin", [](const Handle& h) { return h.origin.is_valid() ? h.origin : nb::object(nb::none()); })
      .def("_elements", [](const Handle& h) { return elements_of(h.value()); })
      .def("_text",
           [](const Handle& h) {
             const Tensor x = h.value();
             const nb::gil_scoped_release free;
             return x.to_string();
           })
      .def("_to_device",
           [](const Handle& h, nb::object device) {
             const Device to = device_from(device.ptr());
             const Tensor x = h.value();
             const Tensor y = without_gil([&] { return x.to(to); });
             return wrapped(y);
           })
      .def("_dlpack",
           [](const Handle& h, bool versioned) {
             const Tensor x = h.value();
             io::dlpack::Managed* managed = nullptr;
             io::dlpack::Versioned* newer = nullptr;
             {
               const nb::gil_scoped_release free;
               if (versioned)
                 newer = io::to_dlpack_versioned(x);
               else
                 managed = io::to_dlpack(x);
             }
             return versioned ? capsule_of(newer, "dltensor_versioned") : capsule_of(managed, "dltensor");
           })
      .def(
          "__dlpack_device__", [](const Handle&) { return std::pair(1, 0); },
          "The CPU, to which tensors of other devices are copied.")
      .def(
          "__deepcopy__",
          [](nb::handle self, nb::handle) -> nb::object {
            const Handle& h = handle_of(self.ptr());
            if (!h.variable.defined()) return wrapped(h.value());
            return wrap_variable(Variable(h.value(), h.variable.name(), h.variable.requires_grad()));
          },
          nb::arg("memo"), nb::sig("def __deepcopy__(self, memo: object) -> Tensor"))
      .def_prop_rw(
          "requires_grad", [](const Handle& h) { return h.variable.defined() && h.variable.requires_grad(); },
          [](Handle& h, bool on) { variable_of(h, "requires_grad").set_requires_grad(on); })
      .def_prop_rw(
          "grad",
          [](nb::handle self) -> nb::object {
            const Handle& h = handle_of(self.ptr());
            if (!h.variable.defined() || !h.variable.grad().defined()) return nb::none();
            nb::object gradient = wrapped(h.variable.grad());
            set_origin(gradient.ptr(), self.ptr(), nullptr, nb::str("grad"));
            return gradient;
          },
          [](Handle& h, nb::object grad) {
            variable_of(h, "grad").set_grad(grad.is_none() ? Tensor() : value_from(grad.ptr(), "grad"));
          },
          nb::for_setter(nb::arg("value").none()), nb::for_getter(nb::sig("def grad(self) -> Tensor | None")),
          nb::for_setter(nb::sig("def grad(self, value: Tensor | None, /) -> None")),
          "The gradient that backward() left on a Variable.")
      .def(
          "backward",
          [](const Handle& h, nb::object seed) {
            const Tensor x = h.value();
            const Tensor weight = seed.is_none() ? Tensor() : value_from(seed.ptr(), "seed");
            const nb::gil_scoped_release free;
            backward(x, weight);
          },
          nb::arg("seed") = nb::none(), nb::sig("def backward(self, seed: Tensor | None = None) -> None"),
          "Adds the gradient of this value to .grad of every Variable that requires one and that it was made from.");

  nb::class_<VariableHandle, Handle> variable(
      m, "Variable", nb::type_slots(variable_slots), nb::is_weak_referenceable(),
      "State that changes: parameters, moments, counters. Used as a Tensor it is its current value.");
  variable_type = reinterpret_cast<PyTypeObject*>(variable.ptr());
  variable
      .def(
          "__init__",
          [](VariableHandle* self, nb::object data, const std::string& name, bool requires_grad) {
            new (self) VariableHandle{{{}, Variable(tensor_from(data.ptr(), {}, true), name, requires_grad), {}}};
          },
          nb::arg("data"), nb::arg("name") = "", nb::arg("requires_grad") = true,
          nb::sig("def __init__(self, data: ArrayLike, name: str = '', requires_grad: bool = True) -> None"))
      .def_prop_rw(
          "name", [](const VariableHandle& h) { return h.variable.name(); },
          [](VariableHandle& h, const std::string& name) { h.variable.set_name(name); })
      .def_prop_ro(
          "value", [](const VariableHandle& h) { return wrapped(h.value()); }, nb::sig("def value(self) -> Tensor"),
          "The current value as a Tensor, which stays what it is.")
      .def(
          "assign", [](VariableHandle& h, nb::object next) { assign(h, next.ptr()); }, nb::arg("next"),
          nb::sig("def assign(self, next: ArrayLike) -> None"),
          "Sets the next value, which is computed at the next evaluation.")
      .def(
          "zero_grad", [](VariableHandle& h) { h.variable.clear_grad(); }, "Clears .grad.");

  m.def(
      "_tensor",
      [](nb::object data, nb::object dtype, nb::object device, bool copy) {
        Tensor x = tensor_from(data.ptr(), dtype_if_given(dtype), copy);
        const Device to = device.is_none() ? default_device() : device_from(device.ptr());
        if (!is_tensor(data.ptr()) || !device.is_none())
          if (x.device() != to) {
            const nb::gil_scoped_release free;
            x = x.to(to);
          }
        return wrapped(x);
      },
      nb::arg("data"), nb::arg("dtype").none(), nb::arg("device").none(), nb::arg("copy"));
}

}  // namespace weft::python
