#include "llm/mmproj_write.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "llm/convert_values.hpp"
#include "llm/image_reader_parts.hpp"
#include "llm/mmproj.hpp"
#include "text/load_tokenizer.hpp"
#include "vision/grid_tower.hpp"
#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

using io::ConfigKeys;
using vision::GridKind;
using vision::TowerKind;

std::optional<MmprojKind> kind_of_folder(const ConfigKeys& keys) {
  const std::string type = keys.text({"model_type"});
  if (type == "idefics3" || type == "smolvlm") return MmprojKind::idefics3;
  if (type == "gemma3") return MmprojKind::gemma3;
  if (type == "qwen2_vl") return MmprojKind::qwen2;
  if (type == "qwen2_5_vl") return MmprojKind::qwen2_5;
  if (type == "qwen3_vl") return MmprojKind::qwen3;
  if (type != "llava" && type != "mistral3") return {};
  const ConfigKeys vision(keys.json().at("vision_config"), keys.source(), "vision_config");
  return vision.text({"model_type"}, "clip_vision_model") == "pixtral" ? MmprojKind::pixtral : MmprojKind::llava;
}

bool is_grid(MmprojKind kind) {
  return kind == MmprojKind::qwen2 || kind == MmprojKind::qwen2_5 || kind == MmprojKind::qwen3 ||
         kind == MmprojKind::pixtral;
}
GridKind grid_kind(MmprojKind kind) {
  return kind == MmprojKind::qwen2     ? GridKind::qwen2
         : kind == MmprojKind::qwen2_5 ? GridKind::qwen2_5
         : kind == MmprojKind::qwen3   ? GridKind::qwen3
                                       : GridKind::pixtral;
}
/// By what an object vision_config says.
TowerKind square_kind(MmprojKind kind, const Json& vision) {
  if (kind == MmprojKind::idefics3) return TowerKind::idefics3;
  return kind == MmprojKind::llava && vision.value("model_type", "clip_vision_model") == "clip_vision_model"
             ? TowerKind::clip
             : TowerKind::siglip;
}

/// The number of a layer in a name, or -1.
Extent layer_in(std::string_view name) {
  constexpr std::string_view kBlock = "v.blk.";
  if (!name.starts_with(kBlock)) return -1;
  Extent layer = 0;
  for (const char c : name.substr(kBlock.size(), name.find('.', kBlock.size()) - kBlock.size()))
    layer = std::min<Extent>(10 * layer + (c - '0'), 1 << 20);
  return layer;
}

}  // namespace

void MmprojFile::refuse(const std::string& fact) const {
  throw FileError(fmt::format("{}: the part that sees images is left behind: an mmproj file cannot express {}",
                              source_.path().string(), fact));
}

MmprojFile::MmprojFile(const io::TensorSource& source, const ModelConfig& model, const ConvertOptions& options)
    : source_(source), files_(image_files_of_folder(source.path(), source)) {
  describe(model);
  plan(options);
  check_same();
}

void MmprojFile::describe(const ModelConfig& model) {
  const ConfigKeys keys(files_.config, files_.source);
  const std::optional<MmprojKind> found = kind_of_folder(keys);
  if (!found) refuse(fmt::format("models of the type {}, as Weft writes it", keys.text({"model_type"})));
  const MmprojKind kind = *found;
  const Json& vision = keys.json().at("vision_config");
  layout_ = &mmproj_layout(kind);
  metadata_ = io::GgufMetadata(files_.source);
  metadata_.set("general.architecture", std::string("clip"));
  metadata_.set("general.type", std::string("mmproj"));
  if (!model.name.empty()) metadata_.set("general.name", model.name);
  metadata_.set("clip.has_vision_encoder", true);
  metadata_.set("clip.projector_type", std::string(layout_->projector));
  const auto size = [&](std::string_view key, Extent value) {
    metadata_.set(fmt::format("clip.vision.{}", key), static_cast<std::uint32_t>(value));
  };
  const auto stack = [&](const vision::StackConfig& s, double norm_eps) {
    size("embedding_length", s.hidden);
    size("feed_forward_length", s.intermediate);
    size("attention.head_count", s.heads);
    metadata_.set("clip.vision.attention.layer_norm_epsilon", static_cast<float>(norm_eps));
    // Without either, it is quick_gelu.
    if (s.activation == vision::Activation::silu) metadata_.set("clip.use_silu", true);
    if (s.activation == vision::Activation::gelu || s.activation == vision::Activation::gelu_tanh)
      metadata_.set("clip.use_gelu", true);
    layers_ = s.layers;
    heads_ = s.heads;
  };
  size("projection_dim", model.hidden);
  const vision::ImageProcessor& processor = files_.processor;
  if (!is_grid(kind)) {
    const auto tower = vision::tower_config(square_kind(kind, vision), vision, files_.source, "vision_config");
    stack(tower.stack, tower.stack.norm_eps);
    size("patch_size", tower.patch_size);
    // Of Idefics3 the side of a part may differ from what the positions were trained for.
    size("image_size", kind == MmprojKind::idefics3 ? processor.side() : tower.image_size);
    if (kind == MmprojKind::idefics3) {
      size("preproc_image_size", processor.longest());
      size("projector.scale_factor", keys.size({"scale_factor"}, 2));
    }
    if (kind == MmprojKind::gemma3) {
      const auto side = static_cast<Extent>(std::sqrt(static_cast<double>(keys.size({"mm_tokens_per_image"}, 256))));
      size("projector.scale_factor", tower.grid() / std::max<Extent>(side, 1));
    }
    if (kind == MmprojKind::llava) {
      const std::vector<Extent> layers = feature_layers(keys, -2, tower.stack.layers);
      if (!std::is_sorted(layers.begin(), layers.end()))
        refuse("vision_feature_layer in an order that is not that of the layers");
      if (tower.has_class_token() && keys.text({"vision_feature_select_strategy"}, "default") != "default")
        refuse("vision_feature_select_strategy \"full\" of a tower with a class token");
      layers_ = std::max<Extent>(layers.back(), 1);
      metadata_.set("clip.vision.feature_layer",
                    io::GgufArray(std::vector<std::int32_t>(layers.begin(), layers.end())));
    }
  } else {
    const Extent merge = keys.size({"spatial_merge_size"}, keys.text({"model_type"}) == "mistral3" ? 2 : 1);
    const auto tower = vision::grid_tower_config(grid_kind(kind), vision, files_.source, "vision_config", merge);
    stack(tower.stack, tower.stack.norm_eps);
    size("patch_size", tower.patch_size);
    size("spatial_merge_size", tower.merge);
    if (kind == MmprojKind::pixtral) {
      size("image_size", processor.longest());
      const std::vector<Extent> layers =
          feature_layers(keys, keys.text({"model_type"}) == "mistral3" ? -1 : -2, tower.stack.layers);
      layers_ = std::max<Extent>(layers.front(), 1);
    } else {
      size("image_size", kind == MmprojKind::qwen3 ? tower.known * tower.patch_size : 560);
      size("image_min_pixels", processor.least_pixels());
      size("image_max_pixels", processor.longest());
    }
    if (kind == MmprojKind::qwen2_5) {
      size("window_size", tower.window * tower.patch_size);
      const auto first = std::find(tower.sees_all.begin(), tower.sees_all.end(), true);
      if (first == tower.sees_all.end()) refuse("a tower in which no layer sees all of an image");
      size("n_wa_pattern", 1 + (first - tower.sees_all.begin()));
    }
    if (kind == MmprojKind::qwen3) {
      taken_ = tower.taken;
      std::vector<bool> flags(static_cast<std::size_t>(layers_), false);
      for (const Extent layer : taken_) flags[static_cast<std::size_t>(layer)] = true;
      metadata_.set("clip.vision.is_deepstack_layers", io::GgufArray(flags));
    }
  }
  size("block_count", layers_);
  metadata_.set("clip.vision.image_mean", io::GgufArray(processor.mean()));
  metadata_.set("clip.vision.image_std", io::GgufArray(processor.deviation()));
}

MmprojFile::Move MmprojFile::move_of(std::string name, const io::SourceTensor& from,
                                     const ConvertOptions& options) const {
  Move move{.name = std::move(name), .shape = from.shape, .from = &from};
  if (from.shape.rank() < 2 || move.name.find("_embd.weight") != std::string::npos) {
    // Sums in f32: norms, biases, positions. The patches may have 16 bits, as f16 alone.
    if (!move.name.starts_with("v.patch_embd.weight")) return move;
  }
  move.type = options.type                                                  ? *options.type
              : from.type == BlockType::f16 || from.type == BlockType::bf16 ? *from.type
                                                                            : BlockType::f32;
  const bool is_read_whole = move.name.starts_with("v.patch_embd") || move.name.starts_with("mm.patch_merger") ||
                             move.name.starts_with("mm.input_projection");
  if (is_read_whole && move.type == BlockType::bf16) move.type = BlockType::f32;
  return move;
}

void MmprojFile::plan(const ConvertOptions& options) {
  const MmprojKind kind = layout_->kind;
  for (const io::SourceTensor& tensor : source_.tensors()) {
    const std::string folder_name = usual_folder_name(tensor.name);
    if (folder_name == "visual.patch_embed.proj.weight" && tensor.shape.rank() == 5) {
      if (tensor.shape[2] != 2) refuse(fmt::format("patches of {} frames", tensor.shape[2]));
      for (std::size_t frame = 0; frame < 2; ++frame) {
        Move move = move_of(frame == 0 ? "v.patch_embd.weight" : "v.patch_embd.weight.1", tensor, options);
        move.shape = Shape{tensor.shape[0], tensor.shape[1], tensor.shape[3], tensor.shape[4]};
        move.part = frame;
        move.parts = 2;
        move.is_frame = true;
        moves_.push_back(std::move(move));
      }
      continue;
    }
    auto name = mmproj_name_of_folder(*layout_, folder_name);
    if (!name || layer_in(*name) >= layers_) continue;
    if (constexpr std::string_view kDeep = "v.deepstack."; name->starts_with(kDeep)) {
      const std::size_t end = name->find('.', kDeep.size()), index = std::stoul(name->substr(kDeep.size(), 4));
      if (index >= taken_.size()) continue;
      *name = fmt::format("{}{}{}", kDeep, taken_[index], name->substr(end));
    }
    Move move = move_of(*name, tensor, options);
    const std::size_t all = name->find("attn_qkv.");
    if (all != std::string::npos && kind != MmprojKind::qwen3) {
      for (std::size_t part = 0; part < 3; ++part) {
        Move third = move;
        third.name.replace(all, std::string_view("attn_qkv").size(), fmt::format("attn_{}", "qkv"[part]));
        third.shape[0] /= 3;
        third.part = part;
        third.parts = 3;
        moves_.push_back(std::move(third));
      }
      continue;
    }
    move.turns = kind == MmprojKind::pixtral && (name->ends_with("attn_q.weight") || name->ends_with("attn_k.weight"));
    if (*name == "mm.soft_emb_norm.weight") move.add = 1;
    moves_.push_back(std::move(move));
  }
  if (kind == MmprojKind::pixtral) add_break_token(options);
  if (moves_.empty()) refuse("a tower of which the folder has no tensors");
  const auto matrix = std::find_if(moves_.begin(), moves_.end(), [](const Move& move) {
    return move.name.find("ffn_up.weight") != std::string::npos;
  });
  const BlockType type = matrix == moves_.end() ? BlockType::f32 : matrix->type;
  metadata_.set("general.file_type", std::uint32_t{type == BlockType::f16 ? 1u : type == BlockType::bf16 ? 32u : 0u});
}

/// llama.cpp puts the embedding of the token behind each line of rows itself, so a file has it.
void MmprojFile::add_break_token(const ConvertOptions& options) {
  const text::Tokenizer tokenizer = text::load_tokenizer(source_.path());
  const text::TokenId id = tokenizer.id_of(layout_->around[0]);
  for (const io::SourceTensor& tensor : source_.tensors())
    if (id != text::kNoToken && tensor.name.ends_with("embed_tokens.weight") && tensor.shape.rank() == 2 &&
        id < tensor.shape[0]) {
      Move move = move_of("v.token_embd.img_break", tensor, options);
      move.type = BlockType::f32;
      move.shape = Shape{tensor.shape[1]};
      move.part = static_cast<std::size_t>(id);
      move.parts = static_cast<std::size_t>(tensor.shape[0]);
      moves_.push_back(std::move(move));
      return;
    }
  refuse(fmt::format("a model without an embedding of {}", layout_->around[0]));
}

void MmprojFile::check_same() {
  std::vector<io::SourceTensor> tensors;
  for (const Move& move : moves_)
    tensors.push_back({move.name, move.shape, std::string(file_name_of(move.type)), move.type, {}, {}});
  const Mmproj file(io::TensorSource::of(source_.path(), io::SourceKind::gguf, std::move(tensors), {}, {}), metadata_);
  const MmprojKind kind = layout_->kind;
  const Json &from = files_.config.at("vision_config"), to = file.vision_config();
  if (is_grid(kind)) {
    auto a = vision::grid_tower_config(grid_kind(kind), from, files_.source, "vision_config", file.merge());
    const auto b = vision::grid_tower_config(grid_kind(kind), to, files_.source, "vision_config", file.merge());
    a.stack.layers = b.stack.layers;
    if (a != b) refuse("its vision_config: windows, activations or positions would differ");
  } else {
    auto a = vision::tower_config(square_kind(kind, from), from, files_.source, "vision_config");
    auto b = vision::tower_config(square_kind(kind, to), to, files_.source, "vision_config");
    a.stack.layers = b.stack.layers;
    a.stack.norm_eps = static_cast<float>(a.stack.norm_eps);
    b.stack.norm_eps = static_cast<float>(b.stack.norm_eps);
    if (a != b)
      refuse(a.image_size != b.image_size ? "positions that are spread over parts of another size"
                                          : "its vision_config: the activation or the norms would differ");
  }
  if (file.processor() != files_.processor)
    notes_.push_back(
        "the mmproj file cannot express all of preprocessor_config.json: images are resized and cut as usual for such "
        "models");
}

std::vector<float> MmprojFile::values_of(const Move& move) const {
  const io::LoadedTensor whole = io::TensorSource::loaded(*move.from);
  source_.require_finite(whole.tensor);
  std::vector<float> all(static_cast<std::size_t>(move.from->shape.numel()));
  source_.read_f32(whole.tensor, all);
  std::vector<float> values;
  if (move.is_frame) {
    const auto plane = static_cast<std::size_t>(move.shape[2] * move.shape[3]);
    for (std::size_t at = move.part * plane; at < all.size(); at += move.parts * plane)
      values.insert(values.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                    all.begin() + static_cast<std::ptrdiff_t>(at + plane));
  } else {
    const std::size_t count = all.size() / move.parts;
    values.assign(all.begin() + static_cast<std::ptrdiff_t>(move.part * count),
                  all.begin() + static_cast<std::ptrdiff_t>((move.part + 1) * count));
  }
  if (move.add != 0)
    for (float& value : values) value += move.add;
  if (move.turns)
    values = with_rows_turned(values, heads_, move.shape[0] / heads_, static_cast<std::size_t>(move.shape[1]), true);
  return values;
}

std::size_t MmprojFile::write(const std::filesystem::path& file, const ConvertOptions& options) const {
  std::vector<io::GgufTensorInfo> infos;
  std::uint64_t done = 0, total = 0;
  for (const Move& move : moves_) {
    infos.push_back({move.name, move.shape, move.type});
    total += bytes_for(move.type, move.shape, move.name);
  }
  io::GgufWriter writer(file, metadata_, std::move(infos));
  for (const Move& move : moves_) {
    if (options.progress) options.progress(move.name, done, total);
    put_as(move.type, values_of(move), source_, move.name,
           [&](std::span<const std::byte> bytes) { writer.write(bytes); });
    done += bytes_for(move.type, move.shape, move.name);
  }
  writer.commit();
  return moves_.size();
}

}  // namespace weft::llm::detail
