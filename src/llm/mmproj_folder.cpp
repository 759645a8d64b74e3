#include "llm/mmproj_folder.hpp"

#include <fmt/format.h>

#include "llm/config_write.hpp"
#include "llm/convert_values.hpp"
#include "text/load_tokenizer.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

/// How published folders of a kind name their classes and tensors.
struct FolderNames {
  std::string_view model_type, hf_class, text_type;  // text_type: "" as the language model alone has it
  std::string_view text, text_inner;  // in front of the language model's names, and in place of their "model."
  std::string_view tower;             // in front of the names of the tower and the projector
};
FolderNames names_of(std::string_view model_type) {
  constexpr FolderNames kAll[] = {
      {"llava", "LlavaForConditionalGeneration", "", "language_model.", "model.", ""},
      {"mistral3", "Mistral3ForConditionalGeneration", "", "language_model.", "model.", ""},
      {"gemma3", "Gemma3ForConditionalGeneration", "", "language_model.", "model.", ""},
      {"idefics3", "Idefics3ForConditionalGeneration", "", "", "model.text_model.", "model."},
      {"qwen2_vl", "Qwen2VLForConditionalGeneration", "qwen2_vl_text", "", "model.", ""},
      {"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", "", "model.", ""},
      {"qwen3_vl", "Qwen3VLForConditionalGeneration", "qwen3_vl_text", "", "model.language_model.", "model."},
  };
  for (const FolderNames& each : kAll)
    if (each.model_type == model_type) return each;
  throw InternalError(fmt::format("llm: no names for a folder of {}", model_type));
}

bool is_of_qwen(std::string_view model_type) { return model_type.starts_with("qwen"); }

/// The key by another name, where it is there.
void rename(Json& json, const char* from, const char* to) {
  if (!json.contains(from)) return;
  json[to] = json[from];
  json.erase(from);
}

}  // namespace

SeeingFolder::SeeingFolder(const Mmproj& file, const ModelConfig& model, const io::GgufMetadata& metadata,
                           const Json& text, const ConvertOptions& options)
    : kind_(file.kind()) {
  const text::Tokenizer tokenizer = text::tokenizer_of_gguf(metadata);
  ModelConfig joined = model;
  file.join(joined, metadata);
  files_ = file.files(joined, tokenizer);
  config_ = files_.config;
  processor_ = file.processor_config();
  for (const char* key : {"image_mean", "image_std"})
    for (Json& each : processor_[key]) each = tidy(each.get<double>());
  complete(text, joined, tokenizer);
  for (const io::SourceTensor& tensor : files_.tensors.tensors()) {
    if (!tensor.type)
      throw FileError(
          fmt::format("{}: {} is {}, which Weft does not read", files_.place, tensor.name, tensor.type_name));
    const bool is_kept =
        *tensor.type == BlockType::f32 || *tensor.type == BlockType::f16 || *tensor.type == BlockType::bf16;
    Part part{.name = name_of_part(tensor.name),
              .from = &tensor,
              .type = options.type ? *options.type
                      : is_kept    ? *tensor.type
                                   : BlockType::f32};
    // Folders hold w of the norm's 1 + w.
    if (kind_ == MmprojKind::gemma3 && tensor.name == "multi_modal_projector.mm_soft_emb_norm.weight") part.add = -1;
    parts_.push_back(std::move(part));
  }
}

void SeeingFolder::complete(const Json& text, const ModelConfig& joined, const text::Tokenizer& tokenizer) {
  const std::string type = config_["model_type"];
  const FolderNames names = names_of(type);
  Json inner = text;
  for (const char* key : {"architectures", "_name_or_path", "dtype", "torch_dtype"}) inner.erase(key);
  if (!names.text_type.empty()) inner["model_type"] = names.text_type;
  if (!joined.rope_sections.empty()) {
    Json scaling = {{"rope_type", "default"},
                    {"type", joined.rope_interleaved ? "default" : "mrope"},
                    {"mrope_section", joined.rope_sections}};
    if (joined.rope_interleaved) scaling["mrope_interleaved"] = true;
    inner["rope_scaling"] = scaling;
  }
  config_.update({{"architectures", {names.hf_class}}, {"tie_word_embeddings", text["tie_word_embeddings"]}});
  if (text.contains("_name_or_path")) config_["_name_or_path"] = text["_name_or_path"];
  config_["text_config"] = inner;
  if (type == "llava" || type == "mistral3" || type == "gemma3") {
    rename(config_, "image_token_id", "image_token_index");
    rename(config_, "boi_token_id", "boi_token_index");
    rename(config_, "eoi_token_id", "eoi_token_index");
  }
  // One layer, and the last one: a number is what most programs expect.
  Json& layers = config_["vision_feature_layer"];
  if (layers.is_array() && layers.size() == 1 && layers[0] == config_["vision_config"]["num_hidden_layers"])
    layers = -1;
  if (layers.is_null()) config_.erase("vision_feature_layer");
  if (type == "gemma3") config_["vision_config"]["vision_use_head"] = false;
  if (is_of_qwen(type))
    for (const auto& [key, piece] :
         {std::pair{"vision_start_token_id", "<|vision_start|>"}, std::pair{"vision_end_token_id", "<|vision_end|>"},
          std::pair{"video_token_id", "<|video_pad|>"}})
      if (const text::TokenId id = tokenizer.id_of(piece); id != text::kNoToken) config_[key] = id;
  const std::string place = files_.place + " (as a folder)";
  const ModelConfig read = config_from_json(config_, place);
  if (!read.reads_images || read.rope_sections != joined.rope_sections ||
      read.rope_interleaved != joined.rope_interleaved || read.image_layers != joined.image_layers ||
      read.sees_images_whole != joined.sees_images_whole)
    throw FileError(
        fmt::format("{}: a folder of the type {} cannot express how this language model takes images; --mmproj none "
                    "converts the language model alone",
                    files_.place, type));
}

std::string SeeingFolder::name_of_text(std::string_view name) const {
  const FolderNames names = names_of(config_["model_type"].get<std::string>());
  constexpr std::string_view kModel = "model.";
  std::string result(names.text);
  if (name.starts_with(kModel)) {
    result += names.text_inner;
    name.remove_prefix(kModel.size());
  }
  return result.append(name);
}

std::string SeeingFolder::name_of_part(std::string_view name) const {
  const FolderNames names = names_of(config_["model_type"].get<std::string>());
  constexpr std::string_view kTower = "vision_tower.";
  // Towers of CLIP and SigLIP are a part of a part there.
  if (name.starts_with(kTower) && kind_ != MmprojKind::pixtral)
    return fmt::format("vision_tower.vision_model.{}", name.substr(kTower.size()));
  return std::string(names.tower).append(name);
}

void SeeingFolder::put(const Part& part, const std::function<void(std::span<const std::byte>)>& put) const {
  const io::LoadedTensor whole = io::TensorSource::loaded(*part.from);
  files_.tensors.require_finite(whole.tensor);
  std::vector<float> values(static_cast<std::size_t>(part.from->shape.numel()));
  files_.tensors.read_f32(whole.tensor, values);
  for (float& value : values) value += part.add;
  put_as(part.type, values, files_.tensors, part.name, put);
}

}  // namespace weft::llm::detail
