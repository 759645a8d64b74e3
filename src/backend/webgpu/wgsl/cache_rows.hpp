// The rows of caches of keys and values in WGSL, whatever type a cache has.
#pragma once

#include <string>

#include "backend/webgpu/wgsl/render.hpp"
#include "weft/inference.hpp"

namespace weft::webgpu {

/// Declares function `name` of a shader, which gives four channels of a row of a cache, for a head of keys:
/// name(row, head, c), with channels 4 c to 4 c + 3. A row has `words` words and a head `width` channels; channels past the
/// width are 0.
void declare_row_function(ShaderPieces& shader, const char* name, CacheType type, const Bindings& bindings, int handle,
                          Extent words, Extent width);

/// The word that a cache of f16 has for two neighbouring channels. Values out of range saturate.
std::string cached_halves(const std::string& pair);

}  // namespace weft::webgpu
