#include "weft/grid/q4_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weft/error.hpp"

namespace weft::grid {
namespace {

std::size_t blocks_of(std::size_t weights) { return weights / kQ4BlockWeights + (weights % kQ4BlockWeights != 0); }

/// A code as its value.
float code_value(unsigned code) {
  return static_cast<float>(code < 8 ? static_cast<int>(code) : static_cast<int>(code) - 16);
}

}  // namespace

std::vector<std::byte> quantise_q4_blocks(std::span<const float> weights) {
  std::vector<std::byte> bytes(blocks_of(weights.size()) * kQ4BlockBytes);
  for (std::size_t block = 0; block * kQ4BlockWeights < weights.size(); ++block) {
    const auto part =
        weights.subspan(block * kQ4BlockWeights, std::min(kQ4BlockWeights, weights.size() - block * kQ4BlockWeights));
    float top = 0;
    for (const float w : part) {
      if (!std::isfinite(w)) throw UsageError(fmt::format("q4 blocks: a weight is {}", w));
      top = std::max(top, std::fabs(w));
    }
    const float scale = top / 7;
    std::byte* out = bytes.data() + block * kQ4BlockBytes;
    std::memcpy(out, &scale, sizeof scale);
    if (!(scale > 0)) continue;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const double code =
          std::clamp(std::nearbyint(static_cast<double>(part[i]) / static_cast<double>(scale)), -8.0, 7.0);
      const auto bits = static_cast<unsigned>(static_cast<int>(code)) & 15u;
      out[sizeof scale + i / 2] |= static_cast<std::byte>(bits << (i % 2 * 4));
    }
  }
  return bytes;
}

std::vector<float> dequantise_q4_blocks(std::span<const std::byte> blocks, std::size_t count) {
  if (blocks.size() % kQ4BlockBytes != 0 || blocks.size() / kQ4BlockBytes != blocks_of(count))
    throw UsageError(fmt::format("q4 blocks: {} bytes are not the blocks of {} weights", blocks.size(), count));
  std::vector<float> weights(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::byte* block = blocks.data() + i / kQ4BlockWeights * kQ4BlockBytes;
    float scale = 0;
    std::memcpy(&scale, block, sizeof scale);
    if (!std::isfinite(scale))
      throw UsageError(fmt::format("q4 blocks: the scale of block {} is {}", i / kQ4BlockWeights, scale));
    const std::size_t place = i % kQ4BlockWeights;
    weights[i] =
        scale * code_value(std::to_integer<unsigned>(block[sizeof scale + place / 2]) >> (place % 2 * 4) & 15u);
  }
  return weights;
}

}  // namespace weft::grid
