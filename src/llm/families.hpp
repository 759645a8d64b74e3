// The families of models: a row for each, with its names in files, its builder and the names of its tensors.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "llm/ir.hpp"

namespace weft::llm {

/// A tensor by Weft's name and by those of the two kinds of files. {} is the layer, {e} the expert; "" where
/// a kind has no such tensor.
struct NameRow {
  std::string_view name, gguf, hf;
};

struct BuildInput {
  const ModelConfig& config;
  const struct Family& family;
  std::function<bool(std::string_view)> has;  // whether the file has a tensor of this key
};

struct Family {
  std::string_view name;
  std::vector<std::string_view> hf_types;    // model_type of config.json
  std::vector<std::string_view> gguf_types;  // general.architecture
  ModelGraph (*build)(const BuildInput&);
  std::vector<NameRow> names;  // come before the common ones
};

std::span<const Family> families();
/// By what the file says. FileError that lists the known names and the nearest.
const Family& family_of(const ModelConfig& config);

// One file each.
ModelGraph build_decoder(const BuildInput& input);
ModelGraph build_lfm2(const BuildInput& input);
ModelGraph build_llama(const BuildInput& input);
ModelGraph build_llama4(const BuildInput& input);
ModelGraph build_qwen(const BuildInput& input);
ModelGraph build_qwen_next(const BuildInput& input);
ModelGraph build_gemma(const BuildInput& input);
ModelGraph build_gemma4(const BuildInput& input);
ModelGraph build_gemma3n(const BuildInput& input);
ModelGraph build_phi3(const BuildInput& input);
ModelGraph build_gpt2(const BuildInput& input);
ModelGraph build_mixtral(const BuildInput& input);
ModelGraph build_gpt_oss(const BuildInput& input);
ModelGraph build_deepseek(const BuildInput& input);
ModelGraph build_mamba(const BuildInput& input);
ModelGraph build_state_hybrid(const BuildInput& input);

}  // namespace weft::llm
