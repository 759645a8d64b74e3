// What the files of the binding share: the object behind Tensor and Variable, and conversions of Python objects.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/io.hpp"
#include "weft/tensor.hpp"

namespace weft::python {

namespace nb = nanobind;

/// weft.Tensor in Python. A Variable is a Tensor whose value changes.
struct Handle {
  Tensor tensor;
  Variable variable;
  /// Of a view, what it shows of which object (_changes.py), so that a change of it changes that object too; else null.
  nb::object origin = {};
  Tensor value() const {
    if (!variable.defined()) return tensor;
    // A compiled function that updates the Variable may hold it, and want the GIL to look for Ctrl-C.
    const nb::gil_scoped_release free;
    return variable.value();
  }
  const Shape& shape() const { return variable.defined() ? variable.shape() : tensor.shape(); }
  DType dtype() const { return variable.defined() ? variable.dtype() : tensor.dtype(); }
  Device device() const { return variable.defined() ? variable.device() : tensor.device(); }
};
struct VariableHandle : Handle {};

/// weft.dtype in Python.
struct DTypeObject {
  DType type;
};
inline nb::object wrapped(DType type) { return nb::cast(DTypeObject{type}); }

extern PyTypeObject *tensor_type, *variable_type;

inline bool is_tensor(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type == tensor_type || type == variable_type || PyType_IsSubtype(type, tensor_type);
}
/// Of an object for which `is_tensor` holds.
inline Handle& handle_of(PyObject* object) {
  if (!nb::inst_ready(object)) {
    PyErr_SetString(PyExc_TypeError, "a Tensor whose __init__ was not called");
    throw nb::python_error();
  }
  return *nb::inst_ptr<Handle>(object);
}
/// Gives the object the value after `eval`, which has no inputs, unless the object has got another one meanwhile.
inline void keep_evaluated(PyObject* object, const Tensor& before, const Tensor& after) {
  if (!is_tensor(object)) return;
  Handle& handle = handle_of(object);
  if (handle.tensor.node() == before.node()) handle.tensor = after;
}
/// A new weft.Tensor. Null only with a Python error.
PyObject* wrap(Tensor tensor);
nb::object wrap_variable(Variable variable);
inline nb::object wrapped(Tensor tensor) { return nb::steal(wrap(std::move(tensor))); }
/// Notes that `view` shows what `key` (op null: as an index) or op(*arguments, **names) gives of `base`. `part`: of several results.
void set_origin(PyObject* view, PyObject* base, PyObject* op, nb::object arguments, nb::object names = {},
                int part = -1);
/// A tuple of Tensors, or the one.
PyObject* wrap_results(std::vector<Tensor> results, bool as_tuple);

/// Sets the Python error that fits the exception.
void set_python_error(const std::exception_ptr& exception);
/// Calls a function that returns a new reference; an exception becomes a Python error and null.
template <class F>
PyObject* guarded(const F& function) noexcept {
  try {
    return function();
  } catch (...) {
    set_python_error(std::current_exception());
    return nullptr;
  }
}
/// Throws the Python error that is set.
[[noreturn]] inline void raise() { throw nb::python_error(); }
[[noreturn]] void raise(PyObject* type, const std::string& message);

/// A whole number, also of NumPy, within 64 bits. TypeError or OverflowError.
Extent integer_from(PyObject* object);
/// Anything with __index__, except bool.
bool is_integer_like(PyObject* object);
/// Extents from a list, a tuple or a single integer. Errors: TypeError, ValueError for too many.
std::vector<Extent> integers_from(PyObject* object);
/// From a weft.dtype, its name, Python's float, int or bool, or NumPy's dtype. TypeError.
DType dtype_from(PyObject* object);
/// Nothing for None.
inline std::optional<DType> dtype_if_given(const nb::object& object) {
  return object.is_none() ? std::nullopt : std::optional(dtype_from(object.ptr()));
}
Device device_from(PyObject* object);
/// The default device for None.
inline Device device_or_default(const nb::object& device) {
  return device.is_none() ? default_device() : device_from(device.ptr());
}

/// A tensor of any object: a Tensor as it is, numbers and nested lists. Values are computed later, so an array is copied, or
/// else it has to stay as it is: without `copy` its memory is shared where that can be. `type` null: that of the object, where Python's floats are f32 and its integers i32, or i64 if they do not fit.
Tensor tensor_from(PyObject* object, std::optional<DType> type = {}, bool copy = true);
/// The value of a Tensor; TypeError for other objects.
Tensor value_from(PyObject* object, const char* what);
std::vector<Tensor> values_from(PyObject* sequence, const char* what);

/// An operand that is perhaps a number: a number gets the dtype of the tensors beside it.
struct Operand {
  Tensor tensor;
  PyObject* number = nullptr;  // borrowed
};
Operand operand_from(PyObject* object);
bool is_operand(PyObject* object);
/// Gives the numbers among operands their dtypes.
std::vector<Tensor> resolved(std::vector<Operand> operands);

/// Tensors by name, of anything that is a tensor or becomes one.
NamedTensors named_from(const nb::dict& given, bool copy);
nb::dict dict_of(const NamedTensors& tensors);

/// Calls a function that needs no GIL without it.
template <class F>
auto without_gil(const F& function) {
  const nb::gil_scoped_release free;
  return function();
}

/// x[key], a new reference; null with a Python error.
PyObject* element_of(PyObject* self, PyObject* key);

void bind_tensor(nb::module_& m);
void bind_ops(nb::module_& m);
void bind_functions(nb::module_& m);
void bind_transforms(nb::module_& m);
void bind_kernels(nb::module_& m);
void bind_nn(nb::module_& m);
void bind_files(nb::module_& m);
void bind_optimizers(nb::module_& m);
void bind_onnx(nb::module_& m);
void bind_models(nb::module_& m);
void bind_hub(nb::module_& m);
void bind_training(nb::module_& m);
void bind_tuning(nb::module_& m);
void bind_grid(nb::module_& m);
void bind_metatensor(nb::module_& m);
void bind_media(nb::module_& m);
void bind_encoder(nb::module_& m);
void bind_vision(nb::module_& m);
void bind_speech(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_trees(nb::module_& m);
void bind_operations(nb::module_& m);
void bind_workflows(nb::module_& m);
void bind_operation_transports(nb::module_& m);

}  // namespace weft::python
