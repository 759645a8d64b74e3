// Models of ONNX.
#include "weft/onnx.hpp"

#include <filesystem>

#include "callable.hpp"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/map.h"

namespace weft::python {
namespace {

// (name, dtype or None, extents or None, text); an extent is a number, or the file's name for one.
nb::list ports(const std::vector<onnx::Port>& all) {
  nb::list list;
  for (const onnx::Port& port : all) {
    nb::list extents;
    for (const onnx::Port::Extent& each : port.shape)
      extents.append(each.value ? nb::cast(*each.value) : nb::cast(each.name));
    list.append(nb::make_tuple(port.name, port.type ? wrapped(*port.type) : nb::none(),
                               port.has_shape ? nb::object(nb::tuple(extents)) : nb::none(), port.to_string()));
  }
  return list;
}

}  // namespace

void bind_onnx(nb::module_& m) {
  using Path = std::filesystem::path;
  nb::class_<onnx::Model>(m, "_OnnxModel")
      .def("inputs", [](const onnx::Model& self) { return ports(self.inputs()); })
      .def("outputs", [](const onnx::Model& self) { return ports(self.outputs()); })
      .def_prop_ro("device", &onnx::Model::device)
      .def("named_parameters",
           [](const onnx::Model& self) {
             nb::list list;
             for (const nn::NamedParameter& each : self.named_parameters())
               list.append(nb::make_tuple(each.name, wrap_variable(each.variable)));
             return list;
           })
      .def("apply",
           [](const onnx::Model& self, nb::object inputs) {
             const std::vector<Tensor> given = values_from(inputs.ptr(), "onnx: an input");
             std::vector<Tensor> results;
             {
               const nb::gil_scoped_release free;  // values that shapes depend on are computed
               results = self(given);
             }
             return list_of(results);
           })
      .def("run",
           [](const onnx::Model& self, const nb::dict& given) {
             const NamedTensors inputs = named_from(given, true);
             const NamedTensors outputs = without_gil([&] { return self.run(inputs); });
             return dict_of(outputs);
           })
      .def("describe", &onnx::Model::describe);
  m.def(
      "_load_onnx",
      [](const Path& path, nb::object device) {
        const Device on = device.is_none() ? default_device() : device_from(device.ptr());
        const nb::gil_scoped_release free;
        return onnx::Model::load(path, on);
      },
      nb::arg("path"), nb::arg("device").none());
  m.def("_save_onnx",
        [](const Path& path, nb::object function, nb::object examples, std::vector<std::string> inputs,
           std::vector<std::string> outputs, std::map<std::string, std::map<int, std::string>> dynamic_axes) {
          const std::vector<Tensor> given = values_from(examples.ptr(), "onnx.save: an example");
          const onnx::Function f = tensor_function(std::move(function), "onnx.save: a result");
          const nb::gil_scoped_release free;
          onnx::save(path, f, given,
                     {.inputs = std::move(inputs),
                      .outputs = std::move(outputs),
                      .module = nullptr,
                      .dynamic_axes = std::move(dynamic_axes)});
        });
}

}  // namespace weft::python
