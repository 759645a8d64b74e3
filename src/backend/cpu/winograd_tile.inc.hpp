// The kernels of WinogradKernels, written once over a vector type and compiled once per instruction set, like those of
// gemm_tile.inc.hpp. Along each axis the matrices are
//   B^T = 1  0 -1  0    G = 1    0   0    A^T = 1  1  1  0
//         0  1  1  0        1/2  1/2 1/2        0  1 -1 -1
//         0 -1  1  0        1/2 -1/2 1/2
//         0  1  0 -1        0    0   1
// so that images and results need sums alone, and weights exact halves.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu {
namespace {

/// The four sums of B^T along a line.
template <class V>
__attribute__((always_inline)) inline void winograd_sums(typename V::Register d0, typename V::Register d1,
                                                         typename V::Register d2, typename V::Register d3,
                                                         typename V::Register* to) {
  to[0] = V::subtract(d0, d2);
  to[1] = V::add(d1, d2);
  to[2] = V::subtract(d2, d1);
  to[3] = V::subtract(d1, d3);
}

template <class V>
void winograd_image(std::int64_t tiles, const typename V::Element* const* rows, typename V::Element* to,
                    std::int64_t tile, std::int64_t place) {
  using Register = typename V::Register;
  constexpr int kLanes = V::kLanes;
  const auto column = [&](std::int64_t x, Register * sums) __attribute__((always_inline)) {
    const std::int64_t at = x * kLanes;
    winograd_sums<V>(V::load(rows[0] + at), V::load(rows[1] + at), V::load(rows[2] + at), V::load(rows[3] + at), sums);
  };
  Register first[4], second[4];  // of the columns that a tile shares with the one before
  column(0, first);
  column(1, second);
  for (std::int64_t t = 0; t < tiles; ++t, to += tile) {
    Register third[4], fourth[4];
    column(2 * t + 2, third);
    column(2 * t + 3, fourth);
#pragma GCC unroll 4
    for (int y = 0; y < 4; ++y) {
      Register sums[4];
      winograd_sums<V>(first[y], second[y], third[y], fourth[y], sums);
#pragma GCC unroll 4
      for (int x = 0; x < 4; ++x) V::store(to + (4 * y + x) * place, sums[x]);
      first[y] = third[y];
      second[y] = fourth[y];
    }
  }
}

/// The four sums of A along a line.
template <class V>
__attribute__((always_inline)) inline void winograd_spread(typename V::Register y0, typename V::Register y1,
                                                           typename V::Register* to) {
  to[0] = y0;
  to[1] = V::add(y0, y1);
  to[2] = V::subtract(y0, y1);
  to[3] = V::subtract(V::zero(), y1);
}

template <class V>
void winograd_gradient(std::int64_t tiles, const typename V::Element* const* rows, typename V::Element* to,
                       std::int64_t tile, std::int64_t place) {
  using Register = typename V::Register;
  for (std::int64_t t = 0; t < tiles; ++t, to += tile) {
    const std::int64_t at = 2 * t * V::kLanes;
    Register left[4], right[4];
    winograd_spread<V>(V::load(rows[0] + at), V::load(rows[1] + at), left);
    winograd_spread<V>(V::load(rows[0] + at + V::kLanes), V::load(rows[1] + at + V::kLanes), right);
#pragma GCC unroll 4
    for (int y = 0; y < 4; ++y) {
      Register sums[4];
      winograd_spread<V>(left[y], right[y], sums);
#pragma GCC unroll 4
      for (int x = 0; x < 4; ++x) V::store(to + (4 * y + x) * place, sums[x]);
    }
  }
}

/// The four sums of G along a line.
template <class V>
__attribute__((always_inline)) inline void winograd_halves(typename V::Register g0, typename V::Register g1,
                                                           typename V::Register g2, typename V::Register half,
                                                           typename V::Register* to) {
  const typename V::Register ends = V::multiply_add(half, V::add(g0, g2), V::zero());
  const typename V::Register middle = V::multiply_add(half, g1, V::zero());
  to[0] = g0;
  to[1] = V::add(ends, middle);
  to[2] = V::subtract(ends, middle);
  to[3] = g2;
}

template <class V>
void winograd_weights(std::int64_t channels, const typename V::Element* taps, std::int64_t tap, std::int64_t channel,
                      typename V::Element* to, std::int64_t place) {
  using Register = typename V::Register;
  const typename V::Element number = 0.5;
  const Register half = V::broadcast(&number);
  for (std::int64_t c = 0; c < channels; ++c, taps += channel, to += kGemmVectors * V::kLanes)
    for (int v = 0; v < kGemmVectors; ++v) {
      const typename V::Element* const from = taps + v * V::kLanes;
      Register columns[3][4];
#pragma GCC unroll 3
      for (int x = 0; x < 3; ++x)
        winograd_halves<V>(V::load(from + x * tap), V::load(from + (3 + x) * tap), V::load(from + (6 + x) * tap), half,
                           columns[x]);
#pragma GCC unroll 4
      for (int y = 0; y < 4; ++y) {
        Register row[4];
        winograd_halves<V>(columns[0][y], columns[1][y], columns[2][y], half, row);
#pragma GCC unroll 4
        for (int x = 0; x < 4; ++x) V::store(to + v * V::kLanes + (4 * y + x) * place, row[x]);
      }
    }
}

template <class V>
void winograd_result(std::int64_t tiles, const typename V::Element* from, std::int64_t place, typename V::Element* to,
                     std::int64_t row) {
  using Register = typename V::Register;
  constexpr int kWidth = kGemmVectors * V::kLanes;
  const auto upper = [](Register m0, Register m1, Register m2) { return V::add(V::add(m0, m1), m2); };
  const auto lower = [](Register m1, Register m2, Register m3) { return V::subtract(V::subtract(m1, m2), m3); };
  for (std::int64_t t = 0; t < tiles; ++t, from += kWidth, to += 2 * kWidth)
    for (int v = 0; v < kGemmVectors; ++v) {
      Register first[4], second[4];
#pragma GCC unroll 4
      for (int x = 0; x < 4; ++x) {
        const auto m = [&](int y) { return V::load(from + (4 * y + x) * place + v * V::kLanes); };
        const Register m1 = m(1), m2 = m(2);
        first[x] = upper(m(0), m1, m2);
        second[x] = lower(m1, m2, m(3));
      }
      typename V::Element* const out = to + v * V::kLanes;
      V::store(out, upper(first[0], first[1], first[2]));
      V::store(out + kWidth, lower(first[1], first[2], first[3]));
      V::store(out + row, upper(second[0], second[1], second[2]));
      V::store(out + row + kWidth, lower(second[1], second[2], second[3]));
    }
}

template <class V>
void winograd_weights_gradient(std::int64_t count, const typename V::Element* from, std::int64_t place,
                               typename V::Element* to, std::int64_t tap) {
  using Register = typename V::Register;
  const typename V::Element number = 0.5;
  const Register half = V::broadcast(&number);
  const auto gather = [&](Register m0, Register m1, Register m2, Register m3, Register * g)
      __attribute__((always_inline)) {
    const Register sum = V::multiply_add(half, V::add(m1, m2), V::zero());
    g[0] = V::add(m0, sum);
    g[1] = V::multiply_add(half, V::subtract(m1, m2), V::zero());
    g[2] = V::add(sum, m3);
  };
  for (std::int64_t i = 0; i < count; ++i, from += V::kLanes, to += V::kLanes) {
    Register columns[4][3];
#pragma GCC unroll 4
    for (int x = 0; x < 4; ++x)
      gather(V::load(from + x * place), V::load(from + (4 + x) * place), V::load(from + (8 + x) * place),
             V::load(from + (12 + x) * place), columns[x]);
#pragma GCC unroll 3
    for (int y = 0; y < 3; ++y) {
      Register row[3];
      gather(columns[0][y], columns[1][y], columns[2][y], columns[3][y], row);
#pragma GCC unroll 3
      for (int x = 0; x < 3; ++x) V::store(to + (3 * y + x) * tap, row[x]);
    }
  }
}

/// A number times 0 is 0 only if it is finite. Before that it is made larger than any sum of a transform can be.
template <class V>
bool winograd_is_finite(std::int64_t count, const typename V::Element* from) {
  using Register = typename V::Register;
  const typename V::Element number = 64;
  const Register scale = V::broadcast(&number);
  Register sum[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  const auto add = [&](int i, Register x) __attribute__((always_inline)) {
    sum[i] = V::multiply_add(V::multiply_add(x, scale, V::zero()), V::zero(), sum[i]);
  };
  std::int64_t i = 0;
  for (; i + 4 * V::kLanes <= count; i += 4 * V::kLanes)
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) add(v, V::load(from + i + v * V::kLanes));
  for (; i + V::kLanes <= count; i += V::kLanes) add(0, V::load(from + i));
  if (i < count) add(0, V::load_first(from + i, V::mask(static_cast<int>(count - i))));
  typename V::Element lanes[V::kLanes];
  V::store(lanes, V::add(V::add(sum[0], sum[1]), V::add(sum[2], sum[3])));
  bool is_finite = true;
  for (int lane = 0; lane < V::kLanes; ++lane) is_finite = is_finite && lanes[lane] == 0;
  return is_finite;
}

template <class V>
constexpr WinogradKernels<typename V::Element> winograd_kernels() {
  return {winograd_image<V>,  winograd_gradient<V>,         winograd_weights<V>,
          winograd_result<V>, winograd_weights_gradient<V>, winograd_is_finite<V>};
}

}  // namespace
}  // namespace weft::cpu
