// Models of vision and speech and text encoders in scripts: what a handle holds, and how it comes from a granted folder.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "base/quote.hpp"
#include "script/engine.hpp"
#include "script/files.hpp"
#include "weft/encoder.hpp"
#include "weft/speech.hpp"
#include "weft/vision.hpp"

namespace weft::script {

using SenseModel = std::variant<vision::Encoder, vision::Classifier, speech::Transcriber, speech::Voice,
                                speech::Detector, encoder::Model>;

struct SenseHandle final : Handle {
  SenseHandle(Engine& engine, SenseModel model) : Handle(engine), model(std::move(model)) {}
  std::string_view kind() const override {
    constexpr std::string_view kKinds[] = {"encoder", "classifier", "transcriber", "voice", "detector", "text encoder"};
    return kKinds[model.index()];
  }
  SenseModel model;
};

/// Whether a handle holds a model of this kind.
template <class Model>
bool is_model(Engine& engine, JSValueConst self) {
  const auto* handle = static_cast<SenseHandle*>(static_cast<Handle*>(JS_GetOpaque(self, engine.sense_class)));
  return handle && std::holds_alternative<Model>(handle->model);
}
/// The model of a handle. Refuses the call of a method that its kind does not have.
template <class Model>
Model& model_of(Engine& engine, JSValueConst self, const char* method) {
  auto* const handle = static_cast<SenseHandle*>(static_cast<Handle*>(JS_GetOpaque(self, engine.sense_class)));
  Model* const model = handle ? std::get_if<Model>(&handle->model) : nullptr;
  if (!model)
    Engine::refuse(method, handle ? fmt::format("it is no method of the kind {}", quote(handle->kind()))
                                  : inspect(engine, self) + " is not a model");
  return *model;
}
inline Local wrap_model(Engine& engine, SenseModel model) {
  engine.check_handles();
  Local made = engine.checked(JS_NewObjectClass(engine.context, static_cast<int>(engine.sense_class)));
  JS_SetOpaque(made.get(), static_cast<Handle*>(new SenseHandle(engine, std::move(model))));
  return made;
}

/// Loads from a folder that is granted. Its files may not be links, which loaders would follow.
template <class Load>
Local load_folder(Engine& engine, const std::string& path, const Load& load) {
  const Descriptor folder = engine.files->open_folder(engine.files->place(path, false));
  // Those in folders below too: sentence-transformers has one for each module.
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
    if (entry.is_symlink())
      throw AccessError(fmt::format("{} holds the link {}; scripts follow none", quote(path),
                                    quote(entry.path().filename().string())));
  return wrap_model(engine, load(folder.path()));
}

inline std::vector<std::string> texts_at(Engine& engine, Arguments arguments, std::size_t i, const char* what) {
  std::vector<std::string> texts;
  const std::uint32_t count = engine.length(at(arguments, i), what, 1 << 16);
  for (std::uint32_t k = 0; k < count; ++k) texts.push_back(engine.text(engine.element(arguments[i], k).get()));
  return texts;
}

/// {..., segments: [...]} with members in camel case.
Value camel_members(const Value& given);

// encoder_api.cpp: the methods of text encoders, those whose names models of vision have too among them, and their noun.
void define_encoders(Engine& engine, JSValueConst prototype);
Local classify_text(Engine& engine, JSValueConst self, Arguments arguments);
Local text_logits(Engine& engine, JSValueConst self, Arguments arguments);

}  // namespace weft::script
