#include "llm/config_families.hpp"

#include <fmt/format.h>

namespace weft::llm {
namespace {

constexpr UsualKeys kUsual[] = {
    {.architecture = "gpt2", .norm_eps = 1e-5, .tied = true},
    {.architecture = "smollm3", .tied = true},
    {.architecture = "gemma", .tied = true},
    {.architecture = "gemma2", .tied = true},
    {.architecture = "gemma3_text", .rope_base = 1e6, .tied = true},
    {.architecture = "gemma3", .tied = true},
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
    {.architecture = "seed_oss", .head_dim = 128},
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
  if (c.architecture.starts_with("cohere")) c.logit_scale = keys.number({"logit_scale"}, 0.0625);
  c.is_parallel = usual.is_parallel;
  if (c.architecture == "stablelm" || c.architecture == "gpt_neox")
    c.is_parallel = keys.flag("use_parallel_residual", usual.is_parallel);
}

void read_falcon(const Keys& keys, ModelConfig& c) {
  if (keys.flag("alibi", false)) keys.fail("alibi", "is true; Weft runs the Falcons with rotary positions");
  if (!keys.flag("parallel_attn", true)) keys.fail("parallel_attn", "is false, which Weft does not support");
  if (keys.flag("new_decoder_architecture", false))
    c.kv_heads = keys.size({"num_kv_heads", "n_head_kv"}, c.heads);
  else
    c.kv_heads = keys.flag("multi_query", true) ? 1 : c.heads;
  c.intermediate = keys.size({"ffn_hidden_size"}, 4 * c.hidden);
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
