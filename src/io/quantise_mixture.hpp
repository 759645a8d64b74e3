// The meaning of names such as Q4_K_M: a format for most matrices, and better formats for those that rounding hurts most.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "io/block_format.hpp"

namespace weft::io {

enum class TensorRole {
  any,
  output,            // the output matrix, or the token embedding if the two are shared
  attention_values,  // alone, or together with queries and keys
  attention_keys,
  attention_output,
  ffn_down,
  experts,  // matrices of several experts
  other,
};

/// A set of layers i of n: `outer_and_third` has the first and the last eighth, and every third between them.
enum class LayerSet { all, first_2, first_4, first_sixteenth, first_eighth, outer_and_third };
/// `grouped`: four or more query heads share a head of keys and values.
enum class ModelSet { all, grouped, with_8_experts };

struct MixtureRule {
  TensorRole role;
  BlockType type;
  LayerSet layers = LayerSet::all;
  ModelSet models = ModelSet::all;
};

/// A row of the table. The first of its rules that fits a tensor counts.
struct Mixture {
  std::string_view name;
  BlockType type;                      ///< of all matrices without a rule
  int file_type;                       ///< general.file_type of a GGUF file
  std::span<const MixtureRule> rules;  ///< none for names of single formats
};

/// Finds a mixture, or a format that can be quantised to, by llama.cpp's name in upper or lower case. UsageError that lists all
/// names if there is none.
Mixture find_mixture(std::string_view name);
/// All names, separated by commas.
std::string mixture_list();

/// What the rules ask about a model.
struct MixtureModel {
  int layers = 0, experts = 0;
  int queries_per_key = 1;  ///< heads
  bool is_70b = false;      ///< 80 layers of Qwen2, or of Llama with grouped heads
};
/// ... and about a tensor of it.
struct MixtureTensor {
  TensorRole role = TensorRole::other;
  bool of_experts = false;
  int layer = 0;                ///< 0 if the name has none
  int index = 0, of_index = 1;  ///< among the tensors of its role
};
/// The role that follows from a name; never `any`, `output` or `experts`.
TensorRole role_of(std::string_view name);

/// The block format of a matrix, whose rows may not divide into its blocks.
BlockType type_in_mixture(const Mixture& mixture, const MixtureModel& model, const MixtureTensor& tensor);

}  // namespace weft::io
