// Converts blocks from the order of files to the layout of format.hpp, and rows back to values or to blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/quant/format.hpp"

namespace weft::cpu {

/// Packs rows [16 group, 16 group + rows) of W, whose blocks begin at `blocks`, one row after another; rows up to 16 and
/// plain elements up to whole blocks are filled with zeros. `group` is the group's memory.
void quant_pack_group(BlockType type, const std::byte* blocks, int rows, std::int64_t k, std::byte* group);

/// The values of row `row` of a packed group, with the bits that the format defines.
void quant_unpack_row(BlockType type, const std::byte* group, int row, std::int64_t k, float* values);
/// The blocks of row `row` of a packed group, bit for bit as they were in the file.
void quant_restore_row(BlockType type, const std::byte* group, int row, std::int64_t k, std::byte* blocks);

}  // namespace weft::cpu
