#include "llm/image_reader.hpp"

#include <fmt/format.h>

#include "llm/image_reader_parts.hpp"
#include "vision/images.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {

using io::ConfigKeys;

std::string prefix_of(const io::TensorSource& files, std::initializer_list<const char*> prefixes,
                      std::string_view probe) {
  for (const char* prefix : prefixes)
    if (files.find(prefix + std::string(probe))) return prefix;
  return *prefixes.begin();
}

std::vector<Extent> feature_layers(const ConfigKeys& keys, Extent fallback, Extent count) {
  std::vector<Extent> chosen;
  const Json* layers = keys.find({"vision_feature_layer"});
  for (const Json& each : !layers ? Json::array({fallback}) : layers->is_array() ? *layers : Json::array({*layers})) {
    const Extent layer = each.is_number_integer() ? each.get<Extent>() : count + 1;
    if (layer < -count - 1 || layer > count || chosen.size() > 64)
      keys.fail("vision_feature_layer", fmt::format("is {}; give up to 64 layers from {} to {}",
                                                    (layers ? *layers : each).dump(), -count - 1, count));
    chosen.push_back(layer < 0 ? count + 1 + layer : layer);
  }
  if (chosen.empty()) keys.fail("vision_feature_layer", "is empty");
  return chosen;
}

std::string text_of_token(text::TokenId token, const text::Tokenizer& tokenizer, const std::string& source) {
  std::string text = tokenizer.token_bytes(token);
  if (text.empty()) throw FileError(fmt::format("{}: the token {} of images has no text", source, token));
  return text;
}

text::TokenId token_of(const ConfigKeys& keys, std::initializer_list<const char*> names, Extent fallback,
                       const text::Tokenizer& tokenizer) {
  const auto token = static_cast<text::TokenId>(keys.size(names, fallback));
  if (!tokenizer.piece(token))
    throw FileError(fmt::format("{}: the token {} of images is not in tokenizer.json", keys.source(), token));
  return token;
}

void append_parts(std::vector<std::vector<float>>& all, const std::vector<float>& values, std::size_t count) {
  const auto part = static_cast<std::ptrdiff_t>(values.size() / count);
  for (auto at = values.begin(); at != values.end(); at += part) all.emplace_back(at, at + part);
}

void require_gelu(const ConfigKeys& keys) {
  if (const std::string name = keys.text({"projector_hidden_act"}, "gelu"); name != "gelu")
    keys.fail("projector_hidden_act", fmt::format("is \"{}\"; Weft has gelu", name));
}

ImageFiles image_files_of_folder(const std::filesystem::path& folder, const io::TensorSource& tensors) {
  return {.config = vision::read_model_config(folder),
          .source = (folder / "config.json").string(),
          .place = folder.string(),
          .processor = vision::ImageProcessor::from_folder(folder),
          .tensors = tensors};
}

std::unique_ptr<ImageReader> make_image_reader(const ImageReaderInput& input) {
  const ConfigKeys keys(input.files.config, input.files.source);
  const Json* vision = keys.find({"vision_config"});
  const std::string type = keys.text({"model_type"});
  const std::string tower =
      vision ? ConfigKeys(*vision, input.files.source, "vision_config").text({"model_type"}, "") : "";
  const bool keeps_proportions = type.starts_with("qwen") || tower == "pixtral";
  return keeps_proportions ? grid_reader(input) : square_reader(input);
}

}  // namespace weft::llm::detail
