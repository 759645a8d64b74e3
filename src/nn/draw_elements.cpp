// Loops without branches and calls, which the compiler makes vectors of: each takes its operands from short arrays.
#include "nn/draw_elements.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "base/philox.hpp"

namespace weft::nn {
namespace {

constexpr std::size_t kPairs = 64;  // of words at a time

/// A whole number below 2^52 as f64, by the bits of 2^52 plus that number.
double from_whole(std::uint64_t x) { return std::bit_cast<double>(x | 0x4330000000000000) - 0x1p52; }

/// The value of the polynomial with these coefficients, the constant one last.
template <std::size_t n>
double polynomial(double x, const double (&coefficients)[n]) {
  double sum = coefficients[0];
#pragma GCC unroll 16
  for (std::size_t i = 1; i < n; ++i) sum = sum * x + coefficients[i];
  return sum;
}

/// ln((w + 1/2) / 2^32): the exponent's part, and of a fraction f between sqrt(1/2) and sqrt(2) the series of
/// 2 artanh((f - 1) / (f + 1)), whose next term is below 2^-55 of it.
double log_of(std::uint64_t w) {
  constexpr double kSeries[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11,
                                1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};
  const auto bits = std::bit_cast<std::uint64_t>(from_whole(2 * w + 1));
  const std::uint64_t above = bits - std::bit_cast<std::uint64_t>(std::numbers::sqrt2 / 2);
  const double exponent = from_whole(above >> 52) - 33;
  const double fraction = std::bit_cast<double>(bits - (above & 0xFFF0000000000000));
  const double s = (fraction - 1) / (fraction + 1);
  return exponent * std::numbers::ln2 + 2 * s * polynomial(s * s, kSeries);
}

struct Circle {
  double cosine, sine;
};

/// Of 2 pi v / 2^32: the nearest quarter of a turn, and Taylor series of the rest, between -pi / 4 and pi / 4.
Circle circle_of(std::uint64_t v) {
  constexpr double kSine[] = {-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
                              -1.0 / 5040,          1.0 / 120,        -1.0 / 6,        1.0};
  constexpr double kCosine[] = {1.0 / 20922789888000,
                                -1.0 / 87178291200,
                                1.0 / 479001600,
                                -1.0 / 3628800,
                                1.0 / 40320,
                                -1.0 / 720,
                                1.0 / 24,
                                -1.0 / 2,
                                1.0};
  constexpr std::uint64_t kQuarter = 1u << 30;
  const std::uint64_t shifted = v + kQuarter / 2, quarter = shifted / kQuarter;
  const double rest = (from_whole(shifted % kQuarter) - 0x1p29) * (std::numbers::pi * 0x1p-31);
  const double square = rest * rest;
  const auto sine = std::bit_cast<std::uint64_t>(rest * polynomial(square, kSine));
  const auto cosine = std::bit_cast<std::uint64_t>(polynomial(square, kCosine));
  // Each quarter of a turn makes (cosine, sine) of (-sine, cosine).
  const std::uint64_t swapped = (sine ^ cosine) & (0 - (quarter & 1));
  return {std::bit_cast<double>(cosine ^ swapped ^ ((quarter + 1) / 2 % 2 << 63)),
          std::bit_cast<double>(sine ^ swapped ^ (quarter / 2 % 2 << 63))};
}

}  // namespace

void uniform_elements(std::span<const std::uint32_t> words, double low, double high, float* out) {
  const double width = high - low;
  for (std::size_t i = 0; i < words.size(); ++i)
    out[i] = static_cast<float>(low + width * static_cast<double>(philox::to_unit_float(words[i])));
}

void normal_elements(std::span<const std::uint32_t> words, double mean, double deviation, float* out) {
  for (std::size_t begin = 0; begin < words.size(); begin += 2 * kPairs) {
    const std::size_t pairs = std::min(kPairs, (words.size() - begin) / 2);
    std::uint64_t first[kPairs], second[kPairs];
    double radius[kPairs], cosine[kPairs], sine[kPairs];
    for (std::size_t i = 0; i < kPairs; ++i) {
      first[i] = i < pairs ? words[begin + 2 * i] : 0;
      second[i] = i < pairs ? words[begin + 2 * i + 1] : 0;
    }
    for (std::size_t i = 0; i < kPairs; ++i) radius[i] = deviation * std::sqrt(-2 * log_of(first[i]));
    for (std::size_t i = 0; i < kPairs; ++i) {
      const Circle at = circle_of(second[i]);
      cosine[i] = mean + radius[i] * at.cosine;
      sine[i] = mean + radius[i] * at.sine;
    }
    for (std::size_t i = 0; i < pairs; ++i) {
      out[begin + 2 * i] = static_cast<float>(cosine[i]);
      out[begin + 2 * i + 1] = static_cast<float>(sine[i]);
    }
  }
}

}  // namespace weft::nn
