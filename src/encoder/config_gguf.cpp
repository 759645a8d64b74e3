// Configurations of text encoders from the metadata of GGUF files.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "encoder/config.hpp"
#include "io/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::encoder {

bool is_encoder_architecture(std::string_view architecture) {
  return architecture == "bert" || architecture == "nomic-bert";
}

EncoderConfig read_config(const io::GgufMetadata& metadata, const std::string& source) {
  const auto architecture = metadata.get_or<std::string>("general.architecture", "");
  if (!is_encoder_architecture(architecture))
    throw FileError(
        fmt::format("{}: general.architecture is {}; of GGUF files Weft reads the text encoders bert and nomic-bert",
                    source, quote(architecture, 60)));
  const auto key = [&](const char* name) { return fmt::format("{}.{}", architecture, name); };
  const auto size = [&](const std::string& name, Extent least, std::optional<std::int64_t> fallback = {}) {
    const std::int64_t value =
        fallback ? metadata.get_or<std::int64_t>(name, *fallback) : metadata.get<std::int64_t>(name);
    if (value < least || value > io::ConfigKeys::kSizeMax)
      throw FileError(
          fmt::format("{}: {} is {}, not from {} to {}", source, name, value, least, io::ConfigKeys::kSizeMax));
    return Extent{value};
  };
  EncoderConfig c;
  c.source = source;
  c.family = architecture == "bert" ? "bert" : "nomic_bert";
  c.layers = size(key("block_count"), 1);
  c.hidden = size(key("embedding_length"), 1);
  c.intermediate = size(key("feed_forward_length"), 1);
  c.heads = size(key("attention.head_count"), 1);
  c.length = c.position_rows = size(key("context_length"), 1);
  c.norm_eps = metadata.get_or<double>(key("attention.layer_norm_epsilon"), 1e-12);
  c.types = size("tokenizer.ggml.token_type_count", 0, 2);
  c.vocabulary = static_cast<Extent>(metadata.array<std::string>("tokenizer.ggml.tokens").size());
  if (c.family == "nomic_bert") {
    c.positions = Positions::rotary;
    c.theta = metadata.get_or<double>(key("rope.freq_base"), 1000);
    c.is_gated = true;
    c.activation = "silu";
    c.has_qkv_bias = c.has_output_bias = c.has_up_bias = c.has_down_bias = false;
    if (size(key("expert_count"), 0, 0) > 0)
      throw FileError(fmt::format("{}: {} is set: Weft reads the models without experts", source, key("expert_count")));
  }
  if (metadata.find(key("classifier.output_labels")))
    c.class_names = metadata.array<std::string>(key("classifier.output_labels"));
  complete(c);
  return c;
}

}  // namespace weft::encoder
