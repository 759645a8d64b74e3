// Products with windows against a plain sum in double: geometries, instruction sets, threads.
#include "backend/cpu/window_product.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/gemm_view.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/keep_settings.hpp"
#include "base/threads.hpp"

namespace weft::cpu::window_product_test {
namespace {

using kernel::MatrixView;
using kernel::View;
using std::int64_t;

struct Along {
  int64_t extent, size, stride = 1, before = 0, after = 0, dilation = 1;
  int64_t positions() const { return (extent + before + after - (size - 1) * dilation - 1) / stride + 1; }
};

struct Case {
  const char* name;
  int64_t images, channels, outs;
  std::vector<Along> space;
};

const Case kCases[] = {
    {"3 x 3", 2, 16, 32, {{12, 3, 1, 1, 1}, {13, 3, 1, 1, 1}}},
    {"a window reaches over all rows", 6, 40, 64, {{4, 3, 1, 1, 1}, {4, 3, 1, 1, 1}}},
    {"steps", 3, 16, 40, {{17, 3, 2, 1, 1}, {18, 3, 2, 1, 1}}},
    {"a stem", 2, 3, 64, {{30, 7, 2, 3, 3}, {31, 7, 2, 3, 3}}},
    {"side", 6, 48, 64, {{16, 1, 2}, {15, 1, 2}}},
    {"no padding", 2, 20, 32, {{14, 3}, {15, 2}}},
    {"dilated", 2, 12, 48, {{15, 3, 1, 2, 2, 2}, {16, 3, 1, 2, 2, 2}}},
    {"uneven padding", 4, 12, 56, {{11, 2, 1, 0, 3}, {12, 4, 3, 5, 1}}},
    {"padding along x alone", 2, 20, 32, {{14, 3}, {15, 3, 1, 1, 1}}},
    {"padding along y alone", 2, 20, 32, {{14, 3, 1, 1, 1}, {15, 3}}},
    {"steps along y without padding", 9, 20, 32, {{17, 3, 2}, {16, 2}}},
    {"3 x 3, odd channels", 3, 27, 45, {{13, 3, 1, 1, 1}, {9, 3, 1, 1, 1}}},
    {"3 x 3, no padding", 3, 24, 40, {{13, 3}, {10, 3}}},
    {"3 x 3, more padding", 2, 24, 40, {{11, 3, 1, 2, 2}, {10, 3, 1, 3, 0}}},
    {"3 x 3, rows of many tiles", 1, 16, 32, {{9, 3, 1, 1, 1}, {301, 3, 1, 1, 1}}},
    {"one axis", 5, 24, 32, {{70, 5, 1, 2, 2}}},
    {"three axes", 2, 6, 32, {{5, 3, 1, 1, 1}, {7, 3, 2, 1, 1}, {9, 3, 1, 1, 1}}},
    {"more than a block holds", 1, 64, 32, {{40, 3, 1, 1, 1}, {50, 3, 1, 1, 1}}},
    {"many weights", 3, 16, 500, {{9, 3, 2, 1, 1}, {11, 3, 2, 1, 1}}},
    {"many weights, side", 3, 48, 500, {{9, 1, 2}, {8, 1, 2}}},
    {"no whole number of strips", 1, 130, 40, {{9, 3, 1, 1, 1}, {9, 3, 1, 1, 1}}},
};

/// The product's operands: A, the image, and the view of its windows as [elements, positions] or, for a gradient, as
/// [images and positions, elements].
struct Product {
  MatrixView windows;
  int64_t batch = 1, m, n, k;
  std::vector<float> a, image, c;

  Product(const Case& given, bool is_gradient) {
    View positions, elements{{given.channels}, {1}};
    int64_t plane = 1, offset = 0;
    for (const Along& along : given.space) plane *= along.extent;
    elements.strides[0] = plane;
    const std::size_t axes = given.space.size();
    int64_t stride = plane;
    for (const Along& along : given.space) {
      stride /= along.extent;
      positions.extents.push_back(along.positions());
      positions.strides.push_back(stride * along.stride);
      elements.extents.push_back(along.size);
      elements.strides.push_back(stride * along.dilation);
      offset -= stride * along.before;
    }
    View batches{{given.images}, {given.channels * plane}};
    const auto zero = [](View view) {
      std::fill(view.strides.begin(), view.strides.end(), 0);
      return view;
    };
    if (is_gradient) {
      positions.extents.insert(positions.extents.begin(), given.images);
      positions.strides.insert(positions.strides.begin(), given.channels * plane);
      batches = {};
    }
    const auto sum = [&](View p, View e, View b) {
      return is_gradient ? MatrixView::Sum{std::move(b), std::move(p), std::move(e)}
                         : MatrixView::Sum{std::move(b), std::move(e), std::move(p)};
    };
    windows.at = sum(positions, elements, batches);
    windows.at.batch.offset = offset;
    for (std::size_t i = 0; i < axes; ++i) {
      const Along& along = given.space[i];
      if (along.before == 0 && along.after == 0) continue;
      View p = zero(positions), e = zero(elements);
      p.strides[i + (is_gradient ? 1 : 0)] = along.stride;
      e.strides[i + 1] = along.dilation;
      windows.edges.push_back({sum(p, e, zero(batches)), along.before, along.before + along.extent});
    }
    int64_t count = 1, terms = given.channels;
    for (const Along& along : given.space) count *= along.positions(), terms *= along.size;
    m = given.outs;
    n = is_gradient ? terms : count;
    k = is_gradient ? count * given.images : terms;
    batch = is_gradient ? 1 : given.images;
    std::mt19937 random(7);
    const auto fill = [&](std::vector<float>& values, int64_t size) {
      values.resize(static_cast<std::size_t>(size));
      for (float& x : values) x = std::uniform_real_distribution<float>(-1, 1)(random);
    };
    fill(a, m * k);
    fill(image, given.images * given.channels * plane);
    c.resize(static_cast<std::size_t>(batch * m * n));
  }

  GemmArgs<float> args(bool a_transposed) {
    GemmArgs<float> args{.batch = batch, .m = m, .n = n, .k = k};
    args.a = {.data = a.data(), .row = a_transposed ? 1 : k, .column = a_transposed ? m : 1};
    args.b = {.data = image.data(), .row = n, .column = 1, .view = &windows};
    args.c = {.data = c.data(), .row = n, .batch = {.stride = m * n}};
    return args;
  }

  double window_element(int64_t b, int64_t i, int64_t j) const {
    const auto value = [&](const MatrixView::Sum& s) {
      return offset_at(s.batch, b) + offset_at(s.rows, i) + offset_at(s.columns, j);
    };
    for (const MatrixView::Edge& edge : windows.edges)
      if (value(edge.value) < edge.lo || value(edge.value) >= edge.hi) return 0;
    return image.at(static_cast<std::size_t>(value(windows.at)));
  }

  /// The largest difference from a plain sum, over a spread of elements.
  double error(bool a_transposed) const {
    double largest = 0;
    const int64_t size = batch * m * n, step = std::max<int64_t>(1, size / 1500) | 1;
    for (int64_t at = 0; at < size; at += step) {
      const int64_t b = at / (m * n), i = at / n % m, j = at % n;
      double sum = 0;
      for (int64_t t = 0; t < k; ++t)
        sum += static_cast<double>(a[static_cast<std::size_t>(a_transposed ? t * m + i : i * k + t)]) *
               window_element(b, t, j);
      largest = std::max(largest, std::abs(sum - c[static_cast<std::size_t>(at)]));
    }
    return largest;
  }
};

const GemmKernels<float>& kernels_of_any() { return baseline::kGemmF32; }

std::vector<Isa> runnable() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (isa <= best_isa()) all.push_back(isa);
  return all;
}

class WindowProductTest : public ::testing::Test {
  KeepSettings keep_;
};

TEST_F(WindowProductTest, MatchesPlainSumsOnEveryInstructionSet) {
  for (const Case& given : kCases)
    for (const bool is_gradient : {false, true}) {
      Product product(given, is_gradient);
      for (const Isa isa : runnable()) {
        set_isa(isa);
        for (const bool a_transposed : {false, true}) {
          SCOPED_TRACE(std::string(given.name) + (is_gradient ? ", gradient, " : ", ") + name(isa));
          const bool is_read_in_place = WindowProduct::of(product.args(a_transposed), kernels_of_any()).has_value();
          ASSERT_TRUE(is_read_in_place || is_gradient);  // a gradient over uneven windows may be packed
          std::fill(product.c.begin(), product.c.end(), std::nanf(""));
          gemm(product.args(a_transposed));
          EXPECT_LT(product.error(a_transposed), 1e-5 * std::sqrt(static_cast<double>(product.k)));
        }
      }
    }
}

// Sums of a tile must not spread an infinity or a NaN to results that do not see it.
TEST_F(WindowProductTest, NumbersThatAreNotFiniteStayInTheirWindows) {
  for (const float number : {std::nanf(""), HUGE_VALF, 3e38f}) {
    Product product(kCases[0], false);
    product.image[100] = number;
    gemm(product.args(false));
    for (int64_t b = 0; b < product.batch; ++b)
      for (int64_t j = 0; j < product.n; ++j) {
        bool sees = false;
        for (int64_t t = 0; t < product.k; ++t) {
          const double seen = product.window_element(b, t, j);
          sees = sees || std::isnan(seen) || std::abs(seen) > 1e30;
        }
        const float c = product.c[static_cast<std::size_t>(b * product.m * product.n + j)];
        EXPECT_EQ(std::isfinite(c) && std::abs(c) < 1e30f, !sees) << number << " at " << b << ", " << j;
      }
  }
}

TEST_F(WindowProductTest, AnyNumberOfThreadsGivesTheSameBits) {
  for (const std::size_t which : {0, 2, 1, 18})
    for (const bool is_gradient : {false, true}) {
      Product product(kCases[which], is_gradient);
      set_thread_count(1);
      gemm(product.args(false));
      const std::vector<float> alone = product.c;
      for (const int threads : {2, 3, 5}) {
        set_thread_count(threads);
        std::fill(product.c.begin(), product.c.end(), 0.0f);
        gemm(product.args(false));
        EXPECT_EQ(product.c, alone) << threads;
      }
    }
}

TEST_F(WindowProductTest, BlocksAreFinalDisjointAndCoverC) {
  for (const bool is_gradient : {false, true}) {
    Product product(kCases[0], is_gradient);
    gemm(product.args(false));
    const std::vector<float> expected = product.c;
    std::vector<float> seen(expected.size(), std::nanf(""));
    const auto keep = [&](int64_t b, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
      for (int64_t i = i0; i < i1; ++i)
        for (int64_t j = j0; j < j1; ++j) {
          const auto at = static_cast<std::size_t>((b * product.m + i) * product.n + j);
          EXPECT_TRUE(std::isnan(seen[at]));
          seen[at] = product.c[at];
        }
    };
    std::fill(product.c.begin(), product.c.end(), 0.0f);
    GemmArgs<float> args = product.args(false);
    args.after_block = keep;
    gemm(args);
    EXPECT_EQ(seen, expected);
  }
}

TEST_F(WindowProductTest, OtherProductsArePacked) {
  Product product(kCases[0], false);
  GemmArgs<float> args = product.args(false);
  EXPECT_TRUE(WindowProduct::of(args, kernels_of_any()));
  args.accumulate = true;
  EXPECT_FALSE(WindowProduct::of(args, kernels_of_any()));
  args = product.args(false);
  args.a.batch.stride = 1;  // groups: each image has a matrix of its own
  EXPECT_FALSE(WindowProduct::of(args, kernels_of_any()));
  Product columns({"padding along y alone", 2, 12, 64, {{14, 3, 1, 1, 1}, {15, 3}}}, false);
  EXPECT_FALSE(WindowProduct::of(columns.args(false), kernels_of_any()));
  Product small({"small", 1, 2, 32, {{6, 3, 1, 1, 1}, {6, 3, 1, 1, 1}}}, false);
  EXPECT_FALSE(WindowProduct::of(small.args(false), kernels_of_any()));
}

}  // namespace
}  // namespace weft::cpu::window_product_test
