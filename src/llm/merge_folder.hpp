// Folders of models with adapters merged into their matrices.
#pragma once

#include <filesystem>
#include <optional>
#include <span>

#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "weft/llm.hpp"

namespace weft::llm {

/// The model with adapters added to its matrices (`merged`). Errors: as `llm::load`.
io::TensorSource with_adapters(const io::TensorSource& source, std::span<const AdapterUse> adapters);

/// The model with what its options' adapters change of its tensors: all if they are to be merged, else what is not computed beside
/// products. Nothing where that is nothing.
std::optional<io::TensorSource> with_changed_tensors(const io::TensorSource& source, const LoadOptions& options);

/// Writes a folder of Hugging Face's layout from a source over one: its tensors as model.safetensors, and copies of all other files.
/// config.json no longer tells of blocks. FileError if the new folder has other weights, or is the old one.
Converted write_folder(const io::TensorSource& source, const std::filesystem::path& folder,
                       const ConvertOptions& options);

}  // namespace weft::llm
