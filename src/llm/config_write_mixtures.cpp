// Experts, as the two kinds of files describe them.
#include <fmt/format.h>

#include "llm/config_write.hpp"

namespace weft::llm {
namespace {

/// Experts are in layers step - 1, 2 step - 1, ... from the first one on.
Extent step_of_experts(const ModelConfig& c) {
  Extent last = -1, step = 1;
  for (Extent i = 0; i < static_cast<Extent>(c.expert_layers.size()); ++i) {
    if (!c.expert_layers[static_cast<std::size_t>(i)]) continue;
    if (last >= 0) step = i - last;
    last = i;
  }
  // With one such layer, every multiple of its place counts as the next.
  return step == 1 && last >= 0 && leading_dense(c) == last && last + 1 < c.layers ? last + 1 : step;
}

}  // namespace

void add_mixture(Json& json, const ModelGraph& graph, const ModelConfig& c) {
  const std::string& name = c.architecture;
  if (name == "glm4_moe") json["use_qk_norm"] = graph.find("layer0.q_norm.weight") != nullptr;
  if (c.experts == 0) return;
  const Extent shared = c.expert_intermediate > 0 ? c.shared_intermediate / c.expert_intermediate : 0;
  if (name == "glm4_moe" || name == "dots1" || name == "bailing_moe") {
    const bool is_bailing = name == "bailing_moe";
    json.update({{is_bailing ? "num_experts" : "n_routed_experts", c.experts},
                 {"num_experts_per_tok", c.experts_per_token},
                 {"moe_intermediate_size", c.expert_intermediate},
                 {is_bailing ? "num_shared_experts" : "n_shared_experts", shared},
                 {"norm_topk_prob", c.expert_weights_are_shares},
                 {"routed_scaling_factor", tidy(c.routing.factor)},
                 {"n_group", c.routing.groups},
                 {"topk_group", c.routing.groups_used},
                 {"first_k_dense_replace", leading_dense(c)}});
    if (name != "dots1") json["num_nextn_predict_layers"] = 0;
    if (!is_bailing) return;
    const bool has_norms = graph.find("layer0.q_norm.weight") != nullptr,
               is_corrected = graph.find(fmt::format("layer{}.router.correction", leading_dense(c))) != nullptr;
    json.update({{"score_function", c.routing.is_sigmoid ? "sigmoid" : "softmax"},
                 {"moe_router_enable_expert_bias", is_corrected},
                 {"use_qk_norm", has_norms},
                 {"use_bias", false},
                 {"use_qkv_bias", false},
                 {"use_rmsnorm", true}});
  } else if (name == "olmoe") {
    json.update({{"num_experts", c.experts},
                 {"num_experts_per_tok", c.experts_per_token},
                 {"intermediate_size", c.expert_intermediate},
                 {"norm_topk_prob", c.expert_weights_are_shares}});
  } else if (name == "ernie4_5_moe") {
    json.update({{"moe_num_experts", c.experts},
                 {"moe_k", c.experts_per_token},
                 {"moe_intermediate_size", c.expert_intermediate},
                 {"moe_num_shared_experts", shared},
                 {"moe_layer_start_index", leading_dense(c)},
                 {"moe_layer_end_index", c.layers - 1},
                 {"moe_layer_interval", step_of_experts(c)}});
  } else if (name == "hunyuan_v1_moe") {
    json.update({{"num_experts", c.experts}, {"moe_topk", c.experts_per_token}});
    if (c.expert_intermediate != c.intermediate) json["moe_intermediate_size"] = c.expert_intermediate;
    if (c.shared_intermediate != c.intermediate) json["num_shared_expert"] = c.shared_intermediate / c.intermediate;
  } else if (name == "llama4_text") {
    Json with_experts = Json::array();
    for (Extent i = 0; i < c.layers; ++i)
      if (c.expert_layers.empty() || c.expert_layers[static_cast<std::size_t>(i)]) with_experts.push_back(i);
    json.update({{"num_local_experts", c.experts},
                 {"num_experts_per_tok", c.experts_per_token},
                 {"intermediate_size", c.expert_intermediate},
                 {"intermediate_size_mlp", c.intermediate},
                 {"interleave_moe_layer_step", step_of_experts(c)},
                 {"moe_layers", with_experts},
                 {"use_qk_norm", c.has_unit_heads},
                 {"attn_temperature_tuning", c.query_growth.factor > 0},
                 {"attn_scale", tidy(c.query_growth.factor)},
                 {"floor_scale", c.query_growth.each}});
  } else if (name == "minimax_m2") {
    json.update({{"num_local_experts", c.experts},
                 {"num_experts_per_tok", c.experts_per_token},
                 {"intermediate_size", c.expert_intermediate}});
  }
}

void add_mixture(io::GgufMetadata& metadata, const std::string& architecture, const ModelConfig& c) {
  const auto size = [&](std::string_view key, Extent value) {
    metadata.set(fmt::format("{}.{}", architecture, key), static_cast<std::uint32_t>(value));
  };
  if (architecture == "llama4") return size("interleave_moe_layer_step", step_of_experts(c));
  const bool is_ernie = architecture == "ernie4_5-moe", is_hunyuan = architecture == "hunyuan-moe",
             is_minimax = architecture == "minimax-m2";
  const bool has_usual_keys =
      architecture == "glm4moe" || architecture == "dots1" || architecture.starts_with("bailingmoe");
  if (c.latent.rank == 0 && !is_ernie && !is_hunyuan && !is_minimax && !has_usual_keys) return;
  const Extent shared = c.experts > 0 ? c.shared_intermediate / c.expert_intermediate : 0;
  if (c.experts > 0) size("expert_feed_forward_length", c.expert_intermediate);
  if (is_minimax) return size("expert_gating_func", 2);
  if (is_hunyuan) {
    size("expert_shared_feed_forward_length", c.intermediate);
    return size("expert_shared_count", c.shared_intermediate / c.intermediate);
  }
  size("leading_dense_block_count", leading_dense(c));
  size("expert_shared_count", shared);
  size("expert_gating_func", c.routing.is_sigmoid ? 2 : 1);
  metadata.set(architecture + ".expert_weights_norm", c.expert_weights_are_shares);
  metadata.set(architecture + ".expert_weights_scale", static_cast<float>(c.routing.factor));
  if (is_ernie) {
    size("interleave_moe_layer_step", step_of_experts(c));
    if (shared > 0) size("expert_shared_feed_forward_length", c.shared_intermediate);
    return;
  }
  size("expert_group_count", c.routing.groups);
  size("expert_group_used_count", c.routing.groups_used);
}

}  // namespace weft::llm
