// Files of adapters: folders of PEFT, and GGUF files as llama.cpp reads them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/adapter.hpp"

namespace weft::llm {

/// The changes that an adapter makes to a model's products, times `scale`. An adapter of the other kind of file than the model's is
/// translated: rows of queries and keys are turned, and what is one matrix in one kind may be several in the other.
/// FileError that lists matrices of products that the model lacks or has in other shapes, and matrices of other kinds of adapters.
/// What an adapter changes besides products is that of `with_saved_tensors`.
std::vector<LowRank> read_adapter(const std::filesystem::path& path, double scale, const ModelGraph& graph);

/// A tensor that takes the place of the model's, by its name in a folder.
struct SavedTensor {
  std::string key;
  Shape shape;
  std::vector<float> values;
};
/// What a file says of an adapter besides its matrices.
struct AdapterNotes {
  std::string base;                     ///< name or path of the model
  double dropout = 0;                   ///< while it was trained
  std::vector<SavedTensor> saved = {};  ///< for folders alone
};
/// Writes a folder of PEFT, or a GGUF file if the name ends in .gguf. The folder is made if it is not there. FileError if that kind of file cannot express the model, or as `write_safetensors`.
void write_adapter(const std::filesystem::path& path, const std::vector<LowRank>& changes, const ModelGraph& graph,
                   const AdapterNotes& notes = {});

/// The model with the changes added to its matrices: each is made when its data is asked for, in its own type, or as F16 where
/// that is one of blocks. FileError for a change of a head that is also the table of tokens.
io::TensorSource merged(const io::TensorSource& source, const std::vector<LowRank>& changes, const ModelGraph& graph);

}  // namespace weft::llm
