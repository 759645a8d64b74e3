// Rows of narrow elements as f32, for kernels that read operands of narrow types; see widen.hpp. The bits are those of the
// casts.
#pragma once

#include "backend/cpu/loop/narrow_casts.inc.hpp"

namespace weft::cpu {
namespace {

/// Elements of whole bytes. `convert` takes a vector of them.
template <class Code, auto convert>
void widen_rows(const void* data, std::int64_t first, std::int64_t stride, std::int64_t rows, std::int64_t count,
                float* to, std::int64_t to_stride) {
  constexpr int N = kFloats;
  constexpr std::int64_t kAhead = 12;  // rows, each of which may be on another page
  const Code* from = static_cast<const Code*>(data) + first;
  for (std::int64_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
    __builtin_prefetch(from + kAhead * stride);
    std::int64_t i = 0;
    for (; i + N <= count; i += N) store<N>(to + i, convert(load<N>(from + i)));
    if (i < count) store_first<N>(to + i, convert(load_first<N>(from + i, count - i)), count - i);
  }
}

constexpr int kPackedGroup = 16;  // packed elements that are unpacked together

/// The codes in a word, the first in its lowest bits. Bits above those of a code are of other codes.
template <int bits, auto convert>
inline void widen_group(std::uint64_t word, float* to) {
  constexpr int N = kFloats;
  constexpr int kInWord = 32 / bits < N ? 32 / bits : N;  // lanes that 32 bits have codes for
  U shift = {}, is_high = {};
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) {
    shift[i] = static_cast<std::uint32_t>(i % kInWord * bits);
    is_high[i] = i < kInWord ? 0 : ~0u;
  }
#pragma GCC unroll 4
  for (int part = 0; part < kPackedGroup / N; ++part) {
    const std::uint64_t rest = word >> (part * N * bits);
    U codes = splat<N>(static_cast<std::uint32_t>(rest));
    if constexpr (kInWord < N) codes = is_high != 0 ? splat<N>(static_cast<std::uint32_t>(rest >> 32)) : codes;
    store<N>(to + part * N, convert(codes >> shift));
  }
}

/// Elements of `bits` bits.
template <int bits, auto convert>
void widen_packed_rows(const void* data, std::int64_t first, std::int64_t stride, std::int64_t rows, std::int64_t count,
                       float* to, std::int64_t to_stride) {
  constexpr int kBytes = kPackedGroup * bits / 8;
  constexpr std::int64_t kAhead = 12;
  for (std::int64_t r = 0; r < rows; ++r, first += stride, to += to_stride) {
    const std::int64_t at = first * bits;
    const auto* from = static_cast<const unsigned char*>(data) + (at >> 3);
    const int skip = static_cast<int>(at & 7);
    __builtin_prefetch(from + kAhead * stride * bits / 8);
    std::int64_t i = 0;
    for (; i + kPackedGroup <= count; i += kPackedGroup, from += kBytes) {
      std::uint64_t word = 0;
      __builtin_memcpy(&word, from, kBytes);
      if (skip != 0) word = word >> skip | static_cast<std::uint64_t>(from[kBytes]) << (8 * kBytes - skip);
      widen_group<bits, convert>(word, to + i);
    }
    if (i == count) continue;
    const std::int64_t left = count - i, bytes = (skip + left * bits + 7) / 8;
    std::uint64_t word = 0;
    for (std::int64_t b = 0; b < bytes; ++b) word |= static_cast<std::uint64_t>(from[b]) << (8 * b);
    alignas(64) float values[kPackedGroup];
    widen_group<bits, convert>(word >> skip, values);
    for (std::int64_t e = 0; e < left; ++e) to[i + e] = values[e];
  }
}

inline F floats_of_e4m3_bytes(V<Byte, kFloats> x) { return floats_of_e4m3(__builtin_convertvector(x, U)); }
inline F floats_of_e5m2_bytes(V<Byte, kFloats> x) { return floats_of_e5m2(__builtin_convertvector(x, U)); }

void fill_widen(TileTable& table) {
  using Half = std::uint16_t;
  table.widen[at(DType::f16)] = widen_rows<Half, floats_of_f16>;
  table.widen[at(DType::bf16)] = widen_rows<Half, floats_of_bf16>;
  table.widen[at(DType::fp8_e4m3)] = widen_rows<Byte, floats_of_e4m3_bytes>;
  table.widen[at(DType::fp8_e5m2)] = widen_rows<Byte, floats_of_e5m2_bytes>;
  table.widen[at(DType::fp4_e2m1)] = widen_packed_rows<4, floats_of_e2m1>;
  table.widen[at(DType::int4)] = widen_packed_rows<4, numbers_of_small<4, true>>;
  table.widen[at(DType::uint4)] = widen_packed_rows<4, numbers_of_small<4, false>>;
  table.widen[at(DType::int2)] = widen_packed_rows<2, numbers_of_small<2, true>>;
  table.widen[at(DType::uint2)] = widen_packed_rows<2, numbers_of_small<2, false>>;
  table.widen[at(DType::ternary)] = widen_packed_rows<2, numbers_of_small<2, true>>;
  table.widen[at(DType::binary)] = widen_packed_rows<1, numbers_of_binary>;
}

}  // namespace
}  // namespace weft::cpu
