// f16 and bf16: every value of 16 bits, and rounding against the two neighbours of a value.
#include "base/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace weft {
namespace {

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

/// From the definition: sign, 5 bits of exponent, 10 of fraction.
double value_of_f16(std::uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(Half, EveryF16HasItsValueAndComesBack) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const auto half = static_cast<std::uint16_t>(i);
    const float value = f32_from_f16(half);
    const bool nan = (half & 0x7FFF) > 0x7C00;
    ASSERT_EQ(std::isnan(value), nan) << i;
    if (nan) {
      ASSERT_EQ(bits_of(value), (i & 0x8000) << 16 | 0x7F800000u | (i & 0x3FF) << 13);
      ASSERT_EQ(f16_from_f32(value), half | 0x200);
    } else {
      ASSERT_EQ(static_cast<double>(value), value_of_f16(half)) << i;
      ASSERT_EQ(std::signbit(value), (half & 0x8000) != 0) << i;
      ASSERT_EQ(f16_from_f32(value), half) << i;
    }
  }
}

TEST(Half, F16RoundsToTheNearestAndTiesToEven) {
  std::mt19937 random(1);
  const auto check = [](float value) {
    const std::uint16_t half = f16_from_f32(value);
    if (std::fabs(value) >= 65520) {
      ASSERT_EQ(half & 0x7FFF, 0x7C00) << value;
      return;
    }
    const double error = std::fabs(value_of_f16(half) - value);
    for (const int step : {-1, 1}) {
      const auto neighbour = static_cast<std::uint16_t>(half + step);
      if ((neighbour & 0x7FFF) >= 0x7C00 || (neighbour & 0x8000) != (half & 0x8000)) continue;
      const double other = std::fabs(value_of_f16(neighbour) - value);
      ASSERT_LE(error, other) << value;
      if (error == other) {
        ASSERT_EQ(half & 1, 0) << value;
      }
    }
  };
  for (int i = 0; i < 300'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(value)) check(value);
    check(std::ldexp(static_cast<float>(static_cast<int>(random())), -40 - static_cast<int>(random() % 32)));
  }
  for (std::uint32_t i = 0; i < 0x7C00; ++i) {  // every middle between two, and its neighbours
    const double middle = (value_of_f16(static_cast<std::uint16_t>(i)) +
                           (i + 1 == 0x7C00 ? 65536 : value_of_f16(static_cast<std::uint16_t>(i + 1)))) /
                          2;
    const float value = static_cast<float>(middle);
    for (const float near : {value, std::nextafter(value, 0.0f), std::nextafter(value, 1e9f)}) {
      check(near);
      check(-near);
    }
  }
  EXPECT_EQ(f16_from_f32(65519.996f), 0x7BFF);
  EXPECT_EQ(f16_from_f32(65520.0f), 0x7C00);
}

TEST(Half, Bf16) {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float value = f32_from_bf16(static_cast<std::uint16_t>(i));
    ASSERT_EQ(bits_of(value), i << 16);
    ASSERT_EQ(bf16_from_f32(value), std::isnan(value) ? i | 0x40 : i);
  }
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // ties: down to even, up to even
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x3F807FFFu)), 0x3F80);
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x7F7FFFFFu)), 0x7F80);  // the largest float rounds to infinity
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0x7F800001u)), 0x7FC0);  // a NaN whose payload is cut off stays one
  EXPECT_EQ(bf16_from_f32(std::bit_cast<float>(0xFF800001u)), 0xFFC0);
}

}  // namespace
}  // namespace weft
