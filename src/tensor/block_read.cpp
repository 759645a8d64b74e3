#include "tensor/block_read.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "tensor/block_k.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using codec::kSuper;
using codec::load;

unsigned byte_at(const std::byte* p, int i) { return static_cast<unsigned>(p[i]); }

void read_nibbles(const std::byte* from, std::uint8_t* q) {
  for (int i = 0; i < 16; ++i) {
    q[i] = static_cast<std::uint8_t>(byte_at(from, i) & 15);
    q[i + 16] = static_cast<std::uint8_t>(byte_at(from, i) >> 4);
  }
}

void read_fifth_bits(const std::byte* from, std::uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] = static_cast<std::uint8_t>(q[i] | (byte_at(from, i / 8) >> i % 8 & 1) << 4);
}

/// Two bits of each of 256 elements: of 128, byte l holds l, l + 32, l + 64 and l + 96.
void read_bit_pairs(const std::byte* from, std::uint8_t* q) {
  for (int half = 0; half < 2; ++half)
    for (int j = 0; j < 4; ++j)
      for (int l = 0; l < 32; ++l)
        q[128 * half + 32 * j + l] = static_cast<std::uint8_t>(byte_at(from, 32 * half + l) >> 2 * j & 3);
}

/// Four bits of each of 256 elements: of 64, byte l holds l and l + 32.
void read_k_nibbles(const std::byte* from, std::uint8_t* q) {
  for (int j = 0; j < 8; ++j)
    for (int l = 0; l < 32; ++l)
      q[32 * j + l] = static_cast<std::uint8_t>(byte_at(from, 32 * (j / 2) + l) >> 4 * (j % 2) & 15);
}

/// The 6-bit scales and minimums of Q4_K and Q5_K.
void read_k_scales(const std::byte* from, UnpackedBlock& block) {
  for (int j = 0; j < 8; ++j) {
    const auto [scale, minimum] = codec::load_pair(from, j);
    block.codes[j] = static_cast<std::int8_t>(scale);
    block.minimum_codes[j] = static_cast<std::int8_t>(minimum);
  }
}

// The same in the other direction.

using codec::store;

void write_nibbles(const std::uint8_t* q, std::byte* to) {
  for (int i = 0; i < 16; ++i) to[i] = codec::nibbles(q[i] & 15, q[i + 16] & 15);
}

void write_fifth_bits(const std::uint8_t* q, std::byte* to) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<std::uint32_t>(q[i] >> 4 & 1) << i;
  store(to, bits);
}

/// Bits `shift` and `shift` + 1 of each of 256 elements.
void write_bit_pairs(const std::uint8_t* q, int shift, std::byte* to) {
  for (int half = 0; half < 2; ++half)
    for (int l = 0; l < 32; ++l) {
      int byte = 0;
      for (int j = 0; j < 4; ++j) byte |= (q[128 * half + 32 * j + l] >> shift & 3) << 2 * j;
      to[32 * half + l] = static_cast<std::byte>(byte);
    }
}

void write_k_nibbles(const std::uint8_t* q, std::byte* to) {
  for (int j = 0; j < 4; ++j)
    for (int l = 0; l < 32; ++l) to[32 * j + l] = codec::nibbles(q[64 * j + l] & 15, q[64 * j + 32 + l] & 15);
}

/// One bit of each of 256 elements: byte l holds those of l, l + 32 and so on.
void write_bits(const std::uint8_t* q, int shift, std::byte* to) {
  for (int l = 0; l < 32; ++l) {
    int byte = 0;
    for (int j = 0; j < 8; ++j) byte |= (q[32 * j + l] >> shift & 1) << j;
    to[l] = static_cast<std::byte>(byte);
  }
}

void write_k_scales(const UnpackedBlock& block, std::byte* to) {
  int scales[8], minimums[8];
  for (int j = 0; j < 8; ++j) scales[j] = block.codes[j], minimums[j] = block.minimum_codes[j];
  codec::store_pairs(to, scales, minimums);
}

constexpr std::uint16_t kSignBit = 0x8000;  // of an f16: the K formats subtract their minimums

}  // namespace

void read_block(BlockType type, const std::byte* from, UnpackedBlock& block) {
  switch (type) {
    case BlockType::q4_0:
    case BlockType::iq4_nl:
      block.scale = load<std::uint16_t>(from);
      read_nibbles(from + 2, block.q);
      break;
    case BlockType::q4_1:
      block.scale = load<std::uint16_t>(from);
      block.minimum = load<std::uint16_t>(from + 2);
      read_nibbles(from + 4, block.q);
      break;
    case BlockType::q5_0:
      block.scale = load<std::uint16_t>(from);
      read_nibbles(from + 6, block.q);
      read_fifth_bits(from + 2, block.q);
      break;
    case BlockType::q5_1:
      block.scale = load<std::uint16_t>(from);
      block.minimum = load<std::uint16_t>(from + 2);
      read_nibbles(from + 8, block.q);
      read_fifth_bits(from + 4, block.q);
      break;
    case BlockType::q8_0:
      block.scale = load<std::uint16_t>(from);
      std::memcpy(block.q, from + 2, 32);
      break;
    case BlockType::mxfp4:
      block.single = codec::half_scale(byte_at(from, 0));
      read_nibbles(from + 1, block.q);
      break;
    case BlockType::q2_k:
      block.scale = load<std::uint16_t>(from + 80);
      block.minimum = load<std::uint16_t>(from + 82) ^ kSignBit;
      for (int j = 0; j < 16; ++j) {
        block.codes[j] = static_cast<std::int8_t>(byte_at(from, j) & 15);
        block.minimum_codes[j] = static_cast<std::int8_t>(byte_at(from, j) >> 4);
      }
      read_bit_pairs(from + 16, block.q);
      break;
    case BlockType::q3_k:
      block.scale = load<std::uint16_t>(from + 108);
      for (int j = 0; j < 16; ++j) {
        block.codes[j] = static_cast<std::int8_t>(static_cast<int>(codec::load_q3_scale(from + 96, j)) - 32);
      }
      read_bit_pairs(from + 32, block.q);
      for (int i = 0; i < kSuper; ++i)
        block.q[i] = static_cast<std::uint8_t>(block.q[i] | (byte_at(from, i % 32) >> i / 32 & 1) << 2);
      break;
    case BlockType::q4_k:
      block.scale = load<std::uint16_t>(from);
      block.minimum = load<std::uint16_t>(from + 2) ^ kSignBit;
      read_k_scales(from + 4, block);
      read_k_nibbles(from + 16, block.q);
      break;
    case BlockType::q5_k:
      block.scale = load<std::uint16_t>(from);
      block.minimum = load<std::uint16_t>(from + 2) ^ kSignBit;
      read_k_scales(from + 4, block);
      read_k_nibbles(from + 48, block.q);
      for (int i = 0; i < kSuper; ++i)
        block.q[i] = static_cast<std::uint8_t>(block.q[i] | (byte_at(from, 16 + i % 32) >> i / 32 & 1) << 4);
      break;
    case BlockType::q6_k:
      block.scale = load<std::uint16_t>(from + 208);
      for (int j = 0; j < 16; ++j) block.codes[j] = static_cast<std::int8_t>(byte_at(from, 192 + j));
      read_bit_pairs(from + 128, block.q);
      for (int half = 0; half < 2; ++half)
        for (int l = 0; l < 128; ++l) {
          const unsigned low = byte_at(from, 64 * half + l % 64) >> 4 * (l / 64) & 15;
          block.q[128 * half + l] = static_cast<std::uint8_t>(low | block.q[128 * half + l] << 4);
        }
      break;
    case BlockType::iq4_xs: {
      block.scale = load<std::uint16_t>(from);
      const unsigned high = load<std::uint16_t>(from + 2);
      for (int j = 0; j < 8; ++j) {
        const unsigned low = byte_at(from, 4 + j / 2) >> 4 * (j % 2) & 15;
        block.codes[j] = static_cast<std::int8_t>(static_cast<int>(low | (high >> 2 * j & 3) << 4) - 32);
        read_nibbles(from + 8 + 16 * j, block.q + 32 * j);
      }
      break;
    }
    default: throw InternalError(fmt::format("{} has no blocks of integers", name_of(type)));
  }
}

void write_block(BlockType type, const UnpackedBlock& block, std::byte* to) {
  const auto negated_minimum = [&] { return static_cast<std::uint16_t>(block.minimum ^ kSignBit); };
  switch (type) {
    case BlockType::q4_0:
    case BlockType::iq4_nl:
      store(to, block.scale);
      write_nibbles(block.q, to + 2);
      break;
    case BlockType::q4_1:
      store(to, block.scale);
      store(to + 2, block.minimum);
      write_nibbles(block.q, to + 4);
      break;
    case BlockType::q5_0:
      store(to, block.scale);
      write_fifth_bits(block.q, to + 2);
      write_nibbles(block.q, to + 6);
      break;
    case BlockType::q5_1:
      store(to, block.scale);
      store(to + 2, block.minimum);
      write_fifth_bits(block.q, to + 4);
      write_nibbles(block.q, to + 8);
      break;
    case BlockType::q8_0:
      store(to, block.scale);
      std::memcpy(to + 2, block.q, 32);
      break;
    case BlockType::mxfp4: {
      const auto bits = std::bit_cast<std::uint32_t>(block.single);
      to[0] = static_cast<std::byte>(bits < 0x00800000u ? bits >> 22 : (bits >> 23) + 1);
      write_nibbles(block.q, to + 1);
      break;
    }
    case BlockType::q2_k:
      for (int j = 0; j < 16; ++j) to[j] = codec::nibbles(block.codes[j], block.minimum_codes[j]);
      write_bit_pairs(block.q, 0, to + 16);
      store(to + 80, block.scale);
      store(to + 82, negated_minimum());
      break;
    case BlockType::q3_k: {
      int scales[16];
      for (int j = 0; j < 16; ++j) scales[j] = block.codes[j] + 32;
      write_bits(block.q, 2, to);
      write_bit_pairs(block.q, 0, to + 32);
      codec::store_q3_scales(to + 96, scales);
      store(to + 108, block.scale);
      break;
    }
    case BlockType::q4_k:
      store(to, block.scale);
      store(to + 2, negated_minimum());
      write_k_scales(block, to + 4);
      write_k_nibbles(block.q, to + 16);
      break;
    case BlockType::q5_k:
      store(to, block.scale);
      store(to + 2, negated_minimum());
      write_k_scales(block, to + 4);
      write_bits(block.q, 4, to + 16);
      write_k_nibbles(block.q, to + 48);
      break;
    case BlockType::q6_k:
      for (int half = 0; half < 2; ++half)
        for (int l = 0; l < 64; ++l)
          to[64 * half + l] = codec::nibbles(block.q[128 * half + l] & 15, block.q[128 * half + 64 + l] & 15);
      write_bit_pairs(block.q, 4, to + 128);
      for (int j = 0; j < 16; ++j) to[192 + j] = static_cast<std::byte>(block.codes[j]);
      store(to + 208, block.scale);
      break;
    case BlockType::iq4_xs: {
      store(to, block.scale);
      unsigned high = 0;
      for (int j = 0; j < 8; ++j) {
        high |= static_cast<unsigned>(block.codes[j] + 32) >> 4 << 2 * j;
        write_nibbles(block.q + 32 * j, to + 8 + 16 * j);
      }
      store(to + 2, static_cast<std::uint16_t>(high));
      for (int j = 0; j < 4; ++j)
        to[4 + j] = codec::nibbles((block.codes[2 * j] + 32) & 15, (block.codes[2 * j + 1] + 32) & 15);
      break;
    }
    default: throw InternalError(fmt::format("{} has no blocks of integers", name_of(type)));
  }
}

}  // namespace weft
