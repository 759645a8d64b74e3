// Quantises a GGUF model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "io/block_format.hpp"
#include "io/tensor_source.hpp"

namespace weft::io {

/// Tensors whose names match `pattern` ('*' any text, '?' one character) become `type`.
struct TensorTypeRule {
  std::string pattern;
  BlockType type;
};

struct QuantiseOptions {
  std::string type = "Q4_K_M";  ///< a mixture or a single format, for `find_mixture`
  /// Exceptions; if several match, the last counts. They also apply to tensors that would keep their type.
  std::vector<TensorTypeRule> rules;
  /// One type for all matrices, the one of most matrices in the mixture. Otherwise some get a better type; with every block
  /// type the output matrix (or the tied token embedding) gets Q6_K or more.
  bool pure = false;
  /// Called before each tensor with the bytes of the model read so far, and the total.
  std::function<void(const SourceTensor& tensor, BlockType type, std::uint64_t done, std::uint64_t total)> progress;
};

/// Why a tensor got its type.
enum class TypeReason { wanted, rule, mixture, kept, rows };
struct TensorPlan {
  const SourceTensor* tensor;
  BlockType type;
  TypeReason reason;
};

/// The type of each tensor. As in llama.cpp: matrices (rank 2 and more) named *.weight are converted, except norms,
/// positions, routers of experts and short convolutions. If rows do not divide into blocks of 256, a format of 32 is
/// used (Q2_K and Q3_K: Q4_0, Q4_K: Q5_0, Q5_K: Q5_1, Q6_K: Q8_0, IQ4_XS: IQ4_NL), or else F16. UsageError for an
/// unknown type, a rule that matches no tensor, or a type that is not numeric; FileError if the source is not a GGUF
/// file.
std::vector<TensorPlan> plan_quantisation(const TensorSource& model, const QuantiseOptions& options);

/// Executes the plan: writes a GGUF file in one part with the metadata of `model`, general.file_type and
/// general.quantization_version set. Errors as `plan_quantisation`, `recode` and GgufWriter.
std::vector<TensorPlan> quantise_model(const TensorSource& model, const std::filesystem::path& out,
                                       const QuantiseOptions& options);

}  // namespace weft::io
