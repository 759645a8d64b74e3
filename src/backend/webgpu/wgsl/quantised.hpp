// Products with weights in blocks as WGSL, and their rows as f32. Their layout: quantised_pack.hpp.
#pragma once

#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of a product with packed weights. For few rows of A one dispatch, in which a subgroup multiplies some
/// rows of W while it reads them. For more rows the weights become f32 in scratch, and the tiled product follows.
void render(const kernel::PackedMatmulKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

/// Two neighbouring products as one, if they are a gated unit (gated_pair.hpp); else false. `keeps_first`: whether another kernel
/// reads the first.
bool render_packed_pair(const kernel::PackedMatmulKernel& first, const kernel::PackedMatmulKernel& second,
                        bool keeps_first, const Target& target, Scratch& scratch, Rendered& rendered);

/// Appends the dispatch of unpack_rows.
void render_unpack_rows(const kernel::CallKernel& kernel, const Target& target, Rendered& rendered);

}  // namespace weft::webgpu
