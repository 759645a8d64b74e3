// Finds scales for values that will be stored as integers: the search of `quantise`.
//
// For a given scale the best integers are found by rounding, and for given integers the best scale by least squares. Both
// fits below try a row of first scales, around the one that maps the largest value to the largest integer, and then
// take the two steps in turn. Sums run in four lanes of a vector on every machine, so that all give the same blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft::codec {

/// Four floats, which GCC and Clang map onto vectors of any machine; operators work lane by lane.
using Lanes = float __attribute__((vector_size(16)));
inline Lanes load_lanes(const float* x) {
  Lanes lanes;
  std::memcpy(&lanes, x, sizeof lanes);
  return lanes;
}
inline float sum_of(Lanes v) { return (v[0] + v[1]) + (v[2] + v[3]); }

constexpr float kRoundingShift = 12582912.0f;  // 1.5 x 2^23: sums in its range have a last place of 1

/// `value`, within [lo, hi], to the nearest integer, ties to even: for |lo|, |hi| < 2^22.
inline float nearest_level(float value, float lo, float hi) {
  const float within = value < lo ? lo : value > hi ? hi : value;
  return (within + kRoundingShift) - kRoundingShift;
}
inline Lanes nearest_level(Lanes value, float lo, float hi) {
  const Lanes low = Lanes{} + lo, high = Lanes{} + hi;
  value = value < low ? low : value;
  value = value > high ? high : value;
  return (value + kRoundingShift) - kRoundingShift;
}

/// Value of the largest magnitude, with its sign.
template <int n>
float extreme_of(const float* x) {
  float extreme = 0;
  for (int i = 0; i < n; ++i)
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  return extreme;
}

inline float safe_inverse(float x) {
  const float inverse = 1.0f / x;
  return x != 0 && std::isfinite(inverse) ? inverse : 0.0f;
}

/// x_i ~ scale q_i, where q_i is the integer in [lo, hi] nearest to x_i `inverse`.
struct LinearSums {
  float xq = 0, qq = 0;
  /// How much the best scale for these integers reduces the sum of squares of x.
  float gain() const { return qq > 0 ? xq * xq / qq : 0.0f; }
  float scale() const { return qq > 0 ? xq / qq : 0.0f; }
};
template <int n>
LinearSums linear_sums(const float* x, float inverse, float lo, float hi) {
  Lanes xq{}, qq{};
  for (int i = 0; i < n; i += 4) {
    const Lanes value = load_lanes(x + i), q = nearest_level(value * inverse, lo, hi);
    xq += value * q;
    qq += q * q;
  }
  return {sum_of(xq), sum_of(qq)};
}

/// Sum of (x_i - scale q_i)^2 with the best integers q_i in [lo, hi] for this scale.
template <int n>
float linear_error(const float* x, float scale, float lo, float hi) {
  const float inverse = safe_inverse(scale);
  Lanes sum{};
  for (int i = 0; i < n; i += 4) {
    const Lanes value = load_lanes(x + i), rest = value - scale * nearest_level(value * inverse, lo, hi);
    sum += rest * rest;
  }
  return sum_of(sum);
}

/// The scale, of either sign, that makes sum (x_i - scale q_i)^2 small over integers q_i in [lo, hi], where -lo > hi.
template <int n>
float fit_linear(const float* x, int lo, int hi) {
  const float extreme = extreme_of<n>(x);
  if (safe_inverse(extreme) == 0) return 0;
  const float low = static_cast<float>(lo), high = static_cast<float>(hi);
  LinearSums best;
  const auto attempt = [&](float inverse) {
    const LinearSums sums = linear_sums<n>(x, inverse, low, high);
    if (sums.gain() > best.gain()) best = sums;
  };
  // Tries the extreme on the side with the additional integer, then on the other. With few integers, clipping it can be better.
  for (int k = -8; k <= 8; ++k) attempt((low + 0.125f * static_cast<float>(k)) / extreme);
  for (int k = -6; k <= 3; ++k) attempt((high + 0.125f * static_cast<float>(k)) / extreme);
  for (int round = 0; round < 2; ++round) attempt(safe_inverse(best.scale()));
  return best.scale();
}

/// x_i ~ scale q_i + offset.
struct Affine {
  float scale = 0, offset = 0;
};

template <int n>
float affine_error(const float* x, const Affine& fit, float hi) {
  const float inverse = safe_inverse(fit.scale);
  Lanes sum{};
  for (int i = 0; i < n; i += 4) {
    const Lanes value = load_lanes(x + i), q = nearest_level((value - fit.offset) * inverse, 0, hi);
    const Lanes rest = value - (fit.scale * q + fit.offset);
    sum += rest * rest;
  }
  return sum_of(sum);
}

/// Scale (at least 0) and offset that make sum (x_i - scale q_i - offset)^2 small over integers q_i in [0, hi]; the offset is
/// at most 0 if requested.
template <int n>
Affine fit_affine(const float* x, int hi, bool offset_at_most_zero) {
  const float high = static_cast<float>(hi);
  float least = x[0], most = x[0];
  float sum_x = 0;
  for (int i = 0; i < n; ++i) {
    least = std::min(least, x[i]);
    most = std::max(most, x[i]);
    sum_x += x[i];
  }
  if (offset_at_most_zero) least = std::min(least, 0.0f);
  const float inverse_range = safe_inverse(most - least);
  if (inverse_range == 0) return {0, least};

  Affine best{(most - least) / high, least};
  float best_error = affine_error<n>(x, best, high);
  const auto attempt = [&](float inverse, float offset) {
    Lanes sum_q{}, sum_xq{}, sum_qq{};
    for (int i = 0; i < n; i += 4) {
      const Lanes value = load_lanes(x + i), level = nearest_level((value - offset) * inverse, 0, high);
      sum_q += level;
      sum_xq += value * level;
      sum_qq += level * level;
    }
    const double q = sum_of(sum_q), xq = sum_of(sum_xq), qq = sum_of(sum_qq);
    const double determinant = n * qq - q * q;
    if (determinant <= 0) return;
    double scale = (n * xq - sum_x * q) / determinant, shift = (sum_x - scale * q) / n;
    if (offset_at_most_zero && shift > 0) {
      shift = 0;
      scale = xq / qq;
    }
    const Affine fit{static_cast<float>(scale), static_cast<float>(shift)};
    if (!(fit.scale > 0)) return;
    const float error = affine_error<n>(x, fit, high);
    if (error < best_error) {
      best_error = error;
      best = fit;
    }
  };
  const int reach = hi <= 3 ? 10 : 8;
  for (int k = -reach; k <= reach; ++k) attempt((high + 0.1f * static_cast<float>(k)) * inverse_range, least);
  for (int round = 0; round < 3; ++round) attempt(safe_inverse(best.scale), best.offset);
  return best;
}

}  // namespace weft::codec
