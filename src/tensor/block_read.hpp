// The one reader and writer of blocks of model files as integers and scales. Backends pack weights with it, and unpack them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/block_format.hpp"

namespace weft {

/// A block of a file of 32 or 256 elements. Element i is s(i) * (q[i] - zero) + m(i), where zero is the format's; of IQ4_NL,
/// IQ4_XS and MXFP4 q is an index into a table (block_codec.hpp), and of Q8_0 it is an int8_t.
struct UnpackedBlock {
  std::uint8_t q[256];
  /// f16 bits; the minimum has the sign with which it is added. Formats of 256 elements multiply them with a code for each
  /// group of 16 (Q2_K, Q3_K, Q6_K) or 32 elements.
  std::uint16_t scale = 0, minimum = 0;
  float single = 0;  // the scale of MXFP4
  std::int8_t codes[16], minimum_codes[16];
};

/// Reads the block at `from`. Of formats without a minimum `minimum` keeps what it was. InternalError for plain types.
void read_block(BlockType type, const std::byte* from, UnpackedBlock& block);
/// Writes the block from which `read_block` would read `block`, bit for bit.
void write_block(BlockType type, const UnpackedBlock& block, std::byte* to);

}  // namespace weft
