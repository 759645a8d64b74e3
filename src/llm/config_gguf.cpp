// Configurations from the metadata of GGUF files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "llm/config.hpp"
#include "llm/config_families.hpp"
#include "llm/config_gguf.hpp"
#include "llm/config_keys.hpp"
#include "weft/error.hpp"

namespace weft::llm {
namespace {

/// Of a number, or of a list with one for each layer.
Extent largest_of(const io::GgufMetadata& m, const std::string& key) {
  const std::vector<std::int64_t> list = m.integers(key);
  const auto most = std::max_element(list.begin(), list.end());
  if (most == list.end() || *most < 0 || *most > kSizeMax)
    throw FileError(fmt::format("{}: {} is not a whole number from 0 to {}", m.source(), key, kSizeMax));
  return Extent{*most};
}

void read_gguf_gpt_oss(ModelConfig& c) {
  for (Extent i = 0; i < c.layers; ++i) c.local_layers.push_back(i % 2 == 0);
  c.swiglu_alpha = 1.702;
  c.swiglu_limit = 7;
  c.rope_scaling.truncate = false;  // as the model was trained, which GGUF has no key for
}

void read_gguf_deepseek(const io::GgufMetadata& m, ModelConfig& c) {
  const GgufKeys key(m, c);
  // Newer files describe the cached rows by the usual keys, as those of one head, and keep the products of keys and values apart.
  const bool is_apart = m.contains(key("attention.key_length_mla"));
  c.kv_heads = c.heads;
  c.head_dim = key.size(is_apart ? "attention.key_length_mla" : "attention.key_length");
  c.latent = {.rank = key.size("attention.kv_lora_rank"),
              .query_rank = key.size("attention.q_lora_rank", 0),
              .value_dim = key.size(is_apart ? "attention.value_length_mla" : "attention.value_length"),
              .joins_products = !is_apart};
  c.rope_scaling.attention_factor = 1;
  c.attention_scale = latent_scale(c, m.get_or<double>(key("rope.scaling.yarn_log_multiplier"), 0));
  if (c.experts > 0) read_gguf_mixture(m, c);
}

}  // namespace

Extent GgufKeys::size(std::string_view name, std::optional<Extent> fallback) const {
  const std::string key = (*this)(name);
  const std::int64_t value =
      fallback ? metadata_.get_or<std::int64_t>(key, *fallback) : metadata_.get<std::int64_t>(key);
  if (value < 0 || value > kSizeMax)
    throw FileError(fmt::format("{}: {} is {}, not from 0 to {}", source_, key, value, kSizeMax));
  return Extent{value};
}

void read_gguf_mixture(const io::GgufMetadata& m, ModelConfig& c) {
  const GgufKeys key(m, c);
  c.shared_intermediate = key.size("expert_shared_count", 0) * c.expert_intermediate;
  c.expert_weights_are_shares = m.get_or<bool>(key("expert_weights_norm"), false);
  const Extent gating = key.size("expert_gating_func", 1);
  if (gating != 1 && gating != 2)
    throw FileError(fmt::format("{}: {} is {}; known are 1 (softmax) and 2 (sigmoid)", c.source,
                                key("expert_gating_func"), gating));
  c.routing = {.is_sigmoid = gating == 2,
               .groups = std::max<Extent>(key.size("expert_group_count", 1), 1),
               .groups_used = std::max<Extent>(key.size("expert_group_used_count", 1), 1),
               .factor = m.get_or<double>(key("expert_weights_scale"), 1)};
  if (c.routing.factor == 0) c.routing.factor = 1;
  const Extent first = key.size("leading_dense_block_count", 0), step = key.size("interleave_moe_layer_step", 1);
  std::vector<bool> with_experts;
  for (Extent i = 0; i < c.layers; ++i) with_experts.push_back(i >= first && (step == 0 || (i + 1) % step == 0));
  set_expert_layers(c, std::move(with_experts));
}

ModelConfig config_from_gguf(const io::GgufMetadata& m, Extent vocabulary) {
  ModelConfig c;
  c.source = m.source();
  c.from_gguf = true;
  c.architecture = m.get<std::string>("general.architecture");
  c.name = m.get_or<std::string>("general.name", "");
  const auto key = [&](std::string_view name) { return fmt::format("{}.{}", c.architecture, name); };
  const auto size = [&](std::string_view name, std::optional<Extent> fallback = {}) {
    const std::string k = key(name);
    if (fallback && !m.contains(k)) return *fallback;
    // Some files give a number for each layer; Weft takes only models with equal layers.
    const std::vector<std::int64_t> list = m.integers(k);
    for (const std::int64_t each : list)
      if (each != list[0])
        throw FileError(fmt::format("{}: {} differs from layer to layer, which Weft does not support", c.source, k));
    if (list.empty() || list[0] < 0 || list[0] > kSizeMax)
      throw FileError(fmt::format("{}: {} is not a whole number from 0 to {}", c.source, k, kSizeMax));
    return Extent{list[0]};
  };
  const auto number = [&](std::string_view name, double fallback) { return m.get_or<double>(key(name), fallback); };
  c.vocabulary = vocabulary;
  c.hidden = size("embedding_length");
  c.further_layers = size("nextn_predict_layers", 0);  // which are counted as blocks
  const Extent blocks = size("block_count");
  if (c.further_layers >= blocks || c.further_layers > kFurtherLayersMax)
    throw FileError(fmt::format("{}: {} is {}; it must be less than the {} blocks, and at most {}", c.source,
                                key("nextn_predict_layers"), c.further_layers, blocks, kFurtherLayersMax));
  c.layers = blocks - c.further_layers;
  const bool is_mamba = c.architecture == "mamba" || c.architecture == "mamba2";
  if (is_mamba) {
    StateSpace& s = c.state_space;
    s = {.inner = size("ssm.inner_size"), .states = size("ssm.state_size"), .kernel = size("ssm.conv_kernel")};
    (c.architecture == "mamba" ? s.rank : s.heads) = size("ssm.time_step_rank");
    if (c.architecture == "mamba2") s.groups = size("ssm.group_count", 1);
  }
  const bool is_hybrid = is_gguf_hybrid(c.architecture), has_lists = c.architecture == "gemma4";
  c.heads = is_mamba ? 1 : is_hybrid ? largest_of(m, key("attention.head_count")) : size("attention.head_count");
  if (is_hybrid)
    read_gguf_hybrid(m, c);
  else
    c.kv_heads = is_mamba    ? 1
                 : has_lists ? largest_of(m, key("attention.head_count_kv"))
                             : size("attention.head_count_kv", c.heads);
  c.head_dim = is_mamba ? kHeadWithoutAttention : size("attention.key_length", c.heads > 0 ? c.hidden / c.heads : 0);
  if (c.architecture != "deepseek2" && size("attention.value_length", c.head_dim) != c.head_dim)
    throw FileError(fmt::format("{}: {} differs from attention.key_length, which Weft does not support", c.source,
                                key("attention.value_length")));
  if (!is_hybrid)
    c.intermediate = is_mamba    ? c.hidden
                     : has_lists ? largest_of(m, key("feed_forward_length"))
                                 : size("feed_forward_length");
  c.context = is_mamba ? kContextWithoutAttention : size("context_length");
  c.norm_eps = number("attention.layer_norm_rms_epsilon", number("attention.layer_norm_epsilon", 1e-5));
  if (m.get_or<bool>(key("ssm.dt_b_c_rms"), false)) c.state_space.part_eps = c.norm_eps;  // Falcon-Mamba
  c.rope_base =
      number("rope.freq_base", c.architecture.starts_with("gemma3") || c.architecture == "gemma4" ? 1e6 : 10000.0);
  c.rope_local_base = number("rope.freq_base_swa", c.architecture.starts_with("gemma3") ? 10000.0 : 0.0);
  c.rope_dims = size("rope.dimension_count", c.head_dim);
  const std::string scaling = m.get_or<std::string>(key("rope.scaling.type"), "none");
  RopeScaling& s = c.rope_scaling;
  s.factor = number("rope.scaling.factor", number("rope.scale_linear", 1));
  s.original_context = size("rope.scaling.original_context_length", 0);
  s.attention_factor = number("rope.scaling.attn_factor", 0);
  if (scaling == "linear" || (scaling == "none" && s.factor != 1))
    s.kind = RopeScaling::Kind::linear;
  else if (scaling == "yarn") {
    s.kind = RopeScaling::Kind::yarn;
    s.beta_fast = number("rope.scaling.yarn_beta_fast", s.beta_fast);
    s.beta_slow = number("rope.scaling.yarn_beta_slow", s.beta_slow);
    // Here the factor multiplies the computed value; it does not replace it.
    if (s.attention_factor > 0 && s.factor > 1) s.attention_factor *= 0.1 * std::log(s.factor) + 1;
  } else if (scaling == "longrope")
    s.kind = RopeScaling::Kind::longrope;
  else if (scaling != "none")
    throw FileError(fmt::format("{}: {} is \"{}\"; known are none, linear, yarn and longrope", c.source,
                                key("rope.scaling.type"), scaling));
  c.window = size("attention.sliding_window", 0);
  c.attention_soft_cap = number("attn_logit_softcapping", 0);
  c.logit_soft_cap = number("final_logit_softcapping", 0);
  c.experts = size("expert_count", 0);
  c.experts_per_token = size("expert_used_count", 0);
  c.expert_intermediate = size("expert_feed_forward_length", c.intermediate);
  c.embedding_scale = number("embedding_scale", 1);
  c.residual_scale = number("residual_scale", 1);
  c.attention_scale = number("attention.scale", 0);
  if (c.architecture.starts_with("granite")) c.logit_scale = 1 / number("logit_scale", 1);
  const bool is_command = c.architecture == "command-r" || c.architecture == "cohere2";
  if (is_command) c.logit_scale = number("logit_scale", 0.0625);
  c.is_parallel = is_command || c.architecture == "phi2" ||
                  (c.architecture == "stablelm" && m.get_or<bool>(key("use_parallel_residual"), false));
  if (c.architecture == "deepseek2") read_gguf_deepseek(m, c);
  read_gguf_families(m, c);
  if (c.architecture == "gpt-oss") read_gguf_gpt_oss(c);
  if (c.architecture == "qwen2moe") {
    // What files that leave it out mean.
    c.expert_intermediate =
        size("expert_feed_forward_length", c.intermediate / std::max<Extent>(c.experts_per_token, 1));
    c.shared_intermediate = size("expert_shared_feed_forward_length", c.intermediate);
    c.expert_weights_are_shares = false;
  }
  // Baichuan's larger models have 40 layers, and no key of GGUF says that they have slopes.
  if (c.architecture == "bloom" || (c.architecture == "baichuan" && c.layers == 40)) c.alibi = 8;
  if (c.architecture == "mpt") {
    c.alibi = number("attention.max_alibi_bias", 8);
    c.qkv_limit = number("attention.clamp_kqv", 0);
  }
  if (c.alibi > 0) c.rope_dims = 0;
  if (c.architecture == "smollm3")
    for (Extent i = 0; i < c.layers; ++i) c.rope_layers.push_back((i + 1) % 4 != 0);
  // Every fourth layer sees all positions, and knows none.
  if (c.architecture == "cohere2" || (c.architecture == "exaone4" && c.window > 0)) {
    for (Extent i = 0; i < c.layers; ++i) c.local_layers.push_back((i + 1) % 4 != 0);
    c.rope_layers = c.local_layers;
  }
  for (const char* name : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
    if (const auto id = m.get_if<std::int64_t>(name)) c.end_tokens.push_back(*id);
  check(c);
  return c;
}

}  // namespace weft::llm
