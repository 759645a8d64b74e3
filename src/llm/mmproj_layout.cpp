#include "llm/mmproj_layout.hpp"

#include <algorithm>
#include <cctype>

#include "weft/error.hpp"

namespace weft::llm::detail {
namespace {

constexpr MmprojName kLlavaNames[] = {
    {"vision_tower.embeddings.patch_embedding", "v.patch_embd"},
    {"vision_tower.embeddings.class_embedding", "v.class_embd"},
    {"vision_tower.embeddings.position_embedding", "v.position_embd"},
    {"vision_tower.pre_layrnorm", "v.pre_ln"},
    {"vision_tower.encoder.layers.{}.layer_norm1", "v.blk.{}.ln1"},
    {"vision_tower.encoder.layers.{}.layer_norm2", "v.blk.{}.ln2"},
    {"vision_tower.encoder.layers.{}.self_attn.q_proj", "v.blk.{}.attn_q"},
    {"vision_tower.encoder.layers.{}.self_attn.k_proj", "v.blk.{}.attn_k"},
    {"vision_tower.encoder.layers.{}.self_attn.v_proj", "v.blk.{}.attn_v"},
    {"vision_tower.encoder.layers.{}.self_attn.out_proj", "v.blk.{}.attn_out"},
    {"vision_tower.encoder.layers.{}.mlp.fc1", "v.blk.{}.ffn_up"},
    {"vision_tower.encoder.layers.{}.mlp.fc2", "v.blk.{}.ffn_down"},
    {"multi_modal_projector.linear_1", "mm.0"},
    {"multi_modal_projector.linear_2", "mm.2"},
};
constexpr MmprojName kGemmaNames[] = {
    {"vision_tower.embeddings.patch_embedding", "v.patch_embd"},
    {"vision_tower.embeddings.position_embedding", "v.position_embd"},
    {"vision_tower.post_layernorm", "v.post_ln"},
    {"vision_tower.encoder.layers.{}.layer_norm1", "v.blk.{}.ln1"},
    {"vision_tower.encoder.layers.{}.layer_norm2", "v.blk.{}.ln2"},
    {"vision_tower.encoder.layers.{}.self_attn.q_proj", "v.blk.{}.attn_q"},
    {"vision_tower.encoder.layers.{}.self_attn.k_proj", "v.blk.{}.attn_k"},
    {"vision_tower.encoder.layers.{}.self_attn.v_proj", "v.blk.{}.attn_v"},
    {"vision_tower.encoder.layers.{}.self_attn.out_proj", "v.blk.{}.attn_out"},
    {"vision_tower.encoder.layers.{}.mlp.fc1", "v.blk.{}.ffn_up"},
    {"vision_tower.encoder.layers.{}.mlp.fc2", "v.blk.{}.ffn_down"},
    {"multi_modal_projector.mm_soft_emb_norm", "mm.soft_emb_norm"},
    {"multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight"},
};
constexpr MmprojName kIdeficsNames[] = {
    {"vision_model.embeddings.patch_embedding", "v.patch_embd"},
    {"vision_model.embeddings.position_embedding", "v.position_embd"},
    {"vision_model.post_layernorm", "v.post_ln"},
    {"vision_model.encoder.layers.{}.layer_norm1", "v.blk.{}.ln1"},
    {"vision_model.encoder.layers.{}.layer_norm2", "v.blk.{}.ln2"},
    {"vision_model.encoder.layers.{}.self_attn.q_proj", "v.blk.{}.attn_q"},
    {"vision_model.encoder.layers.{}.self_attn.k_proj", "v.blk.{}.attn_k"},
    {"vision_model.encoder.layers.{}.self_attn.v_proj", "v.blk.{}.attn_v"},
    {"vision_model.encoder.layers.{}.self_attn.out_proj", "v.blk.{}.attn_out"},
    {"vision_model.encoder.layers.{}.mlp.fc1", "v.blk.{}.ffn_up"},
    {"vision_model.encoder.layers.{}.mlp.fc2", "v.blk.{}.ffn_down"},
    {"connector.modality_projection.proj", "mm.model.fc"},
};
// The patches' weight of two frames is two tensors of a file, and is not in these lists.
constexpr MmprojName kQwen2Names[] = {
    {"visual.blocks.{}.norm1", "v.blk.{}.ln1"},
    {"visual.blocks.{}.norm2", "v.blk.{}.ln2"},
    {"visual.blocks.{}.attn.qkv", "v.blk.{}.attn_qkv"},
    {"visual.blocks.{}.attn.proj", "v.blk.{}.attn_out"},
    {"visual.blocks.{}.mlp.fc1", "v.blk.{}.ffn_up"},
    {"visual.blocks.{}.mlp.fc2", "v.blk.{}.ffn_down"},
    {"visual.merger.ln_q", "v.post_ln"},
    {"visual.merger.mlp.0", "mm.0"},
    {"visual.merger.mlp.2", "mm.2"},
};
constexpr MmprojName kQwen25Names[] = {
    {"visual.blocks.{}.norm1", "v.blk.{}.ln1"},
    {"visual.blocks.{}.norm2", "v.blk.{}.ln2"},
    {"visual.blocks.{}.attn.qkv", "v.blk.{}.attn_qkv"},
    {"visual.blocks.{}.attn.proj", "v.blk.{}.attn_out"},
    {"visual.blocks.{}.mlp.gate_proj", "v.blk.{}.ffn_gate"},
    {"visual.blocks.{}.mlp.up_proj", "v.blk.{}.ffn_up"},
    {"visual.blocks.{}.mlp.down_proj", "v.blk.{}.ffn_down"},
    {"visual.merger.ln_q", "v.post_ln"},
    {"visual.merger.mlp.0", "mm.0"},
    {"visual.merger.mlp.2", "mm.2"},
};
// In files, the mergers of earlier layers have the numbers of these layers; in folders they are counted.
constexpr MmprojName kQwen3Names[] = {
    {"visual.patch_embed.proj.bias", "v.patch_embd.bias"},
    {"visual.pos_embed", "v.position_embd"},
    {"visual.blocks.{}.norm1", "v.blk.{}.ln1"},
    {"visual.blocks.{}.norm2", "v.blk.{}.ln2"},
    {"visual.blocks.{}.attn.qkv", "v.blk.{}.attn_qkv"},
    {"visual.blocks.{}.attn.proj", "v.blk.{}.attn_out"},
    {"visual.blocks.{}.mlp.linear_fc1", "v.blk.{}.ffn_up"},
    {"visual.blocks.{}.mlp.linear_fc2", "v.blk.{}.ffn_down"},
    {"visual.deepstack_merger_list.{}.norm", "v.deepstack.{}.norm"},
    {"visual.deepstack_merger_list.{}.linear_fc1", "v.deepstack.{}.fc1"},
    {"visual.deepstack_merger_list.{}.linear_fc2", "v.deepstack.{}.fc2"},
    {"visual.merger.norm", "v.post_ln"},
    {"visual.merger.linear_fc1", "mm.0"},
    {"visual.merger.linear_fc2", "mm.2"},
};
constexpr MmprojName kPixtralNames[] = {
    {"vision_tower.patch_conv", "v.patch_embd"},
    {"vision_tower.ln_pre", "v.pre_ln"},
    {"vision_tower.transformer.layers.{}.attention_norm", "v.blk.{}.ln1"},
    {"vision_tower.transformer.layers.{}.ffn_norm", "v.blk.{}.ln2"},
    {"vision_tower.transformer.layers.{}.attention.q_proj", "v.blk.{}.attn_q"},
    {"vision_tower.transformer.layers.{}.attention.k_proj", "v.blk.{}.attn_k"},
    {"vision_tower.transformer.layers.{}.attention.v_proj", "v.blk.{}.attn_v"},
    {"vision_tower.transformer.layers.{}.attention.o_proj", "v.blk.{}.attn_out"},
    {"vision_tower.transformer.layers.{}.feed_forward.gate_proj", "v.blk.{}.ffn_gate"},
    {"vision_tower.transformer.layers.{}.feed_forward.up_proj", "v.blk.{}.ffn_up"},
    {"vision_tower.transformer.layers.{}.feed_forward.down_proj", "v.blk.{}.ffn_down"},
    {"multi_modal_projector.norm", "mm.input_norm"},
    {"multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger"},
    {"multi_modal_projector.linear_1", "mm.1"},
    {"multi_modal_projector.linear_2", "mm.2"},
};

constexpr std::string_view kIdeficsTokens[] = {"<fake_token_around_image>", "<global-img>"},
                           kGemmaTokens[] = {"<start_of_image>", "<end_of_image>"},
                           kPixtralTokens[] = {"[IMG_BREAK]", "[IMG_END]"};

constexpr MmprojLayout kLayouts[] = {
    {MmprojKind::gemma3, "gemma3", "gemma3", "<image_soft_token>", kGemmaTokens, kGemmaNames},
    {MmprojKind::idefics3, "idefics3", "", "<image>", kIdeficsTokens, kIdeficsNames},
    {MmprojKind::llava, "mlp", "", "<image>", {}, kLlavaNames},
    {MmprojKind::pixtral, "pixtral", "", "[IMG]", kPixtralTokens, kPixtralNames},
    {MmprojKind::qwen2, "qwen2vl_merger", "qwen2vl", "<|image_pad|>", {}, kQwen2Names},
    {MmprojKind::qwen2_5, "qwen2.5vl_merger", "qwen2vl", "<|image_pad|>", {}, kQwen25Names},
    {MmprojKind::qwen3, "qwen3vl_merger", "qwen3vl", "<|image_pad|>", {}, kQwen3Names},
};

std::optional<std::string> with_other_name(std::string_view name, std::string_view from, std::string_view to) {
  const std::size_t hole = from.find("{}");
  std::string_view number;
  if (hole == std::string_view::npos) {
    if (!name.starts_with(from)) return {};
    name.remove_prefix(from.size());
  } else {
    if (!name.starts_with(from.substr(0, hole))) return {};
    name.remove_prefix(hole);
    const auto end = std::find_if(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c) == 0; });
    number = name.substr(0, static_cast<std::size_t>(end - name.begin()));
    name.remove_prefix(number.size());
    const std::string_view rest = from.substr(hole + 2);
    if (number.empty() || !name.starts_with(rest)) return {};
    name.remove_prefix(rest.size());
  }
  if (!name.empty() && name != ".weight" && name != ".bias") return {};
  std::string result(to);
  if (const std::size_t place = result.find("{}"); place != std::string::npos) result.replace(place, 2, number);
  return result.append(name);
}

}  // namespace

const MmprojLayout* find_mmproj_layout(std::string_view projector) {
  for (const MmprojLayout& each : kLayouts)
    if (each.projector == projector) return &each;
  return nullptr;
}

const MmprojLayout& mmproj_layout(MmprojKind kind) {
  for (const MmprojLayout& each : kLayouts)
    if (each.kind == kind) return each;
  throw InternalError("llm: a kind of mmproj file without a layout");
}

std::string known_projectors() {
  std::string text;
  for (const MmprojLayout& each : kLayouts) text.append(text.empty() ? "" : ", ").append(each.projector);
  return text;
}

std::optional<std::string> mmproj_name_of_folder(const MmprojLayout& layout, std::string_view name) {
  for (const MmprojName& each : layout.names)
    if (auto found = with_other_name(name, each.folder, each.file)) return found;
  return {};
}

std::optional<std::string> folder_name_of_mmproj(const MmprojLayout& layout, std::string_view name) {
  for (const MmprojName& each : layout.names)
    if (auto found = with_other_name(name, each.file, each.folder)) return found;
  return {};
}

std::string usual_folder_name(std::string_view name) {
  constexpr std::string_view kModel = "model.", kTower = "vision_tower.", kInner = "vision_model.";
  if (name.starts_with(kModel)) name.remove_prefix(kModel.size());
  if (!name.starts_with(kTower) || !name.substr(kTower.size()).starts_with(kInner)) return std::string(name);
  return std::string(kTower).append(name.substr(kTower.size() + kInner.size()));
}

}  // namespace weft::llm::detail
