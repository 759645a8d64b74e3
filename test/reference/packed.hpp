// Packed weights as the reference has them: the blocks of a model file, row by row, four bytes to a u32. Each device packs
// these in an order of its own.
#pragma once

#include <cstring>

#include "reference/values.hpp"
#include "tensor/block_format.hpp"

namespace weft::reference {

/// Blocks as elements of a u32 buffer.
inline Values words_of(std::span<const std::byte> blocks) {
  Values words((blocks.size() + 3) / 4);
  for (std::size_t w = 0; w < words.size(); ++w) {
    std::uint32_t word = 0;
    std::memcpy(&word, blocks.data() + 4 * w, std::min<std::size_t>(4, blocks.size() - 4 * w));
    words[w] = word;
  }
  return words;
}

/// The matrix [n, k] of such blocks.
inline Values unpacked(BlockType type, Extent n, Extent k, const kernel::Operand& weights,
                       const std::vector<Values>& buffers) {
  std::vector<std::byte> blocks(bytes_for(type, static_cast<std::uint64_t>(n * k), "reference"));
  for (std::size_t at = 0; at < blocks.size(); at += 4) {
    const auto word = static_cast<std::uint32_t>(read(weights, static_cast<Extent>(at / 4), buffers));
    std::memcpy(blocks.data() + at, &word, std::min<std::size_t>(4, blocks.size() - at));
  }
  std::vector<float> values(static_cast<std::size_t>(n * k));
  dequantise(type, blocks, values);
  return Values(values.begin(), values.end());
}

}  // namespace weft::reference
