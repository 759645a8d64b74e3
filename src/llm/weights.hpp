// The constants of a model graph, checked against the file and moved to the device.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/ir.hpp"
#include "llm/packed_file.hpp"
#include "runtime/packed_matrix.hpp"
#include "weft/tensor.hpp"

namespace weft::llm {

/// Names of tensors as graphs ask for them, in files that put a prefix before all of them, or leave one out.
class TensorNames {
 public:
  explicit TensorNames(const io::TensorSource& source);
  const io::SourceTensor* find(std::string_view key) const;
  /// What the i-th key of a constant means: a tensor of the file, or a part of one.
  const io::SourceTensor& part(const TensorDesc& tensor, std::size_t i) const;
  const io::TensorSource& source() const { return source_; }

 private:
  const io::TensorSource& source_;
  std::string drop_, add_;  // a key that starts with `drop_` has `add_` in its place in the file
  mutable std::map<std::pair<std::string, std::size_t>, io::SourceTensor>
      parts_;  // of constants, by their names and places
};

struct Weights {
  /// By the graph's names: f32, or in blocks where the device multiplies these. Of a mixture in blocks [experts, rows, columns],
  /// with rows of zeros behind those of each expert (expert_linear).
  std::unordered_map<std::string, Tensor> weights;
  std::uint64_t bytes = 0;                   // on the device
  std::filesystem::path packed_file;         // that matrices were mapped from; empty: they were packed
  std::unique_ptr<PackedFileWriter> writer;  // of the file for the next load

  const Tensor& at(const std::string& name) const;
};

/// Called with bytes of the file done, and all.
using LoadProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// FileError that lists every tensor that is missing, has the wrong shape, has a type that cannot be read, or
/// is in the file but not in the graph.
void check_tensors(const ModelGraph& graph, const TensorNames& names);
/// What users should know of tensors that are left out: layers that guess further tokens.
std::vector<std::string> notes_of_extra_tensors(const ModelConfig& config, const TensorNames& names);
/// Bytes of a graph's constants in the model's files.
std::uint64_t file_bytes(const ModelGraph& graph, const TensorNames& names);
/// Bytes that a constant takes on a device.
std::uint64_t weight_bytes(const TensorDesc& tensor, const TensorNames& names, Device device);
/// Matrices of experts [E, rows, columns] in f32, packed as those of models are.
Tensor packed_experts(const std::vector<float>& values, const Shape& shape, Device device);
/// Rows of such a matrix with the zeros behind them.
Extent padded_rows_of_experts(Extent rows);
/// A constant as f32, whatever its type in the file. FileError for values that are not finite.
Tensor dense_weight(const TensorDesc& tensor, const TensorNames& names, Device device);
/// The weights of a graph, or of a part, whose tensors have been checked. Matrices that the CPU has packed before are mapped from their file, where there is one by these rules; else they are
/// packed, and the file is written.
Weights load_weights(const ModelGraph& graph, const TensorNames& names, Device device,
                     const LoadProgress& progress = {}, const PackedFileRules& rules = {});
/// Weights that plans can be made with, of the types, shapes and bytes that `load_weights` would give, but without memory.
Weights planned_weights(const ModelGraph& graph, const TensorNames& names, Device device);

}  // namespace weft::llm
