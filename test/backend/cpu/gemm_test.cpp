// The matrix product against a plain sum in double: shapes, strides, batches, special values, instruction sets, threads.
#include "backend/cpu/gemm.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <type_traits>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/keep_settings.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu::gemm_test {
namespace {

using std::int64_t;

template <class T = float>
std::vector<Isa> runnable() {
  if (std::is_integral_v<T>) return {Isa::baseline};  // its product is the same on all
  std::vector<Isa> all;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (isa <= best_isa()) all.push_back(isa);
  return all;
}

enum class Form { plain, transposed };

struct Case {
  int64_t batch, m, n, k;
  Form a = Form::plain, b = Form::plain;
  int64_t padding = 0;  // elements between the end of a row and the next
  bool accumulate = false;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.batch << " x [" << c.m << ", " << c.n << ", " << c.k << "] a" << (c.a == Form::plain ? "" : "^T") << " b"
       << (c.b == Form::plain ? "" : "^T") << " padding " << c.padding << (c.accumulate ? " accumulate" : "");
}

template <class T>
constexpr T kGuard = static_cast<T>(-12345);

/// A matrix of the batch in memory of its own, surrounded by guards: exactly what a product may touch.
template <class T>
struct Operands {
  std::vector<T> a, b, c;
  GemmArgs<T> args;
};

template <class T>
GemmSource<T> source_of(const std::vector<T>& data, int64_t rows, int64_t columns, Form form, int64_t padding) {
  const int64_t width = (form == Form::plain ? columns : rows) + padding;
  const int64_t height = form == Form::plain ? rows : columns;
  return {.data = data.data(),
          .row = form == Form::plain ? width : 1,
          .column = form == Form::plain ? 1 : width,
          .batch = {.stride = height * width}};
}

template <class T>
Operands<T> make_operands(const Case& c, std::mt19937& random) {
  Operands<T> o;
  const auto fill = [&](std::vector<T>& data, int64_t size) {
    data.resize(size);
    for (T& x : data) {
      if constexpr (std::is_integral_v<T>) {
        x = static_cast<T>(random());
      } else {
        x = std::uniform_real_distribution<T>(-1, 1)(random);
      }
    }
  };
  const auto size = [&](int64_t rows, int64_t columns, Form form) {
    const int64_t height = form == Form::plain ? rows : columns, width = form == Form::plain ? columns : rows;
    // Without the padding of the last row: reading past the end is for the address sanitizer to see.
    return std::max<int64_t>(0, c.batch * height * (width + c.padding) - (height > 0 ? c.padding : 0));
  };
  fill(o.a, size(c.m, c.k, c.a));
  fill(o.b, size(c.k, c.n, c.b));
  const int64_t c_row = c.n + c.padding;
  o.c.assign(c.batch * c.m * c_row + 64, kGuard<T>);
  o.args = {.batch = c.batch,
            .m = c.m,
            .n = c.n,
            .k = c.k,
            .a = source_of(o.a, c.m, c.k, c.a, c.padding),
            .b = source_of(o.b, c.k, c.n, c.b, c.padding),
            .c = {.data = o.c.data() + 32, .row = c_row, .batch = {.stride = c.m * c_row}},
            .accumulate = c.accumulate};
  if (c.accumulate)
    for (int64_t batch = 0; batch < c.batch; ++batch)
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = 0; j < c.n; ++j)
          o.args.c.data[o.args.c.batch[batch] + i * c_row + j] = static_cast<T>((i * 7 + j * 3 + batch) % 11);
  return o;
}

/// Compares C with plain sums, and everything around it with the guards.
template <class T>
void expect_product(const GemmArgs<T>& args, const std::vector<T>& before, const std::vector<T>& c) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::uint32_t, double>;
  const int64_t origin = args.c.data - c.data();
  std::vector<T> expected = before;
  for (int64_t batch = 0; batch < args.batch; ++batch)
    for (int64_t i = 0; i < args.m; ++i)
      for (int64_t j = 0; j < args.n; ++j) {
        const int64_t at = origin + args.c.batch[batch] + i * args.c.row + j;
        Wide sum = args.accumulate ? static_cast<Wide>(before[at]) : Wide{0};
        Wide magnitude = std::is_integral_v<T> ? Wide{0} : static_cast<Wide>(std::abs(static_cast<double>(sum)));
        for (int64_t k = 0; k < args.k; ++k) {
          const Wide product =
              static_cast<Wide>(args.a.data[args.a.batch[batch] + i * args.a.row + k * args.a.column]) *
              static_cast<Wide>(args.b.data[args.b.batch[batch] + k * args.b.row + j * args.b.column]);
          sum += product;
          if constexpr (!std::is_integral_v<T>) magnitude += std::abs(product);
        }
        if constexpr (std::is_integral_v<T>) {
          ASSERT_EQ(c[at], static_cast<T>(sum)) << "at " << batch << ", " << i << ", " << j;
        } else {
          const double bound = (args.k + 2) * 0.5 * std::numeric_limits<T>::epsilon() * magnitude * 1.01;
          ASSERT_LE(std::abs(c[at] - sum), bound) << "at " << batch << ", " << i << ", " << j;
        }
        expected[at] = c[at];
      }
  ASSERT_EQ(std::memcmp(expected.data(), c.data(), c.size() * sizeof(T)), 0) << "wrote outside of C";
}

template <class T>
void check(const Case& c, std::mt19937& random) {
  SCOPED_TRACE(testing::PrintToString(c));
  Operands<T> o = make_operands<T>(c, random);
  const std::vector<T> before = o.c;
  gemm(o.args);
  expect_product(o.args, before, o.c);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Form a : {Form::plain, Form::transposed})
    for (const Form b : {Form::plain, Form::transposed}) {
      // Around every edge of the kernels: rows 4, 6, 14; vectors of 4, 8, 16 and pairs of them.
      for (const int64_t m : {1, 2, 3, 5, 6, 7, 13, 14, 15, 29})
        for (const int64_t n : {1, 3, 4, 8, 15, 16, 17, 31, 32, 33, 50})
          all.push_back({1, m, n, (m * 5 + n * 3) % 21 + 1, a, b, (m + n) % 3, (m + n) % 2 == 0});
      for (const int64_t k : {1, 2, 3, 4, 5, 127, 513, 1030}) all.push_back({1, 17, 35, k, a, b, 1, k % 2 == 0});
      all.push_back({1, 70, 83, 128, a, b});
      all.push_back({1, 260, 70, 40, a, b, 3});
      all.push_back({1, 300, 530, 70, a, b});
      all.push_back({1, 60, 1100, 300, a, b, 0, true});
      all.push_back({1, 64, 96, 2000, a, b});
      all.push_back({1, 20, 33, 5003, a, b, 1, true});  // k in pieces, with a rest
      all.push_back({1, 15, 40, 3072, a, b});
      all.push_back({1, 31, 40, 1024, a, b});  // rows of 4 KiB: the awkward strides
      all.push_back({1, 1024, 40, 31, a, b});
      all.push_back({1, 40, 1024, 31, a, b});
      all.push_back({7, 64, 64, 32, a, b});
      all.push_back({40, 64, 64, 32, a, b});
      all.push_back({3, 130, 100, 90, a, b, 5, true});
      all.push_back({300, 3, 5, 2, a, b, 1});
      all.push_back({2, 200, 700, 300, a, b});
    }
  return all;
}

template <class T>
class Gemm : public testing::Test {};
using Types = testing::Types<float, double, std::int32_t>;
TYPED_TEST_SUITE(Gemm, Types);

TYPED_TEST(Gemm, MatchesPlainSumsOnEveryInstructionSet) {
  const KeepSettings keep;
  for (const Isa isa : runnable<TypeParam>()) {
    SCOPED_TRACE(name(isa));
    set_isa(isa);
    set_thread_count(2);
    std::mt19937 random(1);
    for (const Case& c : cases()) {
      check<TypeParam>(c, random);
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(Gemm, RandomShapes) {
  const KeepSettings keep;
  for (const Isa isa : runnable<TypeParam>()) {
    SCOPED_TRACE(name(isa));
    set_isa(isa);
    std::mt19937 random(2);
    const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % (most + 1)); };
    for (int trial = 0; trial < 150; ++trial) {
      const int64_t most = trial % 10 == 0 ? 200 : 60;
      check<TypeParam>({upto(4), upto(most), upto(most), upto(most), upto(1) != 0 ? Form::plain : Form::transposed,
                        upto(1) != 0 ? Form::plain : Form::transposed, upto(20), upto(1) != 0},
                       random);
      if (this->HasFatalFailure()) return;
    }
  }
}

TYPED_TEST(Gemm, ZeroExtents) {
  const KeepSettings keep;
  for (const Isa isa : runnable<TypeParam>()) {
    set_isa(isa);
    std::mt19937 random(3);
    for (const bool accumulate : {false, true})
      for (const Case& c :
           {Case{1, 5, 37, 0}, Case{3, 20, 100, 0}, Case{1, 0, 5, 5}, Case{1, 5, 0, 5}, Case{0, 5, 5, 5}}) {
        Case with = c;
        with.accumulate = accumulate;
        check<TypeParam>(with, random);
      }
  }
}

TYPED_TEST(Gemm, BroadcastFlippedAndListedBatches) {
  const KeepSettings keep;
  using T = TypeParam;
  for (const Isa isa : runnable<TypeParam>()) {
    set_isa(isa);
    std::mt19937 random(4);
    // One B for all, batches of A in an order of their own.
    Operands<T> o = make_operands<T>({5, 33, 40, 50}, random);
    const int64_t order[] = {3 * 33 * 50, 0, 4 * 33 * 50, 0, 33 * 50};
    o.args.a.batch = {.each = order};
    o.args.b.batch = {};
    std::vector<T> before = o.c;
    gemm(o.args);
    expect_product(o.args, before, o.c);

    // B shared and A stacked: the batch folds into rows.
    o = make_operands<T>({5, 33, 40, 50}, random);
    o.args.b.batch = {};
    before = o.c;
    gemm(o.args);
    expect_product(o.args, before, o.c);

    // Strides of 0 and below: one row of A for all rows, B from its last row up and from its last column back.
    o = make_operands<T>({1, 20, 40, 50}, random);
    o.args.a.row = 0;
    o.args.b.data += 49 * 40;
    o.args.b.row = -40;
    before = o.c;
    gemm(o.args);
    expect_product(o.args, before, o.c);
    o = make_operands<T>({1, 20, 40, 50, Form::plain, Form::transposed}, random);
    o.args.b.data += 39 * 50;
    o.args.b.column = -50;
    before = o.c;
    gemm(o.args);
    expect_product(o.args, before, o.c);
  }
}

TYPED_TEST(Gemm, BlocksAreFinalDisjointAndCoverC) {
  const KeepSettings keep;
  using T = TypeParam;
  set_thread_count(3);
  for (const Isa isa : runnable<TypeParam>()) {
    set_isa(isa);
    for (const Case& c : {Case{1, 300, 530, 70}, Case{2, 100, 200, 1500}, Case{1, 30, 40, 4096}, Case{1, 30, 40, 4099},
                          Case{40, 64, 64, 32}, Case{3, 5, 7, 0}, Case{4, 33, 40, 50}, Case{1, 1, 1, 1}}) {
      SCOPED_TRACE(testing::PrintToString(c));
      std::mt19937 random(5);
      Operands<T> o = make_operands<T>(c, random);
      std::vector<T> without = o.c;
      GemmArgs<T> plain = o.args;
      plain.c.data = without.data() + 32;
      gemm(plain);

      // The block adds one to what it is given: any element met before it is final, twice or never comes out wrong.
      const auto add_one = [&](int64_t batch, int64_t row_begin, int64_t row_end, int64_t column_begin,
                               int64_t column_end) {
        for (int64_t i = row_begin; i < row_end; ++i)
          for (int64_t j = column_begin; j < column_end; ++j) {
            T& x = o.args.c.data[o.args.c.batch[batch] + i * o.args.c.row + j];
            x = static_cast<T>(x / 2 + 1);
          }
      };
      o.args.after_block = add_one;
      gemm(o.args);
      for (std::size_t i = 32; i + 32 < o.c.size(); ++i) ASSERT_EQ(o.c[i], static_cast<T>(without[i] / 2 + 1));
    }
  }
}

TYPED_TEST(Gemm, AnyNumberOfThreadsGivesTheSameBits) {
  const KeepSettings keep;
  using T = TypeParam;
  for (const Isa isa : runnable<TypeParam>()) {
    set_isa(isa);
    for (const Case& c : {Case{1, 128, 128, 3000, Form::transposed}, Case{1, 20, 40, 9000}, Case{1, 300, 384, 128},
                          Case{1, 17, 1000, 600}, Case{20, 64, 64, 32, Form::plain, Form::transposed}}) {
      SCOPED_TRACE(testing::PrintToString(c));
      std::vector<T> first;
      for (const int threads : {1, 2, 3, 4}) {
        set_thread_count(threads);
        std::mt19937 random(6);
        Operands<T> o = make_operands<T>(c, random);
        gemm(o.args);
        if (first.empty()) first = o.c;
        ASSERT_EQ(std::memcmp(first.data(), o.c.data(), first.size() * sizeof(T)), 0) << threads << " threads";
      }
    }
  }
}

/// Large products are not compared element by element: C x is A (B x) for a vector x, whose elements are +1 and -1.
TEST(GemmValues, LargeProductsAgreeWithProductsOfAVector) {
  const KeepSettings keep;
  for (const Isa isa : runnable())
    for (const Case& c :
         {Case{1, 1200, 330, 600}, Case{1, 1100, 600, 1024, Form::plain, Form::transposed, 0, true},
          Case{1, 1024, 520, 700, Form::transposed}, Case{1, 520, 520, 530, Form::plain, Form::transposed},
          Case{1, 910, 1100, 4100, Form::transposed, Form::plain, 3},
          // Packed block by block of k: an A across memory, then columns and at last rows in two groups.
          Case{1, 1024, 1100, 2100, Form::transposed, Form::plain, 0, true},
          Case{1, 1024, 5200, 410, Form::transposed, Form::transposed}, Case{1, 4000, 416, 5120}}) {
      if (isa != best_isa() && c.m * c.n * c.k > 1'000'000'000) continue;  // slow
      SCOPED_TRACE(std::string(name(isa)) + " " + testing::PrintToString(c));
      set_isa(isa);
      std::mt19937 random(9);
      Operands<float> o = make_operands<float>(c, random);
      const std::vector<float> before = o.c;
      const std::int64_t origin = o.args.c.data - o.c.data();
      std::vector<std::int8_t> final_rows(c.m * c.n);
      const auto after = [&](int64_t, int64_t row_begin, int64_t row_end, int64_t column_begin, int64_t column_end) {
        for (int64_t i = row_begin; i < row_end; ++i)
          for (int64_t j = column_begin; j < column_end; ++j) ++final_rows[i * c.n + j];
      };
      o.args.after_block = after;
      std::vector<float> first;
      for (const int threads : {1, 3}) {
        o.c = before;
        o.args.c.data = o.c.data() + origin;
        set_thread_count(threads);
        gemm(o.args);
        if (threads == 1) first = o.c;
        ASSERT_EQ(first, o.c) << "bits depend on threads";
      }
      for (const std::int8_t times : final_rows) ASSERT_EQ(times, 2);

      std::vector<double> x(c.n), bx(c.k);
      for (double& v : x) v = random() % 2 ? 1 : -1;
      for (int64_t k = 0; k < c.k; ++k)
        for (int64_t j = 0; j < c.n; ++j) bx[k] += o.args.b.data[k * o.args.b.row + j * o.args.b.column] * x[j];
      for (int64_t i = 0; i < c.m; ++i) {
        double got = 0, expected = 0;
        for (int64_t j = 0; j < c.n; ++j) {
          const int64_t at = origin + i * o.args.c.row + j;
          got += x[j] * o.c[at];
          if (c.accumulate) expected += x[j] * before[at];
        }
        for (int64_t k = 0; k < c.k; ++k) expected += o.args.a.data[i * o.args.a.row + k * o.args.a.column] * bx[k];
        ASSERT_NEAR(got, expected, 1e-6 * std::sqrt(static_cast<double>(c.n)) * static_cast<double>(c.k))
            << "row " << i;
      }
    }
}

TEST(GemmValues, NanAndInfinityPropagate) {
  const KeepSettings keep;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();
  for (const Isa isa : runnable()) {
    set_isa(isa);
    for (const Form form : {Form::plain, Form::transposed}) {
      std::mt19937 random(7);
      const Case c{1, 20, 37, 10, form, form};
      Operands<float> o = make_operands<float>(c, random);
      const auto at = [](std::vector<float>& data, const GemmSource<float>& s, int64_t i, int64_t j) -> float& {
        return data[i * s.row + j * s.column];
      };
      at(o.a, o.args.a, 3, 4) = 0;
      at(o.b, o.args.b, 4, 36) = kNan;  // 0 * NaN in row 3
      at(o.b, o.args.b, 4, 5) = kInf;   // 0 * infinity in row 3
      at(o.a, o.args.a, 19, 9) = -kInf;
      gemm(o.args);
      const float* result = o.args.c.data;
      for (int64_t i = 0; i < c.m; ++i)
        for (int64_t j = 0; j < c.n; ++j) {
          const float x = result[i * o.args.c.row + j];
          if (j == 36 || (i == 3 && j == 5)) {
            EXPECT_TRUE(std::isnan(x)) << i << ", " << j;
          } else if (i == 19 && j != 5) {
            EXPECT_EQ(x, at(o.b, o.args.b, 9, j) > 0 ? -kInf : kInf) << i << ", " << j;
          } else if (i != 19 && j != 5) {
            EXPECT_TRUE(std::isfinite(x)) << i << ", " << j;
          }
        }
      EXPECT_EQ(result[2 * o.args.c.row + 5], at(o.a, o.args.a, 2, 4) > 0 ? kInf : -kInf);
    }
  }
}

/// `count` floats that end where an inaccessible page begins, so that reading one more ends the test.
class Fenced {
 public:
  explicit Fenced(int64_t count) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    bytes_ = (count * sizeof(float) + page - 1) / page * page + page;
    pages_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (pages_ == MAP_FAILED || mprotect(pages_ + bytes_ - page, page, PROT_NONE) != 0) std::abort();
    data = reinterpret_cast<float*>(pages_ + bytes_ - page) - count;
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<float>(i % 5);
  }
  ~Fenced() { munmap(pages_, bytes_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  float* data;

 private:
  char* pages_;
  std::size_t bytes_;
};

TEST(GemmBounds, NothingPastTheOperandsIsTouched) {
  const KeepSettings keep;
  for (const Isa isa : runnable()) {
    set_isa(isa);
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true})
        for (const int64_t m : {1, 5, 14, 20, 300})
          for (const int64_t n : {1, 7, 16, 19, 35})
            for (const int64_t k : {1, 3, 16, 37}) {
              const Fenced a(m * k), b(k * n), c(m * n);
              gemm<float>({.m = m,
                           .n = n,
                           .k = k,
                           .a = {.data = a.data, .row = a_transposed ? 1 : k, .column = a_transposed ? m : 1},
                           .b = {.data = b.data, .row = b_transposed ? 1 : n, .column = b_transposed ? k : 1},
                           .c = {.data = c.data, .row = n}});
              float last = 0;
              for (int64_t i = 0; i < k; ++i)
                last += a.data[a_transposed ? i * m + m - 1 : (m - 1) * k + i] *
                        b.data[b_transposed ? (n - 1) * k + i : i * n + n - 1];
              ASSERT_EQ(c.data[m * n - 1], last);
            }
  }
}

TEST(GemmErrors, ASourceWithNeitherStrideOneIsNamed) {
  std::vector<float> data(100), c(4);
  GemmArgs<float> args{.m = 2, .n = 2, .k = 2, .a = {data.data(), 8, 2}, .b = {data.data(), 2, 1}, .c = {c.data(), 2}};
  try {
    gemm(args);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "gemm: neither stride of A is 1; copy it first");
  }
}

TEST(Isa, EnvironmentLowersIt) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto exit_with_isa = [] { std::exit(static_cast<int>(isa())); };
  EXPECT_EXIT((setenv("WEFT_CPU_ISA", "baseline", 1), exit_with_isa()), testing::ExitedWithCode(0), "");
  const auto exit_on_error = [] {
    try {
      isa();
    } catch (const UsageError& error) {
      std::fputs(error.what(), stderr);
      std::exit(7);
    }
  };
  EXPECT_EXIT((setenv("WEFT_CPU_ISA", "fast", 1), exit_on_error()), testing::ExitedWithCode(7),
              "WEFT_CPU_ISA: 'fast' is not baseline, .* or .*; unset it for the best");
}

}  // namespace
}  // namespace weft::cpu::gemm_test
