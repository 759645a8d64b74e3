#include "cli/text_embedder.hpp"

#include "weft/device.hpp"

namespace weft::cli {
namespace {

std::variant<llm::Model, encoder::Model> loaded(const ModelOptions& options) {
  const std::filesystem::path path = model_path(options.path);
  if (!encoder::is_encoder(path)) return load_language_model(options);
  use_threads(options);
  return encoder::load(path, {.device = parse_device(options.device)});
}

}  // namespace

TextEmbedder::TextEmbedder(const ModelOptions& options) : model_(loaded(options)) {}

Extent TextEmbedder::width() const {
  return std::visit([](const auto& model) { return model.width(); }, model_);
}

std::size_t TextEmbedder::tokens(std::string_view text) const {
  if (const auto* model = std::get_if<llm::Model>(&model_)) return model->encode(text, false).size();
  return std::get<encoder::Model>(model_).encode(text).size();
}

std::vector<float> TextEmbedder::rows(std::span<const std::string> texts, const char* prompt) const {
  if (const auto* model = std::get_if<llm::Model>(&model_)) return model->embed(texts).to_vector<float>();
  const auto& model = std::get<encoder::Model>(model_);
  encoder::EmbedOptions how;
  if (model.prompts().contains(prompt)) how.prompt = prompt;
  return model.embed(texts, how).to_vector<float>();
}

}  // namespace weft::cli
