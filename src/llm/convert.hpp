// Models from GGUF files to Hugging Face folders and back: the other names, layouts, metadata and tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/tensor_source.hpp"
#include "llm/ir.hpp"

namespace weft::llm {

struct ConvertOptions {
  /// F32, F16 or BF16, for all tensors but vectors of GGUF, which are F32. By default each keeps its own, and blocks
  /// become F32.
  std::optional<BlockType> type;
  bool with_tokenizer = true;
  /// From a GGUF file to a folder: the file with the part of the model that sees, as `LoadOptions::mmproj`.
  std::filesystem::path mmproj = {};
  std::function<void(std::string_view tensor, std::uint64_t done, std::uint64_t total)> progress;
};

struct Converted {
  std::size_t tensors = 0;
  std::vector<std::string> notes;  ///< notes for the user about the result
};

/// Writes a folder with config.json, model.safetensors, tokenizer.json and their settings; files of these names are
/// replaced. `source` is a GGUF file. With an mmproj file the folder is that of the whole model; notes say which file it was, or
/// why the part that sees is left behind.
/// Errors: FileError as `llm::load`, and for a model or a tokenizer that the other kind of file cannot express, with what
/// would differ; for a folder with other files that would be taken for parts of the model, which is left as it is;
/// UsageError for any other `type`.
Converted convert_to_folder(const io::TensorSource& source, const std::filesystem::path& folder,
                            const ConvertOptions& options = {});
/// Writes a GGUF file, and for a model that reads images an mmproj file beside it, whose name is "mmproj-" and that of the file;
/// notes say so, or why such a file cannot express the part that sees. `source` is a folder. Errors as `convert_to_folder`.
Converted convert_to_gguf(const io::TensorSource& source, const std::filesystem::path& file,
                          const ConvertOptions& options = {});

/// The graph that the other kind of file gives the same model: a folder of a GGUF file, and the other way round. FileError if that
/// kind cannot express it.
ModelGraph graph_of_other_kind(const ModelGraph& graph);

}  // namespace weft::llm
