// Products by tiles: with the instructions played by plain loops on any processor, and with the real ones where they are.
// Both give the bits of the kernels that they replace.
#include "backend/cpu/quant/amx.inc.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/played_tiles.hpp"
#include "backend/cpu/quant/matmul.hpp"
#include "backend/cpu/quant/portable.inc.hpp"
#include "base/threads.hpp"
#include "tensor/block_format.hpp"

namespace weft::cpu {
namespace {

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
  static const QuantKernels played =
      with_tiles<QuantPortable, PlayedTiles<std::int8_t, std::uint8_t>>(baseline::kQuant, "played");
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
