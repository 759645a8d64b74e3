// Products by tiles: with the instructions played by plain loops on any processor, and with the real ones where they are.
// Both give the bits of the kernels that they replace.
#include "backend/cpu/quant/amx.inc.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/quant/matmul.hpp"
#include "backend/cpu/quant/portable.inc.hpp"
#include "base/threads.hpp"
#include "tensor/block_format.hpp"

namespace weft::cpu {
namespace {

/// Registers of 16 rows of 64 bytes, and what the processor would refuse.
struct PlainTiles {
  inline static thread_local TileConfiguration shape;
  inline static thread_local bool configured = false;
  inline static thread_local std::uint8_t registers[8][16][64];

  static void require(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "tile instruction: %s\n", what);
    std::abort();
  }
  static void configure(const TileConfiguration& c) {
    require(c.palette == 1 && c.start_row == 0, "palette");
    for (int i = 0; i < 16; ++i)
      require(i < 8 ? c.rows[i] <= 16 && c.row_bytes[i] <= 64 : c.rows[i] == 0 && c.row_bytes[i] == 0, "shape");
    shape = c;
    configured = true;
    std::memset(registers, 0, sizeof registers);
  }
  static void release() { configured = false; }
  template <int r>
  static void zero() {
    require(configured, "not configured");
    std::memset(registers[r], 0, sizeof registers[r]);
  }
  template <int r>
  static void load(const void* from, std::int64_t row_bytes) {
    require(configured, "not configured");
    std::memset(registers[r], 0, sizeof registers[r]);
    for (int i = 0; i < shape.rows[r]; ++i)
      std::memcpy(registers[r][i], static_cast<const std::byte*>(from) + i * row_bytes, shape.row_bytes[r]);
  }
  template <int r>
  static void store(void* to, std::int64_t row_bytes) {
    for (int i = 0; i < shape.rows[r]; ++i)
      std::memcpy(static_cast<std::byte*>(to) + i * row_bytes, registers[r][i], shape.row_bytes[r]);
  }
  template <int c, int a, int b>
  static void multiply() {
    require(shape.rows[c] == shape.rows[a] && shape.row_bytes[a] == 4 * shape.rows[b] &&
                shape.row_bytes[c] == shape.row_bytes[b],
            "shapes that do not meet");
    for (int m = 0; m < shape.rows[c]; ++m)
      for (int n = 0; n < shape.row_bytes[c] / 4; ++n) {
        std::int32_t sum;
        std::memcpy(&sum, registers[c][m] + 4 * n, 4);
        for (int k = 0; k < shape.row_bytes[a]; ++k)
          sum += static_cast<std::int8_t>(registers[a][m][k]) * registers[b][k / 4][4 * n + k % 4];
        std::memcpy(registers[c][m] + 4 * n, &sum, 4);
      }
  }
};

class QuantAmx : public testing::TestWithParam<BlockType> {};

/// Bits that no scale makes infinite.
std::vector<std::byte> tame_blocks(BlockType type, std::int64_t n, std::int64_t k, std::mt19937& random) {
  std::vector<float> values(static_cast<std::size_t>(n * k));
  for (float& x : values) x = std::normal_distribution<float>()(random);
  std::vector<std::byte> blocks(bytes_for(type, static_cast<std::uint64_t>(n * k), "test"));
  quantise(type, values, blocks);
  return blocks;
}

void expect_same_bits(BlockType type, const QuantKernels& tiles, const QuantKernels& vectors) {
  std::mt19937 random(21);
  struct Case {
    std::int64_t m, n, k;
  };
  for (const Case& c :
       {Case{16, 16, 256}, {9, 33, 512}, {17, 47, 768}, {32, 16, 256}, {47, 20, 1536}, {600, 21, 512}}) {
    const QuantisedMatrix packed = QuantisedMatrix::pack(type, tame_blocks(type, c.n, c.k, random), c.n, c.k);
    std::vector<float> x(static_cast<std::size_t>(c.m * c.k));
    for (float& value : x) value = std::normal_distribution<float>()(random);
    x[5] = 100;
    const std::int64_t y_row = c.n + 3;
    std::vector<float> results[2];
    for (int i = 0; i < 2; ++i) {
      results[i].assign(static_cast<std::size_t>(c.m * y_row), -12345.0f);
      const QuantProduct product{.weights = &packed, .y = results[i].data(), .y_row = y_row};
      quant_matmul({&product, 1}, x.data(), c.m, c.k, Activations::eight_bit, i == 0 ? &tiles : &vectors);
    }
    ASSERT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(float)), 0)
        << name_of(type) << " [" << c.m << ", " << c.n << ", " << c.k << "]";
  }
}

TEST_P(QuantAmx, PlayedTilesGiveTheBitsOfVectors) {
  static const QuantKernels played = with_tiles<QuantPortable, PlainTiles>(baseline::kQuant, "played");
  expect_same_bits(GetParam(), played, baseline::kQuant);
}

TEST_P(QuantAmx, TilesGiveTheBitsOfVectors) {
#if defined(__x86_64__)
  if (best_isa() >= Isa::amx) return expect_same_bits(GetParam(), avx512::quant_amx(), avx512::quant_vnni());
#endif
  GTEST_SKIP() << "this processor has no AMX";
}

std::vector<BlockType> types_in_blocks() {
  std::vector<BlockType> types;
  for (const BlockType type : kQuantTypes)
    if (!quant_format(type).is_plain()) types.push_back(type);
  return types;
}
INSTANTIATE_TEST_SUITE_P(Formats, QuantAmx, testing::ValuesIn(types_in_blocks()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace weft::cpu
