// Running extremes of f32 with their positions, with AVX-512; see ExtremeRun in tile.hpp. Most of a long line changes nothing:
// sixteen numbers that are all beyond the extreme so far are one comparison.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backend/cpu/loop/tile.hpp"

namespace weft::cpu {
namespace {

template <bool is_largest>
void run_extremes(ExtremeRun& run) {
  constexpr std::int64_t kLanes = 16;
  constexpr int kMayTake = is_largest ? _CMP_NLT_UQ : _CMP_NGT_UQ;  // as it is with a NaN on either side
  const auto take = [&](std::int64_t i) {
    const float x = run.x[i];
    if (run.position >= 0 && !(is_largest ? x >= run.value : x <= run.value) && x == x) return;
    run.value = x;
    run.position = static_cast<std::int32_t>(run.begin + i);
  };
  const auto one = [&](std::int64_t i) {
    take(i);
    run.values[i] = run.value;
    run.positions[i] = run.position;
  };
  const auto values = reinterpret_cast<std::uintptr_t>(run.values),
             positions = reinterpret_cast<std::uintptr_t>(run.positions);
  const bool streams = run.streams && values % 64 == positions % 64;
  std::int64_t i = 0;
  // Stores past the caches write whole lines; the first number is always taken.
  const std::int64_t head = streams ? static_cast<std::int64_t>((0 - values) % 64 / 4) : run.position < 0;
  for (; i < head && i < run.count; ++i) one(i);
  for (; i + kLanes <= run.count; i += kLanes) {
    __m512 value = _mm512_set1_ps(run.value);
    __m512i position = _mm512_set1_epi32(run.position);
    if (run.position < 0 || _mm512_cmp_ps_mask(_mm512_loadu_ps(run.x + i), value, kMayTake) != 0) {
      alignas(64) float here[kLanes];
      alignas(64) std::int32_t places[kLanes];
      for (std::int64_t k = 0; k < kLanes; ++k) {
        take(i + k);
        here[k] = run.value, places[k] = run.position;
      }
      value = _mm512_load_ps(here), position = _mm512_load_si512(places);
    }
    if (streams) {
      _mm512_stream_ps(run.values + i, value);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(run.positions + i), position);
    } else {
      _mm512_storeu_ps(run.values + i, value);
      _mm512_storeu_si512(run.positions + i, position);
    }
  }
  for (; i < run.count; ++i) one(i);
}

}  // namespace
}  // namespace weft::cpu
