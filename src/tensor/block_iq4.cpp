// IQ4_NL, IQ4_XS, MXFP4: four bits that index a table of values.
//
//   IQ4_NL  32 elements   f16 d, nibbles                                   d table[q]
//   IQ4_XS  256 elements  f16 d, u16 of 8 x 2 high scale bits, 4 bytes of 8 x 4 low ones, 8 x 16 bytes of nibbles
//                                                                          d (scale - 32) table[q]
//   MXFP4   32 elements   exponent byte e, nibbles                         2^(e-127) e2m1[q]
// Nibbles have the layout of Q4_0, for each 32 elements.
#include <limits>

#include "tensor/block_codec.hpp"
#include "tensor/block_fit.hpp"

namespace weft::codec {
namespace {

constexpr int kGroup = 32;

/// For each half-integer step from -128 the index of the nearest entry of kIq4: midpoints of entries are such steps.
struct Nearest {
  std::uint8_t index[512];
  constexpr Nearest() : index() {
    for (int step = 0; step < 512; ++step) {
      const int twice = 2 * (step - 256) + 1;  // four times the middle of the step, so that no tie is met
      int best = 0;
      for (int i = 1; i < 16; ++i) {
        const int a = twice - 4 * kIq4[i], b = twice - 4 * kIq4[best];
        if ((a < 0 ? -a : a) < (b < 0 ? -b : b)) best = i;
      }
      index[step] = static_cast<std::uint8_t>(best);
    }
  }
};
constexpr Nearest kNearest;

int nearest_iq4(float value) {
  const float step = std::clamp(2.0f * value + 256.0f, 0.0f, 511.0f);
  return kNearest.index[static_cast<int>(step)];
}

/// Like `fit_linear` and `linear_error`, with the entries of kIq4 in place of the integers.
float fit_iq4(const float* x) {
  const float extreme = extreme_of<kGroup>(x);
  if (safe_inverse(extreme) == 0) return 0;
  LinearSums best;
  const auto attempt = [&](float inverse) {
    LinearSums sums;
    for (int i = 0; i < kGroup; ++i) {
      const float q = static_cast<float>(kIq4[nearest_iq4(x[i] * inverse)]);
      sums.xq += x[i] * q;
      sums.qq += q * q;
    }
    if (sums.gain() > best.gain()) best = sums;
  };
  for (int k = -7; k <= 7; ++k) {
    attempt((-127.0f + 3.0f * static_cast<float>(k)) / extreme);
    attempt((113.0f + 3.0f * static_cast<float>(k)) / extreme);
  }
  for (int round = 0; round < 2; ++round) attempt(safe_inverse(best.scale()));
  return best.scale();
}

float iq4_error(const float* x, float scale) {
  const float inverse = safe_inverse(scale);
  float sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    const float d = x[i] - scale * static_cast<float>(kIq4[nearest_iq4(x[i] * inverse)]);
    sum += d * d;
  }
  return sum;
}

void store_iq4(const float* x, float scale, std::byte* to) {
  const float inverse = safe_inverse(scale);
  for (int i = 0; i < kGroup / 2; ++i)
    to[i] = nibbles(nearest_iq4(x[i] * inverse), nearest_iq4(x[i + kGroup / 2] * inverse));
}

void expand(const int* table, const std::byte* q, float scale, float* y) {
  for (int i = 0; i < kGroup / 2; ++i) {
    y[i] = scale * static_cast<float>(table[low_nibble(q[i])]);
    y[i + kGroup / 2] = scale * static_cast<float>(table[high_nibble(q[i])]);
  }
}

/// Index into kE2m1 of the entry nearest to `value`, ties to the even one, -0 left out.
int nearest_e2m1(float value) {
  const float a = std::fabs(value);
  const int magnitude = (a > 0.5f) + (a >= 1.5f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f) + (a >= 7.0f) + (a > 10.0f);
  return magnitude > 0 && value < 0 ? magnitude + 8 : magnitude;
}

float e2m1_error(const float* x, unsigned exponent) {
  const float d = half_scale(exponent), inverse = safe_inverse(d);
  float sum = 0;
  for (int i = 0; i < kGroup; ++i) {
    const float rest = x[i] - d * static_cast<float>(kE2m1[nearest_e2m1(x[i] * inverse)]);
    sum += rest * rest;
  }
  return sum;
}

}  // namespace

void dequantise_iq4_nl(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 18, y += kGroup) expand(kIq4, at + 2, load_scale(at), y);
}

void quantise_iq4_nl(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 18, x += kGroup) {
    const float d = rounded_scale(fit_iq4(x));
    store_scale(at, d);
    store_iq4(x, d, at + 2);
  }
}

void dequantise_iq4_xs(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 136) {
    const float d = load_scale(at);
    const unsigned high = load<std::uint16_t>(at + 2);
    for (int g = 0; g < 8; ++g, y += kGroup) {
      const unsigned low = static_cast<unsigned>(at[4 + g / 2]) >> 4 * (g % 2) & 15u;
      const int scale = static_cast<int>(low | (high >> 2 * g & 3u) << 4) - 32;
      expand(kIq4, at + 8 + 16 * g, d * static_cast<float>(scale), y);
    }
  }
}

void quantise_iq4_xs(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 136, x += 8 * kGroup) {
    float scales[8];
    for (int g = 0; g < 8; ++g) scales[g] = fit_iq4(x + kGroup * g);
    const float d = rounded_scale(extreme_of<8>(scales) / -32.0f);
    const float inverse = safe_inverse(d);
    store_scale(at, d);
    unsigned high = 0, low = 0;
    for (int g = 0; g < 8; ++g) {
      const int middle = static_cast<int>(nearest_level(scales[g] * inverse, -32, 31));
      int best = middle;
      float best_error = std::numeric_limits<float>::infinity();
      for (int s = std::max(-32, middle - 1); s <= std::min(31, middle + 1); ++s)
        if (const float error = iq4_error(x + kGroup * g, d * static_cast<float>(s)); error < best_error) {
          best_error = error;
          best = s;
        }
      store_iq4(x + kGroup * g, d * static_cast<float>(best), at + 8 + 16 * g);
      low |= static_cast<unsigned>((best + 32) & 15) << 4 * g;
      high |= static_cast<unsigned>((best + 32) >> 4) << 2 * g;
    }
    store(at + 2, static_cast<std::uint16_t>(high));
    store(at + 4, static_cast<std::uint32_t>(low));
  }
}

void dequantise_mxfp4(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 17, y += kGroup) expand(kE2m1, at + 1, half_scale(static_cast<unsigned>(at[0])), y);
}

void quantise_mxfp4(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 17, x += kGroup) {
    const float most = std::fabs(extreme_of<kGroup>(x));
    // 6 is the largest entry: the specification's exponent is that of `most`, less 2. Its neighbours may err less.
    const int middle = most > 0 ? std::ilogb(most) - 2 + 127 : 0;
    unsigned best = static_cast<unsigned>(std::clamp(middle, 0, 254));
    float best_error = std::numeric_limits<float>::infinity();
    for (int e = std::clamp(middle - 1, 0, 254); e <= std::clamp(middle + 1, 0, 254); ++e)
      if (const float error = e2m1_error(x, static_cast<unsigned>(e)); error < best_error) {
        best_error = error;
        best = static_cast<unsigned>(e);
      }
    at[0] = static_cast<std::byte>(best);
    const float inverse = safe_inverse(half_scale(best));
    for (int i = 0; i < kGroup / 2; ++i)
      at[1 + i] = nibbles(nearest_e2m1(x[i] * inverse), nearest_e2m1(x[i + kGroup / 2] * inverse));
  }
}

}  // namespace weft::codec
