// Text encoders.
#include "weft/encoder.hpp"

#include <filesystem>

#include "handle.hpp"
#include "nanobind/stl/filesystem.h"
#include "nanobind/stl/map.h"
#include "weft/error.hpp"

namespace weft::python {
namespace {

using Texts = std::vector<std::string>;

encoder::TooLong too_long(bool cut) { return cut ? encoder::TooLong::cut : encoder::TooLong::error; }

nb::list from(const std::vector<encoder::Label>& labels) {
  nb::list list;
  for (const encoder::Label& label : labels) list.append(nb::make_tuple(label.index, label.name, label.probability));
  return list;
}

}  // namespace

void bind_encoder(nb::module_& m) {
  using encoder::Model;
  nb::class_<Model>(m, "_TextEncoder")
      .def(
          "embed",
          [](const Model& self, const Texts& texts, std::optional<std::string> prompt, bool normalize, Extent width,
             bool cut) {
            const encoder::EmbedOptions how{std::move(prompt), normalize, width, too_long(cut)};
            return wrapped(without_gil([&] { return self.embed(texts, how); }));
          },
          nb::arg("texts"), nb::arg("prompt").none(), nb::arg("normalize"), nb::arg("width"), nb::arg("cut"))
      .def("states", [](const Model& self,
                        const std::string& text) { return wrapped(without_gil([&] { return self.states(text); })); })
      .def("logits",
           [](const Model& self, const Texts& texts, const Texts& pairs, bool cut) {
             return wrapped(without_gil([&] { return self.logits(texts, pairs, too_long(cut)); }));
           })
      .def("classify",
           [](const Model& self, const std::string& text, std::size_t count, const std::string& pair, bool cut) {
             return from(without_gil([&] { return self.classify(text, count, pair, too_long(cut)); }));
           })
      .def("rerank",
           [](const Model& self, const std::string& query, const Texts& documents, std::size_t count) {
             nb::list list;
             for (const encoder::Ranked& each : without_gil([&] { return self.rerank(query, documents, count); }))
               list.append(nb::make_tuple(each.index, each.score, each.probability));
             return list;
           })
      .def("label_tokens",
           [](const Model& self, const std::string& text) {
             nb::list list;
             for (const encoder::TokenLabel& each : without_gil([&] { return self.label_tokens(text); }))
               list.append(nb::make_tuple(each.token, nb::bytes(each.text.data(), each.text.size()), each.label.index,
                                          each.label.name, each.label.probability));
             return list;
           })
      .def("entities",
           [](const Model& self, const std::string& text) {
             nb::list list;
             for (const encoder::Entity& each : without_gil([&] { return self.entities(text); }))
               list.append(nb::make_tuple(each.name, each.text, each.probability, each.first_token, each.tokens));
             return list;
           })
      .def("fill_masks",
           [](const Model& self, const std::string& text, std::size_t count) {
             nb::list masks;
             for (const auto& fills : without_gil([&] { return self.fill_masks(text, count); })) {
               nb::list list;
               for (const encoder::Fill& each : fills)
                 list.append(
                     nb::make_tuple(each.token, nb::bytes(each.text.data(), each.text.size()), each.probability));
               masks.append(list);
             }
             return masks;
           })
      .def("answer",
           [](const Model& self, const std::string& question, const std::string& text, std::size_t count,
              Extent longest, Extent window, Extent stride, bool may_be_none) {
             const encoder::AnswerOptions how{count, longest, window, stride, may_be_none};
             nb::list list;
             for (const encoder::Answer& each : without_gil([&] { return self.answer(question, text, how); }))
               list.append(nb::make_tuple(each.text, each.begin, each.end, each.probability));
             return list;
           })
      .def("encode", [](const Model& self, const std::string& text) { return self.encode(text); })
      .def("mask", &Model::mask)
      .def("task", [](const Model& self) { return std::string(encoder::name_of(self.task())); })
      .def("width", &Model::width)
      .def("length", &Model::length)
      .def("classes", &Model::classes)
      .def("prompts", &Model::prompts)
      .def("describe", &Model::describe);
  m.def(
      "_load_text_encoder",
      [](const std::filesystem::path& path, nb::object device, Extent length, const std::string& precision) {
        const Device on = device_or_default(device);
        const std::optional<DType> type = dtype_from_name(precision);
        if (!type)
          throw UsageError("encoder: the precision \"" + precision + "\" is not known; choose f32, f16 or bf16");
        return without_gil([&] { return encoder::load(path, {.device = on, .length = length, .precision = *type}); });
      },
      nb::arg("path"), nb::arg("device").none(), nb::arg("length"), nb::arg("precision"));
}

}  // namespace weft::python
