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

void require_gelu(const ConfigKeys& keys) {
  if (const std::string name = keys.text({"projector_hidden_act"}, "gelu"); name != "gelu")
    keys.fail("projector_hidden_act", fmt::format("is \"{}\"; Weft has gelu", name));
}

std::unique_ptr<ImageReader> make_image_reader(const ImageReaderInput& input) {
  const Json config = vision::read_model_config(input.folder);
  const std::string source = (input.folder / "config.json").string();
  const std::string type = ConfigKeys(config, source).text({"model_type"});
  const std::string tower = ConfigKeys(config.at("vision_config"), source, "vision_config").text({"model_type"}, "");
  const bool keeps_proportions = type.starts_with("qwen") || tower == "pixtral";
  return keeps_proportions ? grid_reader(input, config) : square_reader(input, config);
}

}  // namespace weft::llm::detail
