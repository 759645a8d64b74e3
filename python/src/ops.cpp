// Ops of the table as Python functions and methods. One Python type serves all: an object holds its row, and a call reads the
// row to sort positional and named arguments into inputs and attributes. So nothing is compiled for a single op.
#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "graph/op.hpp"
#include "handle.hpp"  // Python.h before structmember.h
#include "op_text.hpp"

#include "weft/custom_op.hpp"
#include "weft/ops.hpp"
#include "weft/ops/contraction.hpp"

#include <structmember.h>

namespace weft::python {
namespace {

using graph::AttributeSpec;
using graph::AttributeType;
using graph::AttributeValue;
using graph::OpRow;

struct Op {
  PyObject_HEAD vectorcallfunc call;
  const OpRow* row;
  // Facts of the row that every call needs.
  int axes_first;       // the attribute that comes first by position, or -1
  int gathers;          // the attribute that takes all integers that follow: x.reshape(2, 3); or -1
  bool axis_in_middle;  // PyTorch's order (x, axis, indices) is taken too
  bool plain;           // elementwise: attributes are numbers, and most calls give none
  bool pairs;           // gives values and their positions
  bool views;           // shows elements of its input, each at most once
};
PyTypeObject* op_type = nullptr;
PyObject* pair_type = nullptr;  // (values, indices), a named tuple of Python

constexpr std::string_view kViews[] = {"reshape", "transpose", "permute",   "squeeze", "unsqueeze", "diagonal",
                                       "detach",  "flatten",   "unflatten", "select",  "narrow",    "slice",
                                       "movedim", "split",     "chunk",     "unbind"};
constexpr std::string_view kPairs[] = {"sort", "topk", "kthvalue", "mode", "median", "nanmedian", "cummax", "cummin"};

const Op& op_of(PyObject* object) { return *reinterpret_cast<Op*>(object); }

// A word of an attribute, such as "mean".
std::string word_of(PyObject* object) { return nb::cast<std::string>(nb::borrow(object)); }

[[noreturn]] void refuse(const OpRow& row, const AttributeSpec& spec, PyObject* value) {
  const nb::object text = nb::steal(PyObject_Repr(value));
  if (!text.is_valid()) PyErr_Clear();
  raise(PyExc_TypeError,
        fmt::format("{}: attribute {} is {}, not {}", row.name, spec.name,
                    text.is_valid() ? quote(word_of(text.ptr())) : "not printable", graph::wanted(spec)));
}

AttributeValue attribute_from(const OpRow& row, const AttributeSpec& spec, PyObject* value) {
  if (value == Py_None) return std::monostate{};
  switch (spec.type) {
    case AttributeType::boolean: {
      if (!PyBool_Check(value)) {
        if (!is_integer_like(value) && !is_tensor(value)) refuse(row, spec, value);
        const int truth = PyObject_IsTrue(value);
        if (truth < 0) raise();
        return truth != 0;
      }
      return value == Py_True;
    }
    case AttributeType::integer:
      if (!is_integer_like(value)) {
        if (!PyFloat_Check(value)) refuse(row, spec, value);
        const double number = PyFloat_AsDouble(value);
        if (std::trunc(number) != number || std::abs(number) > 0x1p53) refuse(row, spec, value);
        return static_cast<Extent>(number);
      }
      return integer_from(value);
    case AttributeType::number: {
      if (PyUnicode_Check(value) || PyList_Check(value) || PyTuple_Check(value)) refuse(row, spec, value);
      const double number = PyFloat_AsDouble(value);
      if (number == -1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) raise();
        PyErr_Clear();
        refuse(row, spec, value);
      }
      return number;
    }
    case AttributeType::integers:
      if (PyUnicode_Check(value) || (!PyIndex_Check(value) && !PySequence_Check(value))) refuse(row, spec, value);
      return integers_from(value);
    case AttributeType::numbers: {
      if (PyFloat_Check(value) || is_integer_like(value)) return graph::Numbers{PyFloat_AsDouble(value)};
      if (PyUnicode_Check(value) || !PySequence_Check(value)) refuse(row, spec, value);
      const nb::object list = nb::steal(PySequence_Tuple(value));
      if (!list.is_valid()) raise();
      graph::Numbers numbers;
      for (Py_ssize_t i = 0; i < PyTuple_Size(list.ptr()); ++i) {
        numbers.push_back(PyFloat_AsDouble(PyTuple_GetItem(list.ptr(), i)));
        if (numbers.back() != -1 || !PyErr_Occurred()) continue;
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) raise();
        PyErr_Clear();
        refuse(row, spec, value);
      }
      return numbers;
    }
    case AttributeType::pairs: {
      if (PyUnicode_Check(value) || !PySequence_Check(value)) refuse(row, spec, value);
      const nb::object list = nb::steal(PySequence_Tuple(value));
      if (!list.is_valid()) raise();
      graph::Pairs pairs;
      for (Py_ssize_t i = 0; i < PyTuple_Size(list.ptr()); ++i) {
        PyObject* each = PyTuple_GetItem(list.ptr(), i);
        const std::vector<Extent> two = integers_from(each);
        if (two.size() != 2) refuse(row, spec, value);
        pairs.emplace_back(two[0], two[1]);
      }
      return pairs;
    }
    case AttributeType::dtype: return dtype_from(value);
    case AttributeType::choice:
      if (!PyUnicode_Check(value)) refuse(row, spec, value);
      return word_of(value);
  }
  refuse(row, spec, value);
}

// Arguments of a call, sorted.
struct Sorted {
  std::vector<Operand> operands;  // absent ones are neither a tensor nor a number
  graph::CaseAttributes attributes;
  PyObject* device = nullptr;
};

bool is_list(PyObject* object) { return PyList_Check(object) || PyTuple_Check(object); }

Operand input_from(const OpRow& row, const graph::InputSpec& input, PyObject* value) {
  if (value == Py_None) {
    if (input.optional) return {};
    raise(PyExc_TypeError, fmt::format("{}: input {} is None", row.name, input.name));
  }
  return operand_from(value);
}

int index_of_attribute(const OpRow& row, std::string_view name) {
  for (std::size_t i = 0; i < row.attributes.size(); ++i) {
    const AttributeSpec& spec = row.attributes[i];
    if (spec.name == name || std::find(spec.aliases.begin(), spec.aliases.end(), name) != spec.aliases.end())
      return static_cast<int>(i);
  }
  return -1;
}
int index_of_input(const OpRow& row, std::string_view name) {
  for (std::size_t i = 0; i < row.inputs.size(); ++i)
    if (row.inputs[i].name == name) return static_cast<int>(i);
  // PyTorch's names of the first and the second.
  if (name == "input" && !row.inputs.empty()) return 0;
  if ((name == "other" || name == "index" || name == "target") && row.inputs.size() > 1) return 1;
  return -1;
}

Sorted sorted(const Op& op, PyObject* const* arguments, std::size_t count, PyObject* names) {
  const OpRow& row = *op.row;
  Sorted result;
  const std::size_t inputs = row.inputs.size(), attributes = row.attributes.size();
  std::vector<PyObject*> given(attributes, nullptr);
  std::vector<std::vector<Extent>> gathered(1);
  std::vector<bool> set(inputs, false);
  result.operands.resize(inputs);
  std::size_t next_input = 0, next_attribute = 0;
  const auto position = [&](std::size_t i) {  // the attribute that is i-th by position
    if (op.axes_first <= 0) return i;
    const auto first = static_cast<std::size_t>(op.axes_first);
    return i == 0 ? first : i <= first ? i - 1 : i;
  };
  std::vector<Operand> repeated;
  bool has_repeated = false;
  const auto take_repeated = [&](PyObject* value) {
    has_repeated = true;
    if (!is_list(value)) return repeated.push_back(operand_from(value));
    const nb::object list = nb::steal(PySequence_Tuple(value));
    if (!list.is_valid()) raise();
    for (Py_ssize_t k = 0; k < PyTuple_Size(list.ptr()); ++k)
      repeated.push_back(operand_from(PyTuple_GetItem(list.ptr(), k)));
  };
  int gathered_attribute = -1;
  for (std::size_t i = 0; i < count; ++i) {
    PyObject* value = arguments[i];
    if (op.axis_in_middle && i == 1 && is_integer_like(value) && !is_tensor(value) && count > 2) {
      given[static_cast<std::size_t>(index_of_attribute(row, "axis"))] = value;
      continue;
    }
    // Inputs come first. An optional one is left out where something stands that can only be an attribute.
    bool is_input = next_input < inputs;
    if (is_input && row.inputs[next_input].repeated) {
      if (!has_repeated || is_operand(value)) {
        const bool was_list = is_list(value) && !PyNumber_Check(value);
        if (has_repeated && !is_tensor(value)) {
          is_input = false;
        } else {
          take_repeated(value);
          set[next_input] = true;
          if (was_list) next_input = inputs;
          continue;
        }
      } else {
        is_input = false;
      }
    } else if (is_input && row.inputs[next_input].optional && value != Py_None && !is_tensor(value) &&
               !is_operand(value)) {
      is_input = false;
    }
    if (is_input) {
      result.operands[next_input] = input_from(row, row.inputs[next_input], value);
      set[next_input++] = true;
      continue;
    }
    next_input = inputs;
    if (op.gathers >= 0 && is_integer_like(value) && next_attribute == 0) {
      gathered_attribute = op.gathers;
      while (i < count && is_integer_like(arguments[i])) gathered[0].push_back(integer_from(arguments[i++]));
      --i;
      ++next_attribute;
      continue;
    }
    while (next_attribute < attributes && given[position(next_attribute)]) ++next_attribute;
    if (next_attribute >= attributes)
      raise(PyExc_TypeError,
            fmt::format("{}() takes {} arguments; {} are given", row.name, inputs + attributes, count));
    given[position(next_attribute++)] = value;
  }
  const Py_ssize_t named = names ? PyTuple_Size(names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* value = arguments[count + static_cast<std::size_t>(i)];
    const std::string name = word_of(PyTuple_GetItem(names, i));
    const auto twice = [&] { raise(PyExc_TypeError, fmt::format("{}() got {} twice", row.name, quote(name))); };
    if (const int attribute = index_of_attribute(row, name); attribute >= 0) {
      if (given[static_cast<std::size_t>(attribute)] || gathered_attribute == attribute) twice();
      given[static_cast<std::size_t>(attribute)] = value;
    } else if (const int input = index_of_input(row, name); input >= 0) {
      const auto at = static_cast<std::size_t>(input);
      if (set[at]) twice();
      set[at] = true;
      if (row.inputs[at].repeated)
        take_repeated(value);
      else
        result.operands[at] = input_from(row, row.inputs[at], value);
    } else if (name == "device" && inputs == 0) {
      result.device = value;
    } else {
      raise(PyExc_TypeError, fmt::format("{}() has no argument {}; it takes {}", row.name, quote(name), [&] {
              std::string all;
              for (const auto& input : row.inputs) all += (all.empty() ? "" : ", ") + input.name;
              for (const auto& spec : row.attributes) all += (all.empty() ? "" : ", ") + spec.name;
              return all;
            }()));
    }
  }
  for (std::size_t i = 0; i < inputs; ++i)
    if (!set[i] && !row.inputs[i].optional)
      raise(PyExc_TypeError, fmt::format("{}() misses its input {}", row.name, row.inputs[i].name));
  if (has_repeated) {
    result.operands.pop_back();
    for (Operand& each : repeated) result.operands.push_back(std::move(each));
  }
  while (!result.operands.empty() && !result.operands.back().number && !result.operands.back().tensor.defined())
    result.operands.pop_back();
  for (std::size_t i = 0; i < attributes; ++i) {
    const AttributeSpec& spec = row.attributes[i];
    if (static_cast<int>(i) == gathered_attribute) {
      result.attributes.emplace_back(spec.name, gathered[0]);
    } else if (given[i]) {
      AttributeValue value = attribute_from(row, spec, given[i]);
      if (std::holds_alternative<std::monostate>(value)) {
        if (!spec.default_value) raise(PyExc_TypeError, fmt::format("{}: {} is None", row.name, spec.name));
        continue;  // the default
      }
      result.attributes.emplace_back(spec.name, std::move(value));
    } else if (!spec.default_value) {
      raise(PyExc_TypeError, fmt::format("{}() misses its argument {}", row.name, spec.name));
    }
  }
  return result;
}

// The results show parts of the first argument.
void note_views(PyObject* op, PyObject* results, PyObject* const* arguments, std::size_t count, PyObject* names) {
  PyObject* base = count > 0 ? arguments[0] : nullptr;
  if (!base || !is_tensor(base)) return;
  const nb::object rest = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count) - 1));
  if (!rest.is_valid()) raise();
  for (std::size_t i = 1; i < count; ++i) {
    Py_INCREF(arguments[i]);
    PyTuple_SetItem(rest.ptr(), static_cast<Py_ssize_t>(i) - 1, arguments[i]);
  }
  nb::object named;
  if (const Py_ssize_t size = names ? PyTuple_Size(names) : 0; size > 0) {
    nb::dict made;
    for (Py_ssize_t i = 0; i < size; ++i)
      made[nb::borrow(PyTuple_GetItem(names, i))] = nb::borrow(arguments[count + static_cast<std::size_t>(i)]);
    named = made;
  }
  if (is_tensor(results)) return set_origin(results, base, op, rest, named);
  for (Py_ssize_t i = 0; i < PyTuple_Size(results); ++i)
    set_origin(PyTuple_GetItem(results, i), base, op, rest, named, static_cast<int>(i));
}

PyObject* call_op(PyObject* self, PyObject* const* arguments, std::size_t nargs, PyObject* names) {
  return guarded([&]() -> PyObject* {
    const Op& op = op_of(self);
    const OpRow& row = *op.row;
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(nargs));
    // The common call: tensors by position and nothing else.
    if (op.plain && !names && count == row.inputs.size() && count <= 3) {
      bool tensors = true;
      for (std::size_t i = 0; i < count; ++i) tensors &= is_tensor(arguments[i]);
      if (tensors) {
        Tensor operands[3];
        for (std::size_t i = 0; i < count; ++i) operands[i] = handle_of(arguments[i]).value();
        return wrap(elementwise(row.name, std::span<const Tensor>(operands, count), {}));
      }
    }
    Sorted call = sorted(op, arguments, count, names);
    std::vector<Tensor> operands = resolved(std::move(call.operands));
    // Some ops evaluate their inputs: those whose size depends on values.
    std::vector<Tensor> results;
    if (row.family == "indexing" || row.family == "order" || row.family == "random") {
      const nb::gil_scoped_release free;
      results = graph::apply(row, std::move(operands), call.attributes);
    } else {
      results = graph::apply(row, std::move(operands), call.attributes);
    }
    if (call.device && call.device != Py_None) {
      const Device device = device_from(call.device);
      const nb::gil_scoped_release free;
      for (Tensor& each : results) each = each.to(device);
    }
    nb::object made = nb::steal(wrap_results(std::move(results), row.several_outputs));
    if (!made.is_valid()) raise();
    if (op.views) note_views(self, made.ptr(), arguments, count, names);
    if (op.pairs && pair_type && PyTuple_Check(made.ptr()) && PyTuple_Size(made.ptr()) == 2)
      return PyObject_CallObject(pair_type, made.ptr());
    return made.release().ptr();
  });
}

// x.sum: a bound method, where Python does not call the op directly.
PyObject* bound(PyObject* self, PyObject* object, PyObject*) {
  if (!object || object == Py_None) {
    Py_INCREF(self);
    return self;
  }
  static PyObject* method_type = nullptr;
  if (!method_type) {
    PyObject* types = PyImport_ImportModule("types");
    if (!types) return nullptr;
    method_type = PyObject_GetAttrString(types, "MethodType");
    Py_DECREF(types);
    if (!method_type) return nullptr;
  }
  return PyObject_CallFunctionObjArgs(method_type, self, object, nullptr);
}

PyObject* get_name(PyObject* self, void*) { return PyUnicode_FromString(op_of(self).row->name.c_str()); }
PyObject* get_doc(PyObject* self, void*) {
  return guarded([&] { return nb::cast(doc_of(*op_of(self).row)).release().ptr(); });
}
PyObject* get_text_signature(PyObject* self, void*) {
  return guarded(
      [&] { return nb::cast(signature_of(*op_of(self).row, op_of(self).axes_first, false)).release().ptr(); });
}
PyObject* get_typed_signature(PyObject* self, void*) {
  return guarded(
      [&] { return nb::cast(signature_of(*op_of(self).row, op_of(self).axes_first, true)).release().ptr(); });
}
PyObject* get_module(PyObject*, void*) { return PyUnicode_FromString("weft"); }
PyObject* repr(PyObject* self) {
  return guarded([&] { return nb::cast(fmt::format("<weft op {}>", op_of(self).row->name)).release().ptr(); });
}
PyObject* reduce_op(PyObject* self, PyObject*) {  // pickled by name
  return PyUnicode_FromString(op_of(self).row->name.c_str());
}
void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyGetSetDef getters[] = {{"__name__", get_name, nullptr, nullptr, nullptr},
                         {"__qualname__", get_name, nullptr, nullptr, nullptr},
                         {"__doc__", get_doc, nullptr, nullptr, nullptr},
                         {"__text_signature__", get_text_signature, nullptr, nullptr, nullptr},
                         {"_typed_signature", get_typed_signature, nullptr, nullptr, nullptr},
                         {"__module__", get_module, nullptr, nullptr, nullptr},
                         {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Op, call), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyMethodDef methods[] = {{"__reduce__", reduce_op, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyType_Slot op_slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                          {Py_tp_descr_get, reinterpret_cast<void*>(bound)},
                          {Py_tp_repr, reinterpret_cast<void*>(repr)},
                          {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
                          {Py_tp_getset, getters},
                          {Py_tp_members, members},
                          {Py_tp_methods, methods},
                          {0, nullptr}};
PyType_Spec op_spec = {
    "weft.Op", sizeof(Op), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    op_slots};

nb::object op_object(const OpRow& row) {
  auto* op = reinterpret_cast<Op*>(PyType_GenericAlloc(op_type, 0));
  if (!op) raise();
  op->call = call_op;
  op->row = &row;
  op->plain = row.elementwise != nullptr;
  const int axes = index_of_attribute(row, "axes"), correction = index_of_attribute(row, "correction");
  op->axes_first = axes > 0 && correction == 0 ? axes : -1;
  op->gathers = -1;
  if (!row.attributes.empty()) {
    const AttributeSpec& first = row.attributes[0];
    const bool takes = first.name == "shape" || first.name == "order" || first.name == "repeats" ||
                       (first.name == "axes" && !first.default_value);
    if (takes && first.type == AttributeType::integers && row.name != "as_strided") op->gathers = 0;
  }
  op->views = std::find(std::begin(kViews), std::end(kViews), row.name) != std::end(kViews);
  op->pairs = std::find(std::begin(kPairs), std::end(kPairs), row.name) != std::end(kPairs);
  op->axis_in_middle = row.inputs.size() > 1 && index_of_attribute(row, "axis") >= 0 &&
                       (row.family == "indexing" || row.family == "gather");
  return nb::steal(reinterpret_cast<PyObject*>(op));
}

}  // namespace

void bind_ops(nb::module_& m) {
  op_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&op_spec));
  if (!op_type) raise();
  m.attr("Op") = nb::borrow(reinterpret_cast<PyObject*>(op_type));
  m.def(
      "_ops",
      [] {
        nb::list all;
        for (const OpRow* row : graph::op_rows()) {
          nb::list aliases;
          for (const std::string& alias : row->aliases) aliases.append(nb::cast(alias));
          all.append(nb::make_tuple(row->name, op_object(*row), aliases, row->family, row->inputs.size()));
        }
        return all;
      },
      "Every op of the table: name, function, other names, family, number of inputs.");
  m.def("_set_pair_type", [](nb::object type) { pair_type = type.release().ptr(); });
  m.def(
      "op", [](const std::string& name) { return op_object(graph::op_row(name)); }, nb::arg("name"),
      nb::sig("def op(name: str) -> Op"), "The op of that name or alias, as a function.");
  m.def(
      "einsum",
      [](const std::string& subscripts, nb::args operands) {
        std::vector<Tensor> tensors;
        for (nb::handle each : operands) tensors.push_back(tensor_from(each.ptr()));
        return wrapped(einsum(subscripts, tensors));
      },
      nb::arg("subscripts"), nb::arg("operands"),
      nb::sig("def einsum(subscripts: str, *operands: ArrayLike) -> Tensor"),
      "The sum of products that the subscripts describe, as in NumPy: einsum(\"bij,bjk->bik\", a, b).");
  m.def(
      "register_op",
      [](const std::string& name, const std::vector<std::string>& inputs, const std::string& forward,
         const std::vector<std::pair<std::string, double>>& attributes, const std::vector<std::string>& gradients,
         const std::string& doc) {
        register_op({name, inputs, forward, attributes, gradients, doc});
        return op_object(graph::op_row(name));
      },
      nb::arg("name"), nb::arg("inputs"), nb::arg("forward"), nb::arg("attributes") = nb::list(),
      nb::arg("gradients") = nb::list(), nb::arg("doc") = "",
      nb::sig("def register_op(name: str, inputs: Sequence[str], forward: str, attributes: Sequence[tuple[str, float]] "
              "= (), gradients: Sequence[str] = (), doc: str = '') -> Op"),
      "Adds an elementwise op of your own, in the language of docs/expressions.md, with kernels and gradients on every "
      "device. Gives it as a function.");
}

}  // namespace weft::python
