// Metatensor files: safetensors files with a schema.
#include "weft/metatensor.hpp"

#include <filesystem>

#include "bytes.hpp"
#include "callable.hpp"
#include "nanobind/ndarray.h"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/map.h"
#include "values.hpp"
#include "weft/error.hpp"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

typedefs::Layout layout_from(const nb::object& schema, bool packed) {
  return typedefs::Layout(value_of(schema.ptr()), packed ? typedefs::Mode::packed : typedefs::Mode::aligned);
}

nb::list changes_of(const std::vector<metatensor::Change>& changes) {
  constexpr const char* kKinds[] = {"added", "removed", "changed"};
  nb::list list;
  for (const metatensor::Change& each : changes)
    list.append(
        nb::make_tuple(kKinds[static_cast<int>(each.kind)], each.path, object_of(each.before), object_of(each.after)));
  return list;
}

// A function of Python over a stored tensor.
metatensor::Migration migration(nb::object function) {
  return [callable = Callable(std::move(function))](const Tensor& stored) {
    const nb::gil_scoped_acquire gil;
    return tensor_from(nb::object(callable.get()(wrapped(stored))).ptr());
  };
}

void bind_file(nb::module_& m) {
  nb::class_<metatensor::File>(m, "_Metatensor")
      .def("has_schema", &metatensor::File::has_schema)
      .def("schema", [](const metatensor::File& self) { return object_of(metatensor::to_value(self.schema())); })
      .def("metadata", &metatensor::File::metadata)
      .def("paths", &metatensor::File::paths)
      .def("kind",
           [](const metatensor::File& self, const std::string& path) {
             constexpr const char* kKinds[] = {"flat", "struct", "records", "blob"};
             return kKinds[static_cast<int>(self.at(path).kind)];
           })
      .def("count", [](const metatensor::File& self, const std::string& path) { return self.at(path).count; })
      .def(
          "tensor",
          [](const metatensor::File& self, const std::string& path, nb::object device) {
            const Device on = device_or_default(device);
            const Tensor tensor = without_gil([&] { return self.tensor(path, on); });
            return wrapped(tensor);
          },
          nb::arg("path"), nb::arg("device").none())
      .def(
          "column",
          [](const metatensor::File& self, const std::string& path, const std::string& field, std::uint64_t first,
             std::uint64_t count, nb::object device) {
            const Device on = device_or_default(device);
            const Tensor tensor = without_gil([&] { return self.column(path, field, first, count, on); });
            return wrapped(tensor);
          },
          nb::arg("path"), nb::arg("field"), nb::arg("first"), nb::arg("count"), nb::arg("device").none())
      .def("record", [](const metatensor::File& self, const std::string& path,
                        std::uint64_t index) { return object_of(self.record(path, index).value()); })
      .def("bytes",
           [](const metatensor::File& self, const std::string& path) { return bytes_of_span(self.bytes(path)); })
      .def(
          "array",
          [](const metatensor::File& self, const std::string& path) {
            const std::span<const std::byte> bytes = self.bytes(path);
            // The array keeps the mapping.
            const nb::capsule owner(new metatensor::File(self),
                                    [](void* file) noexcept { delete static_cast<metatensor::File*>(file); });
            const std::size_t shape[] = {bytes.size()};
            return nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>(bytes.data(), 1, shape, owner);
          },
          nb::sig("def array(self, path: str) -> Any"))
      .def("range", [](const metatensor::File& self, const std::string& path) {
        const typedefs::Range range = self.range(path);
        return nb::make_tuple(range.begin, range.end);
      });
  m.def("_open_metatensor", [](const Path& path) {
    const nb::gil_scoped_release free;
    return metatensor::File::open(path);
  });
  m.def("_validate_metatensor", [](const Path& path) {
    const std::vector<FormatViolation> violations = without_gil([&] { return metatensor::validate(path); });
    nb::list list;
    for (const FormatViolation& each : violations)
      list.append(nb::make_tuple(std::string(each.code), each.byte, each.name, each.message));
    return list;
  });
  m.def("_metatensor_difference", [](nb::object older, nb::object newer) {
    return changes_of(metatensor::difference(metatensor::node_from(value_of(older.ptr())),
                                             metatensor::node_from(value_of(newer.ptr()))));
  });
  m.def("_metatensor_schema", [](nb::object element) {
    return object_of(metatensor::to_value(metatensor::node_from_elements(value_of(element.ptr()))));
  });
}

void bind_writer(nb::module_& m) {
  nb::class_<metatensor::Writer>(m, "_MetatensorWriter")
      .def(nb::init<>())
      .def("tensor",
           [](metatensor::Writer& self, const std::string& path, nb::object tensor, std::uint64_t alignment) {
             self.tensor(path, tensor_from(tensor.ptr(), {}, false), alignment);
           })
      .def("records",
           [](metatensor::Writer& self, const std::string& path, nb::object layout, bool packed, nb::list values) {
             std::vector<Value> converted;
             for (const nb::handle each : values) converted.push_back(value_of(each.ptr()));
             self.records(path, layout_from(layout, packed), converted);
           })
      .def("blob",
           [](metatensor::Writer& self, const std::string& path, const std::vector<nb::bytes>& entries) {
             std::vector<std::string> texts;
             for (const nb::bytes& each : entries) texts.emplace_back(each.c_str(), each.size());
             self.blob(path, texts);
           })
      .def("optional", [](metatensor::Writer& self, const std::string& path) { self.optional(path); })
      .def("metadata",
           [](metatensor::Writer& self, const std::string& key, const std::string& text) { self.metadata(key, text); })
      .def("schema", [](const metatensor::Writer& self) { return object_of(metatensor::to_value(self.schema())); })
      .def("save", [](const metatensor::Writer& self, const Path& path) {
        const nb::gil_scoped_release free;
        self.save(path);
      });
}

void bind_reader(nb::module_& m) {
  nb::class_<metatensor::Reader>(m, "_MetatensorReader")
      .def("__init__",
           [](metatensor::Reader* self, const metatensor::File& file, nb::object schema, nb::dict migrations) {
             std::map<std::string, metatensor::Migration> functions;
             for (const auto [path, function] : migrations)
               functions.emplace(nb::cast<std::string>(path), migration(nb::borrow(function)));
             new (self) metatensor::Reader(file, metatensor::node_from(value_of(schema.ptr())), std::move(functions));
           })
      .def("changes", [](const metatensor::Reader& self) { return changes_of(self.changes()); })
      .def(
          "tensor",
          [](const metatensor::Reader& self, const std::string& path, nb::object device) {
            const auto tensor = self.tensor(path, device_or_default(device));
            return tensor ? wrapped(*tensor) : nb::none();
          },
          nb::arg("path"), nb::arg("device").none());
}

}  // namespace

void bind_metatensor(nb::module_& m) {
  bind_file(m);
  bind_writer(m);
  bind_reader(m);
}

}  // namespace weft::python
