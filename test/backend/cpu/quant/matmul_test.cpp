// Quantised products against sums in double over de-quantised weights: every format, instruction set, odd extents,
// threads, epilogues, errors.
#include "backend/cpu/quant/matmul.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/keep_settings.hpp"
#include "backend/cpu/quant/kernels.hpp"
#include "base/half.hpp"
#include "base/threads.hpp"
#include "tensor/block_format.hpp"
#include "weft/error.hpp"

namespace weft::cpu::quant_matmul_test {
namespace {

using std::int64_t;

constexpr float kGuard = -12345.0f;

/// Blocks of random bits, whose scales are then made tame: every pattern of integers and of small scales occurs.
std::vector<std::byte> random_blocks(BlockType type, int64_t n, int64_t k, std::mt19937& random) {
  const BlockFormat& format = block_format(type);
  const std::size_t count = static_cast<std::size_t>(n * k) / format.block_elements;
  std::vector<std::byte> blocks(count * format.block_bytes);
  for (std::byte& b : blocks) b = static_cast<std::byte>(random());
  const auto put_half = [&](std::size_t at, float most) {
    const std::uint16_t bits = f16_from_f32(std::uniform_real_distribution<float>(-most, most)(random));
    std::memcpy(&blocks[at], &bits, 2);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = i * format.block_bytes;
    switch (type) {
      case BlockType::f32: {
        const float value = std::uniform_real_distribution<float>(-1, 1)(random);
        std::memcpy(&blocks[at], &value, 4);
        break;
      }
      case BlockType::f16: put_half(at, 1); break;
      case BlockType::bf16: {
        const std::uint16_t bits = bf16_from_f32(std::uniform_real_distribution<float>(-1, 1)(random));
        std::memcpy(&blocks[at], &bits, 2);
        break;
      }
      case BlockType::q4_1:
      case BlockType::q5_1:
      case BlockType::q4_k:
      case BlockType::q5_k:
        put_half(at, 0.1f);
        put_half(at + 2, 1);
        break;
      case BlockType::q2_k:
        put_half(at + 80, 0.1f);
        put_half(at + 82, 0.1f);
        break;
      case BlockType::q3_k: put_half(at + 108, 0.1f); break;
      case BlockType::q6_k: put_half(at + 208, 0.01f); break;
      case BlockType::mxfp4: blocks[at] = static_cast<std::byte>(110 + random() % 16); break;
      default: put_half(at, 0.1f);
    }
  }
  return blocks;
}

std::vector<float> values_of(BlockType type, const std::vector<std::byte>& blocks, int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  dequantise(type, blocks, values);
  return values;
}

std::vector<float> random_floats(int64_t count, std::mt19937& random) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& x : values) x = std::normal_distribution<float>()(random);
  return values;
}

/// y, and how far a product may be from it.
struct Expected {
  std::vector<double> y, tolerance;
};

Expected reference(const std::vector<float>& w, const std::vector<float>& x, int64_t m, int64_t n, int64_t k,
                   bool rounded) {
  Expected e;
  for (int64_t i = 0; i < m; ++i) {
    std::vector<double> step;  // half the distance of the values that a block of x may take
    for (int64_t b = 0; b < k; b += 32) {
      double most = 0;
      for (int64_t l = b; l < std::min(k, b + 32); ++l) most = std::max<double>(most, std::abs(x[i * k + l]));
      step.push_back(rounded ? most / 254 : 0);
    }
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0, magnitude = 0, rounding = 0;
      for (int64_t l = 0; l < k; ++l) {
        const double weight = w[j * k + l], product = weight * x[i * k + l];
        sum += product;
        // Formats with a minimum, and integers with a zero, are summed in parts that may be larger than the product.
        magnitude += std::abs(product);
        rounding += step[l / 32] * std::abs(weight);
      }
      e.y.push_back(sum);
      e.tolerance.push_back(rounding * 1.0001 + 1e-5 * magnitude + 1e-5);
    }
  }
  return e;
}

/// Products with activations of eight bits are what `expected` says.
void expect_products(const QuantisedMatrix& packed, const std::vector<float>& x, int64_t m, const Expected& expected,
                     const QuantKernels* kernels) {
  const int64_t n = packed.n();
  std::vector<float> y(static_cast<std::size_t>(m * n));
  const QuantProduct product{.weights = &packed, .y = y.data(), .y_row = n};
  quant_matmul({&product, 1}, x.data(), m, packed.k(), Activations::eight_bit, kernels);
  for (int64_t i = 0; i < m * n; ++i) ASSERT_NEAR(y[i], expected.y[i], expected.tolerance[i]) << kernels->name;
}

struct Case {
  int64_t m, n, k;
};

class EveryType : public testing::TestWithParam<BlockType> {};

std::string type_name(const testing::TestParamInfo<BlockType>& info) {
  std::string name(block_format(info.param).name);
  return name;
}

TEST_P(EveryType, IsTheProductOnEveryInstructionSet) {
  const BlockType type = GetParam();
  std::mt19937 random(7);
  std::vector<Case> cases{{1, 1, 256},  {1, 33, 512},  {2, 16, 256},  {3, 47, 768},
                          {7, 17, 256}, {16, 31, 256}, {33, 50, 512}, {512, 21, 256}};
  // A chunk of blocks that share lines of scales may end early.
  if (block_format(type).block_elements <= 32) cases.insert(cases.end(), {{1, 40, 32}, {5, 33, 96}});
  for (const Case& c : cases) {
    const std::vector<std::byte> blocks = random_blocks(type, c.n, c.k, random);
    const std::vector<float> w = values_of(type, blocks, c.n * c.k);
    const std::vector<float> x = random_floats(c.m * c.k, random);
    const QuantisedMatrix packed = QuantisedMatrix::pack(type, blocks, c.n, c.k);
    for (const Activations activations : {Activations::eight_bit, Activations::exact}) {
      const bool rounded = activations == Activations::eight_bit && !block_format(type).is_plain();
      const Expected expected = reference(w, x, c.m, c.n, c.k, rounded);
      for (const QuantKernels* kernels : runnable_quant_kernels()) {
        const int64_t y_row = c.n + 3;
        std::vector<float> y(static_cast<std::size_t>(c.m * y_row), kGuard);
        const QuantProduct product{.weights = &packed, .y = y.data(), .y_row = y_row};
        quant_matmul({&product, 1}, x.data(), c.m, c.k, activations, kernels);
        for (int64_t i = 0; i < c.m; ++i) {
          for (int64_t j = 0; j < c.n; ++j)
            ASSERT_NEAR(y[i * y_row + j], expected.y[i * c.n + j], expected.tolerance[i * c.n + j])
                << kernels->name << (rounded ? " eight bits [" : " exact [") << c.m << ", " << c.n << ", " << c.k
                << "] at (" << i << ", " << j << ")";
          for (int64_t j = c.n; j < y_row; ++j) ASSERT_EQ(y[i * y_row + j], kGuard) << kernels->name;
        }
      }
    }
  }
}

/// Eight bits lose nothing when x holds small integers: then only f32 sums are left of the error.
TEST_P(EveryType, RoundsActivationsOnly) {
  const BlockType type = GetParam();
  const int64_t m = 13, n = 40, k = 512;
  std::mt19937 random(8);
  const std::vector<std::byte> blocks = random_blocks(type, n, k, random);
  const std::vector<float> w = values_of(type, blocks, n * k);
  std::vector<float> integers(static_cast<std::size_t>(m * k));
  for (float& value : integers) value = static_cast<float>(static_cast<int>(random() % 255) - 127);
  const QuantisedMatrix packed = QuantisedMatrix::pack(type, blocks, n, k);
  for (const QuantKernels* kernels : runnable_quant_kernels()) {
    const float most = kernels->takes_full_range(quant_format(type)) ? 128.0f : 127.0f;
    std::vector<float> x = integers;
    for (int64_t b = 0; b < m * k; b += 32) x[b] = b % 64 == 0 ? most : -most;
    const Expected expected = reference(w, x, m, n, k, false);
    expect_products(packed, x, m, expected, kernels);
  }
}

/// Blocks whose two ends are nearly as far from zero: neither may round beyond the integers there are.
TEST_P(EveryType, BothEndsOfABlockFit) {
  const BlockType type = GetParam();
  const int64_t m = 64, n = 16, k = 256;
  std::mt19937 random(16);
  const std::vector<std::byte> blocks = random_blocks(type, n, k, random);
  const std::vector<float> w = values_of(type, blocks, n * k);
  std::vector<float> x = random_floats(m * k, random);
  for (int64_t b = 0; b < m * k; b += 32) {
    const float sign = b % 64 == 0 ? 4.0f : -4.0f;
    x[b + 3] = sign;
    x[b + 17] = -sign * (1 - static_cast<float>(b / 32 % 40) * 0.0003f);
  }
  const QuantisedMatrix packed = QuantisedMatrix::pack(type, blocks, n, k);
  const Expected expected = reference(w, x, m, n, k, !block_format(type).is_plain());
  for (const QuantKernels* kernels : runnable_quant_kernels()) {
    expect_products(packed, x, m, expected, kernels);
  }
}

TEST_P(EveryType, RowsDependOnNothingElse) {
  const BlockType type = GetParam();
  const int64_t m = 29, n = 300, k = 512;
  std::mt19937 random(9);
  const std::vector<std::byte> blocks = random_blocks(type, n, k, random);
  const std::vector<float> x = random_floats(m * k, random);
  const QuantisedMatrix packed = QuantisedMatrix::pack(type, blocks, n, k);
  KeepSettings keep;
  for (const Activations activations : {Activations::eight_bit, Activations::exact})
    for (const QuantKernels* kernels : runnable_quant_kernels()) {
      const auto run = [&](const float* from, int64_t rows) {
        std::vector<float> y(static_cast<std::size_t>(rows * n));
        const QuantProduct product{.weights = &packed, .y = y.data(), .y_row = n};
        quant_matmul({&product, 1}, from, rows, k, activations, kernels);
        return y;
      };
      set_thread_count(1);
      const std::vector<float> all = run(x.data(), m);
      for (const int threads : {2, 4}) {
        set_thread_count(threads);
        ASSERT_EQ(run(x.data(), m), all) << kernels->name << ", " << threads << " threads";
      }
      for (int64_t rows = 1; rows <= 13; ++rows) {
        const std::vector<float> some = run(x.data() + 5 * k, rows);
        ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 5 * n)) << kernels->name << ", " << rows;
      }
    }
}

TEST_P(EveryType, GivesItsRowsBack) {
  const BlockType type = GetParam();
  const int64_t n = 37, k = block_format(type).block_elements <= 32 ? 672 : 768;
  std::mt19937 random(10);
  const std::vector<std::byte> blocks = random_blocks(type, n, k, random);
  const std::vector<float> w = values_of(type, blocks, n * k);
  const QuantisedMatrix packed = QuantisedMatrix::pack(type, blocks, n, k);
  std::vector<std::int32_t> rows;
  for (int i = 0; i < 60; ++i) rows.push_back(static_cast<std::int32_t>(random() % n));
  const int64_t y_row = k + 2;
  std::vector<float> y(rows.size() * y_row, kGuard);
  quant_gather(packed, rows, y.data(), y_row);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(std::memcmp(&y[i * y_row], &w[rows[i] * k], k * sizeof(float)), 0) << "row " << rows[i];
    ASSERT_EQ(y[i * y_row + k], kGuard);
  }
  EXPECT_THROW(quant_gather(packed, std::vector<std::int32_t>{0, 37}, y.data(), y_row), UsageError);
  EXPECT_THROW(quant_gather(packed, std::vector<std::int32_t>{-1}, y.data(), y_row), UsageError);
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryType, testing::ValuesIn(kQuantTypes), type_name);

TEST(QuantMatmul, ExactIsTight) {
  // Against f64 with nothing but f32 rounding allowed: 2^-24 times the terms met, some of them larger than the product.
  const int64_t m = 5, n = 64, k = 1536;
  std::mt19937 random(11);
  for (const BlockType type : {BlockType::q4_0, BlockType::q8_0, BlockType::q6_k, BlockType::f16}) {
    const std::vector<std::byte> blocks = random_blocks(type, n, k, random);
    const std::vector<float> w = values_of(type, blocks, n * k);
    const std::vector<float> x = random_floats(m * k, random);
    const QuantisedMatrix packed = QuantisedMatrix::pack(type, blocks, n, k);
    std::vector<float> y(m * n);
    const QuantProduct product{.weights = &packed, .y = y.data(), .y_row = n};
    quant_matmul({&product, 1}, x.data(), m, k, Activations::exact);
    double error = 0, norm = 0;
    const Expected expected = reference(w, x, m, n, k, false);
    for (int64_t i = 0; i < m * n; ++i) {
      error += std::pow(y[i] - expected.y[i], 2);
      norm += std::pow(expected.y[i], 2);
    }
    EXPECT_LT(std::sqrt(error / norm), 1e-6) << block_format(type).name;
  }
}

TEST(QuantMatmul, PlainRowsOfAnyLength) {
  const int64_t m = 3, n = 19, k = 45;
  std::mt19937 random(12);
  for (const BlockType type : {BlockType::f32, BlockType::f16, BlockType::bf16}) {
    const std::vector<std::byte> blocks = random_blocks(type, n, k, random);
    const std::vector<float> w = values_of(type, blocks, n * k), x = random_floats(m * k, random);
    const QuantisedMatrix packed = QuantisedMatrix::pack(type, blocks, n, k);
    const Expected expected = reference(w, x, m, n, k, false);
    for (const QuantKernels* kernels : runnable_quant_kernels()) {
      std::vector<float> y(m * n);
      const QuantProduct product{.weights = &packed, .y = y.data(), .y_row = n};
      quant_matmul({&product, 1}, x.data(), m, k, Activations::eight_bit, kernels);
      for (int64_t i = 0; i < m * n; ++i) ASSERT_NEAR(y[i], expected.y[i], expected.tolerance[i]) << kernels->name;
    }
  }
}

TEST(QuantMatmul, MatricesShareOneX) {
  const int64_t m = 40, k = 512, x_row = k + 7;
  std::mt19937 random(13);
  const BlockType types[] = {BlockType::q4_k, BlockType::q6_k, BlockType::f16, BlockType::q8_0};
  const int64_t columns[] = {100, 33, 16, 250};
  const std::vector<float> x = random_floats(m * x_row, random);
  std::vector<QuantisedMatrix> matrices;
  std::vector<std::vector<float>> alone, together;
  for (int i = 0; i < 4; ++i) {
    matrices.push_back(QuantisedMatrix::pack(types[i], random_blocks(types[i], columns[i], k, random), columns[i], k));
    together.emplace_back(m * columns[i]);
    alone.emplace_back(m * columns[i]);
  }
  std::vector<QuantProduct> products;
  for (int i = 0; i < 4; ++i) {
    products.push_back({.weights = &matrices[i], .y = together[i].data(), .y_row = columns[i]});
    const QuantProduct one{.weights = &matrices[i], .y = alone[i].data(), .y_row = columns[i]};
    quant_matmul({&one, 1}, x.data(), m, x_row, Activations::eight_bit);
  }
  quant_matmul(products, x.data(), m, x_row, Activations::eight_bit);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(together[i], alone[i]) << block_format(types[i]).name;
}

TEST(QuantTasks, RunAgainWithOtherOperands) {
  std::mt19937 random(17);
  const int64_t m = 3, n = 200, k = 512;
  const QuantisedMatrix matrices[] = {
      QuantisedMatrix::pack(BlockType::q4_1, random_blocks(BlockType::q4_1, n, k, random), n, k),
      QuantisedMatrix::pack(BlockType::q4_1, random_blocks(BlockType::q4_1, n, k, random), n, k)};
  QuantisedMatrix matrix = QuantisedMatrix::without_data(BlockType::q4_1, n, k);
  QuantProduct product{.weights = &matrix, .y_row = n};
  QuantTasks tasks({&product, 1}, m, Activations::eight_bit);
  ASSERT_TRUE(tasks.is_small());
  for (const QuantisedMatrix& each : matrices) {
    const std::vector<float> x = random_floats(m * k, random);
    std::vector<float> y(m * n), expected(m * n);
    matrix = each, product.y = y.data();
    tasks.start(x.data(), k);
    parallel_for(tasks.count(), [&](int64_t task) { tasks.run(task); });
    const QuantProduct alone{.weights = &each, .y = expected.data(), .y_row = n};
    quant_matmul({&alone, 1}, x.data(), m, k, Activations::eight_bit);
    EXPECT_EQ(y, expected);
  }
}

TEST(QuantisedMatrix, WholeGroupsOfRowsAreMatrices) {
  std::mt19937 random(16);
  const int64_t n = 48, k = 64, m = 3;
  const std::vector<std::byte> blocks = random_blocks(BlockType::q8_0, n, k, random);
  const QuantisedMatrix all = QuantisedMatrix::pack(BlockType::q8_0, blocks, n, k), part = all.rows(16, 32);
  const std::vector<float> x = random_floats(m * k, random);
  std::vector<float> y(m * n), of_part(m * 32);
  const QuantProduct whole{.weights = &all, .y = y.data(), .y_row = n}, some{&part, of_part.data(), 32, {}, {}};
  quant_matmul({&whole, 1}, x.data(), m, k, Activations::exact);
  quant_matmul({&some, 1}, x.data(), m, k, Activations::exact);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < 32; ++j) EXPECT_EQ(of_part[i * 32 + j], y[i * n + 16 + j]);
  EXPECT_THROW((void)all.rows(8, 16), UsageError);
  EXPECT_THROW((void)all.rows(16, 8), UsageError);
  EXPECT_THROW((void)all.rows(32, 32), UsageError);
}

TEST(QuantMatmul, BlocksOfTheEpilogueCoverTheResultOnce) {
  std::mt19937 random(14);
  for (const Case& c : {Case{1, 1000, 256}, {5, 70, 256}, {600, 333, 512}, {64, 16, 0}}) {
    const QuantisedMatrix packed =
        QuantisedMatrix::pack(BlockType::q4_0, random_blocks(BlockType::q4_0, c.n, c.k, random), c.n, c.k);
    const std::vector<float> x = random_floats(c.m * c.k, random);
    std::vector<float> plain(c.m * c.n), y(c.m * c.n);
    QuantProduct product{.weights = &packed, .y = plain.data(), .y_row = c.n};
    quant_matmul({&product, 1}, x.data(), c.m, c.k, Activations::eight_bit);
    const auto after = [&](int64_t batch, int64_t row_begin, int64_t row_end, int64_t column_begin,
                           int64_t column_end) {
      EXPECT_EQ(batch, 0);
      for (int64_t i = row_begin; i < row_end; ++i)
        for (int64_t j = column_begin; j < column_end; ++j) y[i * c.n + j] = y[i * c.n + j] * 2 + 1;
    };
    product.y = y.data();
    product.after_block = after;
    quant_matmul({&product, 1}, x.data(), c.m, c.k, Activations::eight_bit);
    for (int64_t i = 0; i < c.m * c.n; ++i) ASSERT_EQ(y[i], plain[i] * 2 + 1) << i;
  }
}

TEST(QuantMatmul, SpecialActivations) {
  const int64_t n = 20, k = 64;
  std::mt19937 random(15);
  const QuantisedMatrix packed =
      QuantisedMatrix::pack(BlockType::q4_1, random_blocks(BlockType::q4_1, n, k, random), n, k);
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const QuantKernels* kernels : runnable_quant_kernels()) {
    const auto run = [&](float special) {
      std::vector<float> x(3 * k, 1.0f), y(3 * n);
      x[k + 40] = special;
      const QuantProduct product{.weights = &packed, .y = y.data(), .y_row = n};
      quant_matmul({&product, 1}, x.data(), 3, k, Activations::eight_bit, kernels);
      return y;
    };
    const std::vector<float> usual = run(1);
    for (const float special : {kNaN, -kNaN, kInfinity, -kInfinity}) {
      const std::vector<float> y = run(special);
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_EQ(y[j], usual[j]) << kernels->name;
        EXPECT_TRUE(std::isnan(y[n + j])) << kernels->name;
        EXPECT_EQ(y[2 * n + j], usual[2 * n + j]) << kernels->name;
      }
    }
    const std::vector<float> large = run(3e38f);
    for (int64_t j = 0; j < n; ++j) EXPECT_FALSE(std::isnan(large[n + j])) << kernels->name;
    std::vector<float> tiny(k, 1e-39f), y(n);
    const QuantProduct product{.weights = &packed, .y = y.data(), .y_row = n};
    quant_matmul({&product, 1}, tiny.data(), 1, k, Activations::eight_bit, kernels);
    for (const float value : y) EXPECT_NEAR(value, 0, 1e-36) << kernels->name;
  }
}

TEST(QuantMatmul, NamedInstructionSetsAreUsed) {
  KeepSettings keep;
  for (const Isa one : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (one > best_isa()) continue;
    set_isa(one);
    const std::string used = quant_kernels().name;
    EXPECT_EQ(used.substr(0, used.find('_')), name(one));
  }
}

TEST(QuantMatmul, Mistakes) {
  std::vector<std::byte> blocks(18 * 16);
  EXPECT_THROW(QuantisedMatrix::pack(BlockType::f64, blocks, 1, 1), DTypeError);
  EXPECT_THROW(QuantisedMatrix::pack(BlockType::q4_0, blocks, 16, 33), ShapeError);
  EXPECT_THROW(QuantisedMatrix::pack(BlockType::q4_0, blocks, 15, 32), ShapeError);
  EXPECT_THROW(QuantisedMatrix::packed_bytes(BlockType::q4_0, -1, 32), ShapeError);
  EXPECT_THROW(QuantisedMatrix::packed_bytes(BlockType::q4_0, int64_t{1} << 40, int64_t{1} << 40), ShapeError);
  const QuantisedMatrix packed = QuantisedMatrix::pack(BlockType::q4_0, blocks, 16, 32);
  const QuantisedMatrix other = QuantisedMatrix::pack(BlockType::q4_0, blocks, 8, 64);
  EXPECT_EQ(packed.bytes(), QuantisedMatrix::packed_bytes(BlockType::q4_0, 16, 32));
  alignas(64) std::byte memory[4096];
  const auto bytes = static_cast<std::size_t>(packed.bytes());
  EXPECT_THROW(QuantisedMatrix::pack_into(BlockType::q4_0, blocks, 16, 32, {memory, bytes - 1}), UsageError);
  EXPECT_THROW(QuantisedMatrix::pack_into(BlockType::q4_0, blocks, 16, 32, {memory + 4, bytes}), UsageError);
  EXPECT_THROW(QuantisedMatrix::view(BlockType::q4_0, {memory, bytes - 1}, 16, 32), UsageError);
  QuantisedMatrix::pack_into(BlockType::q4_0, blocks, 16, 32, memory);
  EXPECT_EQ(std::memcmp(QuantisedMatrix::view(BlockType::q4_0, memory, 16, 32).data(), packed.data(), bytes), 0);
  float x[64] = {}, y[32] = {};
  const QuantProduct products[] = {{.weights = &packed, .y = y, .y_row = 16}, {.weights = &other, .y = y, .y_row = 8}};
  EXPECT_THROW(quant_matmul(products, x, 1, 64, Activations::eight_bit), ShapeError);
}

}  // namespace
}  // namespace weft::cpu::quant_matmul_test
