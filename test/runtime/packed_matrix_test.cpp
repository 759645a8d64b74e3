// Products with weights in blocks: against the product with their values, with and without epilogues and neighbours.
#include "runtime/packed_matrix.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/backend.hpp"
#include "runtime/devices.hpp"
#include "runtime/noise.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/inference.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using test::noise;

struct Weights {
  Tensor packed;
  Tensor dense;  // the values of the blocks
};
Weights weights_of(BlockType type, Extent n, Extent k, std::uint32_t stream) {
  const std::vector<float> values = noise(stream, n * k);
  std::vector<std::byte> blocks(bytes_for(type, static_cast<std::uint64_t>(n * k), "test"));
  quantise(type, values, blocks);
  std::vector<float> kept(values.size());
  dequantise(type, blocks, kept);
  return {pack_matrix(type, blocks, {n, k}, kCpu), tensor<float>(std::span<const float>(kept), {n, k})};
}

void expect_close(const Tensor& got, const Tensor& wanted, double tolerance) {
  const auto a = got.to_vector<float>(), b = wanted.to_vector<float>();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "element " << i;
}

TEST(PackedMatrix, ProductsAreThoseOfTheValues) {
  for (const BlockType type : {BlockType::q4_1, BlockType::q8_0, BlockType::q6_k, BlockType::f16})
    for (const Extent rows : {Extent{1}, Extent{3}, Extent{40}}) {
      const Extent k = 256, n = 48;
      const Weights w = weights_of(type, n, k, 1);
      const Tensor x = tensor<float>(std::span<const float>(noise(2, rows * k)), {rows, k}),
                   bias = tensor<float>(std::span<const float>(noise(3, n)), {n});
      SCOPED_TRACE(name_of(type));
      expect_close(packed_linear(x, w.packed, {}, true), linear(x, w.dense), 2e-5);
      expect_close(packed_linear(x, w.packed, {}, false), linear(x, w.dense), 0.15);
      // A bias, an activation and a residual join the product's kernel.
      const Tensor fused = silu(packed_linear(x, w.packed, bias, true)) + narrow(x, 1, 0, n);
      const Tensor plain = silu(linear(x, w.dense, bias)) + narrow(x, 1, 0, n);
      EXPECT_EQ(explain(fused).find("\n   1  "), std::string::npos) << explain(fused);
      expect_close(fused, plain, 2e-5);
    }
}

// The gate of a large gated unit gives its memory to the unit's result, and the other product is never in memory whole.
TEST(PackedMatrix, GatedUnitsTakeTheMemoryOfOneProduct) {
  const Extent k = 64, n = 544, rows = 150;
  for (const BlockType type : {BlockType::q4_1, BlockType::q8_0, BlockType::f16}) {
    const Weights gate = weights_of(type, n, k, 1), up = weights_of(type, n, k, 2), down = weights_of(type, k, n, 3);
    const Tensor x = tensor<float>(std::span<const float>(noise(4, rows * k)), {rows, k});
    for (const bool exact : {true, false}) {
      const auto times = [&](const Tensor& y, const Weights& w) { return packed_linear(y, w.packed, {}, exact); };
      auto unit = compile([&](Tensor input) {
        const Tensor y = input * 1.0;
        return times(silu(times(y, gate)) * times(y, up), down);
      });
      const Tensor g = times(x, gate), u = times(x, up);
      g.eval(), u.eval();
      const Tensor h = silu(g) * u;
      h.eval();
      EXPECT_EQ(unit(x).to_vector<float>(), times(h, down).to_vector<float>());
      EXPECT_LT(unit.compiled().scratch_bytes(), static_cast<std::size_t>(rows * (n + 2 * k) * 4));
    }
  }
}

// Each row has the bits that it has alone, with the matrix of its expert.
TEST(PackedMatrix, RowsOfExpertsAreThoseOfTheirMatrices) {
  const Extent experts = 4, k = 64, n = 48, used = 3;
  for (const BlockType type : {BlockType::q4_1, BlockType::q8_0, BlockType::f16, BlockType::f32}) {
    const std::vector<float> values = noise(1, experts * n * k);
    std::vector<std::byte> blocks(bytes_for(type, static_cast<std::uint64_t>(experts * n * k), "test"));
    quantise(type, values, blocks);
    const Tensor all = pack_matrix(type, blocks, {experts, n, k}, kCpu);
    const std::size_t each = blocks.size() / static_cast<std::size_t>(experts);
    std::vector<Tensor> matrices;
    for (Extent e = 0; e < experts; ++e)
      matrices.push_back(
          pack_matrix(type, std::span(blocks).subspan(static_cast<std::size_t>(e) * each, each), {n, k}, kCpu));
    for (const Extent tokens : {1, 5, 40})
      for (const bool exact : {true, false}) {
        std::vector<std::int32_t> numbers;
        for (Extent i = 0; i < tokens * used; ++i)
          numbers.push_back(static_cast<std::int32_t>(i * 7 % 5) - 1);  // -1: none
        const std::vector<float> rows = noise(2, tokens * k);
        const Tensor x = tensor<float>(std::span<const float>(rows), {tokens, k}),
                     chosen = tensor<std::int32_t>(std::span<const std::int32_t>(numbers), {tokens, used});
        std::vector<std::vector<float>> by_expert;
        for (const Tensor& matrix : matrices)
          by_expert.push_back(packed_linear(x, matrix, {}, exact).to_vector<float>());
        const std::vector<float> got = expert_linear(x, all, chosen, exact).to_vector<float>();
        ASSERT_EQ(got.size(), static_cast<std::size_t>(tokens * used * n));
        for (std::size_t i = 0; i < got.size(); ++i) {
          const std::int32_t expert = numbers[i / n];
          const std::size_t at = i / (n * used) * n + i % n;
          ASSERT_EQ(got[i], expert < 0 ? 0 : by_expert[static_cast<std::size_t>(expert)][at])
              << name_of(type) << ", element " << i;
        }
        // One expert for each row, and nothing is read of the others.
        const Tensor first = select(chosen, 1, 1);
        EXPECT_EQ(expert_linear(x, all, first, exact).to_vector<float>(),
                  select(expert_linear(x, all, chosen, exact), 1, 1).to_vector<float>());
      }
  }
}

TEST(PackedMatrix, ExpertsThatDoNotFitAreRefused) {
  std::vector<std::byte> blocks(bytes_for(BlockType::q8_0, 3 * 32 * 64, "test"));
  const Tensor weights = pack_matrix(BlockType::q8_0, blocks, {3, 32, 64}, kCpu),
               odd = pack_matrix(BlockType::q8_0, blocks, {8, 12, 64}, kCpu), x = ones({5, 64});
  const auto numbers = [](const Shape& shape) { return zeros(shape, DType::i32); };
  EXPECT_THROW((void)expert_linear(x, weights, numbers({4})), ShapeError);
  EXPECT_THROW((void)expert_linear(x, weights, numbers({4, 2})), ShapeError);
  EXPECT_THROW((void)expert_linear(ones({5, 32}), weights, numbers({5})), ShapeError);
  EXPECT_THROW((void)expert_linear(x, odd, numbers({5})), ShapeError);
  EXPECT_THROW((void)expert_linear(x, ones({3, 32, 64}), numbers({5})), DTypeError);
  EXPECT_THROW((void)expert_linear(x, weights, ones({5})), DTypeError);
  EXPECT_THROW((void)expert_linear(x, Tensor(), numbers({5})), UsageError);
}

TEST(PackedMatrix, NeighboursRunTogetherAndChainsDoNot) {
  const Extent k = 64;
  const Weights a = weights_of(BlockType::q4_1, 64, k, 1), b = weights_of(BlockType::q4_1, 32, k, 2),
                c = weights_of(BlockType::q8_0, 64, k, 3);
  for (const Extent rows : {Extent{1}, Extent{20}}) {
    const Tensor x = tensor<float>(std::span<const float>(noise(4, rows * k)), {rows, k});
    auto step = compile([&](Tensor input) {
      const Tensor y = input * 1.0 + 0.5;
      const Tensor first = packed_linear(y, a.packed, {}, true), second = packed_linear(y, b.packed, {}, true),
                   third = packed_linear(y, c.packed, {}, true) * silu(first),
                   chained = packed_linear(first, c.packed, {}, true);
      const Tensor parts[] = {first, second, third, chained};
      return concat(parts, 1);
    });
    const Tensor y = x + 0.5, first = linear(y, a.dense);
    const Tensor parts[] = {first, linear(y, b.dense), linear(y, c.dense) * silu(first), linear(first, c.dense)};
    expect_close(step(x), concat(parts, 1), 1e-4);
  }
}

TEST(PackedMatrix, RowsAreTheValuesThemselves) {
  const Weights w = weights_of(BlockType::q8_0, 20, 64, 1);
  const Tensor rows = tensor<std::int32_t>({3, 19, -1, 0, 20, 3});
  EXPECT_EQ(packed_rows(w.packed, rows).to_vector<float>(), embedding(w.dense, rows).to_vector<float>());
}

// The least exponents of mxfp4 are subnormal scales.
TEST(PackedMatrix, SmallExponentsOfMxfp4AreExact) {
  const Extent k = 32;
  const BlockFormat& format = block_format(BlockType::mxfp4);
  std::vector<std::byte> blocks;
  const int exponents[] = {0, 1, 2, 3, 127, 254};
  for (const int exponent : exponents) {
    blocks.push_back(static_cast<std::byte>(exponent));
    for (int i = 0; i < 16; ++i) blocks.push_back(static_cast<std::byte>(i * 17));
  }
  ASSERT_EQ(blocks.size(), std::size(exponents) * static_cast<std::size_t>(format.block_bytes));
  const auto n = static_cast<Extent>(std::size(exponents));
  std::vector<float> wanted(static_cast<std::size_t>(n * k));
  dequantise(BlockType::mxfp4, blocks, wanted);
  EXPECT_EQ(wanted[1], std::ldexp(0.5f, -127));
  const Tensor packed = pack_matrix(BlockType::mxfp4, blocks, {n, k}, kCpu);
  const Tensor rows = tensor<std::int32_t>({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(packed_rows(packed, rows).to_vector<float>(), wanted);
}

TEST(PackedMatrix, PartsComeInOrderAndMatricesLieSideBySide) {
  const Extent n = 8200, k = 1024;  // more than a part
  std::vector<std::byte> blocks(bytes_for(BlockType::q8_0, static_cast<std::uint64_t>(n * k), "test"));
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i * 37 % 61);
  cpu::WeightMemory memory(3 * blocks.size());
  std::size_t seen = 0, parts = 0;
  const auto before = [&](std::span<const std::byte> part) {
    EXPECT_EQ(part.data(), blocks.data() + seen);
    seen += part.size();
    ++parts;
  };
  const Tensor first = pack_matrix(BlockType::q8_0, blocks, {n, k}, kCpu, {&memory, before}),
               second = pack_matrix(BlockType::q8_0, blocks, {n, k}, kCpu, {.memory = &memory}),
               alone = pack_matrix(BlockType::q8_0, blocks, {n, k}, kCpu);
  EXPECT_EQ(seen, blocks.size());
  EXPECT_GT(parts, 1u);
  const auto at = [](const Tensor& m) { return cpu::memory_of(*runtime::buffer_of(*m.node())).data(); };
  EXPECT_EQ(at(second), at(first) + (packed_size(first) + 63) / 64 * 64);
  const auto packed = [](const Tensor& m) {
    const std::span<const std::byte> bytes = packed_bytes(m);
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  EXPECT_EQ(packed(first), packed(alone));
  EXPECT_EQ(packed(second), packed(alone));
}

TEST(PackedMatrix, ErrorsNameWhatDoesNotFit) {
  const Weights w = weights_of(BlockType::q8_0, 20, 64, 1);
  EXPECT_THROW((void)packed_linear(zeros({2, 32}), w.packed), ShapeError);
  EXPECT_THROW((void)packed_linear(zeros({2, 64}, DType::i32), w.packed), DTypeError);
  EXPECT_THROW((void)packed_linear(zeros({2, 64}), w.packed, zeros({3})), ShapeError);
  EXPECT_THROW((void)packed_rows(w.packed, zeros({2})), DTypeError);
  EXPECT_THROW((void)pack_matrix(BlockType::i32, {}, {0, 32}, kCpu), DTypeError);
  EXPECT_THROW((void)pack_matrix(BlockType::q8_0, {}, {4, 33}, kCpu), ShapeError);
  Variable x(zeros({2, 64}), "x");
  try {
    (void)grad(sum(packed_linear(x, w.packed)), {x});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string_view(error.what()).find("packed weights are for generation"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace weft
