// Packing of weights. Blocks of files are read into one plain form (tensor/block_read.hpp), which is then written to its
// places; the most common formats are copied four elements at a time.
#include "backend/cpu/quant/pack.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/half.hpp"
#include "tensor/block_codec.hpp"
#include "tensor/block_read.hpp"

namespace weft::cpu {
namespace {

using std::int64_t;

using codec::load;
using codec::store;

unsigned byte_at(const std::byte* p, int i) { return static_cast<unsigned>(p[i]); }

/// The places of block `b`'s scales in a group, for row 0.
struct ScalePlaces {
  const QuantFormat& format;
  int64_t factor(int64_t b) const {
    return format.chunk_at(b) + (format.scales == QuantScales::half ? 32 * (b % format.chunk_blocks()) : 0);
  }
  int64_t minimum_factor(int64_t b) const { return factor(b) + (format.scales == QuantScales::half ? 64 : 32); }
  int64_t code(int64_t b, int sub) const {
    return format.chunk_at(b) + (format.has_minimum ? 64 : 32) + 16 * (b % kQuantSuper * format.scales_per_block + sub);
  }
  int64_t minimum_code(int64_t b, int sub) const { return code(b, sub) + 16 * kQuantSuper * format.scales_per_block; }
};

/// The integers of block `b` of a row.
void write_values(const QuantFormat& format, const std::uint8_t* q, int row, std::byte* values) {
  if (format.values == QuantValues::byte) {
    for (int g = 0; g < 8; ++g) std::memcpy(values + 64 * g + 4 * row, q + 4 * g, 4);
    return;
  }
  std::uint8_t both[16];
  for (int i = 0; i < 16; ++i) both[i] = static_cast<std::uint8_t>((q[i] & 15) | (q[i + 16] & 15) << 4);
  for (int g = 0; g < 4; ++g) std::memcpy(values + 64 * g + 4 * row, both + 4 * g, 4);
  for (int plane = 0; plane < format.planes(); ++plane)
    for (int g = 0; g < 8; ++g) {
      // Bit 4 + plane of four bytes, gathered to bits 24 to 27 by a product in which no two terms meet.
      const std::uint32_t four = load<std::uint32_t>(reinterpret_cast<const std::byte*>(q) + 4 * g);
      const std::uint32_t bits = (four >> (4 + plane) & 0x01010101u) * 0x01020408u >> 24 & 15u;
      std::byte& at = values[256 + 64 * plane + 8 * g + row / 2];
      at |= static_cast<std::byte>(bits << 4 * (row % 2));
    }
}

void write_block(const QuantFormat& format, const UnpackedBlock& block, int64_t first, int count, int row,
                 std::byte* group) {
  const ScalePlaces places{format};
  for (int i = 0; i < count; ++i) {
    const int64_t b = first + i;
    if (format.scales == QuantScales::single) {
      store(group + places.factor(b) + 4 * row, block.single);
    } else if (format.scales == QuantScales::half || i == 0) {
      store(group + places.factor(b) + 2 * row, block.scale);
      if (format.has_minimum) store(group + places.minimum_factor(b) + 2 * row, block.minimum);
    }
    if (format.scales == QuantScales::coded)
      for (int sub = 0; sub < format.scales_per_block; ++sub) {
        const int code = i * format.scales_per_block + sub;
        group[places.code(b, sub) + row] = static_cast<std::byte>(block.codes[code]);
        if (format.has_minimum)
          group[places.minimum_code(b, sub) + row] = static_cast<std::byte>(block.minimum_codes[code]);
      }
    write_values(format, block.q + kQuantBlock * i, row, group + format.values_at(b));
  }
}

/// The integers of block `b` of a row, as in files: Q8_0 as signed bytes, tables as indices.
void read_values(const QuantFormat& format, const std::byte* values, int row, std::uint8_t* q) {
  if (format.values == QuantValues::byte) {
    for (int g = 0; g < 8; ++g) std::memcpy(q + 4 * g, values + 64 * g + 4 * row, 4);
    return;
  }
  for (int i = 0; i < kQuantBlock; ++i) {
    const int g = i / 4;
    unsigned value = byte_at(values, 64 * (g % 4) + 4 * row + i % 4) >> 4 * (g / 4) & 15;
    for (int plane = 0; plane < format.planes(); ++plane)
      value |= (byte_at(values, 256 + 64 * plane + 8 * g + row / 2) >> 4 * (row % 2) >> i % 4 & 1) << (4 + plane);
    q[i] = static_cast<std::uint8_t>(value);
  }
}

/// Reads the output of `write_block`.
void read_packed(const QuantFormat& format, UnpackedBlock& block, int64_t first, int count, int row,
                 const std::byte* group) {
  const ScalePlaces places{format};
  if (format.scales == QuantScales::single) {
    block.single = load<float>(group + places.factor(first) + 4 * row);
  } else {
    block.scale = load<std::uint16_t>(group + places.factor(first) + 2 * row);
    if (format.has_minimum) block.minimum = load<std::uint16_t>(group + places.minimum_factor(first) + 2 * row);
  }
  for (int i = 0; i < count; ++i) {
    const int64_t b = first + i;
    if (format.scales == QuantScales::coded)
      for (int sub = 0; sub < format.scales_per_block; ++sub) {
        const int code = i * format.scales_per_block + sub;
        block.codes[code] = static_cast<std::int8_t>(group[places.code(b, sub) + row]);
        if (format.has_minimum)
          block.minimum_codes[code] = static_cast<std::int8_t>(group[places.minimum_code(b, sub) + row]);
      }
    read_values(format, group + format.values_at(b), row, block.q + kQuantBlock * i);
  }
}

template <class T>
void copy_plain_back(const std::byte* values, int64_t k, int row, std::byte* to) {
  for (int64_t i = 0; i < k; ++i)
    store(to + i * static_cast<int64_t>(sizeof(T)),
          load<T>(values + (i * kQuantGroup + row) * static_cast<int64_t>(sizeof(T))));
}

/// Formats whose bytes keep their order within a row are copied without unpacking. f16 scales, and minimums if there are any,
/// come before `words` groups of four bytes.
template <int words, bool has_minimum, std::uint32_t flip>
void copy_blocks(const QuantFormat& format, const std::byte* from, int64_t blocks, int row, std::byte* group) {
  const ScalePlaces places{format};
  for (int64_t b = 0; b < blocks; ++b) {
    store(group + places.factor(b) + 2 * row, load<std::uint16_t>(from));
    if (has_minimum) store(group + places.minimum_factor(b) + 2 * row, load<std::uint16_t>(from + 2));
    from += has_minimum ? 4 : 2;
    std::byte* values = group + format.values_at(b) + 4 * row;
    for (int g = 0; g < words; ++g, from += 4) store(values + 64 * g, load<std::uint32_t>(from) ^ flip);
  }
}

template <class T>
void copy_plain(const std::byte* from, int64_t k, int row, std::byte* values) {
  for (int64_t i = 0; i < k; ++i)
    store(values + (i * kQuantGroup + row) * static_cast<int64_t>(sizeof(T)),
          load<T>(from + i * static_cast<int64_t>(sizeof(T))));
}

void pack_row(BlockType type, const std::byte* from, int row, int64_t k, std::byte* group) {
  const QuantFormat format = quant_format(type);
  const int64_t blocks = (k + kQuantBlock - 1) / kQuantBlock;
  switch (type) {
    case BlockType::f32: return copy_plain<std::uint32_t>(from, k, row, group);
    case BlockType::f16:
    case BlockType::bf16: return copy_plain<std::uint16_t>(from, k, row, group);
    case BlockType::q4_0:
    case BlockType::iq4_nl: return copy_blocks<4, false, 0>(format, from, blocks, row, group);
    case BlockType::q4_1: return copy_blocks<4, true, 0>(format, from, blocks, row, group);
    case BlockType::q8_0: return copy_blocks<8, false, 0x80808080u>(format, from, blocks, row, group);
    default: break;
  }
  const BlockFormat& source = block_format(type);
  const int count = static_cast<int>(source.block_elements) / kQuantBlock;
  UnpackedBlock block;
  for (int64_t b = 0; b < blocks; b += count, from += source.block_bytes) {
    read_block(type, from, block);
    write_block(format, block, b, count, row, group);
  }
}

}  // namespace

void quant_pack_group(BlockType type, const std::byte* blocks, int rows, int64_t k, std::byte* group) {
  const QuantFormat format = quant_format(type);
  const BlockFormat& source = block_format(type);
  const int64_t count = (k + kQuantBlock - 1) / kQuantBlock;
  // Bit planes are accumulated, so they must start at zero; so must the rows that do not exist, and the padding of scales.
  if (rows < kQuantGroup || format.planes() > 0 || format.is_plain()) {
    std::memset(group, 0, static_cast<std::size_t>(format.group_bytes(count)));
  } else {
    for (int64_t b = 0; b < count; b += format.chunk_blocks())
      std::memset(group + format.chunk_at(b), 0, static_cast<std::size_t>(format.scale_bytes()));
  }
  const int64_t row_bytes = k / static_cast<int64_t>(source.block_elements) * static_cast<int64_t>(source.block_bytes);
  for (int row = 0; row < rows; ++row) pack_row(type, blocks + row * row_bytes, row, k, group);
}

void quant_restore_row(BlockType type, const std::byte* group, int row, int64_t k, std::byte* blocks) {
  const QuantFormat format = quant_format(type);
  if (type == BlockType::f32) return copy_plain_back<std::uint32_t>(group, k, row, blocks);
  if (format.is_plain()) return copy_plain_back<std::uint16_t>(group, k, row, blocks);
  const Element& source = element(type);
  const int count = source.block_elements / kQuantBlock;
  UnpackedBlock block;
  for (int64_t b = 0; b < k / kQuantBlock; b += count, blocks += source.block_bytes) {
    read_packed(format, block, b, count, row, group);
    if (type == BlockType::q8_0)  // kept as unsigned bytes
      for (int i = 0; i < kQuantBlock; ++i) block.q[i] = static_cast<std::uint8_t>(block.q[i] ^ 0x80);
    weft::write_block(type, block, blocks);
  }
}

void quant_unpack_row(BlockType type, const std::byte* group, int row, int64_t k, float* y) {
  const QuantFormat format = quant_format(type);
  const int64_t blocks = (k + kQuantBlock - 1) / kQuantBlock;
  if (format.is_plain()) {
    const std::byte* values = group;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = i * kQuantGroup + row;
      y[i] = format.values == QuantValues::f32   ? load<float>(values + 4 * at)
             : format.values == QuantValues::f16 ? f32_from_f16(load<std::uint16_t>(values + 2 * at))
                                                 : f32_from_bf16(load<std::uint16_t>(values + 2 * at));
    }
    return;
  }
  const ScalePlaces places{format};
  const int zero = format.zero(), elements = kQuantBlock / format.scales_per_block;
  for (int64_t b = 0; b < blocks; ++b, y += kQuantBlock) {
    const std::byte* values = group + format.values_at(b);
    for (int sub = 0; sub < format.scales_per_block; ++sub) {
      float scale = 0, minimum = 0;
      if (format.scales == QuantScales::single) {
        scale = load<float>(group + places.factor(b) + 4 * row);
      } else {
        scale = f32_from_f16(load<std::uint16_t>(group + places.factor(b) + 2 * row));
        if (format.has_minimum) minimum = f32_from_f16(load<std::uint16_t>(group + places.minimum_factor(b) + 2 * row));
        if (format.scales == QuantScales::coded) {
          scale *= static_cast<float>(static_cast<std::int8_t>(group[places.code(b, sub) + row]));
          if (format.has_minimum)
            minimum *= static_cast<float>(static_cast<std::int8_t>(group[places.minimum_code(b, sub) + row]));
        }
      }
      for (int i = sub * elements; i < (sub + 1) * elements; ++i) {
        const int g = i / 4;
        int q = 0;
        if (format.values == QuantValues::byte) {
          q = static_cast<int>(byte_at(values, 64 * g + 4 * row + i % 4));
        } else {
          q = static_cast<int>(byte_at(values, 64 * (g % 4) + 4 * row + i % 4) >> 4 * (g / 4) & 15);
          if (format.values == QuantValues::iq4_table) q = kIq4Values[q];
          if (format.values == QuantValues::e2m1_table) q = kE2m1Values[q];
          for (int plane = 0; plane < format.planes(); ++plane) {
            const unsigned bits = byte_at(values, 256 + 64 * plane + 8 * g + row / 2) >> 4 * (row % 2);
            q |= static_cast<int>(bits >> i % 4 & 1) << (4 + plane);
          }
        }
        const float value = scale * static_cast<float>(q - zero);
        y[i] = format.has_minimum ? value + minimum : value;
      }
    }
  }
}

}  // namespace weft::cpu
