// Conversions between Python objects and tensors.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/quote.hpp"
#include "catalogue/op_values.hpp"
#include "handle.hpp"
#include "io/dlpack.hpp"
#include "runtime/host_memory.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::python {

PyTypeObject *tensor_type = nullptr, *variable_type = nullptr;

PyObject* wrap(Tensor tensor) {
  nb::object object = nb::inst_alloc(reinterpret_cast<PyObject*>(tensor_type));
  new (nb::inst_ptr<Handle>(object)) Handle{std::move(tensor), {}, {}};
  nb::inst_mark_ready(object);
  return object.release().ptr();
}

nb::object wrap_variable(Variable variable) {
  nb::object object = nb::inst_alloc(reinterpret_cast<PyObject*>(variable_type));
  new (nb::inst_ptr<VariableHandle>(object)) VariableHandle{{{}, std::move(variable), {}}};
  nb::inst_mark_ready(object);
  return object;
}

void set_origin(PyObject* view, PyObject* base, PyObject* op, nb::object arguments, nb::object names, int part) {
  // A view of a view keeps that one, so that the way to the first object is there; that one is not kept.
  const nb::object kept =
      handle_of(base).origin.is_valid() ? nb::object(nb::borrow(base)) : nb::steal(PyWeakref_NewRef(base, nullptr));
  if (!kept.is_valid()) raise();
  handle_of(view).origin = nb::make_tuple(kept, op ? nb::object(nb::borrow(op)) : nb::object(nb::none()), arguments,
                                          names.is_valid() ? names : nb::object(nb::none()), part);
}

PyObject* wrap_results(std::vector<Tensor> results, bool as_tuple) {
  if (!as_tuple && results.size() == 1) return wrap(std::move(results[0]));
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  if (!tuple.is_valid()) return nullptr;
  for (std::size_t i = 0; i < results.size(); ++i) {
    PyObject* each = wrap(std::move(results[i]));
    if (!each) return nullptr;
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), each);
  }
  return tuple.release().ptr();
}

void raise(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

namespace {

std::string type_name(PyObject* object) {
  const nb::object name = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  if (!name.is_valid()) {
    PyErr_Clear();
    return "object";
  }
  return nb::cast<std::string>(name);
}

bool has_attribute(PyObject* object, const char* name) {
  // Only of the type, as Python itself looks up special methods; nothing of the user runs.
  PyObject* found = PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), name);
  if (!found) PyErr_Clear();
  Py_XDECREF(found);
  return found != nullptr;
}

constexpr Py_ssize_t kSequenceMax = Py_ssize_t{1} << 30;

}  // namespace

bool is_integer_like(PyObject* object) {
  if (PyLong_Check(object)) return !PyBool_Check(object);
  return PyIndex_Check(object) && !is_tensor(object) && !has_attribute(object, "__len__");  // arrays have a length
}

Extent integer_from(PyObject* object) {
  const nb::object number = nb::steal(PyNumber_Index(object));
  if (!number.is_valid()) raise();
  const long long value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred()) raise();
  return value;
}

std::vector<Extent> integers_from(PyObject* object) {
  if (is_integer_like(object)) return {integer_from(object)};
  if (PyUnicode_Check(object) || PyBytes_Check(object) || !PySequence_Check(object))
    raise(PyExc_TypeError, fmt::format("expected integers, got {}", type_name(object)));
  const nb::object list = nb::steal(PySequence_Tuple(object));
  if (!list.is_valid()) raise();
  std::vector<Extent> result;
  for (Py_ssize_t i = 0; i < PyTuple_Size(list.ptr()); ++i)
    result.push_back(integer_from(PyTuple_GetItem(list.ptr(), i)));
  return result;
}

DType dtype_from(PyObject* object) {
  if (nb::isinstance<DTypeObject>(object)) return nb::cast<DTypeObject>(nb::handle(object)).type;
  std::string name;
  if (PyUnicode_Check(object)) {
    name = nb::cast<std::string>(nb::borrow(object));
  } else if (object == reinterpret_cast<PyObject*>(&PyFloat_Type)) {
    return DType::f32;
  } else if (object == reinterpret_cast<PyObject*>(&PyLong_Type)) {
    return DType::i64;
  } else if (object == reinterpret_cast<PyObject*>(&PyBool_Type)) {
    return DType::boolean;
  } else {
    // NumPy's dtypes have a name, and its scalar types a __name__ ("float32").
    for (const char* attribute : {"name", "__name__"}) {
      const nb::object found = nb::steal(PyObject_GetAttrString(object, attribute));
      if (found.is_valid() && PyUnicode_Check(found.ptr())) {
        name = nb::cast<std::string>(found);
        break;
      }
      if (!found.is_valid() && !PyErr_ExceptionMatches(PyExc_AttributeError)) raise();
      PyErr_Clear();
    }
  }
  static const std::pair<const char*, DType> kLong[] = {
      {"float32", DType::f32},     {"float64", DType::f64},  {"float16", DType::f16}, {"bfloat16", DType::bf16},
      {"float", DType::f32},       {"double", DType::f64},   {"half", DType::f16},    {"int8", DType::i8},
      {"int16", DType::i16},       {"int32", DType::i32},    {"int64", DType::i64},   {"int", DType::i64},
      {"uint8", DType::u8},        {"uint16", DType::u16},   {"uint32", DType::u32},  {"uint64", DType::u64},
      {"boolean", DType::boolean}, {"bool_", DType::boolean}};
  for (const auto& [text, type] : kLong)
    if (name == text) return type;
  if (const auto type = dtype_from_name(name)) return *type;
  raise(PyExc_TypeError, name.empty() ? fmt::format("expected a dtype, got {}", type_name(object))
                                      : fmt::format("there is no dtype {}", quote(name)));
}

Device device_from(PyObject* object) {
  if (nb::isinstance<Device>(object)) return nb::cast<Device>(nb::handle(object));
  if (PyUnicode_Check(object)) return parse_device(nb::cast<std::string>(nb::borrow(object)));
  raise(PyExc_TypeError, fmt::format("expected a device or its name, got {}", type_name(object)));
}

// ---- Arrays and lists -------------------------------------------------------------------------------------------------

namespace {

// The tensor of a capsule of DLPack. A capsule can be used once; then it has another name.
Tensor tensor_of_capsule(PyObject* capsule, bool copy) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    auto* managed = static_cast<io::dlpack::Versioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    const Tensor result = io::from_dlpack(managed, copy);
    PyCapsule_SetName(capsule, "used_dltensor_versioned");
    return result;
  }
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    auto* managed = static_cast<io::dlpack::Managed*>(PyCapsule_GetPointer(capsule, "dltensor"));
    const Tensor result = io::from_dlpack(managed, copy);
    PyCapsule_SetName(capsule, "used_dltensor");
    return result;
  }
  const char* name = PyCapsule_GetName(capsule);
  raise(PyExc_ValueError, name && std::strncmp(name, "used_", 5) == 0
                              ? "the DLPack capsule was used already; each can be used once"
                              : "the capsule is not one of DLPack");
}

// Wraps an owner that may be freed on any thread, without the GIL.
std::shared_ptr<const void> kept(PyObject* object) {
  Py_INCREF(object);
  return {object, [](const void* kept) {
            if (!Py_IsInitialized()) return;
            const nb::gil_scoped_acquire gil;
            Py_DECREF(static_cast<PyObject*>(const_cast<void*>(kept)));
          }};
}

// NumPy's arrays, and all that become one: through the protocol that needs no NumPy at build time.
std::optional<Tensor> tensor_of_array_interface(PyObject* object, bool copy) {
  const nb::object interface = nb::steal(PyObject_GetAttrString(object, "__array_interface__"));
  if (!interface.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) raise();
    PyErr_Clear();
    return std::nullopt;
  }
  if (!PyDict_Check(interface.ptr())) return std::nullopt;
  const auto entry = [&](const char* name) { return PyDict_GetItemString(interface.ptr(), name); };
  PyObject *typestr = entry("typestr"), *data = entry("data"), *shape = entry("shape"), *strides = entry("strides");
  if (!typestr || !PyUnicode_Check(typestr) || !shape) return std::nullopt;
  if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2) return std::nullopt;
  const auto type = nb::cast<std::string>(nb::borrow(typestr));
  static const std::pair<const char*, DType> kTypes[] = {
      {"<f4", DType::f32}, {"<f8", DType::f64}, {"<f2", DType::f16}, {"|b1", DType::boolean},
      {"|i1", DType::i8},  {"<i2", DType::i16}, {"<i4", DType::i32}, {"<i8", DType::i64},
      {"|u1", DType::u8},  {"<u2", DType::u16}, {"<u4", DType::u32}, {"<u8", DType::u64}};
  const auto row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& r) { return type == r.first; });
  if (row == std::end(kTypes))
    raise(PyExc_TypeError,
          fmt::format("arrays of NumPy's type {} are not supported; convert them to a number type", quote(type)));
  if (strides && strides != Py_None) {  // contiguous arrays have none here
    if (has_attribute(object, "copy")) {
      const nb::object contiguous =
          nb::steal(PyObject_CallMethod(object, "copy", "s", "C"));  // elements in row-major order
      if (!contiguous.is_valid()) raise();
      if (contiguous.ptr() == object) return std::nullopt;
      const nb::object again = nb::steal(PyObject_GetAttrString(contiguous.ptr(), "__array_interface__"));
      if (!again.is_valid()) raise();
      PyObject* left = PyDict_Check(again.ptr()) ? PyDict_GetItemString(again.ptr(), "strides") : nullptr;
      if (left && left != Py_None) return std::nullopt;
      return tensor_of_array_interface(contiguous.ptr(), copy);
    }
    return std::nullopt;
  }
  const Shape extents(integers_from(shape));
  PyObject* place = PyTuple_GetItem(data, 0);
  if (!PyLong_Check(place)) return std::nullopt;
  const void* memory = PyLong_AsVoidPtr(place);
  if (!memory && PyErr_Occurred()) raise();
  for (const Extent extent : extents)
    if (extent < 0) raise(PyExc_ValueError, "an array with a negative extent");
  if (!memory && extents.numel() > 0) raise(PyExc_ValueError, "an array with elements and no memory");
  if (copy) return tensor_from_bytes(memory, extents, row->second, kCpu);
  return runtime::borrow_host(kept(object), memory, extents, row->second);
}

struct Flat {
  std::vector<Extent> shape;
  std::vector<double> numbers;
  std::vector<std::int64_t> integers;  // as many, while all are integers
  bool is_float = false, is_wide = false, is_bool = true, has_elements = false;
};

void add_number(Flat& flat, PyObject* object) {
  flat.has_elements = true;
  if (PyBool_Check(object)) {
    flat.numbers.push_back(object == Py_True);
    flat.integers.push_back(object == Py_True);
    return;
  }
  flat.is_bool = false;
  if (!PyFloat_Check(object) && PyIndex_Check(object)) {
    const Extent value = integer_from(object);
    flat.is_wide |= value != static_cast<std::int32_t>(value);
    flat.integers.push_back(value);
    flat.numbers.push_back(static_cast<double>(value));
    return;
  }
  const double value = PyFloat_AsDouble(object);
  if (value == -1 && PyErr_Occurred()) raise();
  flat.is_float = true;
  flat.numbers.push_back(value);
  flat.integers.push_back(0);
}

// Elements of nested lists, in order. Lists of one depth have one length. A list that contains itself ends at the depth's limit.
void flatten(PyObject* object, std::size_t depth, Flat& flat) {
  constexpr std::size_t kDepthMax = 32;
  if (PyList_Check(object) || PyTuple_Check(object)) {
    if (depth == kDepthMax) raise(PyExc_ValueError, "lists are nested deeper than 32, or contain themselves");
    const nb::object items =
        nb::steal(PySequence_Tuple(object));  // a copy: elements may run code that changes the list
    if (!items.is_valid()) raise();
    const Py_ssize_t length = PyTuple_Size(items.ptr());
    if (flat.shape.size() == depth) {
      if (flat.has_elements) raise(PyExc_ValueError, "rows and numbers are mixed in a list");
      flat.shape.push_back(length);
    } else if (flat.shape[depth] != length) {
      raise(PyExc_ValueError, fmt::format("lists of one depth differ in length: {} and {}", flat.shape[depth], length));
    }
    for (Py_ssize_t i = 0; i < length; ++i) flatten(PyTuple_GetItem(items.ptr(), i), depth + 1, flat);
    return;
  }
  if (depth != flat.shape.size()) raise(PyExc_ValueError, "rows and numbers are mixed in a list");
  add_number(flat, object);
}

// Whether a nested list holds tensors or arrays, which are stacked instead.
bool holds_tensors(PyObject* object, int depth = 0) {
  if (depth > 32) return false;
  if (!PyList_Check(object) && !PyTuple_Check(object))
    return is_tensor(object) ||
           (has_attribute(object, "__array_interface__") && !PyIndex_Check(object) && !PyNumber_Check(object)) ||
           (has_attribute(object, "shape") && has_attribute(object, "__dlpack__"));
  const Py_ssize_t length = PySequence_Size(object);
  return length > 0 &&
         holds_tensors(PyList_Check(object) ? PyList_GetItem(object, 0) : PyTuple_GetItem(object, 0), depth + 1);
}

Tensor tensor_of_list(PyObject* object, std::optional<DType> type) {
  if (holds_tensors(object)) {
    std::vector<Tensor> parts;
    const nb::object items = nb::steal(PySequence_Tuple(object));
    if (!items.is_valid()) raise();
    for (Py_ssize_t i = 0; i < PyTuple_Size(items.ptr()); ++i)
      parts.push_back(tensor_from(PyTuple_GetItem(items.ptr(), i), type));
    return stack(parts, 0);
  }
  Flat flat;
  flatten(object, 0, flat);
  const Shape shape(flat.shape);
  if (static_cast<Extent>(flat.numbers.size()) != shape.numel()) {  // [[], 1] and the like
    raise(PyExc_ValueError, "rows and numbers are mixed in a list");
  }
  const DType natural = !flat.has_elements || flat.is_float ? DType::f32
                        : flat.is_bool                      ? DType::boolean
                        : flat.is_wide                      ? DType::i64
                                                            : DType::i32;
  const DType target = type.value_or(natural);
  if (!flat.is_float && flat.has_elements && (flat.is_wide || is_integer(target))) {
    const Tensor whole = tensor_from_bytes(flat.integers.data(), shape, DType::i64, kCpu);
    return target == DType::i64 ? whole : cast(whole, target);
  }
  const Tensor numbers = tensor_from_bytes(flat.numbers.data(), shape, DType::f64, kCpu);
  return target == DType::f64 ? numbers : cast(numbers, target);
}

}  // namespace

Tensor tensor_from(PyObject* object, std::optional<DType> type, bool copy) {
  const auto typed = [&](const Tensor& tensor) {
    return type && *type != tensor.dtype() ? cast(tensor, *type) : tensor;
  };
  if (is_tensor(object)) return typed(handle_of(object).value());
  if (PyCapsule_CheckExact(object)) return typed(tensor_of_capsule(object, copy));
  if (PyBool_Check(object) || PyFloat_CheckExact(object) || PyLong_Check(object) || PyList_Check(object) ||
      PyTuple_Check(object))
    return tensor_of_list(object, type);
  if (PyRange_Check(object)) {
    const nb::object list = nb::steal(PySequence_List(object));
    if (!list.is_valid()) raise();
    return tensor_of_list(list.ptr(), type);
  }
  // The interface of NumPy's scalars names memory that nobody keeps; __array__ makes an array of them.
  if (has_attribute(object, "__array_interface__") &&
      (has_attribute(object, "__len__") || !has_attribute(object, "__array__")))
    if (const auto found = tensor_of_array_interface(object, copy)) return typed(*found);
  if (has_attribute(object, "__array__") &&
      (has_attribute(object, "__array_interface__") || !has_attribute(object, "__dlpack__"))) {
    const nb::object array = nb::steal(PyObject_CallMethod(object, "__array__", nullptr));
    if (!array.is_valid()) raise();
    if (array.ptr() != object && has_attribute(array.ptr(), "__array_interface__"))
      if (const auto found = tensor_of_array_interface(array.ptr(), copy)) return typed(*found);
    raise(PyExc_TypeError, fmt::format("__array__ of {} did not return an array", type_name(object)));
  }
  if (has_attribute(object, "__dlpack__")) {
    const nb::object capsule = nb::steal(PyObject_CallMethod(object, "__dlpack__", nullptr));
    if (!capsule.is_valid()) raise();
    if (!PyCapsule_CheckExact(capsule.ptr())) raise(PyExc_TypeError, "__dlpack__ did not return a capsule");
    return typed(tensor_of_capsule(capsule.ptr(), copy));
  }
  if (PyIndex_Check(object) ||
      (PyNumber_Check(object) && !PyComplex_Check(object) && has_attribute(object, "__float__")))
    return tensor_of_list(object, type);
  raise(PyExc_TypeError,
        fmt::format("expected a tensor, an array, a number or lists of numbers, got {}", type_name(object)));
}

Tensor value_from(PyObject* object, const char* what) {
  if (!is_tensor(object)) raise(PyExc_TypeError, fmt::format("{}: expected a Tensor, got {}", what, type_name(object)));
  return handle_of(object).value();
}

std::vector<Tensor> values_from(PyObject* sequence, const char* what) {
  const nb::object list = nb::steal(PySequence_Tuple(sequence));
  if (!list.is_valid()) raise();
  if (PyTuple_Size(list.ptr()) > kSequenceMax) raise(PyExc_ValueError, "too many tensors");
  std::vector<Tensor> result;
  for (Py_ssize_t i = 0; i < PyTuple_Size(list.ptr()); ++i)
    result.push_back(value_from(PyTuple_GetItem(list.ptr(), i), what));
  return result;
}

// ---- Operands -----------------------------------------------------------------------------------------------------------

bool is_operand(PyObject* object) {
  return is_tensor(object) || PyFloat_Check(object) || PyLong_Check(object) ||
         has_attribute(object, "__array_interface__") || PyList_Check(object) || PyIndex_Check(object);
}

Operand operand_from(PyObject* object) {
  if (is_tensor(object)) return {handle_of(object).value(), nullptr};
  if (PyFloat_Check(object) || PyLong_Check(object)) return {{}, object};
  return {tensor_from(object), nullptr};
}

std::vector<Tensor> resolved(std::vector<Operand> operands) {
  std::optional<DType> common;
  Device device = default_device();
  bool has_numbers = false;
  for (const Operand& each : operands) {
    has_numbers |= each.number != nullptr;
    if (each.tensor.defined()) device = each.tensor.device();
  }
  std::vector<Tensor> result;
  result.reserve(operands.size());
  if (has_numbers)
    for (const Operand& each : operands)
      if (each.tensor.defined()) common = common ? promote(*common, each.tensor.dtype()) : each.tensor.dtype();
  for (Operand& each : operands) {
    if (!each.number) {
      result.push_back(std::move(each.tensor));
      continue;
    }
    if (PyLong_Check(each.number) && common && (*common == DType::i64 || *common == DType::u64)) {
      int overflow = 0;
      const long long value = PyLong_AsLongLongAndOverflow(each.number, &overflow);
      std::uint64_t bits = static_cast<std::uint64_t>(value);
      if (overflow) bits = PyLong_AsUnsignedLongLong(each.number);
      if (PyErr_Occurred()) raise();
      result.push_back(long_scalar_like(bits, overflow == 0, full({}, 0, *common, device)));
      continue;
    }
    const double number = PyFloat_AsDouble(each.number);
    if (number == -1 && PyErr_Occurred()) raise();
    // Python's float does not become an integer, and True is a number beside numbers.
    if (PyFloat_Check(each.number) && common && !is_float(*common) && !is_storage(*common))
      result.push_back(full({}, number, DType::f32, device));
    else if (PyBool_Check(each.number) && (!common || *common == DType::boolean))
      result.push_back(full({}, number, DType::boolean, device));
    else if (PyLong_Check(each.number) && !common)
      result.push_back(full({}, number, std::abs(number) < 0x1p31 ? DType::i32 : DType::i64, device));
    else
      result.push_back(operations::number_operand(number, common, device));
  }
  return result;
}

}  // namespace weft::python
