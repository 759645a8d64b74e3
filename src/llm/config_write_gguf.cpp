// Configurations as metadata of GGUF files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "llm/config_write.hpp"

namespace weft::llm {

std::vector<double> slowing_of(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.rope_scaling = {};
  const std::vector<double> from = rope_table(plain, config.context, false).frequencies;
  std::vector<double> factors = rope_table(config, config.context, false).frequencies;
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = from[i] / factors[i];
  return factors;
}

Extent leading_dense(const ModelConfig& c) {
  if (c.expert_layers.empty()) return c.experts > 0 ? 0 : c.layers;
  return std::find(c.expert_layers.begin(), c.expert_layers.end(), true) - c.expert_layers.begin();
}

GgufConfig config_to_gguf(const ModelGraph& graph) {
  using Kind = RopeScaling::Kind;
  const ModelConfig& c = graph.config;
  GgufConfig out;
  const std::string architecture = c.from_gguf ? c.architecture : architecture_elsewhere(c);
  out.metadata.set("general.architecture", architecture);
  if (!c.name.empty()) out.metadata.set("general.name", c.name);
  const auto size = [&](std::string_view key, Extent value) {
    out.metadata.set(fmt::format("{}.{}", architecture, key), static_cast<std::uint32_t>(value));
  };
  const auto number = [&](std::string_view key, double value) {
    out.metadata.set(fmt::format("{}.{}", architecture, key), static_cast<float>(value));
  };
  size("vocab_size", c.vocabulary);
  size("context_length", c.context);
  size("embedding_length", c.hidden);
  size("block_count", c.layers);
  size("feed_forward_length", c.intermediate);
  size("attention.head_count", c.heads);
  size("attention.head_count_kv", c.kv_heads);
  const bool has_layer_norms =
      std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const OpNode& n) { return n.op == OpType::layer_norm; });
  number(has_layer_norms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c.norm_eps);
  if (architecture == "mpt") {
    number("attention.max_alibi_bias", c.alibi);
    if (c.qkv_limit > 0) number("attention.clamp_kqv", c.qkv_limit);
    if (c.attention_scale > 0) number("attention.scale", c.attention_scale);
  }
  if (c.state_space.inner > 0) add_states(out.metadata, architecture, c);
  if (c.state_space.inner > 0 && c.state_space.layers.empty()) return out;  // the rest is of attention
  if (architecture == "gpt2" || c.alibi > 0) return out;
  if (c.latent.rank > 0) {
    // The cached rows are the keys of one head, and their first part the values.
    size("attention.head_count_kv", 1);
    size("attention.key_length", c.latent.rank + c.rope_dims);
    size("attention.value_length", c.latent.rank);
    size("attention.key_length_mla", c.head_dim);
    size("attention.value_length_mla", c.latent.value_dim);
    size("attention.kv_lora_rank", c.latent.rank);
    if (c.latent.query_rank > 0) size("attention.q_lora_rank", c.latent.query_rank);
  } else {
    size("attention.key_length", c.head_dim);
    size("attention.value_length", c.head_dim);
  }
  add_mixture(out.metadata, architecture, c);
  if (c.layer_input > 0 || architecture == "gemma4") add_gemma(out.metadata, architecture, c);
  if (architecture == "gemma4") out.factors["rope_freqs.weight"] = gguf_gemma4_factors(c);
  if (architecture == "gemma3n")
    for (Extent i = c.layers - c.layers_without_keys; i < c.layers; ++i) {
      for (const char* part : {"k", "v"})
        out.zeros[fmt::format("blk.{}.attn_{}.weight", i, part)] = {c.kv_heads * c.head_dim, c.hidden};
      out.zeros[fmt::format("blk.{}.attn_k_norm.weight", i)] = {c.head_dim};
    }
  if (c.rope_dims > 0) size("rope.dimension_count", c.rope_dims);
  number("rope.freq_base", c.rope_base);
  if (c.rope_local_base > 0) number("rope.freq_base_swa", c.rope_local_base);
  if (c.window > 0) size("attention.sliding_window", c.window);
  if (c.attention_soft_cap > 0) number("attn_logit_softcapping", c.attention_soft_cap);
  if (c.logit_soft_cap > 0) number("final_logit_softcapping", c.logit_soft_cap);
  if (c.experts > 0) {
    size("expert_count", c.experts);
    size("expert_used_count", c.experts_per_token);
    // Without it readers take the width of an MLP for that of all experts that a token uses; Mixtral's readers do not ask.
    if (c.expert_intermediate != c.intermediate || architecture != "llama")
      size("expert_feed_forward_length", c.expert_intermediate);
    if (architecture == "qwen2moe") size("expert_shared_feed_forward_length", c.shared_intermediate);
  }
  if (!c.rope_sections.empty()) {
    std::vector<std::int32_t> sections(c.rope_sections.begin(), c.rope_sections.end());
    sections.push_back(0);  // GGUF has room for a fourth axis
    out.metadata.set(architecture + ".rope.dimension_sections", io::GgufArray(sections));
  }
  if (c.embedding_scale != 1) number("embedding_scale", c.embedding_scale);
  if (c.residual_scale != 1) number("residual_scale", c.residual_scale);
  if (c.attention_scale > 0 && c.latent.rank == 0) number("attention.scale", c.attention_scale);
  if (architecture.starts_with("granite")) number("logit_scale", 1 / c.logit_scale);
  if (architecture == "apertus") add_xielu(out.metadata, c);
  if (architecture == "command-r" || architecture == "cohere2") number("logit_scale", c.logit_scale);
  if (architecture == "stablelm") out.metadata.set(architecture + ".use_parallel_residual", c.is_parallel);
  const RopeScaling& s = c.rope_scaling;
  const auto as_floats = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  const double magnitude = rope_table(c, c.context, false).magnitude;
  const Extent original = s.original_context > 0 ? s.original_context : c.context;
  switch (s.kind) {
    case Kind::none: break;
    case Kind::linear:
      out.metadata.set(architecture + ".rope.scaling.type", std::string("linear"));
      number("rope.scaling.factor", s.factor);
      break;
    case Kind::llama3: out.factors["rope_freqs.weight"] = as_floats(slowing_of(c)); break;
    case Kind::yarn:
      out.metadata.set(architecture + ".rope.scaling.type", std::string("yarn"));
      number("rope.scaling.factor", s.factor);
      size("rope.scaling.original_context_length", original);
      if (c.latent.rank > 0) {
        const double by = std::sqrt(c.attention_scale * std::sqrt(static_cast<double>(c.head_dim)));
        number("rope.scaling.yarn_log_multiplier", (by - 1) / std::log(s.factor));
      } else if (architecture == "mistral3") {
        // The factor of cosine and sine is (0.1 ln f + 1) / (0.1 m ln f + 1); without m it is the former alone.
        const double grown = 0.1 * std::log(std::max(s.factor, 1.0));
        if (grown > 0) number("rope.scaling.yarn_log_multiplier", ((grown + 1) / magnitude - 1) / grown);
        if (c.query_growth.factor > 0) number("attention.temperature_scale", c.query_growth.factor);
      } else
        number("rope.scaling.attn_factor", magnitude / (0.1 * std::log(std::max(s.factor, 1.0)) + 1));
      number("rope.scaling.yarn_beta_fast", s.beta_fast);
      number("rope.scaling.yarn_beta_slow", s.beta_slow);
      break;
    case Kind::longrope:
      if (s.short_factors == s.long_factors && magnitude == 1) {
        out.factors["rope_freqs.weight"] = as_floats(s.long_factors);
        break;
      }
      out.metadata.set(architecture + ".rope.scaling.type", std::string("longrope"));
      size("rope.scaling.original_context_length", original);
      number("rope.scaling.attn_factor", magnitude);
      out.factors["rope_factors_short.weight"] = as_floats(s.short_factors);
      out.factors["rope_factors_long.weight"] = as_floats(s.long_factors);
      break;
  }
  return out;
}

}  // namespace weft::llm
