// The parts of attention over a cache for one instruction set; see CacheParts in tile.hpp.
#pragma once

#include "backend/cpu/loop/tile_kernels.inc.hpp"

namespace weft::cpu {
namespace {

/// `G` queries at a time share each load of a key.
template <int G>
void cache_dots_of(const float* q, std::int64_t width, const float* keys, std::int64_t row, std::int64_t count,
                   float* scores, std::int64_t stride) {
  for (std::int64_t j = 0; j < count; ++j) {
    const float* key = keys + j * row;
    F sums[G] = {};
    std::int64_t c = 0;
    for (; c + kFloats <= width; c += kFloats) {
      const F k = load<kFloats>(key + c);
      for (int g = 0; g < G; ++g) sums[g] = fma(load<kFloats>(q + g * width + c), k, sums[g]);
    }
    if (c < width) {
      const F k = load_first<kFloats>(key + c, width - c);
      for (int g = 0; g < G; ++g) sums[g] = fma(load_first<kFloats>(q + g * width + c, width - c), k, sums[g]);
    }
    for (int g = 0; g < G; ++g)
      scores[g * stride + j] = fold<float, kFloats>(sums[g], [](auto a, auto b) { return a + b; });
  }
}

void cache_dots(const float* q, std::int64_t group, std::int64_t width, const float* keys, std::int64_t row,
                std::int64_t count, float* scores, std::int64_t stride) {
  std::int64_t g = 0;
  for (; g + 4 <= group; g += 4) cache_dots_of<4>(q + g * width, width, keys, row, count, scores + g * stride, stride);
  switch (group - g) {
    case 3: return cache_dots_of<3>(q + g * width, width, keys, row, count, scores + g * stride, stride);
    case 2: return cache_dots_of<2>(q + g * width, width, keys, row, count, scores + g * stride, stride);
    case 1: return cache_dots_of<1>(q + g * width, width, keys, row, count, scores + g * stride, stride);
  }
}

/// Sums of up to four vectors of channels stay in registers during the pass over the rows.
template <int G>
void cache_mix_of(const float* weights, std::int64_t stride, std::int64_t width, const float* values, std::int64_t row,
                  std::int64_t count, float* out) {
  constexpr int kVectors = 4;
  std::int64_t c = 0;
  for (; c + kVectors * kFloats <= width; c += kVectors * kFloats) {
    F sums[G][kVectors];
    for (int g = 0; g < G; ++g)
      for (int i = 0; i < kVectors; ++i) sums[g][i] = load<kFloats>(out + g * width + c + i * kFloats);
    for (std::int64_t j = 0; j < count; ++j)
      for (int i = 0; i < kVectors; ++i) {
        const F v = load<kFloats>(values + j * row + c + i * kFloats);
        for (int g = 0; g < G; ++g) sums[g][i] = fma(splat(weights[g * stride + j]), v, sums[g][i]);
      }
    for (int g = 0; g < G; ++g)
      for (int i = 0; i < kVectors; ++i) store<kFloats>(out + g * width + c + i * kFloats, sums[g][i]);
  }
  for (; c < width; c += kFloats) {
    const std::int64_t lanes = std::min<std::int64_t>(kFloats, width - c);
    for (int g = 0; g < G; ++g) {
      F sum = load_some<float>(out + g * width + c, lanes);
      for (std::int64_t j = 0; j < count; ++j)
        sum = fma(splat(weights[g * stride + j]), load_some<float>(values + j * row + c, lanes), sum);
      store_some<float>(out + g * width + c, sum, lanes);
    }
  }
}

void cache_mix(const float* weights, std::int64_t group, std::int64_t stride, std::int64_t width, const float* values,
               std::int64_t row, std::int64_t count, float* out) {
  std::int64_t g = 0;
  for (; g + 2 <= group; g += 2)
    cache_mix_of<2>(weights + g * stride, stride, width, values, row, count, out + g * width);
  if (g < group) cache_mix_of<1>(weights + g * stride, stride, width, values, row, count, out + g * width);
}

/// For finite f16 only, as in caches: a product adjusts the exponent, which also handles denormals.
void cache_unpack_f16(const std::uint16_t* from, float* to, std::int64_t count) {
  std::int64_t i = 0;
  for (; i + kFloats <= count; i += kFloats) {
#if defined(__AVX512F__)
    store<kFloats>(to + i, (F)_mm512_cvtph_ps((__m256i)load<kFloats>(from + i)));
#elif defined(__aarch64__)
    store<kFloats>(to + i, vcvt_f32_f16(vreinterpret_f16_u16(load<kFloats>(from + i))));
#else
    const U h = __builtin_convertvector(load<kFloats>(from + i), U);
    const F magnitude = (F)((h & 0x7FFFu) << 13) * 0x1p112f;
    store<kFloats>(to + i, (F)((U)magnitude | (h & 0x8000u) << 16));
#endif
  }
  for (; i < count; ++i) {
    const std::uint32_t h = from[i];
    const float magnitude = std::bit_cast<float>((h & 0x7FFFu) << 13) * 0x1p112f;
    to[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | (h & 0x8000u) << 16);
  }
}

/// Values beyond the largest f16 saturate, because readers of caches accept only finite numbers. A NaN becomes the largest.
void cache_pack_f16(const float* from, std::uint16_t* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kFloats) {
    const std::int64_t lanes = std::min<std::int64_t>(kFloats, count - i);
    const U bits = (U)load_some<float>(from + i, lanes), rest = bits & 0x7FFFFFFFu;
    const U finite = rest < 0x477FE000u ? rest : splat<kFloats>(0x477FE000u);  // 65504
    // Below 2^-14 the last place of the sum is the unit of a denormal f16, so the sum rounds there.
    const U small = (U)((F)finite + 0.5f) - 0x3F000000u;
    const U normal = (finite + 0xFFFu + (finite >> 13 & 1u) - ((127u - 15u) << 23)) >> 13;
    U half = finite < 0x38800000u ? small : normal;
    half = rest > 0x7F800000u ? 0x7E00u | (rest >> 13 & 0x3FFu) : half;
    const auto packed = __builtin_convertvector(half | (bits >> 16 & 0x8000u), V<std::uint16_t, kFloats>);
    if (lanes == kFloats)
      store<kFloats>(to + i, packed);
    else
      for (std::int64_t j = 0; j < lanes; ++j) to[i + j] = packed[j];
  }
}

void cache_unpack_q8(const std::uint32_t* from, float* to, std::int64_t count) {
  for (std::int64_t b = 0; b < count / 32; ++b, from += 9, to += 32) {
    float scale;
    __builtin_memcpy(&scale, from, sizeof scale);
    const auto* bytes = reinterpret_cast<const std::int8_t*>(from + 1);
    for (int i = 0; i < 32; i += kFloats)
      store<kFloats>(to + i, __builtin_convertvector(load<kFloats>(bytes + i), F) * splat(scale));
  }
}

CacheParts cache_parts_of_isa() { return {cache_dots, cache_mix, cache_pack_f16, cache_unpack_f16, cache_unpack_q8}; }

}  // namespace
}  // namespace weft::cpu
