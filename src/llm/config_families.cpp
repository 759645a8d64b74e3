#include "llm/config_families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::llm {
namespace {

constexpr UsualKeys kUsual[] = {
    {.architecture = "gpt2", .norm_eps = 1e-5, .tied = true},
    {.architecture = "smollm3", .tied = true},
    {.architecture = "gemma", .tied = true},
    {.architecture = "gemma2", .tied = true},
    {.architecture = "gemma3_text", .rope_base = 1e6, .tied = true},
    {.architecture = "gemma3", .tied = true},
    {.architecture = "gemma4_text", .rope_base = 1e6, .tied = true, .head_dim = 256},
    {.architecture = "gemma3n_text", .rope_base = 1e6, .tied = true, .head_dim = 256},
    {.architecture = "mamba", .norm_eps = 1e-5, .tied = true},
    {.architecture = "mamba2", .norm_eps = 1e-5},
    {.architecture = "stablelm", .turning_part = 0.25, .norm_eps = 1e-5},
    {.architecture = "phi", .turning_part = 0.5, .norm_eps = 1e-5, .is_parallel = true},
    {.architecture = "gpt_neox", .turning_part = 0.25, .norm_eps = 1e-5, .is_parallel = true},
    {.architecture = "falcon", .norm_eps = 1e-5, .tied = true, .is_parallel = true},
    {.architecture = "olmo", .norm_eps = 1e-5},
    {.architecture = "olmo2", .norm_eps = 1e-5},
    {.architecture = "olmo3", .rope_base = 5e5, .norm_eps = 1e-5},
    {.architecture = "cohere", .rope_base = 5e5, .norm_eps = 1e-5, .tied = true, .is_parallel = true},
    {.architecture = "cohere2", .norm_eps = 1e-5, .tied = true, .is_parallel = true},
    {.architecture = "glm", .turning_part = 0.5, .norm_eps = 1.5625e-7, .head_dim = 128},
    {.architecture = "glm4", .turning_part = 0.5, .norm_eps = 1.5625e-7, .head_dim = 128},
    {.architecture = "exaone4", .norm_eps = 1e-5},
    {.architecture = "starcoder2", .norm_eps = 1e-5, .tied = true},
    {.architecture = "ernie4_5", .rope_base = 5e5, .norm_eps = 1e-5, .tied = true, .head_dim = 128},
    {.architecture = "nemotron", .turning_part = 0.5, .norm_eps = 1e-5},
    {.architecture = "arcee", .norm_eps = 1e-5},
    {.architecture = "olmoe", .norm_eps = 1e-5},
    {.architecture = "seed_oss", .head_dim = 128},
    {.architecture = "bloom", .norm_eps = 1e-5, .tied = true},
    {.architecture = "mpt", .norm_eps = 1e-5, .tied = true},
    {.architecture = "gpt_oss", .rope_base = 150000, .norm_eps = 1e-5, .head_dim = 64},
    {.architecture = "deepseek_v2", .norm_eps = 1e-6},
    {.architecture = "deepseek_v3", .norm_eps = 1e-6},
    {.architecture = "glm4_moe", .turning_part = 0.5, .norm_eps = 1e-5},
    {.architecture = "ernie4_5_moe", .rope_base = 5e5, .norm_eps = 1e-5, .tied = true},
    {.architecture = "hunyuan_v1_dense", .norm_eps = 1e-5},
    {.architecture = "hunyuan_v1_moe", .norm_eps = 1e-5},
    {.architecture = "minimax_m2", .head_dim = 128},
    {.architecture = "apertus", .rope_base = 12e6, .norm_eps = 1e-5},
    {.architecture = "ministral3", .rope_base = 1e6, .norm_eps = 1e-5, .head_dim = 128},
    {.architecture = "falcon_mamba", .norm_eps = 1e-5, .tied = true},
    {.architecture = "falcon_h1", .norm_eps = 1e-5},
    {.architecture = "nemotron_h", .norm_eps = 1e-5, .head_dim = 128},
    {.architecture = "jamba"},
    {.architecture = "llama4_text", .rope_base = 5e5, .norm_eps = 1e-5, .head_dim = 128},
    {.architecture = "qwen3_next", .turning_part = 0.25, .head_dim = 256},
    {.architecture = "qwen3_5_text", .turning_part = 0.25, .head_dim = 256},
    {.architecture = "qwen3_5_moe_text", .turning_part = 0.25, .head_dim = 256},
    {.architecture = "lfm2_moe", .rope_base = 1e6, .norm_eps = 1e-5, .tied = true},
    {.architecture = "lfm2", .rope_base = 1e6, .norm_eps = 1e-5, .tied = true},
};

}  // namespace

UsualKeys usual_of(std::string_view architecture) {
  for (const UsualKeys& each : kUsual)
    if (each.architecture == architecture) return each;
  return {};
}

void read_factors(const Keys& keys, const UsualKeys& usual, ModelConfig& c) {
  if (c.architecture == "granite" || c.architecture == "granitemoehybrid") {
    c.embedding_scale = keys.number({"embedding_multiplier"}, 1.0);
    c.residual_scale = keys.number({"residual_multiplier"}, 1.0);
    c.attention_scale = keys.number({"attention_multiplier"}, 1.0);
    const double divisor = keys.number({"logits_scaling"}, 1.0);
    if (!(divisor > 0)) keys.fail("logits_scaling", fmt::format("is {}; it must be above 0", divisor));
    c.logit_scale = 1 / divisor;
  }
  if (c.architecture == "falcon_h1") {
    c.embedding_scale = keys.number({"embedding_multiplier"}, 1.0);
    c.logit_scale = keys.number({"lm_head_multiplier"}, 1.0);
    // A factor of keys is one of scores.
    c.attention_scale = keys.number({"key_multiplier"}, 1.0) / std::sqrt(static_cast<double>(c.head_dim));
  }
  if (c.architecture.starts_with("cohere")) c.logit_scale = keys.number({"logit_scale"}, 0.0625);
  c.is_parallel = usual.is_parallel;
  if (c.architecture == "falcon") c.is_parallel = keys.flag("parallel_attn", true);
  if (c.architecture == "stablelm" || c.architecture == "gpt_neox")
    c.is_parallel = keys.flag("use_parallel_residual", usual.is_parallel);
}

void read_falcon(const Keys& keys, ModelConfig& c) {
  const bool is_new = keys.flag("new_decoder_architecture", false);
  if (is_new && !keys.flag("parallel_attn", true))
    keys.fail("parallel_attn", "is false, which Weft does not support with new_decoder_architecture");
  if (keys.flag("alibi", false)) {
    c.alibi = 8;
    c.slope_factor = 1 / std::sqrt(static_cast<double>(c.head_dim));  // slopes are scaled as scores are
  }
  if (is_new)
    c.kv_heads = keys.size({"num_kv_heads", "n_head_kv"}, c.heads);
  else
    c.kv_heads = keys.flag("multi_query", true) ? 1 : c.heads;
  c.intermediate = keys.size({"ffn_hidden_size"}, 4 * c.hidden);
}

void read_bloom(const Keys& keys, ModelConfig& c) {
  if (keys.flag("apply_residual_connection_post_layernorm", false))
    keys.fail("apply_residual_connection_post_layernorm", "is true, which Weft does not support");
  c.alibi = 8;
  c.intermediate = 4 * c.hidden;
}

void read_mpt(const Keys& keys, ModelConfig& c) {
  const Json* json = keys.find({"attn_config"});
  const Json none = Json::object();
  const Keys attention(json ? *json : none, keys.source(), "attn_config");
  struct Setting {
    const char* key;
    bool known;
  };
  for (const auto& [key, known] : {Setting{"alibi", true}, Setting{"qk_ln", false}, Setting{"prefix_lm", false}})
    if (attention.flag(key, known) != known)
      attention.fail(key, fmt::format("is {}, which Weft does not support", !known));
  if (attention.text({"attn_type"}, "multihead_attention") != "multihead_attention")
    attention.fail("attn_type", "is not \"multihead_attention\", the only one that Weft runs");
  if (keys.find({"logit_scale"})) keys.fail("logit_scale", "is given, which Weft does not support");
  if (!keys.flag("no_bias", true)) keys.fail("no_bias", "is false, which Weft does not support");
  c.alibi = attention.number({"alibi_bias_max"}, 8.0);
  if (!(c.alibi > 0)) attention.fail("alibi_bias_max", fmt::format("is {}; it must be above 0", c.alibi));
  c.qkv_limit = attention.number({"clip_qkv"}, 0.0);
  c.attention_scale = attention.number({"softmax_scale"}, 0.0);
  c.intermediate = static_cast<Extent>(keys.number({"expansion_ratio"}, 4.0) * static_cast<double>(c.hidden));
}

namespace {

/// decoder_sparse_step s: experts in layers s - 1, 2 s - 1, ..., but for those of mlp_only_layers.
void read_qwen_layers(const Keys& keys, ModelConfig& c) {
  const Extent step = keys.size({"decoder_sparse_step"}, 1);
  if (step < 1) keys.fail("decoder_sparse_step", "is 0; it must be above 0");
  std::vector<bool> with_experts(static_cast<std::size_t>(c.layers));
  for (Extent i = 0; i < c.layers; ++i) with_experts[static_cast<std::size_t>(i)] = (i + 1) % step == 0;
  if (keys.find({"mlp_only_layers"}))
    for (const double layer : keys.numbers("mlp_only_layers")) {
      if (!(layer >= 0 && layer < static_cast<double>(c.layers)))
        keys.fail("mlp_only_layers", fmt::format("names the layer {} of {}", layer, c.layers));
      with_experts[static_cast<std::size_t>(layer)] = false;
    }
  set_expert_layers(c, std::move(with_experts));
}

void read_deepseek_experts(const Keys& keys, ModelConfig& c) {
  const bool is_third = c.architecture == "deepseek_v3";
  c.experts = keys.size({"n_routed_experts", "num_local_experts", "num_experts"}, is_third ? 256 : 64);
  c.experts_per_token = keys.size({"num_experts_per_tok"}, is_third ? std::optional<Extent>(8) : std::nullopt);
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, is_third ? 2048 : 1407);
  c.shared_intermediate = c.expert_intermediate * keys.size({"n_shared_experts"}, is_third ? 1 : 2);
  c.expert_weights_are_shares = keys.flag("norm_topk_prob", is_third);
  c.routing.is_sigmoid = keys.text({"scoring_func"}, is_third ? "sigmoid" : "softmax") == "sigmoid";
  c.routing.factor = keys.number({"routed_scaling_factor"}, is_third ? 2.5 : 1.0);
  const std::string method = keys.text({"topk_method"}, is_third ? "noaux_tc" : "greedy");
  if (method != "greedy" && method != "group_limited_greedy" && method != "noaux_tc")
    keys.fail("topk_method", fmt::format("is \"{}\"; known are greedy, group_limited_greedy and noaux_tc", method));
  if (is_third != (method == "noaux_tc") || c.routing.is_sigmoid != is_third)
    keys.fail("topk_method", "does not fit the model_type: DeepSeek V3 has sigmoids and \"noaux_tc\", V2 neither");
  if (!is_third && c.expert_weights_are_shares)
    keys.fail("norm_topk_prob", "is true; Weft runs the models of DeepSeek V2 whose weights of experts keep their sum");
  if (method != "greedy") {
    c.routing.groups = keys.size({"n_group"}, is_third ? std::optional<Extent>(8) : std::nullopt);
    c.routing.groups_used = keys.size({"topk_group"}, is_third ? std::optional<Extent>(4) : std::nullopt);
  }
  const Extent first = std::min(keys.size({"first_k_dense_replace"}, is_third ? 3 : 0), c.layers),
               step = keys.size({"moe_layer_freq"}, 1);
  if (step < 1) keys.fail("moe_layer_freq", "is 0; it must be above 0");
  std::vector<bool> with_experts;
  for (Extent i = 0; i < c.layers; ++i) with_experts.push_back(i >= first && i % step == 0);
  set_expert_layers(c, std::move(with_experts));
}

}  // namespace

void set_expert_layers(ModelConfig& c, std::vector<bool> layers) {
  const auto with_experts = std::count(layers.begin(), layers.end(), true);
  c.expert_layers.clear();
  if (with_experts == 0)
    c.experts = c.experts_per_token = 0;
  else if (with_experts < static_cast<std::ptrdiff_t>(layers.size()))
    c.expert_layers = std::move(layers);
}

void read_experts(const Keys& keys, ModelConfig& c) {
  if (c.architecture.starts_with("deepseek")) return read_deepseek_experts(keys, c);
  if (c.architecture == "glm4_moe") return read_glm_experts(keys, c);
  if (c.architecture == "olmoe") return read_olmo_experts(keys, c);
  if (c.architecture == "dots1") return read_dots_experts(keys, c);
  if (c.architecture == "bailing_moe") return read_bailing_experts(keys, c);
  if (c.architecture == "ernie4_5_moe") return read_ernie_experts(keys, c);
  if (c.architecture == "hunyuan_v1_moe") return read_hunyuan_experts(keys, c);
  if (c.architecture == "minimax_m2") return read_minimax_experts(keys, c);
  if (c.architecture == "jamba") return read_jamba_experts(keys, c);
  if (c.architecture == "llama4_text") return read_llama4(keys, c);
  if (c.architecture == "gemma4_text") return read_gemma4_experts(keys, c);
  if (c.architecture == "nemotron_h") return read_nemotron_experts(keys, c);
  if (c.architecture == "lfm2_moe") return read_lfm2_experts(keys, c);
  c.experts = keys.size({"num_local_experts", "num_experts"}, 0);
  c.experts_per_token = keys.size({"num_experts_per_tok", "experts_per_token"}, 0);
  c.expert_intermediate = keys.size({"moe_intermediate_size"}, c.intermediate);
  // `intermediate` is that of the MLP beside the experts here.
  if (c.architecture == "granitemoehybrid") {
    c.expert_intermediate = keys.size({"intermediate_size"}, c.intermediate);
    c.shared_intermediate = c.intermediate;
  }
  if (c.architecture == "gpt_oss") {
    c.swiglu_alpha = keys.number({"swiglu_alpha"}, 1.702);
    c.swiglu_limit = keys.number({"swiglu_limit"}, 7.0);
    if (!(c.swiglu_alpha > 0 && c.swiglu_limit > 0)) keys.fail("swiglu_limit", "or swiglu_alpha is not above 0");
  }
  if (c.architecture == "qwen2_moe") c.shared_intermediate = keys.size({"shared_expert_intermediate_size"}, 5632);
  const bool is_next = c.architecture == "qwen3_next", is_next_but_one = c.architecture == "qwen3_5_moe_text";
  if (is_next || is_next_but_one) c.shared_intermediate = keys.size({"shared_expert_intermediate_size"}, 512);
  if (!c.architecture.starts_with("qwen") || is_next_but_one) return;
  c.expert_weights_are_shares = keys.flag("norm_topk_prob", is_next);
  if (c.experts > 0) read_qwen_layers(keys, c);
}

double latent_scale(const ModelConfig& c, double growth) {
  const bool grows = c.rope_scaling.kind == RopeScaling::Kind::yarn && c.rope_scaling.factor > 1;
  const double by = grows ? 1 + growth * std::log(c.rope_scaling.factor) : 1;
  return by * by / std::sqrt(static_cast<double>(c.head_dim));
}

void read_latent(const Keys& keys, ModelConfig& c) {
  const Extent turning = keys.size({"qk_rope_head_dim"}, 64);
  c.head_dim = keys.size({"qk_nope_head_dim"}, 128) + turning;
  c.rope_dims = turning;
  c.kv_heads = c.heads;
  c.latent = {.rank = keys.size({"kv_lora_rank"}, 512),
              .query_rank = keys.size({"q_lora_rank"}, keys.is_null("q_lora_rank") ? 0 : 1536),
              .value_dim = keys.size({"v_head_dim"}, 128),
              .turns_halves = !keys.flag("rope_interleave", true)};
  c.attention_scale = latent_scale(c, 0.1 * c.rope_scaling.mscale_all_dim);
}

void read_lfm2(const Keys& keys, ModelConfig& c) {
  c.intermediate = keys.size({"block_ff_dim", "intermediate_size"}, 12288);
  if (!keys.flag("block_auto_adjust_ff_dim", true)) return;
  const double factor = keys.number({"block_ffn_dim_multiplier"}, 1.0);
  const Extent step = keys.size({"block_multiple_of"}, 256);
  if (step < 1) keys.fail("block_multiple_of", "is 0; it must be above 0");
  c.intermediate = static_cast<Extent>(factor * static_cast<double>(2 * c.intermediate / 3));
  c.intermediate = (c.intermediate + step - 1) / step * step;
}

}  // namespace weft::llm
