// Models from GGUF to safetensors and back: the same tensors and metadata in the other container.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "io/gguf_metadata.hpp"
#include "io/tensor_source.hpp"

namespace weft::io {

struct ConvertOptions {
  /// Type of all floating-point tensors: F32, F16 or BF16. By default each keeps its own, and blocks become F32.
  std::optional<BlockType> type;
  bool with_metadata = true;
  /// New name of a tensor; by default its own. The writers refuse names that are used twice.
  std::function<std::string(const std::string& name)> rename;
  std::function<void(const SourceTensor& tensor, std::uint64_t done, std::uint64_t total)> progress;
};

/// Writes the tensors of `model` to `out`, whose name ends in .gguf or .safetensors. Metadata of GGUF becomes text in
/// safetensors, whose key "gguf.types" keeps the types; with it, metadata is restored exactly. FileError for tensors of types
/// that the other container does not have; UsageError for other endings of `out`, for a `type` that is not one of the three,
/// and as GgufWriter and `write_safetensors`.
void convert_model(const TensorSource& model, const std::filesystem::path& out, const ConvertOptions& options);

/// UsageError for a type that is not F32, F16 or BF16.
void check_convert_type(const std::optional<BlockType>& type);

/// Metadata as text and back, for `convert_model`. FileError for text that is not UTF-8, and for "gguf.types" that do not fit
/// the texts.
SafetensorsMetadata metadata_as_text(const GgufMetadata& metadata);
GgufMetadata metadata_from_text(const SafetensorsMetadata& text, const std::string& source);

}  // namespace weft::io
