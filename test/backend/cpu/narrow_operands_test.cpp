// Operands of narrow types: every element comes out as a cast gives it, products of them have the bits of products of the
// converted operands, and nothing beyond an operand is touched.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backend/cpu/attention.hpp"
#include "backend/cpu/fenced.hpp"
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/keep_settings.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "tensor/element.hpp"

namespace weft::cpu::narrow_operands_test {
namespace {

using std::int64_t;

std::vector<Isa> runnable() {
  std::vector<Isa> all;
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512})
    if (isa <= best_isa()) all.push_back(isa);
  return all;
}

std::vector<DType> narrow_types() {
  std::vector<DType> types;
  for (const Element& row : kElements)
    if (row.compute == DType::f32 && row.type != DType::f32 && !is_block(row.type)) types.push_back(row.type);
  return types;
}

/// Random codes of a type, without infinities and NaN, and the floats that they mean.
struct Codes {
  Fenced memory;
  std::vector<float> values;
  Codes(DType type, int64_t count, std::mt19937& random)
      : memory(bytes_of(type, static_cast<std::size_t>(count))), values(static_cast<std::size_t>(count)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      write_element(type, std::uniform_real_distribution<double>(-3, 3)(random), memory.data, i);
      values[i] = static_cast<float>(read_element(type, memory.data, i));
    }
  }
};

TEST(Widen, EveryCodeAtEveryPlaceIsWhatACastGives) {
  const KeepSettings keep;
  for (const DType type : narrow_types()) {
    const int bits = element(type).bits;
    const int64_t count = bits == 16 ? 65536 : 512;
    Fenced codes(bytes_of(type, static_cast<std::size_t>(count)));
    for (std::size_t i = 0; i < bytes_of(type, static_cast<std::size_t>(count)); ++i)
      codes.data[i] = static_cast<unsigned char>(bits == 16 ? i / 2 >> (i % 2 * 8) : i * 37 + i / 256);
    std::vector<float> expected;
    for (int64_t i = 0; i < count; ++i)
      expected.push_back(static_cast<float>(read_element(type, codes.data, static_cast<std::size_t>(i))));
    for (const Isa isa : runnable()) {
      set_isa(isa);
      const WidenFunction widen = widen_function(type);
      ASSERT_NE(widen, nullptr) << name_of(type);
      const auto check = [&](int64_t first, int64_t length) {
        std::vector<float> got(static_cast<std::size_t>(length) + 1, -77);
        widen(codes.data, first, 0, 1, length, got.data(), 0);
        ASSERT_EQ(got.back(), -77) << "wrote beyond the row";
        for (int64_t i = 0; i < length; ++i) {
          const float x = got[static_cast<std::size_t>(i)], y = expected[static_cast<std::size_t>(first + i)];
          ASSERT_TRUE(std::memcmp(&x, &y, sizeof x) == 0 || (std::isnan(x) && std::isnan(y)))
              << name_of(type) << " on " << name(isa) << ": element " << first + i << " is " << x << ", not " << y;
        }
      };
      check(0, count);
      for (int64_t first = 0; first < 20; ++first)
        for (int64_t length = 0; length < 70; ++length) {
          check(first, length);
          check(count - first - length, length);
        }
      // Rows apart, forward and backward, to rows apart.
      std::vector<float> got(3 * 40, -77);
      widen(codes.data, 200, -90, 3, 37, got.data(), 40);
      for (int64_t r = 0; r < 3; ++r)
        for (int64_t i = 0; i < 40; ++i) {
          const float x = got[static_cast<std::size_t>(r * 40 + i)];
          const float y = i < 37 ? expected[static_cast<std::size_t>(200 - 90 * r + i)] : -77;
          ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y))) << name_of(type) << " " << r << " " << i;
        }
    }
  }
  for (const DType type : {DType::f32, DType::f64, DType::i8, DType::i32, DType::boolean})
    EXPECT_EQ(widen_function(type), nullptr) << name_of(type);
}

struct Case {
  int64_t batch, m, n, k;
};

/// The same product of narrow operands and of the floats that these mean.
void expect_same_bits(const Case& c, bool a_turned, bool b_turned, DType a_type, DType b_type, std::mt19937& random) {
  SCOPED_TRACE(::testing::Message() << c.batch << " x [" << c.m << ", " << c.n << ", " << c.k << "] a "
                                    << name_of(a_type) << (a_turned ? "^T" : "") << " b " << name_of(b_type)
                                    << (b_turned ? "^T" : ""));
  constexpr int64_t kBefore = 5;  // elements before the first one, which is therefore inside a byte
  const Codes a(a_type, kBefore + c.batch * c.m * c.k, random), b(b_type, kBefore + c.batch * c.k * c.n, random);
  std::vector<float> expected(static_cast<std::size_t>(c.batch * c.m * c.n)), got(expected.size(), -77);
  GemmArgs<float> args{.batch = c.batch, .m = c.m, .n = c.n, .k = c.k};
  args.a = {.data = a.values.data() + kBefore,
            .row = a_turned ? 1 : c.k,
            .column = a_turned ? c.m : 1,
            .batch = {.stride = c.m * c.k}};
  args.b = {.data = b.values.data() + kBefore,
            .row = b_turned ? 1 : c.n,
            .column = b_turned ? c.k : 1,
            .batch = {.stride = c.k * c.n}};
  args.c = {.data = expected.data(), .row = c.n, .batch = {.stride = c.m * c.n}};
  gemm(args);
  args.c.data = got.data();
  const auto make_narrow = [&](GemmSource<float>& source, DType type, const Codes& codes) {
    if (type == DType::f32) return;
    source.narrow = {widen_function(type), codes.memory.data, kBefore};
    source.data = nullptr;
  };
  make_narrow(args.a, a_type, a);
  make_narrow(args.b, b_type, b);
  gemm(args);
  ASSERT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0);
  // As tasks of a caller's schedule.
  const GemmTasks<float> tasks(args);
  if (tasks.count() == 0) return;
  std::fill(got.begin(), got.end(), -77.0f);
  for (int64_t t = 0; t < tasks.count(); ++t) tasks.run(t);
  ASSERT_EQ(std::memcmp(expected.data(), got.data(), got.size() * sizeof(float)), 0) << "as tasks";
}

TEST(NarrowProducts, EveryTypeInEveryFormHasTheBitsOfItsFloats) {
  const KeepSettings keep;
  std::mt19937 random(1);
  for (const Isa isa : runnable()) {
    SCOPED_TRACE(name(isa));
    set_isa(isa);
    for (const DType type : narrow_types())
      for (const bool a_turned : {false, true})
        for (const bool b_turned : {false, true})
          for (const Case& c : {Case{1, 1, 33, 40}, {1, 3, 19, 7}, {2, 17, 35, 65}, {1, 14, 16, 32}, {1, 5, 1, 9}}) {
            expect_same_bits(c, a_turned, b_turned, type, type, random);
            expect_same_bits(c, a_turned, b_turned, DType::f32, type, random);
            expect_same_bits(c, a_turned, b_turned, type, DType::f32, random);
          }
  }
}

TEST(NarrowProducts, LargeOnesInEveryWayToSplit) {
  const KeepSettings keep;
  std::mt19937 random(2);
  set_thread_count(3);
  const Case cases[] = {{1, 300, 530, 700},   // B is kept for the next task
                        {1, 1000, 520, 800},  // all threads pack B first
                        {1, 40, 40, 4099},    // k in pieces, and a rest
                        {1, 8, 600, 1500},    // few rows
                        {64, 12, 20, 30}};    // groups of small products
  for (const Case& c : cases)
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true}) {
        expect_same_bits(c, a_turned, b_turned, DType::f16, DType::int4, random);
        expect_same_bits(c, a_turned, b_turned, DType::bf16, DType::f32, random);
      }
  expect_same_bits({1, 1000, 1100, 2100}, false, true, DType::bf16, DType::f16, random);  // block by block of k
}

TEST(NarrowProducts, NaNAndInfinityPass) {
  const KeepSettings keep;
  for (const DType type : {DType::f16, DType::bf16, DType::fp8_e5m2, DType::fp8_e4m3}) {
    std::vector<unsigned char> a(bytes_of(type, 4)), b(bytes_of(type, 4));
    const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
    const double lefts[] = {1, infinity, nan, -2}, rights[] = {1, 0, 3, 1};
    for (std::size_t i = 0; i < 4; ++i) {
      write_element(type, lefts[i], a.data(), i);
      write_element(type, rights[i], b.data(), i);
    }
    for (const Isa isa : runnable()) {
      set_isa(isa);
      float c[4] = {};
      GemmArgs<float> args{.m = 4, .n = 1, .k = 1};
      args.a = {.row = 1, .narrow = {widen_function(type), a.data(), 0}};
      args.b = {.row = 1, .narrow = {widen_function(type), b.data(), 0}};
      args.c = {.data = c, .row = 1};
      gemm(args);
      EXPECT_EQ(c[0], 1);
      if (element(type).has_infinity) {
        EXPECT_EQ(c[1], infinity);
      } else {
        EXPECT_EQ(c[1], element(type).highest);  // where infinity saturates
      }
      EXPECT_TRUE(std::isnan(c[2])) << name_of(type);
      EXPECT_EQ(c[3], -2);
    }
  }
}

/// Attention of narrow operands and of their floats, forward and backward.
TEST(NarrowAttention, HasTheBitsOfItsFloatsOrSumsPairs) {
  const KeepSettings keep;
  std::mt19937 random(3);
  struct Extents {
    Extent batch, heads, queries, keys, width;
    bool causal;
  };
  std::vector<Isa> sets = runnable();
  if (has_bf16_dot(best_isa())) sets.push_back(best_isa());
  for (const Isa isa : sets)
    for (const DType type : {DType::f16, DType::bf16, DType::fp8_e4m3, DType::int4})
      for (const Extents& e : {Extents{2, 3, 17, 33, 24, false},
                               {1, 2, 130, 130, 16, true},
                               {1, 1, 1, 200, 64, true},
                               {1, 2, 19, 23, 7, false}}) {
        // Scores of bf16 are sums of products of pairs, in another order.
        const bool in_pairs = has_bf16_dot(isa) && type == DType::bf16 && e.width % 2 == 0;
        SCOPED_TRACE(::testing::Message() << name(isa) << " " << name_of(type) << " " << e.queries << " queries");
        set_isa(isa);
        set_thread_count(2);
        const Extent q_size = e.batch * e.queries * e.heads * e.width, k_size = e.batch * e.keys * e.heads * e.width;
        const Codes q(type, q_size, random), k(type, k_size, random), v(type, k_size, random), g(type, q_size, random);
        kernel::AttentionKernel a;
        a.name = "attention";
        a.batch = e.batch, a.heads = a.kv_heads = e.heads, a.queries = e.queries, a.keys = e.keys, a.width = e.width;
        a.scale = 0.3, a.causal = e.causal, a.shift = e.keys - e.queries;
        const auto tensor = [&](Extent positions, DType of) {
          kernel::AttentionKernel::Tensor t;
          t.operand = {0, of, 0, e.batch * positions * e.heads * e.width};
          t.batch_stride = positions * e.heads * e.width, t.head_stride = e.width, t.row_stride = e.heads * e.width;
          return t;
        };
        std::vector<std::vector<float>> of_floats, of_codes;
        for (const bool narrow : {false, true}) {
          const DType read = narrow ? type : DType::f32;
          a.backward = false;
          a.q = a.d_o = tensor(e.queries, read);
          a.k = a.v = tensor(e.keys, read);
          a.o = a.d_q = tensor(e.queries, DType::f32);
          a.d_k = a.d_v = tensor(e.keys, DType::f32);
          const auto data = [&](const Codes& codes) {
            return narrow ? static_cast<const void*>(codes.memory.data) : codes.values.data();
          };
          std::vector<std::vector<float>> results{std::vector<float>(q_size), std::vector<float>(q_size),
                                                  std::vector<float>(q_size), std::vector<float>(k_size),
                                                  std::vector<float>(k_size)};
          const AttentionBinding binding{data(q),           data(k),           data(v),
                                         results[0].data(), results[1].data(), data(g),
                                         results[2].data(), results[3].data(), results[4].data()};
          run_attention(a, binding);
          a.backward = true;
          run_attention(a, binding);
          (narrow ? of_codes : of_floats) = std::move(results);
        }
        for (std::size_t r = 0; in_pairs && r < of_floats.size(); ++r) {
          float most = 0;
          for (const float x : of_floats[r]) most = std::max(most, std::abs(x));
          for (std::size_t i = 0; i < of_floats[r].size(); ++i)
            ASSERT_NEAR(of_floats[r][i], of_codes[r][i], 1e-4f * most) << "result " << r << ", element " << i;
        }
        for (std::size_t r = 0; !in_pairs && r < of_floats.size(); ++r)
          ASSERT_EQ(std::memcmp(of_floats[r].data(), of_codes[r].data(), of_floats[r].size() * sizeof(float)), 0)
              << "result " << r;
      }
}

}  // namespace
}  // namespace weft::cpu::narrow_operands_test
