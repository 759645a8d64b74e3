#include "backend/webgpu/quantised_pack.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/threads.hpp"
#include "tensor/block_k.hpp"

namespace weft::webgpu {
namespace {

constexpr int kSuper = 256;  // elements that share factors

/// One block of a file: 32 or 256 elements.
struct UnpackedBlock {
  std::uint8_t q[kSuper];
  std::uint16_t scale = 0, minimum = 0;  // f16 bits
  float single = 0;
  std::int8_t codes[16], minimum_codes[16];  // of 16 elements each
};

constexpr std::int8_t kIq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr std::int8_t kE2m1Twice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr std::uint16_t kSignBit = 0x8000;  // of an f16: the K formats subtract their minimums

unsigned byte_at(const std::byte* p, int i) { return static_cast<unsigned>(p[i]); }
std::uint16_t half_at(const std::byte* p) { return static_cast<std::uint16_t>(byte_at(p, 0) | byte_at(p, 1) << 8); }
std::uint8_t low_byte(unsigned x) { return static_cast<std::uint8_t>(x); }
std::int8_t signed_byte(int x) { return static_cast<std::int8_t>(x); }

void read_nibbles(const std::byte* from, std::uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = low_byte(byte_at(from, i) & 15);
    q[i + 16] = low_byte(byte_at(from, i) >> 4);
  }
}
void read_fifth_bits(const std::byte* from, std::uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] = low_byte(q[i] | (byte_at(from, i / 8) >> i % 8 & 1) << 4);
}
/// Two bits of each of 256 elements: of 128, byte l holds l, l + 32, l + 64 and l + 96.
unsigned bit_pair(const std::byte* from, int i) {
  return byte_at(from, 32 * (i / 128) + i % 32) >> 2 * (i % 128 / 32) & 3;
}
/// Four bits of each: of 64, byte l holds l and l + 32.
unsigned k_nibble(const std::byte* from, int i) {
  return byte_at(from, 32 * (i / 64) + i % 32) >> 4 * (i % 64 / 32) & 15;
}

/// The 6-bit scales and minimums of Q4_K and Q5_K, of 32 elements each.
void read_k_scales(const std::byte* from, UnpackedBlock& block) {
  for (int j = 0; j < 8; ++j) {
    const auto [scale, minimum] = codec::load_pair(from, j);
    block.codes[2 * j] = block.codes[2 * j + 1] = static_cast<std::int8_t>(scale);
    block.minimum_codes[2 * j] = block.minimum_codes[2 * j + 1] = static_cast<std::int8_t>(minimum);
  }
}

void look_up(const std::int8_t* table, std::uint8_t* q, int count) {
  for (int i = 0; i < count; ++i) q[i] = static_cast<std::uint8_t>(table[q[i]]);
}

void read_block(BlockType type, const std::byte* from, UnpackedBlock& block) {
  switch (type) {
    case BlockType::q4_0:
    case BlockType::iq4_nl:
      block.scale = half_at(from);
      read_nibbles(from + 2, block.q);
      if (type == BlockType::iq4_nl) look_up(kIq4, block.q, 32);
      break;
    case BlockType::q4_1:
      block.scale = half_at(from);
      block.minimum = half_at(from + 2);
      read_nibbles(from + 4, block.q);
      break;
    case BlockType::q5_0:
      block.scale = half_at(from);
      read_nibbles(from + 6, block.q);
      read_fifth_bits(from + 2, block.q);
      break;
    case BlockType::q5_1:
      block.scale = half_at(from);
      block.minimum = half_at(from + 2);
      read_nibbles(from + 8, block.q);
      read_fifth_bits(from + 4, block.q);
      break;
    case BlockType::q8_0:
      block.scale = half_at(from);
      std::memcpy(block.q, from + 2, 32);
      break;
    case BlockType::mxfp4: {
      const unsigned exponent = byte_at(from, 0);
      // Half of 2^(exponent - 127), for the table holds doubled values.
      block.single = std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
      read_nibbles(from + 1, block.q);
      look_up(kE2m1Twice, block.q, 32);
      break;
    }
    case BlockType::q2_k:
      block.scale = half_at(from + 80);
      block.minimum = half_at(from + 82) ^ kSignBit;
      for (int j = 0; j < 16; ++j) {
        block.codes[j] = signed_byte(static_cast<int>(byte_at(from, j) & 15));
        block.minimum_codes[j] = signed_byte(static_cast<int>(byte_at(from, j) >> 4));
      }
      for (int i = 0; i < kSuper; ++i) block.q[i] = low_byte(bit_pair(from + 16, i));
      break;
    case BlockType::q3_k:
      block.scale = half_at(from + 108);
      for (int j = 0; j < 16; ++j)
        block.codes[j] = signed_byte(static_cast<int>(codec::load_q3_scale(from + 96, j)) - 32);
      for (int i = 0; i < kSuper; ++i)
        block.q[i] = low_byte(bit_pair(from + 32, i) | (byte_at(from, i % 32) >> i / 32 & 1) << 2);
      break;
    case BlockType::q4_k:
    case BlockType::q5_k:
      block.scale = half_at(from);
      block.minimum = half_at(from + 2) ^ kSignBit;
      read_k_scales(from + 4, block);
      for (int i = 0; i < kSuper; ++i)
        block.q[i] = type == BlockType::q4_k
                         ? low_byte(k_nibble(from + 16, i))
                         : low_byte(k_nibble(from + 48, i) | (byte_at(from, 16 + i % 32) >> i / 32 & 1) << 4);
      break;
    case BlockType::q6_k:
      block.scale = half_at(from + 208);
      for (int j = 0; j < 16; ++j) block.codes[j] = static_cast<std::int8_t>(byte_at(from, 192 + j));
      for (int i = 0; i < kSuper; ++i) {
        const int half = i / 128, l = i % 128;
        block.q[i] = low_byte((byte_at(from, 64 * half + l % 64) >> 4 * (l / 64) & 15) | bit_pair(from + 128, i) << 4);
      }
      break;
    case BlockType::iq4_xs: {
      block.scale = half_at(from);
      const unsigned high = half_at(from + 2);
      for (int j = 0; j < 8; ++j) {
        const unsigned low = byte_at(from, 4 + j / 2) >> 4 * (j % 2) & 15;
        block.codes[2 * j] = block.codes[2 * j + 1] =
            signed_byte(static_cast<int>(low | (high >> 2 * j & 3) << 4) - 32);
        read_nibbles(from + 8 + 16 * j, block.q + 32 * j);
      }
      look_up(kIq4, block.q, kSuper);
      break;
    }
    default: break;
  }
}

std::uint32_t word_of(const std::uint8_t* bytes) {
  return bytes[0] | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 | std::uint32_t{bytes[3]} << 24;
}

/// The integers of 32 elements.
void write_values(const QuantForm& form, const std::uint8_t* q, std::uint32_t* values, std::uint32_t* high) {
  for (int c = 0; c < 8; ++c) {
    const std::uint32_t four = word_of(q + 4 * c);
    if (form.values == QuantValues::byte)
      values[c] = four;
    else
      values[c / 2] |= (four & 0x0F0F0F0Fu) << 4 * (c % 2);
    if (form.planes == 1) high[0] |= (four >> 4 & 0x01010101u) << c;
    if (form.planes == 2) high[c / 4] |= (four >> 4 & 0x03030303u) << 2 * (c % 4);
  }
}

Extent whole(Extent words) { return (words + 63) / 64 * 64; }

}  // namespace

QuantForm quant_form(BlockType type) {
  using V = QuantValues;
  using S = QuantScales;
  switch (type) {
    case BlockType::f32: return {.values = V::f32};
    case BlockType::bf16: return {.values = V::bf16};
    case BlockType::q4_0: return {.values = V::nibble, .scales = S::half, .zero = 8};
    case BlockType::q4_1: return {.values = V::nibble, .scales = S::half, .has_minimum = true};
    case BlockType::q5_0: return {.values = V::nibble, .scales = S::half, .zero = 16, .planes = 1};
    case BlockType::q5_1: return {.values = V::nibble, .scales = S::half, .has_minimum = true, .planes = 1};
    case BlockType::q8_0:
    case BlockType::iq4_nl: return {.values = V::byte, .scales = S::half};
    case BlockType::q2_k: return {.values = V::nibble, .scales = S::coded, .has_minimum = true, .group = 16};
    case BlockType::q3_k: return {.values = V::nibble, .scales = S::coded, .group = 16, .zero = 4};
    case BlockType::q4_k: return {.values = V::nibble, .scales = S::coded, .has_minimum = true};
    case BlockType::q5_k: return {.values = V::nibble, .scales = S::coded, .has_minimum = true, .planes = 1};
    case BlockType::q6_k: return {.values = V::nibble, .scales = S::coded, .group = 16, .zero = 32, .planes = 2};
    case BlockType::iq4_xs: return {.values = V::byte, .scales = S::coded};
    case BlockType::mxfp4: return {.values = V::byte, .scales = S::single};
    default: return {};
  }
}

bool has_quantised_products(BlockType type) {
  return type == BlockType::f16 || quant_form(type).values != QuantValues::f16;
}

QuantLayout quant_layout(const QuantForm& form, Extent n, Extent k) {
  QuantLayout at;
  at.blocks = (k + kQuantBlock - 1) / kQuantBlock;
  const Extent all = checked_multiply<ShapeError>(n, at.blocks, "packed matrix");
  checked_multiply<ShapeError>(all, Extent{256}, "packed matrix");
  at.high = whole(all * form.value_words());
  at.scales = at.high + whole(all * form.planes);
  at.factors = at.scales + (form.scales == QuantScales::none ? 0 : whole(all));
  at.words = at.factors + (form.scales == QuantScales::coded ? whole(all / 8) : 0);
  return at;
}

std::vector<std::uint32_t> pack_quantised(BlockType type, std::span<const std::byte> blocks, Extent n, Extent k) {
  const BlockFormat& format = block_format(type);
  const auto elements = static_cast<Extent>(format.block_elements), bytes = static_cast<Extent>(format.block_bytes);
  if (k % elements != 0 || static_cast<Extent>(blocks.size()) != n * (k / elements) * bytes)
    throw ShapeError(fmt::format("packed matrix: {} bytes are no [{}, {}] of {}", blocks.size(), n, k, format.name));
  const QuantForm form = quant_form(type);
  const QuantLayout at = quant_layout(form, n, k);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(at.words));
  const Extent row_bytes = k / elements * bytes;
  parallel_for(n, [&](Extent row) {
    const std::byte* from = blocks.data() + row * row_bytes;
    if (form.scales == QuantScales::none) {
      std::memcpy(words.data() + row * at.blocks * form.value_words(), from, static_cast<std::size_t>(row_bytes));
      return;
    }
    UnpackedBlock block;
    for (Extent b = 0; b < at.blocks; from += bytes) {
      read_block(type, from, block);
      for (int part = 0; part < elements / kQuantBlock; ++part, ++b) {
        const auto i = static_cast<std::size_t>(row * at.blocks + b);
        write_values(form, block.q + 32 * part, words.data() + i * static_cast<std::size_t>(form.value_words()),
                     words.data() + static_cast<std::size_t>(at.high) + i * static_cast<std::size_t>(form.planes));
        std::uint32_t& scale = words[static_cast<std::size_t>(at.scales) + i];
        if (form.scales == QuantScales::half) scale = block.scale | std::uint32_t{block.minimum} << 16;
        if (form.scales == QuantScales::single) scale = std::bit_cast<std::uint32_t>(block.single);
        if (form.scales == QuantScales::coded) {
          const std::int8_t* codes = block.codes + 2 * part;
          const std::int8_t* minimums = block.minimum_codes + 2 * part;
          for (int half = 0; half < 2; ++half) {
            scale |= std::uint32_t{static_cast<std::uint8_t>(codes[half])} << 16 * half;
            if (form.has_minimum) scale |= std::uint32_t{static_cast<std::uint8_t>(minimums[half])} << (16 * half + 8);
          }
          words[static_cast<std::size_t>(at.factors) + i / 8] = block.scale | std::uint32_t{block.minimum} << 16;
        }
      }
    }
  });
  return words;
}

}  // namespace weft::webgpu
