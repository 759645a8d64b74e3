#include "weft/grid/q4_blocks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "weft/error.hpp"

namespace weft::grid::q4_blocks {
namespace {

// Trap 15: zero blocks, outliers, odd lengths, clamping.
TEST(GridQ4Blocks, ErrorsAreAtMostHalfTheScaleOfTheirBlock) {
  std::mt19937 engine(3);
  std::normal_distribution<float> normal;
  for (const std::size_t count : {0u, 1u, 31u, 32u, 33u, 100u, 1024u}) {
    std::vector<float> w(count);
    for (float& v : w) v = normal(engine);
    if (count > 40) w[37] = -1000;
    const std::vector<std::byte> bytes = quantise_q4_blocks(w);
    EXPECT_EQ(bytes.size(), (count + 31) / 32 * 20);
    const std::vector<float> back = dequantise_q4_blocks(bytes, count);
    for (std::size_t i = 0; i < count; ++i) {
      float top = 0;
      for (std::size_t j = i / 32 * 32; j < std::min(count, i / 32 * 32 + 32); ++j)
        top = std::max(top, std::fabs(w[j]));
      EXPECT_LE(std::fabs(back[i] - w[i]), top / 14 * 1.0001f) << count << " " << i;
    }
  }
}

TEST(GridQ4Blocks, LowHalvesComeFirst) {
  const std::vector<std::byte> bytes = quantise_q4_blocks(std::vector<float>{7, -7, 1, -1, 0, 3});
  float scale = 0;
  std::memcpy(&scale, bytes.data(), sizeof scale);
  EXPECT_EQ(scale, 1);
  EXPECT_EQ(std::to_integer<int>(bytes[4]), 0x97);
  EXPECT_EQ(std::to_integer<int>(bytes[5]), 0xF1);
  EXPECT_EQ(std::to_integer<int>(bytes[6]), 0x30);
}

// Trap: 0 divided by 0.
TEST(GridQ4Blocks, ZerosHaveScaleZero) {
  const std::vector<std::byte> bytes = quantise_q4_blocks(std::vector<float>(32, 0));
  EXPECT_EQ(bytes, std::vector<std::byte>(20));
  EXPECT_EQ(dequantise_q4_blocks(bytes, 32), std::vector<float>(32, 0));
}

TEST(GridQ4Blocks, BadInputIsRefused) {
  EXPECT_THROW(quantise_q4_blocks(std::vector<float>{NAN}), UsageError);
  EXPECT_THROW(dequantise_q4_blocks(std::vector<std::byte>(19), 3), UsageError);
  EXPECT_THROW(dequantise_q4_blocks(std::vector<std::byte>(20), 33), UsageError);
  EXPECT_THROW(dequantise_q4_blocks(std::vector<std::byte>(20), 0), UsageError);
  std::vector<std::byte> nan(20, std::byte{0xFF});
  EXPECT_THROW(dequantise_q4_blocks(nan, 1), UsageError);
}

}  // namespace
}  // namespace weft::grid::q4_blocks
