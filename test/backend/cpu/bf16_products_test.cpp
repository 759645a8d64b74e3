// Products of bf16 by the processor's instructions for pairs: against sums in double with a bound on the error, against
// integers exactly, in every layout and split, with special values, and nothing outside the operands is touched.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/fenced.hpp"
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_pieces.hpp"
#include "backend/cpu/gemm_product.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/keep_settings.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/played_bf16_tiles.hpp"
#include "base/threads.hpp"
#include "tensor/element.hpp"

namespace weft::cpu::bf16_products_test {
namespace {

using std::int64_t;

std::uint16_t bits_of(double value) {
  std::uint16_t bits = 0;
  write_element(DType::bf16, value, &bits, 0);
  return bits;
}

/// A matrix, or a batch of them, of bf16 behind which memory ends.
struct Matrix {
  int64_t rows, columns;
  bool turned;      // columns are along memory
  int64_t padding;  // elements between runs
  int64_t first;    // elements before the first one
  Fenced memory;

  int64_t run() const { return (turned ? rows : columns) + padding; }
  int64_t size() const { return run() * (turned ? columns : rows); }

  template <class Draw>
  Matrix(int64_t batch, int64_t rows_, int64_t columns_, bool turned_, int64_t padding_, int64_t first_, Draw draw)
      : rows(rows_),
        columns(columns_),
        turned(turned_),
        padding(padding_),
        first(first_),
        memory(static_cast<std::size_t>(2 * (first + batch * size() - padding))) {
    for (int64_t i = 0; i < first + batch * size() - padding; ++i)
      write_element(DType::bf16, draw(), memory.data, static_cast<std::size_t>(i));
  }
  double at(int64_t batch, int64_t i, int64_t j) const {
    const int64_t place = first + batch * size() + (turned ? j * run() + i : i * run() + j);
    return read_element(DType::bf16, memory.data, static_cast<std::size_t>(place));
  }
  GemmSource<float> source() const {
    return {.row = turned ? 1 : run(),
            .column = turned ? run() : 1,
            .batch = {.stride = size()},
            .narrow = {widen_function(DType::bf16), memory.data, first, true}};
  }
};

struct Case {
  int64_t batch, m, n, k;
  bool a_turned, b_turned;
  int64_t padding = 0, first = 0;
  bool accumulate = false;
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.batch << " x [" << c.m << ", " << c.n << ", " << c.k << "]" << (c.a_turned ? " a^T" : "")
             << (c.b_turned ? " b^T" : "") << " padding " << c.padding << " from " << c.first
             << (c.accumulate ? " accumulated" : "");
}

/// How products are computed: by the instruction set in use, or on these kernels.
const GemmKernels<float>* kernels = nullptr;

void multiply(const GemmArgs<float>& args) {
  if (kernels == nullptr) return gemm(args);
  const blocked::Product<float> product(args, *kernels);
  const int64_t pieces = blocked::pieces_of(args, product.tiles());
  if (pieces > 1)
    blocked::run_in_pieces(args, *kernels, pieces);
  else
    product.run();
}

/// Runs the product and compares its elements (of a large product some rows) with sums in double: |error| <= (k + 1) 2^-24 sum
/// |a b|, or 0 if `exact`, for small integers. NEON's sums of pairs are rounded to odd twice, each within 2^-23.
template <class Draw>
void expect_product(const Case& c, bool exact, Draw draw) {
  SCOPED_TRACE(testing::Message() << c);
  const Matrix a(c.batch, c.m, c.k, c.a_turned, c.padding, c.first, draw);
  const Matrix b(c.batch, c.k, c.n, c.b_turned, c.padding, c.first, draw);
  constexpr float kGuard = -12345;
  const int64_t c_row = c.n + c.padding, size = c.batch * c.m * c_row;
  std::vector<float> result(static_cast<std::size_t>(size + 32), kGuard);
  GemmArgs<float> args{.batch = c.batch, .m = c.m, .n = c.n, .k = c.k};
  args.a = a.source(), args.b = b.source();
  args.c = {.data = result.data() + 16, .row = c_row, .batch = {.stride = c.m * c_row}};
  args.accumulate = c.accumulate;
  multiply(args);
  std::vector<double> left(static_cast<std::size_t>(c.k)), right(static_cast<std::size_t>(c.k * c.n));
  for (int64_t batch = 0; batch < c.batch; ++batch) {
    for (int64_t j = 0; j < c.n; ++j)
      for (int64_t k = 0; k < c.k; ++k) right[static_cast<std::size_t>(j * c.k + k)] = b.at(batch, k, j);
    const int64_t step = c.m * c.n * c.k > 100'000'000 ? 41 : 1;
    for (int64_t i = 0; i < c.m; ++i) {
      if (i % step != 0 && i + 2 < c.m) {
        std::fill_n(args.c.data + batch * c.m * c_row + i * c_row, c.n, kGuard);
        continue;
      }
      for (int64_t k = 0; k < c.k; ++k) left[static_cast<std::size_t>(k)] = a.at(batch, i, k);
      for (int64_t j = 0; j < c_row; ++j) {
        float& got = args.c.data[batch * c.m * c_row + i * c_row + j];
        if (j >= c.n) {
          ASSERT_EQ(got, kGuard) << "beyond row " << i;
          continue;
        }
        double sum = c.accumulate ? kGuard : 0, magnitude = std::abs(sum);
        const double* column = right.data() + j * c.k;
        for (int64_t k = 0; k < c.k; ++k) {
          const double product = left[static_cast<std::size_t>(k)] * column[k];
          sum += product;
          magnitude += std::abs(product);
        }
        const double bound =
            exact ? 0 : std::ldexp(magnitude, isa() == Isa::neon_bf16 ? -23 : -24) * static_cast<double>(c.k + 1);
        ASSERT_LE(std::abs(got - sum), bound) << "element " << batch << ", " << i << ", " << j << " is " << got;
        got = kGuard;
      }
    }
  }
  for (const float x : result) ASSERT_EQ(x, kGuard);
}

class Bf16Products : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!runs(GetParam())) GTEST_SKIP() << "this processor has no " << name(GetParam());
    set_isa(GetParam());
  }
  double real() { return std::normal_distribution<double>()(random_); }
  double integer() { return std::uniform_int_distribution<int>(-8, 8)(random_); }
  void expect_good(const Case& c) {
    expect_product(c, false, [this] { return real(); });
    expect_product(c, true, [this] { return integer(); });
  }
  const KeepSettings keep_;
  std::mt19937 random_{7};
};

TEST_P(Bf16Products, EverySizeUpTo200InEveryLayout) {
  const int64_t others[] = {1, 2, 15, 31, 33, 64};
  std::size_t next = 0;
  const auto other = [&] { return others[next++ * 7 % 6]; };
  for (int64_t size = 1; size <= 200; ++size)
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        const bool exact = random_() % 2 != 0;
        const auto draw = [&] { return exact ? integer() : real(); };
        const int64_t padding = size % 3, first = size % 2;
        expect_product({1, size, other(), other(), a_turned, b_turned, padding, first}, exact, draw);
        expect_product({1, other(), size, other(), a_turned, b_turned, padding, first}, exact, draw);
        expect_product({1, other(), other(), size, a_turned, b_turned, padding, first}, exact, draw);
      }
}

TEST_P(Bf16Products, BatchesAndSums) {
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true})
      for (const int64_t padding : {0, 1, 2}) {
        expect_good({3, 17, 35, 65, a_turned, b_turned, padding, 1, true});
        expect_good({5, 14, 32, 64, a_turned, b_turned, padding, 0, false});
        expect_good({1, 30, 33, 31, a_turned, b_turned, padding, 3, true});
      }
}

TEST_P(Bf16Products, LargeOnesInEveryWayToSplit) {
  set_thread_count(3);
  const auto draw = [this] { return integer(); };
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true}) {
      expect_product({1, 300, 530, 701, a_turned, b_turned}, true, draw);  // B is kept for the next task
      expect_product({1, 40, 40, 4099, a_turned, b_turned}, true, draw);   // k in pieces, and an odd rest
      expect_product({1, 8, 300, 1500, a_turned, b_turned}, true, draw);   // few rows
      expect_product({64, 12, 20, 30, a_turned, b_turned}, true, draw);    // groups of small products
    }
  expect_product({1, 1000, 520, 1601, false, false}, true, draw);  // all threads pack B first
  expect_product({1, 910, 2100, 2080, true, true}, true, draw);    // block by block of k
  expect_product({1, 910, 2100, 2081, false, false}, true, draw);
}

TEST_P(Bf16Products, AnyNumberOfThreadsGivesTheSameBits) {
  for (const Case& c :
       {Case{1, 130, 300, 257, false, true}, {1, 40, 40, 4099, true, false}, {7, 33, 31, 65, true, true}}) {
    const auto draw = [this] { return real(); };
    const Matrix a(c.batch, c.m, c.k, c.a_turned, 0, 0, draw), b(c.batch, c.k, c.n, c.b_turned, 0, 0, draw);
    std::vector<float> results[3];
    GemmArgs<float> args{.batch = c.batch, .m = c.m, .n = c.n, .k = c.k};
    args.a = a.source(), args.b = b.source();
    for (int i = 0; i < 3; ++i) {
      set_thread_count(i == 2 ? 1 : i * 3 + 1);
      results[i].resize(static_cast<std::size_t>(c.batch * c.m * c.n));
      args.c = {.data = results[i].data(), .row = c.n, .batch = {.stride = c.m * c.n}};
      const GemmTasks<float> tasks(args);
      if (i < 2 || tasks.count() == 0)
        gemm(args);
      else
        for (int64_t t = tasks.count(); t-- > 0;) tasks.run(t);
      EXPECT_EQ(std::memcmp(results[0].data(), results[i].data(), results[0].size() * sizeof(float)), 0) << c;
    }
  }
}

/// One pair of products, and the sum that the unit gives.
float sum_of(double a0, double b0, double a1 = 0, double b1 = 0) {
  const std::uint16_t a[2] = {bits_of(a0), bits_of(a1)}, b[2] = {bits_of(b0), bits_of(b1)};
  float c = 0;
  GemmArgs<float> args{.m = 1, .n = 1, .k = 2};
  args.a = {.row = 2, .narrow = {widen_function(DType::bf16), a, 0, true}};
  args.b = {.row = 1, .narrow = {widen_function(DType::bf16), b, 0, true}};
  args.c = {.data = &c, .row = 1};
  gemm(args);
  return c;
}

TEST_P(Bf16Products, SpecialValues) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  EXPECT_EQ(sum_of(infinity, 2), infinity);
  EXPECT_EQ(sum_of(infinity, -2, 3, 4), -infinity);
  EXPECT_TRUE(std::isnan(sum_of(infinity, 0)));
  EXPECT_TRUE(std::isnan(sum_of(infinity, 1, -infinity, 1)));
  EXPECT_TRUE(std::isnan(sum_of(1, 1, nan, 0)));
  EXPECT_EQ(sum_of(0x1p127, 2), infinity);  // beyond f32
  EXPECT_EQ(sum_of(0x1p127, 1, 0x1p127, 1), infinity);
  EXPECT_EQ(sum_of(-1, 0x1p-60, 1, 0), -0x1p-60f);
  EXPECT_EQ(sum_of(0x1p-126, 1), 0x1p-126f);  // the least normal number
  // The instruction takes subnormal elements as zeros, and makes subnormal sums zero.
  EXPECT_EQ(sum_of(0x1p-127, 0x1p100), 0);
  EXPECT_EQ(sum_of(0x1p-100, 0x1p-27), 0);
  // The conversion to f32 keeps them: a lower instruction set gives gradual underflow.
  set_isa(GetParam() == Isa::neon_bf16 ? Isa::neon_dot : Isa::avx512);
  EXPECT_EQ(sum_of(0x1p-127, 0x1p100), 0x1p-27f);
  EXPECT_EQ(sum_of(0x1p-100, 0x1p-27), 0x1p-127f);
}

TEST_P(Bf16Products, NaNAndInfinityStayInTheirRowsAndColumns) {
  constexpr int64_t m = 29, n = 37, k = 33;
  const auto draw = [this] { return integer(); };
  for (const bool turned : {false, true}) {
    const Matrix a(1, m, k, turned, 0, 0, draw), b(1, k, n, turned, 0, 0, draw);
    const auto set = [&](const Matrix& x, int64_t i, int64_t j, double value) {
      write_element(DType::bf16, value, x.memory.data,
                    static_cast<std::size_t>(turned ? j * x.rows + i : i * x.columns + j));
    };
    set(a, 3, k - 1, std::nan(""));
    set(b, 0, 36, std::nan(""));
    std::vector<float> c(m * n);
    GemmArgs<float> args{.m = m, .n = n, .k = k};
    args.a = a.source(), args.b = b.source(), args.c = {.data = c.data(), .row = n};
    gemm(args);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        EXPECT_EQ(std::isnan(c[static_cast<std::size_t>(i * n + j)]), i == 3 || j == 36) << i << " " << j;
  }
}

class Bf16PlayedTiles : public testing::Test {
 protected:
  void SetUp() override {
    kernels = played_bf16_tiles();
    if (kernels == nullptr) GTEST_SKIP() << "this processor has no " << name(Isa::avx512_bf16);
  }
  void TearDown() override { kernels = nullptr; }
  const KeepSettings keep_;
  std::mt19937 random_{7};
};

TEST_F(Bf16PlayedTiles, SizesAroundTilesInEveryLayout) {
  const int64_t sizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 83, 100};
  std::size_t next = 0;
  const auto other = [&] { return sizes[next++ * 5 % std::size(sizes)]; };
  for (const int64_t size : sizes)
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        const bool exact = random_() % 2 != 0;
        const auto draw = [&] {
          return exact ? std::uniform_int_distribution<int>(-8, 8)(random_)
                       : std::normal_distribution<double>()(random_);
        };
        const int64_t padding = size % 3, first = size % 2;
        expect_product({1, size, other(), other(), a_turned, b_turned, padding, first}, exact, draw);
        expect_product({1, other(), size, other(), a_turned, b_turned, padding, first, true}, exact, draw);
        expect_product({3, other(), other(), size, a_turned, b_turned, padding, first}, exact, draw);
      }
}

TEST_F(Bf16PlayedTiles, BlocksOfDepthAndSharedOperands) {
  set_thread_count(3);
  const auto draw = [this] { return std::uniform_int_distribution<int>(-8, 8)(random_); };
  for (const bool a_turned : {false, true})
    for (const bool b_turned : {false, true}) {
      expect_product({1, 70, 75, 1111, a_turned, b_turned}, true, draw);
      expect_product({1, 40, 40, 2101, a_turned, b_turned}, true, draw);  // in pieces
    }
  expect_product({1, 2100, 40, 5400, false, false}, true, draw);  // all threads pack B first
}

INSTANTIATE_TEST_SUITE_P(Sets, Bf16Products, testing::Values(Isa::neon_bf16, Isa::avx512_bf16, Isa::amx),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace weft::cpu::bf16_products_test
