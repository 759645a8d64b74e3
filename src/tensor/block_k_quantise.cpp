// Quantises to Q2_K to Q6_K. A scale is fitted for each group (block_fit.hpp), the scales are rounded to integers times d, and
// each integer is chosen among its neighbours by its error. Then d is fitted to all of them, and they are chosen again.
#include <limits>

#include "tensor/block_fit.hpp"
#include "tensor/block_k.hpp"

namespace weft::codec {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kRounds = 2;  // of fitting d; a third changes the error by less than 0.1 %

/// x ~ d scale_g q - dmin minimum_g.
template <int groups>
struct AffineBlock {
  float d = 0, dmin = 0;
  int scale[groups] = {}, minimum[groups] = {};
  int q[kSuper] = {};
  float error = kInfinity;

  Affine fit_of(int g) const { return {d * static_cast<float>(scale[g]), -(dmin * static_cast<float>(minimum[g]))}; }
};

template <int groups, int hi, int most>
AffineBlock<groups> fit_affine_block(const float* x) {
  constexpr int n = kSuper / groups;
  Affine wanted[groups];
  float largest_scale = 0, largest_minimum = 0;
  for (int g = 0; g < groups; ++g) {
    wanted[g] = fit_affine<n>(x + n * g, hi, true);
    largest_scale = std::max(largest_scale, wanted[g].scale);
    largest_minimum = std::max(largest_minimum, -wanted[g].offset);
  }
  AffineBlock<groups> best, now;
  now.d = rounded_scale(largest_scale / most);
  now.dmin = rounded_scale(largest_minimum / most);
  for (int round = 0;; ++round) {
    const float inverse = safe_inverse(now.d), inverse_minimum = safe_inverse(now.dmin);
    now.error = 0;
    for (int g = 0; g < groups; ++g) {
      const int scale = static_cast<int>(nearest_level(wanted[g].scale * inverse, 0, most));
      const int minimum = static_cast<int>(nearest_level(-wanted[g].offset * inverse_minimum, 0, most));
      float least = kInfinity;
      now.scale[g] = scale;
      now.minimum[g] = minimum;
      for (int s = std::max(0, scale - 1); s <= std::min(most, scale + 1); ++s)
        for (int m = std::max(0, minimum - 1); m <= std::min(most, minimum + 1); ++m) {
          const Affine fit{now.d * static_cast<float>(s), -(now.dmin * static_cast<float>(m))};
          if (const float error = affine_error<n>(x + n * g, fit, hi); error < least) {
            least = error;
            now.scale[g] = s;
            now.minimum[g] = m;
          }
        }
      now.error += least;
      const Affine fit = now.fit_of(g);
      const float inverse_scale = safe_inverse(fit.scale);
      for (int i = n * g; i < n * (g + 1); ++i)
        now.q[i] = static_cast<int>(nearest_level((x[i] - fit.offset) * inverse_scale, 0, hi));
    }
    if (now.error < best.error || round == 0) best = now;
    if (round == kRounds) return best;

    // Least squares of x = d a - dmin b over the block, with a = scale q and b = minimum.
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int g = 0; g < groups; ++g)
      for (int i = n * g; i < n * (g + 1); ++i) {
        const double a = now.scale[g] * now.q[i], b = -now.minimum[g], value = x[i];
        aa += a * a;
        ab += a * b;
        bb += b * b;
        ax += a * value;
        bx += b * value;
      }
    const double determinant = aa * bb - ab * ab;
    if (aa == 0) return best;
    if (bb == 0) {
      now.d = rounded_scale(static_cast<float>(ax / aa));
    } else if (determinant > 0) {
      now.d = rounded_scale(static_cast<float>((ax * bb - bx * ab) / determinant));
      now.dmin = rounded_scale(static_cast<float>((bx * aa - ax * ab) / determinant));
    }
    if (!(now.d > 0) || now.dmin < 0) return best;
  }
}

/// x ~ d scale_g q, scale_g in [-most - 1, most], q in [-hi - 1, hi].
struct LinearBlock {
  float d = 0;
  int scale[16] = {};
  int q[kSuper] = {};
  float error = kInfinity;
};

template <int hi, int most>
LinearBlock fit_linear_block(const float* x) {
  constexpr int n = 16;
  float wanted[16];
  for (int g = 0; g < 16; ++g) wanted[g] = fit_linear<n>(x + n * g, -hi - 1, hi);
  LinearBlock best, now;
  now.d = rounded_scale(extreme_of<16>(wanted) / static_cast<float>(-most - 1));
  for (int round = 0;; ++round) {
    const float inverse = safe_inverse(now.d);
    now.error = 0;
    for (int g = 0; g < 16; ++g) {
      const int middle = static_cast<int>(nearest_level(wanted[g] * inverse, -most - 1, most));
      float least = kInfinity;
      now.scale[g] = middle;
      for (int s = std::max(-most - 1, middle - 1); s <= std::min(most, middle + 1); ++s)
        if (const float error = linear_error<n>(x + n * g, now.d * static_cast<float>(s), -hi - 1, hi); error < least) {
          least = error;
          now.scale[g] = s;
        }
      now.error += least;
      const float inverse_scale = safe_inverse(now.d * static_cast<float>(now.scale[g]));
      for (int i = n * g; i < n * (g + 1); ++i)
        now.q[i] = static_cast<int>(nearest_level(x[i] * inverse_scale, -hi - 1, hi));
    }
    if (now.error < best.error || round == 0) best = now;
    if (round == kRounds) return best;

    double ax = 0, aa = 0;
    for (int i = 0; i < kSuper; ++i) {
      const double a = now.scale[i / n] * now.q[i];
      ax += a * x[i];
      aa += a * a;
    }
    if (aa == 0) return best;
    now.d = rounded_scale(static_cast<float>(ax / aa));
  }
}

/// Packs 2 bits of each element as Q2_K and Q3_K do.
void store_pairs_of_bits(std::byte* to, const int* q) {
  for (int half = 0; half < 2; ++half)
    for (int l = 0; l < 32; ++l) {
      const int* const at = q + 128 * half + l;
      to[32 * half + l] =
          static_cast<std::byte>((at[0] & 3) | (at[32] & 3) << 2 | (at[64] & 3) << 4 | (at[96] & 3) << 6);
    }
}

template <int hi>
AffineBlock<8> store_q4_or_q5(const float* x, std::byte* at) {
  const AffineBlock<8> block = fit_affine_block<8, hi, 63>(x);
  store_scale(at, block.d);
  store_scale(at + 2, block.dmin);
  store_pairs(at + 4, block.scale, block.minimum);
  std::byte* const to = at + (hi == 31 ? 48 : 16);
  for (int pair = 0; pair < 4; ++pair)
    for (int l = 0; l < 32; ++l)
      to[32 * pair + l] = nibbles(block.q[64 * pair + l] & 15, block.q[64 * pair + 32 + l] & 15);
  return block;
}

}  // namespace

void quantise_q2_k(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 84, x += kSuper) {
    const AffineBlock<16> block = fit_affine_block<16, 3, 15>(x);
    for (int g = 0; g < 16; ++g) at[g] = nibbles(block.scale[g], block.minimum[g]);
    store_pairs_of_bits(at + 16, block.q);
    store_scale(at + 80, block.d);
    store_scale(at + 82, block.dmin);
  }
}

void quantise_q3_k(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 110, x += kSuper) {
    LinearBlock block = fit_linear_block<3, 31>(x);
    for (int& s : block.scale) s += 32;
    for (int& q : block.q) q += 4;
    for (int l = 0; l < 32; ++l) {
      int third = 0;
      for (int bit = 0; bit < 8; ++bit) third |= (block.q[32 * bit + l] >> 2) << bit;
      at[l] = static_cast<std::byte>(third);
    }
    store_pairs_of_bits(at + 32, block.q);
    store_q3_scales(at + 96, block.scale);
    store_scale(at + 108, block.d);
  }
}

void quantise_q4_k(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 144, x += kSuper) store_q4_or_q5<15>(x, at);
}

void quantise_q5_k(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 176, x += kSuper) {
    const AffineBlock<8> block = store_q4_or_q5<31>(x, at);
    for (int l = 0; l < 32; ++l) {
      int fifth = 0;
      for (int g = 0; g < 8; ++g) fifth |= (block.q[32 * g + l] >> 4) << g;
      at[16 + l] = static_cast<std::byte>(fifth);
    }
  }
}

void quantise_q6_k(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 210, x += kSuper) {
    LinearBlock block = fit_linear_block<31, 127>(x);
    for (int& q : block.q) q += 32;
    for (int half = 0; half < 2; ++half) {
      const int* const q = block.q + 128 * half;
      for (int l = 0; l < 64; ++l) at[64 * half + l] = nibbles(q[l] & 15, q[64 + l] & 15);
      for (int l = 0; l < 32; ++l)
        at[128 + 32 * half + l] =
            static_cast<std::byte>(q[l] >> 4 | q[32 + l] >> 4 << 2 | q[64 + l] >> 4 << 4 | q[96 + l] >> 4 << 6);
    }
    for (int g = 0; g < 16; ++g) at[192 + g] = static_cast<std::byte>(static_cast<std::int8_t>(block.scale[g]));
    store_scale(at + 208, block.d);
  }
}

}  // namespace weft::codec
