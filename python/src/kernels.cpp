// Kernels written in Python: ops with a function for the CPU, WGSL for GPUs, and a gradient.
#include <fmt/format.h>

#include "callable.hpp"
#include "handle.hpp"
#include "nanobind/stl/map.h"
#include "weft/custom_kernel.hpp"
#include "weft/error.hpp"

namespace weft::python {
namespace {

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

void bind_kernels(nb::module_& m) {
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
}

}  // namespace weft::python
