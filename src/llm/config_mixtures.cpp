// Experts of single families: how many, in which layers, and how they are chosen.
#include <fmt/format.h>

#include <algorithm>

#include "llm/config_families.hpp"

namespace weft::llm {
namespace {

/// A number, or a list with one for each layer, which must be equal.
Extent equal_of_layers(const Keys& keys, const char* key, Extent fallback) {
  const Json* json = keys.find({key});
  if (!json || !json->is_array()) return keys.size({key}, fallback);
  const std::vector<double> list = keys.numbers(key);
  for (const double each : list)
    if (each != list[0]) keys.fail(key, "differs from layer to layer, which Weft does not support");
  if (list.empty() || !(list[0] >= 0 && list[0] <= 1024)) keys.fail(key, "is not a list of numbers from 0 to 1024");
  return static_cast<Extent>(list[0]);
}

/// All layers from `first` on have experts.
void set_experts_from(ModelConfig& c, Extent first) {
  std::vector<bool> with_experts;
  for (Extent i = 0; i < c.layers; ++i) with_experts.push_back(i >= first);
  set_expert_layers(c, std::move(with_experts));
}

}  // namespace

void read_glm_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size({"n_routed_experts", "num_local_experts"}, 128);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, 8);
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, 1408);
  c.shared_intermediate = c.expert_intermediate * keys.size({"n_shared_experts"}, 1);
  c.expert_weights_are_shares = keys.flag("norm_topk_prob", true);
  c.routing = {.is_sigmoid = true,
               .groups = keys.size({"n_group"}, 1),
               .groups_used = keys.size({"topk_group"}, 1),
               .factor = keys.number({"routed_scaling_factor"}, 1.0)};
  set_experts_from(c, keys.size({"first_k_dense_replace"}, 1));
}

void read_olmo_experts(const Keys& keys, ModelConfig& c) {
  if (keys.number({"clip_qkv"}, 0.0) != 0)
    keys.fail("clip_qkv", "is given; Weft runs OLMoE whose queries, keys and values are not clipped");
  c.experts = keys.size({"num_experts", "num_local_experts"}, 64);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, 8);
  c.expert_intermediate = c.intermediate;
  c.expert_weights_are_shares = keys.flag("norm_topk_prob", false);
}

void read_dots_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size({"n_routed_experts", "num_local_experts"});
  c.experts_per_token = keys.size({"num_experts_per_tok"});
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, 1408);
  c.shared_intermediate = c.expert_intermediate * keys.size({"n_shared_experts"});
  c.expert_weights_are_shares = keys.flag("norm_topk_prob", false);
  c.routing = {.is_sigmoid = true,
               .groups = keys.size({"n_group"}, 1),
               .groups_used = keys.size({"topk_group"}, 1),
               .factor = keys.number({"routed_scaling_factor"}, 1.0)};
  set_experts_from(c, keys.size({"first_k_dense_replace"}, 0));
}

void read_bailing_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size({"num_experts"});
  c.experts_per_token = keys.size({"num_experts_per_tok"});
  c.expert_intermediate = keys.size({"moe_intermediate_size"});
  c.shared_intermediate = c.expert_intermediate * keys.size({"num_shared_experts"}, 0);
  c.expert_weights_are_shares = keys.flag("norm_topk_prob", true);
  const std::string scores = keys.text({"score_function"}, "softmax");
  if (scores != "softmax" && scores != "sigmoid")
    keys.fail("score_function", fmt::format("is \"{}\"; known are softmax and sigmoid", scores));
  c.routing = {.is_sigmoid = scores == "sigmoid", .factor = keys.number({"routed_scaling_factor"}, 1.0)};
  if (c.routing.is_sigmoid) {
    c.routing.groups = keys.size({"n_group"}, 1);
    c.routing.groups_used = keys.size({"topk_group"}, 1);
  }
  set_experts_from(c, keys.size({"first_k_dense_replace"}, 0));
}

void read_ernie_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size({"moe_num_experts", "num_experts"}, 64);
  c.experts_per_token = keys.size({"moe_k", "num_experts_per_tok"}, 6);
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, 1536);
  c.shared_intermediate = c.expert_intermediate * keys.size({"moe_num_shared_experts"}, 2);
  const Extent first = keys.size({"moe_layer_start_index"}, 1), step = keys.size({"moe_layer_interval"}, 1);
  const double last = keys.number({"moe_layer_end_index"}, -1.0);  // -1: the last layer
  if (step < 1) keys.fail("moe_layer_interval", "is 0; it must be above 0");
  std::vector<bool> with_experts;
  for (Extent i = 0; i < c.layers; ++i)
    with_experts.push_back(i >= first && (last < 0 || static_cast<double>(i) <= last) && (i + 1) % step == 0);
  set_expert_layers(c, std::move(with_experts));
}

void read_hunyuan_experts(const Keys& keys, ModelConfig& c) {
  c.experts = equal_of_layers(keys, "num_experts", 1);
  c.experts_per_token = equal_of_layers(keys, "moe_topk", 1);
  c.expert_intermediate = equal_of_layers(keys, "moe_intermediate_size", c.intermediate);
  c.shared_intermediate = c.intermediate * equal_of_layers(keys, "num_shared_expert", 1);
}

void read_minimax_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size({"num_local_experts"}, 256);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, 8);
  c.expert_intermediate = c.intermediate;
  if (keys.text({"scoring_func"}, "sigmoid") != "sigmoid")
    keys.fail("scoring_func", "is not \"sigmoid\", the only one that Weft runs");
  c.routing.is_sigmoid = true;
  // Released files give the channels that turn, in place of their part.
  c.rope_dims = keys.size({"rotary_dim"}, c.rope_dims);
}

void read_llama4(const Keys& keys, ModelConfig& c) {
  c.intermediate = keys.size({"intermediate_size_mlp"}, 16384);
  c.expert_intermediate = c.shared_intermediate = keys.size({"intermediate_size"}, 8192);
  c.experts = keys.size({"num_local_experts"}, 16);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, 1);
  c.expert_weights_are_shares = false;
  c.routing.is_sigmoid = c.routing.is_on_input = true;
  c.has_unit_heads = keys.flag("use_qk_norm", true);
  c.attention_chunk = keys.size({"attention_chunk_size"}, keys.is_null("attention_chunk_size") ? 0 : 8192);
  if (const Json* types = keys.find({"layer_types"})) {
    c.local_layers.clear();
    for (const Json& type : *types) c.local_layers.push_back(type == "chunked_attention");
  } else {
    c.local_layers = c.rope_layers;
  }
  if (keys.flag("attn_temperature_tuning", true))
    c.query_growth = {keys.number({"attn_scale"}, 0.1), std::max<Extent>(keys.size({"floor_scale"}, 8192), 1), 1};
  std::vector<bool> with_experts(static_cast<std::size_t>(c.layers));
  if (keys.find({"moe_layers"})) {
    for (const double layer : keys.numbers("moe_layers")) {
      if (!(layer >= 0 && layer < static_cast<double>(c.layers)))
        keys.fail("moe_layers", fmt::format("names the layer {} of {}", layer, c.layers));
      with_experts[static_cast<std::size_t>(layer)] = true;
    }
  } else {
    const Extent step = keys.size({"interleave_moe_layer_step"}, 1);
    if (step < 1) keys.fail("interleave_moe_layer_step", "is 0; it must be above 0");
    for (Extent i = 0; i < c.layers; ++i) with_experts[static_cast<std::size_t>(i)] = (i + 1) % step == 0;
  }
  set_expert_layers(c, std::move(with_experts));
}

void read_nemotron_experts(const Keys& keys, ModelConfig& c) {
  const std::vector<bool> layers = c.expert_layers;
  c.experts = keys.size({"n_routed_experts"}, 8);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, 2);
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, 7688);
  c.shared_intermediate = keys.size({"moe_shared_expert_intermediate_size"}, 7688);
  c.experts_are_plain = true;
  c.expert_weights_are_shares = keys.flag("norm_topk_prob", true);
  c.routing = {.is_sigmoid = true,
               .groups = keys.size({"n_group"}, 1),
               .groups_used = keys.size({"topk_group"}, 1),
               .factor = keys.number({"routed_scaling_factor"}, 1.0)};
  set_expert_layers(c, layers);
  if (c.experts > 0 && keys.find({"moe_latent_size"}))
    keys.fail("moe_latent_size", "is given; Weft runs Nemotron-H whose experts read the states of tokens themselves");
}

void read_lfm2_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size({"num_experts"}, 32);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, 4);
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, 1792);
  c.expert_weights_are_shares = keys.flag("norm_topk_prob", true);
  c.routing = {.is_sigmoid = true, .factor = keys.number({"routed_scaling_factor"}, 1.0)};
  set_experts_from(c, keys.size({"num_dense_layers"}, 2));
}

void read_jamba_experts(const Keys& keys, ModelConfig& c) {
  c.experts = keys.size({"num_experts"}, 16);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, 2);
  c.expert_intermediate = c.intermediate;
  c.expert_weights_are_shares = false;
  const Extent period = keys.size({"expert_layer_period"}, 2), offset = keys.size({"expert_layer_offset"}, 1);
  if (period < 1) keys.fail("expert_layer_period", "is 0; it must be above 0");
  std::vector<bool> with_experts;
  for (Extent i = 0; i < c.layers; ++i) with_experts.push_back(c.experts > 1 && i % period == offset);
  set_expert_layers(c, std::move(with_experts));
}

}  // namespace weft::llm
