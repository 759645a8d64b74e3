// Reductions whose rows workgroups share: sums around means and maxima in one pass, and the values that depend on them.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "backend/webgpu/wgsl/loop_support.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu {
namespace {

using kernel::Level;
using kernel::View;
using scalar::Op;
using scalar::Reduction;

using WgslSharedReductionTest = RenderTest;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

// Steps of a reduction by mean or maximum over rows [rows, extent], or over columns [extent, rows].
struct Dependent {
  Extent rows, extent;
  bool columns;
  View view() const { return columns ? View{{rows, extent}, {1, rows}, 0, {}} : View{{rows * extent}, {1}, 0, {}}; }
};
int add_variance(LoopBuilder& b, int x) {
  const int n = b.constant(static_cast<double>(b.loop.inner));
  const int mean = b.map(Op::div, DType::f32, b.reduce(Reduction::sum, x), n);
  const int d = b.map(Op::sub, DType::f32, x, mean);
  return b.map(Op::div, DType::f32, b.reduce(Reduction::sum, b.map(Op::mul, DType::f32, d, d)), n);
}
int add_exponentials(LoopBuilder& b, int x, bool is_finite, int* top) {
  *top = b.reduce(Reduction::max, x);
  if (is_finite)
    *top = b.map(Op::select, DType::f32,
                 b.map(Op::lt, DType::boolean, b.map(Op::abs, DType::f32, *top), b.constant(kInfinite)), *top,
                 b.constant(0));
  return b.reduce(Reduction::sum, b.map(Op::exp, DType::f32, b.map(Op::sub, DType::f32, x, *top)));
}
/// Rows of different kinds: far from zero, of which the first value is far from the others, equal, with infinities and NaN.
TestBuffer awkward_rows(std::mt19937& random, const Dependent& c, bool infinite) {
  std::normal_distribution<double> draw;
  TestBuffer buffer{DType::f32, reference::Values(static_cast<std::size_t>(c.rows * c.extent))};
  for (Extent row = 0; row < c.rows; ++row)
    for (Extent i = 0; i < c.extent; ++i) {
      const Extent kind = row % 8;
      double value = kind == 1   ? 3000 + draw(random)
                     : kind == 2 ? 5
                     : kind == 3 ? -1e4 + 30 * draw(random)
                                 : draw(random);
      if (kind == 4 && i == 0) value = 2e4;
      if (infinite && kind == 5 && i == c.extent / 2) value = row % 16 == 5 ? kInfinite : std::nan("");
      if (infinite && kind == 6 && (row % 16 == 6 || i < c.extent / 2)) value = -kInfinite;
      if (infinite && kind == 7 && i == c.extent - 1) value = -kInfinite;
      buffer.values[static_cast<std::size_t>(c.columns ? i * c.rows + row : row * c.extent + i)] =
          static_cast<float>(value);
    }
  return buffer;
}
constexpr Extent kMillion = Extent{1} << 20;
const Dependent kDependent[] = {{1, kMillion + 3, false},     {3, kMillion / 2, false},
                                {8, kMillion / 8 + 1, false}, {16, kMillion / 16 + 5, true},
                                {128, kMillion / 128, true},  {516, 2048, true}};

TEST_F(WgslSharedReductionTest, VarianceInOnePassIsThatOfTwo) {
  std::mt19937 random(31);
  for (const Dependent& c : kDependent) {
    SCOPED_TRACE(fmt::format("{} x {}{}", c.rows, c.extent, c.columns ? ", columns" : ""));
    LoopBuilder b(c.rows, c.extent);
    b.store(add_variance(b, b.load(Level::inner, awkward_rows(random, c, false), c.view())));
    b.check(1e-5);
    EXPECT_EQ(b.dispatches(), 2u);
  }
}

TEST_F(WgslSharedReductionTest, ExponentialsInOnePassAreThoseOfTwo) {
  std::mt19937 random(32);
  bool is_finite = false;
  for (const Dependent& c : kDependent) {
    is_finite = !is_finite;
    SCOPED_TRACE(fmt::format("{} x {}{}", c.rows, c.extent, c.columns ? ", columns" : ""));
    LoopBuilder b(c.rows, c.extent);
    int top = -1;
    b.store(add_exponentials(b, b.load(Level::inner, awkward_rows(random, c, true), c.view()), is_finite, &top));
    b.store(top);
    b.check(2e-5);
    EXPECT_EQ(b.dispatches(), 2u);
  }
}

// Workgroups share rows, and a flat loop computes the values that depend on whole rows.
TEST_F(WgslSharedReductionTest, ValuesOfSharedRowsAreComputedApart) {
  std::mt19937 random(33);
  bool soft = false;
  for (const Dependent& c : {Dependent{7, (8 << 20) / 7 + 1, false}, Dependent{4, 2 << 20, false},
                             Dependent{136, (4 << 20) / 136 + 1, true}, Dependent{512, 8192, true}}) {
    soft = !soft;
    SCOPED_TRACE(fmt::format("{} x {}{}", c.rows, c.extent, c.columns ? ", columns" : ""));
    LoopBuilder b(c.rows, c.extent);
    const int x = b.load(Level::inner, awkward_rows(random, c, soft), c.view());
    const int scale = b.load(Level::outer, random_buffer(random, DType::f32, c.rows), contiguous({c.rows}));
    int y = -1;
    if (soft) {
      int top = -1;
      const int sum = add_exponentials(b, x, false, &top);
      y = b.map(Op::div, DType::f32, b.map(Op::exp, DType::f32, b.map(Op::sub, DType::f32, x, top)), sum);
    } else {
      const int variance = add_variance(b, x);
      b.store(variance);
      y = b.map(Op::div, DType::f32, x, b.map(Op::add, DType::f32, variance, b.constant(1)));
    }
    b.store(b.map(Op::mul, DType::f32, y, scale), DType::f32, c.view(), c.rows * c.extent, 3);
    b.check(2e-5);
    EXPECT_EQ(b.dispatches(), 3u);
  }
}

int add_softmax(LoopBuilder& b, int x, bool is_finite) {
  int top = -1;
  const int sum = add_exponentials(b, x, is_finite, &top);
  return b.map(Op::div, DType::f32, b.map(Op::exp, DType::f32, b.map(Op::sub, DType::f32, x, top)), sum);
}
int add_norm(LoopBuilder& b, int x) {
  const int mean =
      b.map(Op::div, DType::f32, b.reduce(Reduction::sum, x), b.constant(static_cast<double>(b.loop.inner)));
  const int variance = add_variance(b, x);
  return b.map(Op::div, DType::f32, b.map(Op::sub, DType::f32, x, mean),
               b.map(Op::add, DType::f32, variance, b.constant(1)));
}

// A workgroup that has a whole row reads it twice: for the joint reductions, and for the values that need them.
TEST_F(WgslSharedReductionTest, WholeRowsAreReadTwice) {
  std::mt19937 random(34);
  for (const Dependent& c :
       {Dependent{16, (8 << 20) / 16, false}, Dependent{45, 40001, false}, Dependent{50, 3000, true}})
    for (const int kind : {0, 1, 2}) {
      if (c.rows == 16 && kind != 2) continue;  // of the rows that workgroups would share, one kind is enough
      SCOPED_TRACE(fmt::format("{} x {}{}, kind {}", c.rows, c.extent, c.columns ? ", columns" : "", kind));
      LoopBuilder b(c.rows, c.extent);
      const int x = b.load(Level::inner, awkward_rows(random, c, kind > 0), c.view());
      b.store(kind == 0 ? add_norm(b, x) : add_softmax(b, x, kind == 2), DType::f32, c.view(), c.rows * c.extent, 3);
      b.check(kind == 0 ? 1e-3 : 2e-5);  // rows of 3000 lose digits in the mean
      EXPECT_EQ(b.dispatches(), 1u);
    }
}

// Software adapters leave it to loops to read columns again.
TEST_F(WgslSharedReductionTest, ColumnsThatThreadsKeepAreReadOnce) {
  std::mt19937 random(35);
  Target target = target_of(Device::open(0, {.cache_folder = {}})->info());
  target.unroll = true;
  const std::uint32_t most = std::exchange(target.limits.workgroup_invocations, 1024u);
  struct Case {
    Dependent rows;
    int threads;
  };
  const Case cases[] = {
      {{400, 500, true}, 256}, {{96, 1000, true}, 512}, {{44, 2048, true}, 1024}, {{37, 300, true}, 1024}};
  for (const Case& c : cases_to_run(cases, 1)) {
    SCOPED_TRACE(fmt::format("{} columns of {}", c.rows.rows, c.rows.extent));
    LoopBuilder b(c.rows.rows, c.rows.extent);
    const int x = b.load(Level::inner, awkward_rows(random, c.rows, false), c.rows.view());
    b.store(add_softmax(b, x, false), DType::f32, c.rows.view(), c.rows.rows * c.rows.extent, 3);
    const Rendered rendered = render(kernel::Kernel(b.loop), static_cast<int>(b.buffers.size()), target);
    ASSERT_EQ(rendered.dispatches.size(), 1u);
    EXPECT_EQ(rendered.dispatches[0].shader.threads, c.threads);
    EXPECT_EQ(rendered.dispatches[0].shader.text().find("for (; item"), std::string::npos);
    if (c.threads <= static_cast<int>(most)) replay(rendered, kernel::Kernel(b.loop), b.buffers, 2e-5);
  }
}

}  // namespace
}  // namespace weft::webgpu
#endif
