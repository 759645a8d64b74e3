// A hash of all that a safetensors file says, which its metadata may hold so that damage is noticed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.hpp"

namespace weft::io {

/// The key of the hash in the metadata.
inline constexpr const char* kContentHash = "content_hash";
/// Of the metadata (except the hash) by key, and of the tensors by name: 16 hexadecimal digits.
std::string content_hash(const SafetensorsMetadata& metadata, std::vector<TensorView> tensors);
/// Puts the hash of all the rest into the metadata.
void add_content_hash(SafetensorsMetadata& metadata, const std::vector<TensorView>& tensors);
/// Errors: FileError, which says what to do (`cure`), if the file has no hash, or one that its content does not have.
void check_content_hash(const SafetensorsFile& file, std::string_view cure);

}  // namespace weft::io
