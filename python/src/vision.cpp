// Vision models: embeddings of images and texts, and classes of images.
#include "weft/vision.hpp"

#include <filesystem>

#include "handle.hpp"
#include "nanobind/stl/filesystem.h"

namespace weft::python {
namespace {

using Path = std::filesystem::path;

std::vector<Tensor> images_from(const nb::list& images) {
  std::vector<Tensor> made;
  for (const nb::handle each : images) made.push_back(tensor_from(each.ptr()));
  return made;
}

}  // namespace

void bind_vision(nb::module_& m) {
  nb::class_<vision::Encoder>(m, "_Encoder")
      .def("embed_images",
           [](const vision::Encoder& self, const nb::list& images, bool normalize) {
             const std::vector<Tensor> given = images_from(images);
             return wrapped(without_gil([&] { return self.embed_images(given, {.normalize = normalize}); }));
           })
      .def("embed_texts",
           [](const vision::Encoder& self, const std::vector<std::string>& texts, bool normalize) {
             return wrapped(without_gil([&] { return self.embed_texts(texts, {.normalize = normalize}); }));
           })
      .def("scores",
           [](const vision::Encoder& self, nb::object images, nb::object texts) {
             return wrapped(self.scores(tensor_from(images.ptr()), tensor_from(texts.ptr())));
           })
      .def("probabilities",
           [](const vision::Encoder& self, nb::object images, nb::object texts) {
             return wrapped(self.probabilities(tensor_from(images.ptr()), tensor_from(texts.ptr())));
           })
      .def("width", &vision::Encoder::width)
      .def("describe", &vision::Encoder::describe);
  nb::class_<vision::Classifier>(m, "_Classifier")
      .def("logits",
           [](const vision::Classifier& self, const nb::list& images) {
             const std::vector<Tensor> given = images_from(images);
             return wrapped(without_gil([&] { return self.logits(given); }));
           })
      .def("classify", [](const vision::Classifier& self, nb::object image, std::size_t count) {
        const Tensor given = tensor_from(image.ptr());
        nb::list list;
        for (const vision::Label& label : without_gil([&] { return self.classify(given, count); }))
          list.append(nb::make_tuple(label.index, label.name, label.probability));
        return list;
      });
  m.def(
      "_load_encoder",
      [](const Path& folder, nb::object device) {
        const Device on = device_or_default(device);
        return without_gil([&] { return vision::Encoder::load(folder, on); });
      },
      nb::arg("folder"), nb::arg("device").none());
  m.def(
      "_load_classifier",
      [](const Path& folder, nb::object device) {
        const Device on = device_or_default(device);
        return without_gil([&] { return vision::Classifier::load(folder, on); });
      },
      nb::arg("folder"), nb::arg("device").none());
}

}  // namespace weft::python
