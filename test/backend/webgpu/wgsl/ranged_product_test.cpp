// Products of bf16 on subgroup matrices: one power of two for each operand, and f32 where numbers do not fit.
#include "backend/webgpu/wgsl/matmul/ranged_product.hpp"

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

/// `alone`: without the product in f32.
std::vector<Values> ranged(const Product& p, const MatrixTile& tile, int split, bool alone) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  const Target target = matrix_gpu();
  render_ranged(p.kernel, tile, split, target, scratch, rendered);
  EXPECT_EQ(rendered.dispatches.size(), split > 1 ? 5u : 4u);
  if (alone)
    std::erase_if(rendered.dispatches, [](const auto& d) { return d.name.find(".wide") != std::string::npos; });
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

double& element_of_a(Product& p, Extent i, Extent k) {
  return p.buffers[0].values[static_cast<std::size_t>(i * p.kernel.a_view.row() + k * p.kernel.a_view.column())];
}

using WgslMatricesRangedTest = RenderTest;

TEST_F(WgslMatricesRangedTest, LayoutsSplitsAndEpilogues) {
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
                         {"tn", 1, 40, 64, 400, kSingleBuffer, 3, 0x1p-30}}) {
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
    expect_near(ranged(p, t.tile, t.split, true), wanted, 1e-4);
  }
}

// What no half can stand for gives the bits of the product in f32; beside it, rows that fit would too.
TEST_F(WgslMatricesRangedTest, ExtremesRunInF32) {
  std::mt19937 random(72);
  for (const int split : {1, 2})
    for (const double value : {1e30, std::numeric_limits<double>::infinity(), std::nan(""), 0.0}) {
      SCOPED_TRACE(fmt::format("{} in {} parts", value, split));
      Product p = product(random, split == 1 ? "nn" : "tn", 1, 40, 32, 136, DType::bf16);
      if (value == 0)  // a row that is far below the others
        for (Extent k = 0; k < 136; ++k) element_of_a(p, 8, k) *= 0x1p-40;
      else
        element_of_a(p, 8, 100) = rounded_to(DType::bf16, value);
      expect_near(ranged(p, kSingleBuffer, split, false), product_in_f32(p), 0);
    }
}

TEST_F(WgslMatricesRangedTest, ZerosAndSmallNumbers) {
  std::mt19937 random(73);
  Product p = product(random, "nn", 1, 32, 32, 136, DType::bf16);
  for (Extent k = 0; k < 136; ++k) {
    element_of_a(p, 3, k) = 0;
    element_of_a(p, 5, k) *= 0x1p-20;
  }
  const std::vector<Values> got = ranged(p, kSingleBuffer, 1, true), wanted = product_in_f32(p);
  for (std::size_t j = 0; j < 32; ++j) {
    EXPECT_EQ(got[2][20 + 3 * 32 + j], 0);
    EXPECT_NEAR(got[2][20 + 5 * 32 + j], wanted[2][20 + 5 * 32 + j], 0x1p-19 * 60 * 0x1p-20) << j;
  }
}

TEST(WgslMatricesRangedChoiceTest, Bf16InEightsThatIsWorthThePreparation) {
  std::mt19937 random(74);
  const Product large = product(random, "nt", 1, 1024, 1024, 1024, DType::bf16);
  EXPECT_TRUE(choose_ranged_tile(large.kernel, matrix_gpu()));
  EXPECT_FALSE(choose_ranged_tile(large.kernel, kLargeGpu)) << "no matrices";
  EXPECT_FALSE(choose_ranged_tile(product(random, "nt", 1, 64, 64, 64, DType::bf16).kernel, matrix_gpu()));
  EXPECT_FALSE(choose_ranged_tile(product(random, "nt", 1, 1024, 1024, 1020, DType::bf16).kernel, matrix_gpu()));
  kernel::MatmulKernel mixed = large.kernel;
  mixed.b.type = DType::f16;
  EXPECT_FALSE(choose_ranged_tile(mixed, matrix_gpu()));
}

}  // namespace
}  // namespace weft::webgpu
#endif
