// Writes rows into a cache, in the cache's type.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cache.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::cpu {
namespace {

void pack_q8(const float* from, std::uint32_t* to, Extent count) {
  for (Extent b = 0; b < count / 32; ++b, from += 32, to += 9) {
    float largest = 0;
    for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(from[i]));
    const float scale = largest / 127, inverse = largest > 0 ? 127 / largest : 0;
    std::int8_t bytes[32];
    for (int i = 0; i < 32; ++i) bytes[i] = static_cast<std::int8_t>(std::lrint(from[i] * inverse));
    std::memcpy(to, &scale, sizeof scale);
    std::memcpy(to + 1, bytes, sizeof bytes);
  }
}

}  // namespace

void run_write_rows(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs) {
  const CacheType type = kernel::attributes_of<graph::WriteRows>(kernel).type;
  char* const out = outs[0];
  const Extent rows = kernel.shape()[0], words = kernel.shape()[1], count = kernel.shapes[1][0],
               width = kernel.shapes[1][1];
  const auto* from = reinterpret_cast<const float*>(reads[1]);
  const auto* at = reinterpret_cast<const std::int32_t*>(reads[2]);
  const CacheParts& parts = tile_table().cache;
  if (out != reads[0]) std::memcpy(out, reads[0], static_cast<std::size_t>(rows * words) * 4);
  for (Extent t = 0; t < count; ++t) {
    if (at[t] < 0 || at[t] >= rows) continue;
    auto* row = reinterpret_cast<std::uint32_t*>(out) + at[t] * words;
    const float* values = from + t * width;
    switch (type) {
      case CacheType::f32: std::memcpy(row, values, static_cast<std::size_t>(width) * 4); break;
      case CacheType::f16: parts.pack_f16(values, reinterpret_cast<std::uint16_t*>(row), width); break;
      case CacheType::q8: pack_q8(values, row, width); break;
    }
  }
}

}  // namespace weft::cpu
