// Products of f32 by halves: scales, layouts, batches, edges, and the bound that weft/product_precision.hpp states.
#include "backend/webgpu/wgsl/matmul/scaled_product.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/wgsl/matrix_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

constexpr MatrixTile kSmall[] = {{"two buffers", 32, 32, 16, 16, 16, 2, 32, 32, 1, 4, true},
                                 {"single", 32, 64, 32, 16, 32, 1, 32, 32, 1, 1, false}};

/// What the device makes of the product.
std::vector<double> computed(const Product& p, const MatrixTile& tile, int split, bool together = true) {
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  const Target target = running_matrix_gpu();
  together = together && multiplies_together(p.kernel, tile, target);
  render_scaled(p.kernel, tile, split, target, scratch, rendered, together);
  std::vector<double> all = results_of(rendered, p.buffers, has_real_matrices() ? nullptr : emulated)[2];
  all.erase(all.begin(), all.begin() + p.kernel.epilogue.outputs[0].offset);
  return all;
}

/// Largest error in units of the stated bound; an infinity counts as such where the product is beyond f32.
double worst(const Product& p, const std::vector<double>& got) {
  const kernel::MatmulKernel& k = p.kernel;
  const auto a = [&](Extent b, Extent i, Extent at) {
    return p.buffers[0].values[static_cast<std::size_t>(b * k.a_view.at.batch.strides[0] + i * k.a_view.row() +
                                                        at * k.a_view.column())];
  };
  const auto b = [&](Extent batch, Extent at, Extent j) {
    return p.buffers[1].values[static_cast<std::size_t>(batch * k.b_view.at.batch.strides[0] + at * k.b_view.row() +
                                                        j * k.b_view.column())];
  };
  const double relative = k.a.type == DType::bf16                 ? 0  // one half holds it
                          : k.precision == ProductPrecision::high ? 0x1p-19
                                                                  : 0x1p-9;
  double most = 0;
  for (Extent batch = 0; batch < k.batch; ++batch)
    for (Extent i = 0; i < k.m; ++i)
      for (Extent j = 0; j < k.n; ++j) {
        double sum = 0, sizes = 0, row = 0, column = 0;
        for (Extent at = 0; at < k.k; ++at) {
          sum += a(batch, i, at) * b(batch, at, j);
          sizes += std::abs(a(batch, i, at) * b(batch, at, j));
          row = std::max(row, std::abs(a(batch, i, at)));
          column = std::max(column, std::abs(b(batch, at, j)));
        }
        // Of the sum in f32: a rounding for each product of three.
        const double rounding = 3.0 * static_cast<double>(k.k) * 0x1p-24 * sizes + 0x1p-126;
        const double bound = relative * sizes + 0x1p-36 * static_cast<double>(k.k) * row * column + rounding;
        const double value = got[static_cast<std::size_t>((batch * k.m + i) * k.n + j)];
        const double error = std::abs(value - sum) / bound;
        most = std::isnan(error) ? 1e9 : std::max(most, error);
      }
  return most;
}

using WgslMatricesScaledTest = RenderTest;

TEST_F(WgslMatricesScaledTest, EveryLayoutAndEdgeWithinTheBound) {
  std::mt19937 random(31);
  int turn = 0;
  for (const char* layout : {"nn", "nt", "tn", "tt"})
    for (const ProductPrecision precision : {ProductPrecision::high, ProductPrecision::medium}) {
      const int form = turn++;
      SCOPED_TRACE(fmt::format("{} {}", layout, name_of(precision)));
      Product p = form % 4 == 0   ? product(random, layout, 1, 64, 64, 128, DType::f32)
                  : form % 4 == 1 ? product(random, layout, 2, 37, 41, 83, DType::f32)
                  : form % 4 == 2 ? product(random, layout, 2, 40, 24, 200, DType::f32)
                                  : product(random, layout, 1, 70, 33, 64, DType::f32);
      p.kernel.precision = precision;
      ASSERT_TRUE(suits_scaling(p.kernel, matrix_gpu()));
      const MatrixTile& tile = kSmall[form / 2 % 2];
      const int split = form % 3 == 1 ? 2 : 1;
      EXPECT_LE(worst(p, computed(p, tile, split)), 1);
      if (multiplies_together(p.kernel, tile, matrix_gpu())) {
        EXPECT_LE(worst(p, computed(p, tile, split, false)), 1);
      }
    }
}

// Also where the product shall be exact: f16 holds what bf16 does, once the exponents fit.
TEST_F(WgslMatricesScaledTest, Bf16IsRoundedNowhere) {
  std::mt19937 random(36);
  int turn = 0;
  for (const char* layout : {"nn", "nt", "tn"}) {
    const int form = turn++;
    SCOPED_TRACE(layout);
    Product p = form % 2 == 0 ? product(random, layout, 2, 37, 44, 83, DType::bf16)
                              : product(random, layout, 1, 40, 24, 64, DType::bf16);
    for (std::size_t i = 0; i < p.buffers[0].values.size(); ++i)  // exponents that no f16 has
      p.buffers[0].values[i] = std::ldexp(p.buffers[0].values[i], i % 3 == 0 ? -60 : -64);
    if (form == 1) p.kernel.precision = ProductPrecision::high;
    ASSERT_TRUE(suits_scaling(p.kernel, matrix_gpu()));
    EXPECT_LE(worst(p, computed(p, kSmall[form % 2], 1)), 1);
  }
}

TEST_F(WgslMatricesScaledTest, ExponentsFarBeyondHalves) {
  std::mt19937 random(32);
  Product p = product(random, "nn", 1, 32, 32, 64, DType::f32);
  p.kernel.precision = ProductPrecision::high;
  // Rows of A from 2^-120 to 2^100, columns of B against them; and rows whose own elements are far apart.
  for (Extent i = 0; i < 32; ++i)
    for (Extent k = 0; k < 64; ++k) {
      double& a = p.buffers[0].values[static_cast<std::size_t>(i * 64 + k)];
      a = static_cast<float>(std::ldexp(a, i < 16 ? static_cast<int>(i) * 14 - 120 : -static_cast<int>(k) / 3));
      double& b = p.buffers[1].values[static_cast<std::size_t>(k * 32 + i)];
      b = static_cast<float>(std::ldexp(b, static_cast<int>(i) % 5 * 6 - 20));
    }
  EXPECT_LE(worst(p, computed(p, kSmall[0], 1)), 1);
}

TEST_F(WgslMatricesScaledTest, ZerosInfinitiesAndNan) {
  std::mt19937 random(33);
  Product p = product(random, "nt", 1, 32, 32, 32, DType::f32);
  p.kernel.precision = ProductPrecision::high;
  for (Extent k = 0; k < 32; ++k) p.buffers[0].values[static_cast<std::size_t>(2 * 32 + k)] = 0;
  p.buffers[0].values[5 * 32 + 3] = std::numeric_limits<double>::infinity();
  p.buffers[0].values[7 * 32 + 4] = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> got = computed(p, kSmall[0], 1);
  for (std::size_t i = 0; i < 32; ++i)
    for (std::size_t j = 0; j < 32; ++j) {
      const double value = got[i * 32 + j];
      EXPECT_EQ(std::isfinite(value), i != 5 && i != 7) << i << " " << j;
      EXPECT_TRUE(i != 2 || value == 0) << j;
    }
}

TEST_F(WgslMatricesScaledTest, EpilogueAndSharedOperand) {
  std::mt19937 random(34);
  Product p = product(random, "nn", 3, 36, 44, 60, DType::f32);
  add_epilogue(p, random);
  p.kernel.b_view.at.batch.strides[0] = 0;  // one matrix for the whole batch
  p.kernel.precision = ProductPrecision::high;
  Rendered rendered;
  Scratch scratch(static_cast<int>(p.buffers.size()), rendered);
  const Target target = running_matrix_gpu();
  render_scaled(p.kernel, kSmall[1], 1, target, scratch, rendered);
  replay(rendered, p.kernel, p.buffers, 1e-4, has_real_matrices() ? nullptr : emulated);
}

TEST(WgslMatricesScaledChoiceTest, OnlyWhereAskedForAndWorthIt) {
  std::mt19937 random(35);
  Product p = product(random, "nn", 1, 8, 8, 8, DType::f32);
  p.kernel.m = p.kernel.n = p.kernel.k = 2048;
  p.kernel.a_view = p.kernel.b_view = kernel::matrix_view({{1}, {0}, 0, {}}, 2048, 2048, 2048, 1);
  EXPECT_FALSE(choose_scaled_tile(p.kernel, matrix_gpu())) << "exact";
  for (const ProductPrecision precision : {ProductPrecision::high, ProductPrecision::medium}) {
    p.kernel.precision = precision;
    EXPECT_TRUE(choose_scaled_tile(p.kernel, matrix_gpu()));
    EXPECT_FALSE(choose_scaled_tile(p.kernel, kLargeGpu)) << "no matrices";
    Product odd = p;
    odd.kernel.n = 2047, odd.kernel.k = 2045;
    odd.kernel.a_view = kernel::matrix_view({{1}, {0}, 0, {}}, 2048, 2045, 2045, 1);
    odd.kernel.b_view = kernel::matrix_view({{1}, {0}, 0, {}}, 2045, 2047, 2047, 1);
    EXPECT_TRUE(choose_scaled_tile(odd.kernel, matrix_gpu())) << "halves are padded";
    Target small_bindings = matrix_gpu();
    small_bindings.limits.binding_bytes = std::uint64_t{2048} * 2048 * 2;
    EXPECT_FALSE(choose_scaled_tile(p.kernel, small_bindings)) << "halves do not fit a binding";
  }
  p.kernel.precision = ProductPrecision::exact;
  p.kernel.a.type = DType::bf16;
  EXPECT_FALSE(choose_scaled_tile(p.kernel, matrix_gpu())) << "one operand is f32";
  p.kernel.b.type = DType::bf16;
  EXPECT_TRUE(choose_scaled_tile(p.kernel, matrix_gpu()));
  p.kernel.m = p.kernel.n = p.kernel.k = 64;
  p.kernel.a_view = p.kernel.b_view = kernel::matrix_view({{1}, {0}, 0, {}}, 64, 64, 64, 1);
  EXPECT_FALSE(choose_scaled_tile(p.kernel, matrix_gpu())) << "too small to be worth the preparation";
  p.kernel.a.type = p.kernel.b.type = DType::i32;
  EXPECT_FALSE(suits_scaling(p.kernel, matrix_gpu()));
}

}  // namespace
}  // namespace weft::webgpu
#endif
