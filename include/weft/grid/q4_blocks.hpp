// Blocks of 32 weights in 4 bits with an f32 scale, as other systems store volumetric networks. (The type q4_0 of GGUF files has an
// f16 scale and another order of codes.)
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weft::grid {

/// 20 bytes a block: the scale, f32 and little-endian, then 16 bytes. Byte j holds code 2j in its low half and code 2j + 1 in its high
/// half, in two's complement.
inline constexpr std::size_t kQ4BlockWeights = 32, kQ4BlockBytes = 20;

/// scale = max |w| / 7; code = round(w / scale) in [-8, 7], ties to even. A block of zeros has scale 0. The last block is filled up with
/// zeros. Errors: UsageError for weights that are not finite.
std::vector<std::byte> quantise_q4_blocks(std::span<const float> weights);
/// scale * code, the first `count` of them. Errors: UsageError for bytes that are not the blocks of so many weights, or a scale that is
/// not finite.
std::vector<float> dequantise_q4_blocks(std::span<const std::byte> blocks, std::size_t count);

}  // namespace weft::grid
