// What single families say in their config.json, and what their classes in transformers do where it says nothing.
#pragma once

#include <string_view>

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
/// LFM2's width of an MLP: two thirds of what its file says, times a factor, up to a multiple.
void read_lfm2(const Keys& keys, ModelConfig& config);

}  // namespace weft::llm
