// Products of bf16 on subgroup matrices, whose rows and columns are scaled to halves as they are staged.
#include "backend/webgpu/wgsl/matmul/staged_product.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "backend/webgpu/wgsl/matmul.hpp"
#include "backend/webgpu/wgsl/matrix_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using reference::Values;

constexpr MatrixTile kPipelined{"two buffers", 32, 32, 16, 16, 16, 2, 32, 32, 1, 4, false},
    kSingleBuffer{"one buffer", 32, 64, 32, 16, 32, 1, 32, 32, 1, 1, false};

std::vector<Values> staged(const Product& p, const MatrixTile& tile, int split) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  const Target target = running_matrix_gpu();
  render_staged(p.kernel, tile, split, target, scratch, rendered);
  EXPECT_EQ(rendered.dispatches.size(), split > 1 ? 3u : 2u);
  return results_of(rendered, p.buffers, has_real_matrices() ? nullptr : emulated);
}

std::vector<Values> product_in_f32(const Product& p) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  const Target target = matrix_gpu();
  const TileChoice choice = choose_tile(p.kernel.batch, p.kernel.m, p.kernel.n, p.kernel.k, target);
  render(p.kernel, target, scratch, rendered, TileChoice{choice.tile, 1});
  return results_of(rendered, p.buffers);
}

void expect_near(const std::vector<Values>& got, const std::vector<Values>& wanted, double tolerance) {
  for (std::size_t b = 0; b < wanted.size(); ++b)
    for (std::size_t i = 0; i < wanted[b].size(); ++i) {
      const double g = got[b][i], w = wanted[b][i];
      if (g == w || (std::isnan(g) && std::isnan(w))) continue;
      ASSERT_LE(std::abs(g - w), tolerance * (1 + std::abs(w))) << "buffer " << b << ", " << i;
    }
}

Values results_only(const Product& p, const std::vector<Values>& all) {
  return {all[2].begin() + p.kernel.epilogue.outputs[0].offset, all[2].end()};
}

using WgslMatricesStagedTest = RenderTest;

TEST_F(WgslMatricesStagedTest, LayoutsSplitsAndEpilogues) {
  std::mt19937 random(71);
  struct Trial {
    const char* layout;
    Extent batch, m, n, k;
    const MatrixTile& tile;
    int split;
    double scale;
  };
  for (const Trial& t : {Trial{"nn", 2, 40, 24, 72, kPipelined, 1, 0x1p-50},
                         {"nt", 1, 37, 44, 136, kSingleBuffer, 1, 0x1p50},
                         {"tn", 1, 40, 64, 2104, kSingleBuffer, 3, 0x1p-30}}) {
    SCOPED_TRACE(t.layout);
    Product p = product(random, t.layout, t.batch, t.m, t.n, t.k, DType::bf16);
    for (double& x : p.buffers[0].values) x *= t.scale;
    for (double& x : p.buffers[1].values) x /= t.scale;
    add_epilogue(p, random);
    std::vector<Values> wanted;
    for (const TestBuffer& buffer : p.buffers) wanted.push_back(buffer.values);
    kernel::Plan plan;
    plan.kernels.emplace_back(p.kernel);
    reference::run(plan, wanted);
    expect_near(staged(p, t.tile, t.split), wanted, 1e-4);
  }
}

// Every row and column has its own scale, so that none is rounded because of another.
TEST_F(WgslMatricesStagedTest, RowsAndColumnsFarApart) {
  std::mt19937 random(72);
  for (const char* layout : {"nn", "tt"}) {
    SCOPED_TRACE(layout);
    const bool a_t = layout[0] == 't', b_t = layout[1] == 't';
    Product p = product(random, layout, 1, 40, 32, 136, DType::bf16);
    const auto a = [&](Extent i, Extent k) { return static_cast<std::size_t>(a_t ? k * 40 + i : i * 136 + k); };
    const auto b = [&](Extent k, Extent j) { return static_cast<std::size_t>(b_t ? j * 136 + k : k * 32 + j); };
    for (Extent k = 0; k < 136; ++k) {
      for (Extent i = 0; i < 40; ++i) p.buffers[0].values[a(i, k)] *= std::ldexp(1, static_cast<int>(i) * 4 - 96);
      for (Extent j = 0; j < 32; ++j) p.buffers[1].values[b(k, j)] *= std::ldexp(1, 60 - static_cast<int>(j) * 2);
      p.buffers[0].values[a(3, k)] = 0;
    }
    const Values got = results_only(p, staged(p, b_t ? kPipelined : kSingleBuffer, 1));
    for (Extent i = 0; i < 40; ++i)
      for (Extent j = 0; j < 32; ++j) {
        double sum = 0, sizes = 0;
        for (Extent k = 0; k < 136; ++k) {
          const double term = p.buffers[0].values[a(i, k)] * p.buffers[1].values[b(k, j)];
          sum += term, sizes += std::abs(term);
        }
        ASSERT_LE(std::abs(got[static_cast<std::size_t>(i * 32 + j)] - sum), 136 * 0x1p-23 * sizes) << i << ", " << j;
      }
  }
}

TEST_F(WgslMatricesStagedTest, InfinityAndNanFillTheirRows) {
  std::mt19937 random(73);
  for (const int split : {1, 2})
    for (const double value : {1e38, std::numeric_limits<double>::infinity(), std::nan("")}) {
      SCOPED_TRACE(fmt::format("{} in {} parts", value, split));
      Product p = product(random, split == 1 ? "nn" : "tn", 1, 40, 32, 136, DType::bf16);
      const bool a_t = split > 1;
      p.buffers[0].values[static_cast<std::size_t>(a_t ? 100 * 40 + 8 : 8 * 136 + 100)] =
          rounded_to(DType::bf16, value);
      expect_near(staged(p, kSingleBuffer, split), product_in_f32(p), 1e-4);
    }
}

// Results beside A: a buffer that is written is not read in eights.
TEST_F(WgslMatricesStagedTest, ResultsInTheBufferOfAnOperand) {
  std::mt19937 random(74);
  Product p = product(random, "nn", 1, 40, 32, 64, DType::bf16);
  const Extent results = 40 * 32;
  kernel::LoopKernel& epilogue = p.kernel.epilogue;
  epilogue.steps.push_back(kernel::Step{kernel::StepKind::map, DType::bf16});
  epilogue.steps[1].op = scalar::Op::cast, epilogue.steps[1].a = 0;
  epilogue.outputs = {{0, DType::bf16, p.kernel.a.count, results}};
  epilogue.stores[0].value = 1;
  p.buffers[0].values.resize(p.buffers[0].values.size() + static_cast<std::size_t>(results));
  expect_near(staged(p, kSingleBuffer, 1), product_in_f32(p), 0x1p-8);
}

TEST(WgslMatricesStagedChoiceTest, Bf16InEightsThatIsWorthThePreparation) {
  std::mt19937 random(74);
  const Product large = product(random, "nt", 1, 1024, 1024, 1024, DType::bf16);
  EXPECT_TRUE(choose_staged_tile(large.kernel, matrix_gpu()));
  EXPECT_FALSE(choose_staged_tile(large.kernel, kLargeGpu)) << "no matrices";
  EXPECT_FALSE(choose_staged_tile(product(random, "nt", 1, 64, 64, 64, DType::bf16).kernel, matrix_gpu()));
  EXPECT_FALSE(choose_staged_tile(product(random, "nt", 1, 1024, 1024, 1020, DType::bf16).kernel, matrix_gpu()));
  kernel::MatmulKernel mixed = large.kernel;
  mixed.b.type = DType::f16;
  EXPECT_FALSE(choose_staged_tile(mixed, matrix_gpu()));
}

}  // namespace
}  // namespace weft::webgpu
#endif
