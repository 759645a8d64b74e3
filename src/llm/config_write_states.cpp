// Layers with states, as the two kinds of files describe them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "llm/config_write.hpp"

namespace weft::llm {
namespace {

bool is_jamba(const ModelConfig& c) { return c.architecture == "jamba"; }
bool is_nemotron(const ModelConfig& c) { return c.architecture.starts_with("nemotron_h"); }

/// Layers offset, offset + period, ... of those that are marked; with one such layer, none follows it.
struct Cycle {
  Extent offset = 0, period = 1;
};
Cycle cycle_of(const std::vector<bool>& marked) {
  const auto first = std::find(marked.begin(), marked.end(), true);
  if (first == marked.end()) return {0, static_cast<Extent>(marked.size()) + 1};
  const auto next = std::find(first + 1, marked.end(), true);
  return {first - marked.begin(), next == marked.end() ? static_cast<Extent>(marked.size()) : next - first};
}

Json types_of(const ModelConfig& c, const char* with_state) {
  Json types = Json::array();
  for (std::size_t i = 0; i < c.state_space.layers.size(); ++i) {
    const bool has_experts = c.experts > 0 && (c.expert_layers.empty() || c.expert_layers[i]);
    // GGUF files do not tell layers that are an MLP from those with a state by their keys, of which both have none.
    types.push_back(!c.mlp_layers.empty() && c.mlp_layers[i] ? (has_experts ? "moe" : "mlp")
                    : c.state_space.layers[i]                ? with_state
                                                             : "full_attention");
  }
  return types;
}

void add_mamba(Json& json, const ModelGraph& graph, const ModelConfig& c) {
  const StateSpace& s = c.state_space;
  const double expand = static_cast<double>(s.inner) / static_cast<double>(c.hidden);
  json.update({{"hidden_size", c.hidden},
               {"num_hidden_layers", c.layers},
               {"state_size", s.states},
               {"conv_kernel", s.kernel},
               {"expand", expand == static_cast<double>(s.inner / c.hidden) ? Json(s.inner / c.hidden) : Json(expand)},
               {"layer_norm_epsilon", tidy(c.norm_eps)},
               {"use_bias", graph.find("layer0.ssm_in.bias") != nullptr},
               {"use_conv_bias", graph.find("layer0.ssm_conv.bias") != nullptr}});
  if (s.heads > 0)
    json.update({{"num_heads", s.heads}, {"head_dim", s.inner / s.heads}, {"n_groups", s.groups}});
  else
    json.update({{"time_step_rank", s.rank}, {"intermediate_size", s.inner}});
  if (s.part_eps > 0) json["mixer_rms_eps"] = tidy(s.part_eps);
}

void add_jamba(Json& json, const ModelConfig& c) {
  const StateSpace& s = c.state_space;
  std::vector<bool> attention = s.layers;
  attention.flip();
  const Cycle of_attention = cycle_of(attention), of_experts = cycle_of(c.expert_layers);
  json.update({{"mamba_d_state", s.states},
               {"mamba_d_conv", s.kernel},
               {"mamba_expand", s.inner / c.hidden},
               {"mamba_dt_rank", s.rank},
               {"attn_layer_period", of_attention.period},
               {"attn_layer_offset", of_attention.offset},
               {"expert_layer_period", of_experts.period},
               {"expert_layer_offset", of_experts.offset},
               {"num_experts", std::max<Extent>(c.experts, 1)},
               {"num_experts_per_tok", std::max<Extent>(c.experts_per_token, 1)},
               {"use_mamba_kernels", false}});
}

void add_nemotron(Json& json, const ModelConfig& c) {
  const StateSpace& s = c.state_space;
  json.update({{"layers_block_type", types_of(c, "linear_attention")},
               {"ssm_state_size", s.states},
               {"conv_kernel", s.kernel},
               {"mamba_num_heads", s.heads},
               {"mamba_head_dim", s.inner / s.heads},
               {"n_groups", s.groups},
               {"mlp_hidden_act", "relu2"},
               {"layer_norm_epsilon", tidy(c.norm_eps)}});
  json.erase("hidden_act");
  json.erase("rms_norm_eps");
  json.erase("partial_rotary_factor");
  if (c.experts == 0) return;
  json.update({{"n_routed_experts", c.experts},
               {"num_experts_per_tok", c.experts_per_token},
               {"moe_intermediate_size", c.expert_intermediate},
               {"moe_shared_expert_intermediate_size", c.shared_intermediate},
               {"norm_topk_prob", c.expert_weights_are_shares},
               {"routed_scaling_factor", tidy(c.routing.factor)},
               {"n_group", c.routing.groups},
               {"topk_group", c.routing.groups_used}});
}

/// The keys that Bamba's relatives share.
void add_second_mamba(Json& json, const ModelGraph& graph, const ModelConfig& c) {
  const StateSpace& s = c.state_space;
  Extent with_state = 0;
  while (with_state + 1 < c.layers && !s.layers[static_cast<std::size_t>(with_state)]) ++with_state;
  const auto has = [&](const char* name) { return graph.find(fmt::format("layer{}.{}", with_state, name)) != nullptr; };
  json.update({{"mamba_d_state", s.states},
               {"mamba_d_conv", s.kernel},
               {"mamba_expand", std::max<Extent>(s.inner / c.hidden, 1)},
               {"mamba_n_heads", s.heads},
               {"mamba_d_head", s.inner / s.heads},
               {"mamba_n_groups", s.groups},
               {"mamba_conv_bias", has("ssm_conv.bias")},
               {"mamba_proj_bias", has("ssm_in.bias")}});
  if (c.architecture != "falcon_h1") return;
  json.update({{"mamba_d_ssm", s.inner},
               {"mamba_rms_norm", has("ssm_norm.weight")},
               {"mamba_norm_before_gate", s.norms_before_gate},
               {"ssm_multipliers", std::vector<double>(5, 1.0)},
               {"mlp_multipliers", std::vector<double>(2, 1.0)}});
  for (const char* part : {"embedding", "lm_head", "key", "attention_in", "attention_out", "ssm_in", "ssm_out"})
    json[fmt::format("{}_multiplier", part)] = 1.0;  // GGUF files have them in their weights
}

void add_granite(Json& json, const ModelConfig& c) {
  Json types = Json::array();
  for (const bool has_state : c.state_space.layers) types.push_back(has_state ? "mamba" : "attention");
  json.update({{"layer_types", types},
               {"position_embedding_type", c.rope_dims > 0 ? "rope" : "nope"},
               {"num_local_experts", c.experts},
               {"num_experts_per_tok", c.experts_per_token},
               {"shared_intermediate_size", c.experts > 0 ? c.shared_intermediate : c.intermediate},
               {"intermediate_size", c.experts > 0 ? c.expert_intermediate : c.intermediate}});
  if (c.rope_dims == 0) json.erase("partial_rotary_factor");
  if (c.attention_scale == 0) json["attention_multiplier"] = 1 / std::sqrt(static_cast<double>(c.head_dim));
}

void add_qwen_next(Json& json, const ModelConfig& c) {
  const StateSpace& s = c.state_space;
  json.update({{"layer_types", types_of(c, "linear_attention")},
               {"linear_key_head_dim", s.states},
               {"linear_value_head_dim", s.inner / s.heads},
               {"linear_num_key_heads", s.groups},
               {"linear_num_value_heads", s.heads},
               {"linear_conv_kernel_dim", s.kernel}});
  for (const char* key : {"sliding_window", "use_sliding_window"}) json.erase(key);
  if (c.experts > 0)
    json.update({{"num_experts", c.experts},
                 {"num_experts_per_tok", c.experts_per_token},
                 {"moe_intermediate_size", c.expert_intermediate},
                 {"shared_expert_intermediate_size", c.shared_intermediate},
                 {"norm_topk_prob", c.expert_weights_are_shares}});
}

/// Every n-th layer has attention.
void add_delta(io::GgufMetadata& m, const std::string& architecture, const ModelConfig& c) {
  const auto& layers = c.state_space.layers;
  const auto first = std::find(layers.begin(), layers.end(), false);
  m.set(architecture + ".full_attention_interval", static_cast<std::uint32_t>(first - layers.begin() + 1));
  if (c.experts > 0)
    m.set(architecture + ".expert_shared_feed_forward_length", static_cast<std::uint32_t>(c.shared_intermediate));
}

void add_lfm2(Json& json, const ModelGraph& graph, const ModelConfig& c) {
  bool has_biases = false;
  for (Extent i = 0; i < c.layers; ++i) has_biases |= graph.find(fmt::format("layer{}.conv.bias", i)) != nullptr;
  json.update({{"layer_types", types_of(c, "conv")},
               {"conv_L_cache", c.state_space.kernel},
               {"conv_bias", has_biases},
               {"norm_eps", tidy(c.norm_eps)}});
  json.erase("rms_norm_eps");
  if (c.architecture == "lfm2") json["block_auto_adjust_ff_dim"] = false;
  if (c.architecture == "lfm2_moe")
    json.update({{"num_experts", c.experts},
                 {"num_experts_per_tok", c.experts_per_token},
                 {"moe_intermediate_size", c.expert_intermediate},
                 {"num_dense_layers", leading_dense(c)},
                 {"norm_topk_prob", c.expert_weights_are_shares},
                 {"use_expert_bias", graph.find(fmt::format("layer{}.router.correction", leading_dense(c))) != nullptr},
                 {"routed_scaling_factor", tidy(c.routing.factor)}});
}

}  // namespace

void add_states(Json& json, const ModelGraph& graph, const ModelConfig& c) {
  if (c.state_space.layers.empty())
    add_mamba(json, graph, c);
  else if (is_jamba(c))
    add_jamba(json, c);
  else if (is_nemotron(c))
    add_nemotron(json, c);
  else if (c.state_space.is_delta)
    add_qwen_next(json, c);
  else if (c.architecture.starts_with("lfm2"))
    add_lfm2(json, graph, c);
  else
    add_second_mamba(json, graph, c);
  if (c.architecture == "granitemoehybrid") add_granite(json, c);
}

void add_states(io::GgufMetadata& m, const std::string& architecture, const ModelConfig& c) {
  const StateSpace& s = c.state_space;
  const auto size = [&](std::string_view key, Extent value) {
    m.set(fmt::format("{}.{}", architecture, key), static_cast<std::uint32_t>(value));
  };
  if (architecture.starts_with("lfm2")) {
    size("shortconv.l_cache", s.kernel);
  } else {
    size("ssm.conv_kernel", s.kernel);
    size("ssm.inner_size", s.inner);
    size("ssm.state_size", s.states);
    size("ssm.time_step_rank", s.heads > 0 ? s.heads : s.rank);
    if (s.heads > 0) size("ssm.group_count", s.groups);
  }
  if (s.part_eps > 0) m.set(architecture + ".ssm.dt_b_c_rms", true);
  if (is_nemotron(c)) m.set(architecture + ".attention.layer_norm_epsilon", static_cast<float>(c.norm_eps));
  if (s.layers.empty()) {  // no layer has attention
    size("attention.head_count", 0);
    return size("feed_forward_length", 0);
  }
  if (s.is_delta) return add_delta(m, architecture, c);
  // Numbers of heads and widths tell what a layer has.
  std::vector<std::int32_t> keys, widths;
  for (std::size_t i = 0; i < s.layers.size(); ++i) {
    const bool is_mlp = !c.mlp_layers.empty() && c.mlp_layers[i];
    const bool has_attention = c.hybrid_factors.are_side_by_side || (!s.layers[i] && !is_mlp);
    keys.push_back(!has_attention ? 0 : static_cast<std::int32_t>(c.kv_heads));
    widths.push_back(c.mlp_layers.empty() || is_mlp ? static_cast<std::int32_t>(c.intermediate) : 0);
  }
  m.set(architecture + ".attention.head_count_kv", io::GgufArray(keys));
  if (!c.mlp_layers.empty()) m.set(architecture + ".feed_forward_length", io::GgufArray(widths));
  if (architecture == "granitehybrid") {
    m.set(architecture + ".rope.scaling.finetuned", c.rope_dims > 0);
    if (c.experts == 0) return;
    size("feed_forward_length", c.expert_intermediate);
    return size("expert_shared_feed_forward_length", c.shared_intermediate);
  }
  if (c.experts == 0 || is_jamba(c)) return;
  size("expert_feed_forward_length", c.expert_intermediate);
  size("expert_gating_func", 2);
  m.set(architecture + ".expert_weights_norm", c.expert_weights_are_shares);
  m.set(architecture + ".expert_weights_scale", static_cast<float>(c.routing.factor));
  if (!is_nemotron(c)) return size("leading_dense_block_count", leading_dense(c));
  size("expert_shared_count", 1);
  size("expert_shared_feed_forward_length", c.shared_intermediate);
  size("expert_group_count", c.routing.groups);
  size("expert_group_used_count", c.routing.groups_used);
}

}  // namespace weft::llm
