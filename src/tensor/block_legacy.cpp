// Q4_0, Q4_1, Q5_0, Q5_1, Q8_0: blocks of 32 elements with an f16 scale d, and in *_1 an f16 minimum m.
//
//   Q4_0  d, nibbles                 d (q - 8)     nibbles: element i and element i + 16 share byte i, the former low
//   Q4_1  d, m, nibbles              d q + m
//   Q5_0  d, 32 fifth bits, nibbles  d (q - 16)    fifth bit of element i: bit i of a little-endian u32
//   Q5_1  d, m, fifth bits, nibbles  d q + m
//   Q8_0  d, 32 signed bytes         d q
#include "tensor/block_codec.hpp"
#include "tensor/block_fit.hpp"

namespace weft::codec {
namespace {

constexpr int kBlock = 32;

/// Stores integers 0 to 15 as nibbles in 16 bytes.
void store_nibbles(std::byte* bytes, const int* q) {
  for (int i = 0; i < kBlock / 2; ++i) bytes[i] = nibbles(q[i] & 15, q[i + kBlock / 2] & 15);
}
void store_fifth_bits(std::byte* bytes, const int* q) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kBlock; ++i) bits |= static_cast<std::uint32_t>(q[i] >> 4) << i;
  store(bytes, bits);
}

/// d (q - 2^(bits-1)) with `bits` bits.
template <int bits>
void dequantise_centred(const std::byte* at, float* y, std::size_t count) {
  constexpr int kBytes = bits == 4 ? 18 : 22;
  constexpr int kCentre = 1 << (bits - 1);
  for (; count > 0; --count, at += kBytes, y += kBlock) {
    const float d = load_scale(at);
    const std::uint32_t fifth = bits == 5 ? load<std::uint32_t>(at + 2) : 0;
    const std::byte* q = at + kBytes - 16;
    for (int i = 0; i < 16; ++i) {
      const int low = static_cast<int>(low_nibble(q[i]) | (fifth >> i & 1u) << 4);
      const int high = static_cast<int>(high_nibble(q[i]) | (fifth >> (i + 16) & 1u) << 4);
      y[i] = d * static_cast<float>(low - kCentre);
      y[i + 16] = d * static_cast<float>(high - kCentre);
    }
  }
}

template <int bits>
void quantise_centred(const float* x, std::byte* at, std::size_t count) {
  constexpr int kBytes = bits == 4 ? 18 : 22;
  constexpr int kCentre = 1 << (bits - 1);
  for (; count > 0; --count, at += kBytes, x += kBlock) {
    const float d = rounded_scale(fit_linear<kBlock>(x, -kCentre, kCentre - 1));
    const float inverse = safe_inverse(d);
    int q[kBlock];
    for (int i = 0; i < kBlock; ++i)
      q[i] = static_cast<int>(nearest_level(x[i] * inverse, -kCentre, kCentre - 1)) + kCentre;
    store_scale(at, d);
    if constexpr (bits == 5) store_fifth_bits(at + 2, q);
    store_nibbles(at + kBytes - 16, q);
  }
}

/// d q + m with `bits` bits.
template <int bits>
void dequantise_offset(const std::byte* at, float* y, std::size_t count) {
  constexpr int kBytes = bits == 4 ? 20 : 24;
  for (; count > 0; --count, at += kBytes, y += kBlock) {
    const float d = load_scale(at), m = load_scale(at + 2);
    const std::uint32_t fifth = bits == 5 ? load<std::uint32_t>(at + 4) : 0;
    const std::byte* q = at + kBytes - 16;
    for (int i = 0; i < 16; ++i) {
      const unsigned low = low_nibble(q[i]) | (fifth >> i & 1u) << 4;
      const unsigned high = high_nibble(q[i]) | (fifth >> (i + 16) & 1u) << 4;
      y[i] = d * static_cast<float>(static_cast<int>(low)) + m;
      y[i + 16] = d * static_cast<float>(static_cast<int>(high)) + m;
    }
  }
}

template <int bits>
void quantise_offset(const float* x, std::byte* at, std::size_t count) {
  constexpr int kBytes = bits == 4 ? 20 : 24;
  constexpr int kMost = (1 << bits) - 1;
  for (; count > 0; --count, at += kBytes, x += kBlock) {
    const Affine fit = fit_affine<kBlock>(x, kMost, false);
    const float d = rounded_scale(fit.scale), m = rounded_scale(fit.offset);
    const float inverse = safe_inverse(d);
    int q[kBlock];
    for (int i = 0; i < kBlock; ++i) q[i] = static_cast<int>(nearest_level((x[i] - m) * inverse, 0, kMost));
    store_scale(at, d);
    store_scale(at + 2, m);
    if constexpr (bits == 5) store_fifth_bits(at + 4, q);
    store_nibbles(at + kBytes - 16, q);
  }
}

}  // namespace

void dequantise_q4_0(const std::byte* at, float* y, std::size_t count) { dequantise_centred<4>(at, y, count); }
void dequantise_q4_1(const std::byte* at, float* y, std::size_t count) { dequantise_offset<4>(at, y, count); }
void dequantise_q5_0(const std::byte* at, float* y, std::size_t count) { dequantise_centred<5>(at, y, count); }
void dequantise_q5_1(const std::byte* at, float* y, std::size_t count) { dequantise_offset<5>(at, y, count); }
void quantise_q4_0(const float* x, std::byte* at, std::size_t count) { quantise_centred<4>(x, at, count); }
void quantise_q4_1(const float* x, std::byte* at, std::size_t count) { quantise_offset<4>(x, at, count); }
void quantise_q5_0(const float* x, std::byte* at, std::size_t count) { quantise_centred<5>(x, at, count); }
void quantise_q5_1(const float* x, std::byte* at, std::size_t count) { quantise_offset<5>(x, at, count); }

void dequantise_q8_0(const std::byte* at, float* y, std::size_t count) {
  for (; count > 0; --count, at += 34, y += kBlock) {
    const float d = load_scale(at);
    for (int i = 0; i < kBlock; ++i) y[i] = static_cast<float>(static_cast<std::int8_t>(at[2 + i])) * d;
  }
}

void quantise_q8_0(const float* x, std::byte* at, std::size_t count) {
  for (; count > 0; --count, at += 34, x += kBlock) {
    // Rounding with the stored f16 scale gives less error than rounding with the scale before its conversion to f16.
    const float d = rounded_scale(std::fabs(extreme_of<kBlock>(x)) / 127.0f);
    const float inverse = safe_inverse(d);
    store_scale(at, d);
    for (int i = 0; i < kBlock; ++i)
      at[2 + i] = static_cast<std::byte>(static_cast<std::int8_t>(nearest_level(x[i] * inverse, -127, 127)));
  }
}

}  // namespace weft::codec
