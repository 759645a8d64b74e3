#include "llm/mmproj.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/quote.hpp"
#include "llm/config_write.hpp"
#include "text/load_tokenizer.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

constexpr std::string_view kSections = "rope.dimension_sections";

bool knows_token(const io::GgufMetadata& m, std::string_view token) {
  if (m.contains(text::kWholeTokenizerKey))
    return m.get<std::string>(text::kWholeTokenizerKey).find(quote(token)) != std::string::npos;
  const auto* tokens = m.array_if<std::string>("tokenizer.ggml.tokens");
  return tokens && std::find(tokens->begin(), tokens->end(), token) != tokens->end();
}

}  // namespace

bool is_mmproj(const io::GgufMetadata& m) { return m.get_or<std::string>("general.architecture", "") == "clip"; }

Mmproj Mmproj::open(const std::filesystem::path& path) {
  io::TensorSource source = io::TensorSource::open(path);
  if (!source.gguf())
    throw FileError(
        fmt::format("{}: is not a GGUF file; a file with the part of a model that sees is one", path.string()));
  io::GgufMetadata metadata = source.gguf()->metadata();
  return {std::move(source), std::move(metadata)};
}

Mmproj::Mmproj(io::TensorSource source, io::GgufMetadata metadata)
    : source_(std::move(source)), metadata_(std::move(metadata)) {
  const std::string& name = metadata_.source();
  if (!is_mmproj(metadata_))
    throw FileError(
        fmt::format("{}: general.architecture is {}, not \"clip\"; give the file with the tower, whose name has mmproj "
                    "in it",
                    name, quote(metadata_.get_or<std::string>("general.architecture", ""), 60)));
  if (!metadata_.get_or<bool>("clip.has_vision_encoder", false))
    throw FileError(fmt::format("{}: clip.has_vision_encoder is not true: the file has no tower for images", name));
  // Files with a tower for sounds, too, name both projectors.
  const std::string projector = metadata_.get_or<std::string>(
      "clip.projector_type",
      metadata_.get_or<std::string>("clip.vision.projector_type",
                                    metadata_.contains("clip.has_llava_projector") ? "mlp" : ""));
  layout_ = find_mmproj_layout(projector);
  if (!layout_)
    throw FileError(fmt::format("{}: clip.projector_type is {}, which Weft does not know; it knows {}", name,
                                quote(projector, 60), known_projectors()));
  if (layout_->kind == MmprojKind::llava &&
      (metadata_.contains("clip.vision.image_grid_pinpoints") || find("mm.3.weight")))
    throw FileError(fmt::format(
        "{}: is of LLaVA 1.6, or of Yi's LLaVA, which Weft does not read; take one of LLaVA 1.5 or its kin", name));
  // What follows is as large as these say.
  const Extent layers = number("block_count", 1 << 10), hidden = number("embedding_length", 1 << 16);
  if (layers > static_cast<Extent>(source_.tensors().size()))
    throw FileError(fmt::format("{}: clip.vision.block_count is {}, and the file has {} tensors; is it whole?", name,
                                layers, source_.tensors().size()));
  const Extent heads = number("attention.head_count", 1 << 10);
  if (hidden % heads != 0)
    throw FileError(fmt::format("{}: clip.vision.attention.head_count is {}, which does not divide embedding_length {}",
                                name, heads, hidden));
}

Extent Mmproj::number(std::string_view key, Extent max, std::optional<Extent> fallback) const {
  const std::string whole = fmt::format("clip.vision.{}", key);
  if (fallback && !metadata_.contains(whole)) return *fallback;
  const auto value = metadata_.get<std::int64_t>(whole);
  if (value < 1 || value > max)
    throw FileError(fmt::format("{}: {} is {}, not from 1 to {}", metadata_.source(), whole, value, max));
  return value;
}

Extent Mmproj::rows_width() const {
  const bool is_gemma = layout_->kind == MmprojKind::gemma3;
  const char* name = is_gemma                                ? "mm.input_projection.weight"
                     : layout_->kind == MmprojKind::idefics3 ? "mm.model.fc.weight"
                                                             : "mm.2.weight";
  const io::SourceTensor* last = find(name);
  if (!last || last->shape.rank() != 2)
    throw FileError(fmt::format("{}: {} is missing, or is not a matrix; is the file whole?", metadata_.source(), name));
  return last->shape[is_gemma ? 1 : 0];
}

std::string Mmproj::why_not(const ModelConfig& model, const io::GgufMetadata& m) const {
  if (!layout_->architecture.empty() && model.architecture != layout_->architecture)
    return fmt::format("its projector {} is for models of the architecture {}, and the model's is {}",
                       layout_->projector, layout_->architecture, model.architecture);
  if (const Extent width = rows_width(); width != model.hidden)
    return fmt::format("it makes rows of {}, and the language model has a width of {}", width, model.hidden);
  for (const std::string_view token : layout_->around)
    if (!knows_token(m, token))
      return fmt::format("the language model's vocabulary has no {}, which its prompts have at images", token);
  // The vocabulary can be given a token only if it is kept as a list.
  if (!missing_token(m).empty() && !m.contains("tokenizer.ggml.model"))
    return fmt::format("the language model's vocabulary has no {}", layout_->row_token);
  if (layout_->kind == MmprojKind::qwen3) {
    const auto known =
        m.get_or<std::int64_t>("qwen3vl.n_deepstack_layers", static_cast<std::int64_t>(taken_layers().size()));
    if (known != static_cast<std::int64_t>(taken_layers().size()))
      return fmt::format("it gives rows to {} layers, and the language model takes them in {}", taken_layers().size(),
                         known);
  }
  return "";
}

void Mmproj::join(ModelConfig& model, const io::GgufMetadata& m) const {
  model.reads_images = true;
  model.sees_images_whole = layout_->kind == MmprojKind::gemma3;
  if (model.architecture == "qwen2vl" || model.architecture == "qwen3vl") {
    const bool is_third = model.architecture == "qwen3vl";
    model.rope_sections = is_third ? std::vector<Extent>{24, 20, 20} : std::vector<Extent>{16, 24, 24};
    const std::string key = fmt::format("{}.{}", model.architecture, kSections);
    if (m.contains(key)) {
      const std::vector<std::int64_t> list = m.integers(key);
      // The fourth axis is that of models that Weft does not have.
      if (list.size() < 3 || (list.size() > 3 && list[3] != 0))
        throw FileError(fmt::format("{}: {} is not a list of three numbers and 0", m.source(), key));
      model.rope_sections.assign(list.begin(), list.begin() + 3);
    }
    model.rope_interleaved = is_third;
    if (is_third) model.image_layers = static_cast<Extent>(taken_layers().size());
  }
  check(model);
}

std::string Mmproj::missing_token(const io::GgufMetadata& m) const {
  return knows_token(m, layout_->row_token) ? "" : std::string(layout_->row_token);
}

bool Mmproj::knows(const io::GgufMetadata& m) const {
  return !layout_->architecture.empty() || !layout_->around.empty() || missing_token(m).empty();
}

std::vector<Extent> Mmproj::taken_layers() const {
  std::vector<Extent> taken;
  for (Extent layer = 0; layer < number("block_count", 1 << 10); ++layer)
    if (find(fmt::format("v.deepstack.{}.fc1.weight", layer))) taken.push_back(layer);
  return taken;
}

// ---- What a folder would say -------------------------------------------------------------------------------------------

namespace {

std::string activation_in(const io::GgufMetadata& m, MmprojKind kind, bool is_siglip) {
  // These flags cannot tell the two gelus apart; the kind of tower does.
  if (kind == MmprojKind::idefics3 || kind == MmprojKind::gemma3 || kind == MmprojKind::qwen3 || is_siglip)
    return "gelu_pytorch_tanh";
  const bool is_gelu = m.get_or<bool>("clip.use_gelu", false), is_silu = m.get_or<bool>("clip.use_silu", false);
  return is_silu ? "silu" : is_gelu ? "gelu" : "quick_gelu";
}

}  // namespace

Json Mmproj::vision_config() const {
  const MmprojKind kind = layout_->kind;
  const Extent hidden = number("embedding_length", 1 << 16), layers = number("block_count", 1 << 10),
               heads = number("attention.head_count", 1 << 10);
  const io::SourceTensor* up = find(has_swapped_mlp() ? "v.blk.0.ffn_down.weight" : "v.blk.0.ffn_up.weight");
  if (!up || up->shape.rank() != 2)
    throw FileError(fmt::format("{}: v.blk.0.ffn_up.weight is missing, or is not a matrix; is the file whole?",
                                metadata_.source()));
  // The metadata of some files has another number.
  const Extent intermediate = up->shape[0];
  const bool is_clip = find("v.class_embd") != nullptr;
  Json json = {{"hidden_act", activation_in(metadata_, kind, kind == MmprojKind::llava && !is_clip)},
               {"patch_size", number("patch_size", 1 << 12)}};
  switch (kind) {
    case MmprojKind::llava:
    case MmprojKind::idefics3:
    case MmprojKind::gemma3:
    case MmprojKind::pixtral:
      json.update({{"model_type", kind == MmprojKind::pixtral            ? "pixtral"
                                  : kind == MmprojKind::llava && is_clip ? "clip_vision_model"
                                                                         : "siglip_vision_model"},
                   {"hidden_size", hidden},
                   {"intermediate_size", intermediate},
                   {"num_hidden_layers", layers},
                   {"num_attention_heads", heads},
                   {"image_size", number("image_size", 1 << 13)}});
      if (kind != MmprojKind::pixtral)
        json["layer_norm_eps"] = tidy(metadata_.get<double>("clip.vision.attention.layer_norm_epsilon"));
      break;
    case MmprojKind::qwen2:
    case MmprojKind::qwen2_5:
    case MmprojKind::qwen3: {
      json.update({{"depth", layers},
                   {"num_heads", heads},
                   {"temporal_patch_size", find("v.patch_embd.weight.1") ? 2 : 1},
                   {"spatial_merge_size", number("spatial_merge_size", 16, 2)}});
      if (kind == MmprojKind::qwen2) {
        // The product with the width must not be rounded below the number.
        const double ratio = static_cast<double>(intermediate) / static_cast<double>(hidden);
        json.update({{"embed_dim", hidden},
                     {"mlp_ratio", intermediate % hidden == 0 ? Json(intermediate / hidden)
                                                              : Json(std::nextafter(ratio, 2 * ratio))},
                     {"hidden_size", rows_width()}});
      } else {
        json.update({{"hidden_size", hidden}, {"intermediate_size", intermediate}, {"out_hidden_size", rows_width()}});
      }
      if (kind == MmprojKind::qwen2_5) {
        const Extent pattern = number("n_wa_pattern", layers + 1);
        Json all = Json::array();
        for (Extent layer = pattern - 1; layer < layers; layer += pattern) all.push_back(layer);
        json.update({{"fullatt_block_indexes", all}, {"window_size", number("window_size", 1 << 14, 112)}});
      }
      if (kind == MmprojKind::qwen3) {
        const io::SourceTensor* positions = find("v.position_embd.weight");
        if (!positions || positions->shape.rank() != 2)
          throw FileError(fmt::format("{}: v.position_embd.weight is missing, or is not a matrix; is the file whole?",
                                      metadata_.source()));
        json.update({{"num_position_embeddings", positions->shape[0]}, {"deepstack_visual_indexes", taken_layers()}});
      }
      break;
    }
  }
  return json;
}

Json Mmproj::config(const ModelConfig& model, const text::Tokenizer& tokenizer) const {
  const auto token = [&](std::string_view piece) {
    const text::TokenId id = tokenizer.id_of(piece);
    if (id == text::kNoToken)
      throw FileError(fmt::format("{}: the language model's vocabulary has no {}, which its prompts have at images",
                                  metadata_.source(), piece));
    return id;
  };
  Json json = {{"vision_config", vision_config()},
               {"text_config", {{"rms_norm_eps", model.norm_eps}}},
               {"image_token_id", token(layout_->row_token)}};
  const Json& vision = json["vision_config"];
  switch (layout_->kind) {
    case MmprojKind::llava: {
      // All layers of a file count: those behind the last one that the projector reads are not in it.
      Json layers = Json::array({vision["num_hidden_layers"]});
      if (metadata_.contains("clip.vision.feature_layer")) layers = metadata_.integers("clip.vision.feature_layer");
      json.update({{"model_type", "llava"},
                   {"vision_feature_layer", layers},
                   {"vision_feature_select_strategy", find("v.class_embd") ? "default" : "full"},
                   {"multimodal_projector_bias", find("mm.0.bias") != nullptr}});
      break;
    }
    case MmprojKind::idefics3:
      json.update({{"model_type", "idefics3"}, {"scale_factor", number("projector.scale_factor", 16, 2)}});
      break;
    case MmprojKind::gemma3: {
      const Extent grid = number("image_size", 1 << 13) / number("patch_size", 1 << 12),
                   scale = number("projector.scale_factor", 1 << 10, 4), side = grid / scale;
      if (side < 1)
        throw FileError(
            fmt::format("{}: clip.vision.projector.scale_factor is {}, and an image has {} patches on a side",
                        metadata_.source(), scale, grid));
      json.update({{"model_type", "gemma3"},
                   {"mm_tokens_per_image", side * side},
                   {"boi_token_id", token("<start_of_image>")},
                   {"eoi_token_id", token("<end_of_image>")}});
      break;
    }
    case MmprojKind::qwen2: json["model_type"] = "qwen2_vl"; break;
    case MmprojKind::qwen2_5: json["model_type"] = "qwen2_5_vl"; break;
    case MmprojKind::qwen3: json["model_type"] = "qwen3_vl"; break;
    case MmprojKind::pixtral: {
      const bool merges = find("mm.patch_merger.weight") != nullptr;
      json.update({{"model_type", merges ? "mistral3" : "llava"},
                   {"vision_feature_layer", -1},
                   {"vision_feature_select_strategy", "full"},
                   {"multimodal_projector_bias", find("mm.1.bias") != nullptr}});
      if (merges) json["spatial_merge_size"] = merge();
      break;
    }
  }
  return json;
}

Json Mmproj::processor_config() const {
  const auto colour = [&](const char* key) {
    Json list = Json::array();
    for (const float each : metadata_.array<float>(key)) list.push_back(each);
    return list;
  };
  Json json = {{"image_mean", colour("clip.vision.image_mean")}, {"image_std", colour("clip.vision.image_std")}};
  const Extent patch = number("patch_size", 1 << 12);
  const auto side = [&] { return number("image_size", 1 << 13); };
  const auto square = [&] { return Json{{"height", side()}, {"width", side()}}; };
  switch (layout_->kind) {
    case MmprojKind::llava:
      if (find("v.class_embd"))
        json.update({{"image_processor_type", "CLIPImageProcessor"},
                     {"size", {{"shortest_edge", side()}}},
                     {"crop_size", square()}});
      else
        json.update({{"image_processor_type", "SiglipImageProcessor"}, {"size", square()}});
      break;
    case MmprojKind::idefics3:
      json.update({{"image_processor_type", "Idefics3ImageProcessor"},
                   {"size", {{"longest_edge", number("preproc_image_size", 1 << 14, 4 * side())}}},
                   {"max_image_size", {{"longest_edge", side()}}}});
      break;
    case MmprojKind::gemma3: json.update({{"image_processor_type", "Gemma3ImageProcessor"}, {"size", square()}}); break;
    case MmprojKind::pixtral:
      json.update({{"image_processor_type", "PixtralImageProcessor"},
                   {"size", {{"longest_edge", side()}}},
                   {"patch_size", {{"height", patch}, {"width", patch}}}});
      break;
    case MmprojKind::qwen2:
    case MmprojKind::qwen2_5:
    case MmprojKind::qwen3: {
      // Where a file does not say how large images may be, they become 4 to 4096 rows: the models' own least, and the most
      // that llama.cpp makes of an image.
      const Extent merge = number("spatial_merge_size", 16, 2), row = patch * merge * patch * merge;
      json.update({{"image_processor_type", "Qwen2VLImageProcessor"},
                   {"patch_size", patch},
                   {"merge_size", merge},
                   {"min_pixels", number("image_min_pixels", Extent{1} << 24, 4 * row)},
                   {"max_pixels", number("image_max_pixels", Extent{1} << 24, 4096 * row)}});
      break;
    }
  }
  return json;
}

vision::ImageProcessor Mmproj::processor() const {
  return vision::ImageProcessor::from_json(processor_config(), metadata_.source());
}

ImageFiles Mmproj::files(const ModelConfig& model, const text::Tokenizer& tokenizer) const {
  const std::string& name = metadata_.source();
  return {.config = config(model, tokenizer),
          .source = name,
          .place = name,
          .processor = processor(),
          .tensors = tensors(),
          .norms_lack_one = false,
          .shown = [layout = layout_](const std::string& tensor) {
            return mmproj_name_of_folder(*layout, usual_folder_name(tensor)).value_or(tensor);
          }};
}

}  // namespace weft::llm::detail
