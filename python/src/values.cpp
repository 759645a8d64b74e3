#include "values.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::python {
namespace {

constexpr int kDepthMax = 64;  // as JSON's reader has it

bool type_has(PyObject* object, const char* name) {
  PyObject* found = PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), name);
  if (!found) PyErr_Clear();
  Py_XDECREF(found);
  return found != nullptr;
}

Value integer_value(PyObject* object) {
  const nb::object number = nb::steal(PyNumber_Index(object));
  if (!number.is_valid()) raise();
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0) {
    if (value == -1 && PyErr_Occurred()) raise();
    return value;
  }
  const unsigned long long large = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred()) raise();
  return large;
}

std::string text_of(PyObject* object) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object, &size);
  if (!text) raise();
  return {text, static_cast<std::size_t>(size)};
}

Value convert(PyObject* object, int depth) {
  if (object == Py_None) return nullptr;
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) return integer_value(object);
  if (PyFloat_Check(object)) return PyFloat_AsDouble(object);
  if (PyUnicode_Check(object)) return text_of(object);
  if (is_tensor(object)) return handle_of(object).value();
  if (depth == kDepthMax)
    throw UsageError(fmt::format("a value of an operation is nested deeper than {}, or contains itself", kDepthMax));
  if (PyDict_Check(object)) {
    // A list of the items: converting one may run Python code that changes the dictionary.
    const nb::object items = nb::steal(PyDict_Items(object));
    if (!items.is_valid()) raise();
    std::vector<Value::Object::Member> members;
    for (Py_ssize_t i = 0; i < PyList_Size(items.ptr()); ++i) {
      PyObject* pair = PyList_GetItem(items.ptr(), i);
      PyObject* key = PyTuple_GetItem(pair, 0);
      if (!PyUnicode_Check(key)) raise(PyExc_TypeError, "a key of a value of an operation is not a string");
      members.push_back({text_of(key), convert(PyTuple_GetItem(pair, 1), depth + 1)});
    }
    return Value::Object(std::move(members));
  }
  if (PyList_Check(object) || PyTuple_Check(object)) {
    const nb::object tuple = nb::steal(PySequence_Tuple(object));
    if (!tuple.is_valid()) raise();
    Value::Array elements;
    for (Py_ssize_t i = 0; i < PyTuple_Size(tuple.ptr()); ++i)
      elements.push_back(convert(PyTuple_GetItem(tuple.ptr(), i), depth + 1));
    return elements;
  }
  const bool is_array = type_has(object, "__array_interface__");
  if (is_array && !type_has(object, "__len__") && type_has(object, "item")) {  // a scalar of NumPy
    const nb::object number = nb::steal(PyObject_CallMethod(object, "item", nullptr));
    if (!number.is_valid()) raise();
    if (number.ptr() != object) return convert(number.ptr(), depth + 1);
  }
  if (is_array || type_has(object, "__dlpack__") || type_has(object, "__array__")) return tensor_from(object);
  if (PyIndex_Check(object)) return integer_value(object);
  if (type_has(object, "__fspath__")) {
    const nb::object path = nb::steal(PyOS_FSPath(object));
    if (!path.is_valid()) raise();
    if (PyUnicode_Check(path.ptr())) return text_of(path.ptr());
  }
  const nb::object name = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__name__"));
  if (!name.is_valid()) raise();
  raise(PyExc_TypeError,
        fmt::format("a value of an operation is None, a bool, a number, a string, a list, a dictionary or a "
                    "tensor, and not {}",
                    nb::cast<std::string>(name)));
}

}  // namespace

Value value_of(PyObject* object) { return convert(object, 0); }

nb::object object_of(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null: return nb::none();
    case Value::Kind::boolean: return nb::bool_(value.boolean());
    case Value::Kind::integer: {
      const bool is_large = value.number() >= 0x1p63;
      return is_large ? nb::cast(value.unsigned_integer()) : nb::cast(value.integer());
    }
    case Value::Kind::number: return nb::float_(value.number());
    case Value::Kind::string: return nb::str(value.string().data(), value.string().size());
    case Value::Kind::array: {
      nb::list list;
      for (const Value& each : value.elements()) list.append(object_of(each));
      return list;
    }
    case Value::Kind::object: {
      nb::dict dict;
      for (const auto& [key, member] : value.members()) dict[nb::str(key.data(), key.size())] = object_of(member);
      return dict;
    }
    case Value::Kind::tensor: return wrapped(value.tensor());
  }
  return nb::none();
}

}  // namespace weft::python
