// The configurations of encoders that have none: Whisper, CLIP and BERT.
#include <fmt/format.h>

#include <cmath>

#include "llm/guess.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

constexpr Extent kHeadWidth = 64;  // of a head in every published model of these families

class EncoderGuess {
 public:
  EncoderGuess(const io::TensorSource& source, const ModelHints& hints) : source_(source), hints_(hints) {}

  std::optional<Json> config() const {
    const std::string& type = hints_.architecture;
    if (type == "whisper" || (type.empty() && find("model.encoder.conv1.weight"))) return whisper();
    if (type == "clip" || (type.empty() && find("vision_model.embeddings.patch_embedding.weight") &&
                           find("text_model.embeddings.token_embedding.weight") && find("text_projection.weight")))
      return clip();
    for (const char* prefix : {"bert.", ""})
      if (find(fmt::format("{}embeddings.word_embeddings.weight", prefix)) &&
          find(fmt::format("{}encoder.layer.0.attention.self.query.weight", prefix)) &&
          (type.empty() || type == "bert"))
        return bert(prefix);
    return std::nullopt;
  }

 private:
  const io::SourceTensor* find(const std::string& name) const { return source_.find(name); }
  Extent extent(const std::string& name, int axis) const {
    const io::SourceTensor* tensor = find(name);
    if (!tensor || tensor->shape.rank() <= axis)
      throw FileError(
          fmt::format("{}: a config.json cannot be made: without the tensor {}{} the sizes of the model are not known",
                      source_.path().string(), name, tensor ? " of more axes" : ""));
    return tensor->shape[axis];
  }
  Extent layers(const std::string& before, const std::string& after) const {
    Extent count = 0;
    while (find(fmt::format("{}{}{}", before, count, after))) ++count;
    return count;
  }
  Extent heads(Extent width) const {
    if (hints_.heads > 0) {
      if (width % hints_.heads != 0)
        throw UsageError(fmt::format("{} heads do not divide the width {}", hints_.heads, width));
      return hints_.heads;
    }
    if (width % kHeadWidth != 0)
      throw FileError(
          fmt::format("{}: a config.json cannot be made of the tensors, which do not tell the number of heads; give it "
                      "as heads",
                      source_.path().string()));
    return width / kHeadWidth;
  }

  Json whisper() const {
    const Extent width = extent("model.encoder.conv1.weight", 0);
    const auto part = [](const char* name) { return fmt::format("model.{}.layers.", name); };
    return {{"model_type", "whisper"},
            {"architectures", Json::array({"WhisperForConditionalGeneration"})},
            {"vocab_size", extent("model.decoder.embed_tokens.weight", 0)},
            {"d_model", width},
            {"num_mel_bins", extent("model.encoder.conv1.weight", 1)},
            {"encoder_layers", layers(part("encoder"), ".fc1.weight")},
            {"encoder_attention_heads", heads(width)},
            {"encoder_ffn_dim", extent(part("encoder") + "0.fc1.weight", 0)},
            {"decoder_layers", layers(part("decoder"), ".fc1.weight")},
            {"decoder_attention_heads", heads(width)},
            {"decoder_ffn_dim", extent(part("decoder") + "0.fc1.weight", 0)},
            {"max_source_positions", extent("model.encoder.embed_positions.weight", 0)},
            {"max_target_positions", extent("model.decoder.embed_positions.weight", 0)},
            {"tie_word_embeddings", find("proj_out.weight") == nullptr},
            {"activation_function", "gelu"}};
  }

  Json stack(const std::string& model, Extent width) const {
    const std::string at = model + ".encoder.layers.";
    return {{"hidden_size", width},
            {"intermediate_size", extent(at + "0.mlp.fc1.weight", 0)},
            {"num_hidden_layers", layers(at, ".mlp.fc1.weight")},
            {"num_attention_heads", heads(width)},
            {"hidden_act", "quick_gelu"}};
  }
  Json clip() const {
    const std::string patches = "vision_model.embeddings.patch_embedding.weight",
                      words = "text_model.embeddings.token_embedding.weight";
    Json text = stack("text_model", extent(words, 1)), vision = stack("vision_model", extent(patches, 0));
    const Extent patch = extent(patches, 2),
                 places = extent("vision_model.embeddings.position_embedding.weight", 0) - 1,  // one is the class's
        side = static_cast<Extent>(std::lround(std::sqrt(static_cast<double>(places))));
    if (side * side != places)
      throw FileError(fmt::format("{}: {} places of patches are not a square", source_.path().string(), places));
    text["vocab_size"] = extent(words, 0);
    text["max_position_embeddings"] = extent("text_model.embeddings.position_embedding.weight", 0);
    vision["patch_size"] = patch;
    vision["image_size"] = side * patch;
    return {{"model_type", "clip"},
            {"architectures", Json::array({"CLIPModel"})},
            {"projection_dim", extent("text_projection.weight", 0)},
            {"text_config", std::move(text)},
            {"vision_config", std::move(vision)}};
  }

  Json bert(const std::string& prefix) const {
    const std::string words = prefix + "embeddings.word_embeddings.weight", at = prefix + "encoder.layer.";
    const Extent width = extent(words, 1);
    return {{"model_type", "bert"},
            {"architectures", Json::array({prefix.empty() ? "BertModel" : "BertForPreTraining"})},
            {"vocab_size", extent(words, 0)},
            {"hidden_size", width},
            {"num_hidden_layers", layers(at, ".attention.self.query.weight")},
            {"num_attention_heads", heads(width)},
            {"intermediate_size", extent(at + "0.intermediate.dense.weight", 0)},
            {"max_position_embeddings", extent(prefix + "embeddings.position_embeddings.weight", 0)},
            {"type_vocab_size", extent(prefix + "embeddings.token_type_embeddings.weight", 0)},
            {"hidden_act", "gelu"},
            {"layer_norm_eps", 1e-12}};
  }

  const io::TensorSource& source_;
  const ModelHints& hints_;
};

}  // namespace

std::optional<Json> guessed_encoder_config(const io::TensorSource& source, const ModelHints& hints) {
  return EncoderGuess(source, hints).config();
}

}  // namespace weft::llm
