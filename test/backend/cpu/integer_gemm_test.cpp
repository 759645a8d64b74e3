// Products of eight-bit integers: every bit, against plain sums, at every size around the edges of tiles.
#include "backend/cpu/integer_gemm.hpp"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

#include "backend/cpu/fenced.hpp"
#include "backend/cpu/integer_amx.inc.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/keep_settings.hpp"
#include "backend/cpu/played_tiles.hpp"

namespace weft::cpu::integer_gemm_test {
namespace {

using std::int64_t;

/// A batch of matrices in memory of their own, which ends where they do.
struct Integers {
  Fenced memory;
  bool is_signed;
  kernel::MatrixView view;

  Integers(std::mt19937& random, int64_t batch, int64_t rows, int64_t columns, bool transposed, bool is_signed_,
           int64_t gap, bool extreme)
      : memory(static_cast<std::size_t>(batch * (transposed ? columns : rows) * ((transposed ? rows : columns) + gap))),
        is_signed(is_signed_) {
    const int64_t lines = transposed ? columns : rows, line = (transposed ? rows : columns) + gap;
    view = kernel::matrix_view({{batch}, {lines * line}, 0, {}}, rows, transposed ? 1 : line, columns,
                               transposed ? line : 1);
    for (int64_t i = 0; i < batch * lines * line; ++i)
      memory.data[i] = extreme ? (is_signed ? 0x80 : 0xff) : static_cast<unsigned char>(random());
  }
  std::int32_t at(int64_t batch, int64_t i, int64_t j) const {
    const unsigned char byte = memory.data[batch * view.at.batch.strides[0] + i * view.row() + j * view.column()];
    return is_signed ? static_cast<signed char>(byte) : byte;
  }
  IntegerSource source() const { return {memory.data, is_signed, &view}; }
};

struct IntegerCase {
  int64_t batch, m, n, k;
  bool a_transposed = false, b_transposed = false, a_signed = true, b_signed = true, extreme = false;
  int64_t gap = 0;
};

const IntegerKernels* kernels = nullptr;  // those of the instruction set unless set

void check(std::mt19937& random, const IntegerCase& c) {
  const Integers a(random, c.batch, c.m, c.k, c.a_transposed, c.a_signed, c.gap, c.extreme);
  const Integers b(random, c.batch, c.k, c.n, c.b_transposed, c.b_signed, c.gap, c.extreme);
  const auto count = static_cast<std::size_t>(c.batch * c.m * c.n);
  std::vector<std::int32_t> got(count + 1, -77);
  std::vector<int> finished(count, 0);
  const auto after = [&](int64_t batch, int64_t row, int64_t row_end, int64_t column, int64_t column_end) {
    for (int64_t i = row; i < row_end; ++i)
      for (int64_t j = column; j < column_end; ++j) ++finished[static_cast<std::size_t>((batch * c.m + i) * c.n + j)];
  };
  IntegerGemm product{.batch = c.batch, .m = c.m, .n = c.n, .k = c.k, .a = a.source(), .b = b.source()};
  product.c = got.data();
  product.after_block = after;
  integer_gemm(product, kernels);
  ASSERT_EQ(got.back(), -77);
  ASSERT_TRUE(std::all_of(finished.begin(), finished.end(), [](int times) { return times == 1; }));
  for (int64_t batch = 0; batch < c.batch; ++batch)
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        std::uint32_t sum = 0;
        for (int64_t k = 0; k < c.k; ++k) sum += static_cast<std::uint32_t>(a.at(batch, i, k) * b.at(batch, k, j));
        ASSERT_EQ(got[static_cast<std::size_t>((batch * c.m + i) * c.n + j)], static_cast<std::int32_t>(sum))
            << fmt::format("{} x {} x {}, batch {}, at {}, {}", c.m, c.n, c.k, batch, i, j);
      }
}

template <class Body>
void on_every_isa(const Body& body) {
  const KeepSettings keep;
  for (const Isa isa : {Isa::baseline, Isa::neon_dot, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
    if (!runs(isa)) continue;
    set_isa(isa);
    SCOPED_TRACE(name(isa));
    body();
  }
  SCOPED_TRACE("tiles played by plain loops");
  static const IntegerKernels played = integer_tiles<PlayedTiles<std::uint8_t, std::int8_t>>(&baseline::kIntegerBytes);
  kernels = &played;
  body();
  kernels = nullptr;
}

TEST(IntegerGemm, EverySizeUpTo200) {
  on_every_isa([] {
    std::mt19937 random(81);
    for (int64_t size = 1; size <= 200; ++size) {
      const int64_t other = 1 + static_cast<int64_t>(random() % 70), depth = 1 + static_cast<int64_t>(random() % 200);
      const bool flags[] = {random() % 2 == 0, random() % 2 == 0, random() % 2 == 0, random() % 2 == 0};
      check(random, {1, size, other, depth, flags[0], flags[1], flags[2], flags[3], false, size % 3});
      check(random, {1, other, size, depth, flags[1], flags[0], flags[3], flags[2], false, size % 2});
      check(random, {1, other, 1 + other / 2, size, flags[0], flags[1], flags[2], flags[3]});
    }
  });
}

TEST(IntegerGemm, Extremes) {
  on_every_isa([] {
    std::mt19937 random(82);
    for (const bool a_signed : {false, true})
      for (const bool b_signed : {false, true})
        for (const int64_t depth : {1, 2, 3, 4, 5, 64, 1030, 2100})
          check(random, {1, 33, 37, depth, false, true, a_signed, b_signed, true});
  });
}

// Sums of 2^31 and more wrap around.
TEST(IntegerGemm, LongSumsWrapAround) {
  on_every_isa([] {
    std::mt19937 random(83);
    check(random, {1, 2, 3, 140000, false, true, true, true, true});
    check(random, {1, 2, 3, 70000, false, true, false, false, true});
  });
}

TEST(IntegerGemm, BatchesAndSumsOfNothing) {
  on_every_isa([] {
    std::mt19937 random(84);
    check(random, {9, 20, 35, 50, true, false, true, false});
    check(random, {300, 3, 5, 7});
    check(random, {2, 5, 7, 0});
    check(random, {1, 600, 550, 1100, false, true});
  });
}

// Windows, as convolutions have them, with an edge that reads as 0.
TEST(IntegerGemm, GeneralViewsWithEdges) {
  on_every_isa([] {
    std::mt19937 random(85);
    constexpr int64_t kRows = 40, kWindow = 5, kColumns = 21;
    Integers b(random, 1, kWindow, kColumns, false, true, 0, false);
    Fenced line(kRows);
    for (int64_t i = 0; i < kRows; ++i) line.data[i] = static_cast<unsigned char>(random());
    kernel::MatrixView view = kernel::matrix_view({{1}, {0}, 0, {}}, kRows, 1, kWindow, 1);
    kernel::MatrixView::Edge edge{{{{1}, {0}, 0, {}}, {{kRows}, {1}, 0, {}}, {{kWindow}, {1}, 0, {}}}, 0, kRows};
    view.edges.push_back(edge);
    std::vector<std::int32_t> got(kRows * kColumns);
    IntegerGemm product{.m = kRows, .n = kColumns, .k = kWindow, .b = b.source()};
    // The last windows begin so late that they would end beyond the line: the place is clamped by reading a copy.
    std::vector<unsigned char> padded(kRows + kWindow, 0x55);
    std::copy_n(line.data, kRows, padded.begin());
    product.a = {padded.data(), false, &view};
    product.c = got.data();
    integer_gemm(product);
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = 0; j < kColumns; ++j) {
        int sum = 0;
        for (int64_t k = 0; k < kWindow && i + k < kRows; ++k) sum += line.data[i + k] * b.at(0, k, j);
        ASSERT_EQ(got[static_cast<std::size_t>(i * kColumns + j)], sum) << i << ", " << j;
      }
  });
}

// Windows of an image with zeros around it: edges on all four sides, places with several strides, lanes in runs and apart.
TEST(IntegerGemm, WindowsOfAnImage) {
  on_every_isa([] {
    std::mt19937 random(86);
    for (const int64_t step : {1, 2, 3}) {
      constexpr int64_t kChannels = 3, kHeight = 9, kWidth = 40, kColumns = 21, kDepth = kChannels * 9;
      const int64_t down = (kHeight - 1) / step + 1, across = (kWidth - 1) / step + 1, rows = down * across;
      Integers b(random, 1, kDepth, kColumns, false, true, 0, false);
      Fenced image(kChannels * kHeight * kWidth);
      for (int64_t i = 0; i < kChannels * kHeight * kWidth; ++i) image.data[i] = static_cast<unsigned char>(random());
      const kernel::View one{{1}, {0}, 0, {}};
      kernel::MatrixView view;
      view.at = {one,
                 {{down, across}, {step * kWidth, step}, -kWidth - 1, {}},
                 {{kChannels, 3, 3}, {kHeight * kWidth, kWidth, 1}, 0, {}}};
      view.edges.push_back(
          {{one, {{down, across}, {step, 0}, 0, {}}, {{kChannels, 3, 3}, {0, 1, 0}, 0, {}}}, 1, kHeight + 1});
      view.edges.push_back(
          {{one, {{down, across}, {0, step}, 0, {}}, {{kChannels, 3, 3}, {0, 0, 1}, 0, {}}}, 1, kWidth + 1});
      std::vector<std::int32_t> got(static_cast<std::size_t>(rows * kColumns));
      for (const bool is_signed : {false, true}) {
        IntegerGemm product{.m = rows, .n = kColumns, .k = kDepth, .b = b.source()};
        product.a = {image.data, is_signed, &view};
        product.c = got.data();
        integer_gemm(product);
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < kColumns; ++j) {
            int sum = 0;
            for (int64_t k = 0; k < kDepth; ++k) {
              const int64_t y = i / across * step + k % 9 / 3 - 1, x = i % across * step + k % 3 - 1;
              if (y < 0 || y >= kHeight || x < 0 || x >= kWidth) continue;
              const unsigned char byte = image.data[k / 9 * kHeight * kWidth + y * kWidth + x];
              sum += (is_signed ? static_cast<signed char>(byte) : byte) * b.at(0, k, j);
            }
            ASSERT_EQ(got[static_cast<std::size_t>(i * kColumns + j)], sum) << step << ", " << i << ", " << j;
          }
      }
    }
  });
}

}  // namespace
}  // namespace weft::cpu::integer_gemm_test
