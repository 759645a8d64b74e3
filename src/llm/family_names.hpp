// Names of the tensors of families, in Weft and in the two kinds of files.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "llm/families.hpp"

namespace weft::llm {

/// Rows refer to text that lives as long as the program.
std::string_view kept(std::string text);
/// Weights and biases of the parts, with the names of common tensors in GGUF files.
std::vector<NameRow> renamed(std::initializer_list<NameRow> parts);
/// Tensors of a layer. In files of transformers they are under `prefix` in model.layers; "" stays "".
std::vector<NameRow> of_layers(std::string_view prefix, std::initializer_list<NameRow> rows);
/// All rows, in order.
std::vector<NameRow> joined(std::vector<NameRow> rows, const std::vector<NameRow>& more);

/// Names of the parts of a mixture in files of transformers.
struct ExpertNames {
  std::string_view router = "gate.weight", correction = "gate.e_score_correction_bias";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";
};
/// Experts under `prefix`, and the one that every token uses under `shared` there.
std::vector<NameRow> mixture_names(std::string_view prefix, std::string_view shared, const ExpertNames& names = {});

/// Experts in one tensor, as the files of Qwen3.5 have them. Behind the names of experts apart, which count where neither is told.
std::vector<NameRow> joined_expert_names();

/// Norms around the parts of a layer.
std::vector<NameRow> gemma_names();
/// Inputs that each layer has of its own.
std::vector<NameRow> layer_input_names();
std::vector<NameRow> gemma3n_names();
std::vector<NameRow> gemma4_names();
/// Of layers by the gated delta rule.
std::vector<NameRow> qwen_next_names();
std::vector<NameRow> qwen35_names();
std::vector<NameRow> llama4_names();
std::vector<NameRow> glm_moe_names();
std::vector<NameRow> bailing_names();
std::vector<NameRow> ernie_moe_names();
std::vector<NameRow> hunyuan_names();
std::vector<NameRow> minimax_names();
std::vector<NameRow> apertus_names();

}  // namespace weft::llm
