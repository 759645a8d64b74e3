// Products with weights in blocks as WGSL, and their rows as f32. Their layout: quantised_pack.hpp.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

inline constexpr Extent kFewRows = 8;  // of A, for which weights are multiplied as they are read

/// Appends the dispatches of a product with packed weights. For few rows of A one, in which a subgroup multiplies some rows
/// of W as it reads them; for more the weights become f32 in scratch, and the tiled product follows.
void render(const kernel::PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

/// Two neighbouring products of the same few rows, the second of which has the first in its epilogue, element for element
/// (a gated unit), as one dispatch. False where they are none.
bool render_packed_pair(const kernel::PackedMatmulKernel& first, const kernel::PackedMatmulKernel& second,
                        const Target& target, Rendered& rendered);

/// Appends the dispatch of unpack_rows.
void render_unpack_rows(const kernel::CallKernel& kernel, const Target& target, Rendered& rendered);

}  // namespace weft::webgpu
