// What single families say in their config.json, and what their classes in transformers do where it says nothing.
#pragma once

#include <string_view>
#include <vector>

#include "llm/config.hpp"
#include "llm/config_keys.hpp"

namespace weft::llm {

/// What a class of transformers does where a file says nothing.
struct UsualKeys {
  std::string_view architecture;
  double turning_part = 1, rope_base = 10000, norm_eps = 1e-6;
  bool tied = false, is_parallel = false;
  Extent head_dim = 0;  // 0: hidden / heads
};
UsualKeys usual_of(std::string_view architecture);

/// Factors of embeddings, of what layers add and of logits, and parts side by side.
void read_factors(const Keys& keys, const UsualKeys& usual, ModelConfig& config);
/// Falcon's keys and its ways to share keys between heads.
void read_falcon(const Keys& keys, ModelConfig& config);
/// Layers with experts; if there are none, the model has no experts.
void set_expert_layers(ModelConfig& config, std::vector<bool> layers);
/// Experts: how many, in which layers, and how they are chosen.
void read_experts(const Keys& keys, ModelConfig& config);
/// Those of single families.
void read_glm_experts(const Keys& keys, ModelConfig& config);
void read_olmo_experts(const Keys& keys, ModelConfig& config);
void read_dots_experts(const Keys& keys, ModelConfig& config);
void read_bailing_experts(const Keys& keys, ModelConfig& config);
void read_ernie_experts(const Keys& keys, ModelConfig& config);
void read_hunyuan_experts(const Keys& keys, ModelConfig& config);
void read_minimax_experts(const Keys& keys, ModelConfig& config);
void read_jamba_experts(const Keys& keys, ModelConfig& config);
/// Behind what `config` knows of the types of layers.
void read_nemotron_experts(const Keys& keys, ModelConfig& config);
void read_lfm2_experts(const Keys& keys, ModelConfig& config);
/// Llama 4's chunks, queries that grow, and experts. Behind what `config` knows of layers that turn.
void read_llama4(const Keys& keys, ModelConfig& config);
/// What the classes of Gemma 3n and Gemma 4 have by default, which files leave out.
Json with_defaults_of_gemma3n(const Json& given);
Json with_defaults_of_gemma4(const Json& given);
/// Gemma 4's layers of two kinds, inputs of layers, and layers without keys. Behind what `config` knows of windows.
void read_gemma4(const Keys& keys, ModelConfig& config);
void read_gemma4_experts(const Keys& keys, ModelConfig& config);
/// Gemma 3n's states side by side, inputs of layers, and layers without keys. Behind what `config` knows of windows.
void read_gemma3n(const Keys& keys, ModelConfig& config);
/// The scale of scores of latent attention, which grows with the context: twice by 1 + growth ln(factor).
double latent_scale(const ModelConfig& config, double growth);
/// DeepSeek's widths of attention. Behind what `config` knows of positions.
void read_latent(const Keys& keys, ModelConfig& config);
/// Slopes, limits and widths of those that know positions by distances.
void read_bloom(const Keys& keys, ModelConfig& config);
void read_mpt(const Keys& keys, ModelConfig& config);
/// LFM2's width of an MLP: two thirds of what its file says, times a factor, up to a multiple.
void read_lfm2(const Keys& keys, ModelConfig& config);

}  // namespace weft::llm
