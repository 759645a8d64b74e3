// How nodes of a schema are stored: as tensors of the safetensors header.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.hpp"
#include "weft/metatensor.hpp"

namespace weft::metatensor {

inline constexpr std::string_view kMetadataKey = "metatensor";
inline constexpr std::string_view kPadding = "__padding__.";
inline constexpr std::uint64_t kAlignmentMax = 256;  // also of the data region in the file
inline constexpr std::int64_t kVersion = 1;
inline constexpr std::uint64_t kIndexAlignment = 8;
inline constexpr std::string_view kIndex = ".index", kData = ".data";  // of a blob

/// Calls `visit` with the path of each node that is not a structure.
void for_each_leaf(const Node& node, const std::function<void(const std::string& path, const Node& node)>& visit);

/// A tensor's dtype and shape in the header: its own, if safetensors has the type and its elements fill whole bytes; otherwise U8
/// [bytes]. Errors: UsageError for a shape that overflows, or whose rows do not divide into blocks.
io::TensorInfo stored_tensor(const std::string& name, DType dtype, const Shape& shape);
/// The tensors of a node: one; for a blob its index and its data of `blob_bytes`.
std::vector<io::TensorInfo> stored_parts(const std::string& path, const Node& node, std::uint64_t blob_bytes);

/// The text of the header's metadata.
std::string header_text(const Node& schema);

bool is_alignment(std::uint64_t alignment);

}  // namespace weft::metatensor
