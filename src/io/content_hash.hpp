// A hash of all that a safetensors file says, which its metadata may hold so that damage is noticed.
#pragma once

#include <string>
#include <vector>

#include "io/safetensors.hpp"

namespace weft::io {

/// The key of the hash in the metadata.
inline constexpr const char* kContentHash = "content_hash";
/// Of the metadata (except the hash) by key, and of the tensors by name: 16 hexadecimal digits.
std::string content_hash(const SafetensorsMetadata& metadata, std::vector<TensorView> tensors);

}  // namespace weft::io
