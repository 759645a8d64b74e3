// Constants of the safetensors format and of its reader here.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft::io {

/// Limit of the format: reader and writer refuse longer headers.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
/// Key of the header that does not name a tensor.
inline constexpr std::string_view kMetadataName = "__metadata__";

}  // namespace weft::io
