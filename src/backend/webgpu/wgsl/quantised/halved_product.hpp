// Products of many rows with packed weights on subgroup matrices.
#pragma once

#include <optional>

#include "backend/webgpu/wgsl/quantised/gated_pair.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

inline constexpr Extent kUnpackedMax = Extent{1} << 28;  // elements of scratch for unpacked weights

/// Appends the dispatches of a product whose rows of A may be rounded (PackedMatmulKernel::exact): A becomes halves, scaled row
/// by row. W becomes halves, scaled too where it may lie outside the range of f16, or is read as it is where it is of f16. False
/// if the device has no matrices, and for weights of f32.
bool render_on_halves(const kernel::PackedMatmulKernel& kernel, const Target& target, Scratch& scratch,
                      Rendered& rendered);

/// The same for both products of a gated unit: a tile has columns of both. False also if tiles would not be whole.
bool render_pair_on_halves(const kernel::PackedMatmulKernel& first, const kernel::PackedMatmulKernel& second,
                           const GatedPair& pair, const Target& target, Scratch& scratch, Rendered& rendered);

}  // namespace weft::webgpu
