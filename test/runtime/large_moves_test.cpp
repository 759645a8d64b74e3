// Ops that move memory, on tensors that are large enough for the orders, blocks and lists that small ones do without: every
// element against a loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "weft/weft.hpp"

namespace weft {
namespace {

using Numbers = std::vector<std::int32_t>;

Numbers numbers(Extent count, std::int32_t below, std::int32_t from = 0) {
  Numbers values(static_cast<std::size_t>(count));
  std::uint32_t state = 12345;
  for (std::int32_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = from + static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(below - from));
  }
  return values;
}

TEST(LargeMoves, PermutationsOfAllAxes) {
  for (const std::vector<Extent>& extents : {std::vector<Extent>{64, 48, 40}, {33, 70, 65}, {7, 16, 24, 48}}) {
    const Shape shape(extents);
    const Numbers values = numbers(shape.numel(), 1 << 30);
    const Tensor x = tensor<std::int32_t>(values, shape);
    std::vector<int> axes(extents.size());
    std::iota(axes.begin(), axes.end(), 0);
    do {
      const Tensor turned = permute(x, axes);
      const Numbers got = (turned + 1.0).to_vector<std::int32_t>();
      const Shape to = turned.shape();
      std::vector<Extent> strides(extents.size(), 1), at(extents.size(), 0);
      for (std::size_t d = extents.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * extents[d + 1];
      for (std::size_t i = 0; i < got.size(); ++i) {
        Extent from = 0, rest = static_cast<Extent>(i);
        for (int d = to.rank(); d-- > 0; rest /= to[d])
          from += rest % to[d] * strides[static_cast<std::size_t>(axes[static_cast<std::size_t>(d)])];
        ASSERT_EQ(got[i], values[static_cast<std::size_t>(from)] + 1) << i;
      }
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
}

TEST(LargeMoves, GathersAlongEachAxis) {
  constexpr Extent kRows = 1100, kColumns = 192;  // more bytes than strips of columns are made for
  const Numbers values = numbers(kRows * kColumns, 1 << 30);
  const Tensor x = tensor<std::int32_t>(values, {kRows, kColumns});
  for (const int axis : {0, 1}) {
    const Extent extent = axis == 0 ? kRows : kColumns;
    for (const std::int32_t from : {0, -2}) {  // indices below 0 and from `extent` on read zeros
      const Numbers indices = numbers(kRows * kColumns, static_cast<std::int32_t>(extent) - from, from);
      const Numbers got =
          take_along_axis(x, tensor<std::int32_t>(indices, {kRows, kColumns}), axis).to_vector<std::int32_t>();
      for (Extent i = 0; i < kRows; ++i)
        for (Extent j = 0; j < kColumns; ++j) {
          const Extent at = indices[static_cast<std::size_t>(i * kColumns + j)];
          const Extent place = axis == 0 ? at * kColumns + j : i * kColumns + at;
          const std::int32_t expected = at < 0 || at >= extent ? 0 : values[static_cast<std::size_t>(place)];
          ASSERT_EQ(got[static_cast<std::size_t>(i * kColumns + j)], expected) << axis << " " << i << " " << j;
        }
    }
  }
}

TEST(LargeMoves, ScattersAlongEachAxis) {
  for (const auto& [rows, columns, taken] : {std::array<Extent, 3>{300, 70, 300},
                                             {700, 2100, 350},
                                             {5000, 90, 5000},
                                             {40, 16, 300},
                                             {260, 1030, 1500},
                                             {6400, 1024, 2000}}) {
    const Numbers values = numbers(rows * columns, 1 << 20);
    for (const int axis : {0, 1}) {
      const Extent extent = axis == 0 ? rows : columns;
      const Shape shape = axis == 0 ? Shape{taken, columns} : Shape{rows, taken};
      const auto below = static_cast<std::int32_t>(extent) + 2;
      const Numbers indices = numbers(shape.numel(), below, -2);  // those below 0 and from `extent` on are left out
      const Numbers updates = numbers(shape.numel(), 1 << 20);
      Numbers sums = values, puts = values;
      for (Extent i = 0; i < shape.numel(); ++i) {
        const Extent at = indices[static_cast<std::size_t>(i)], row = i / shape[1], column = i % shape[1];
        if (at < 0 || at >= extent) continue;
        const auto to = static_cast<std::size_t>(axis == 0 ? at * columns + column : row * columns + at);
        sums[to] += updates[static_cast<std::size_t>(i)];
        puts[to] = updates[static_cast<std::size_t>(i)];
      }
      const Tensor x = tensor<std::int32_t>(values, {rows, columns}), u = tensor<std::int32_t>(updates, shape),
                   to = tensor<std::int32_t>(indices, shape);
      EXPECT_TRUE(scatter_add(x, axis, to, u).to_vector<std::int32_t>() == sums) << rows << " " << axis;
      EXPECT_TRUE(scatter(x, axis, to, u).to_vector<std::int32_t>() == puts) << rows << " " << axis;
      const Tensor floats = scatter_add(cast(x, DType::f64), axis, to, cast(u, DType::f64));
      EXPECT_TRUE(cast(floats, DType::i32).to_vector<std::int32_t>() == sums) << rows << " " << axis;
    }
  }
}

TEST(LargeMoves, ScansOfLinesOfAllLengths) {
  struct Space {
    Extent outer, n, inner;
  };
  for (const auto& [outer, n, inner] : {Space{1, 200'003, 1}, {3, 70'001, 1}, {50, 1030, 1}, {2, 37, 700}, {700, 9, 1}})
    for (const bool exclusive : {false, true})
      for (const bool reverse : {false, true}) {
        const Numbers values = numbers(outer * n * inner, 1 << 30);
        Numbers parts = values;
        for (std::int32_t& part : parts) part %= 1000;
        const Tensor x = tensor<std::int32_t>(values, {outer, n, inner});
        const Tensor small = tensor<std::int32_t>(parts, {outer, n, inner});
        const Numbers sums = cumsum(x, 1, exclusive, reverse).to_vector<std::int32_t>();
        const std::vector<float> rounded = cumsum(cast(small, DType::f32), 1, exclusive, reverse).to_vector<float>();
        for (Extent o = 0; o < outer; ++o)
          for (Extent c = 0; c < inner; ++c) {
            std::uint32_t sum = 0;
            double exact = 0;
            for (Extent i = 0; i < n; ++i) {
              const auto at = static_cast<std::size_t>((o * n + (reverse ? n - 1 - i : i)) * inner + c);
              const auto value = static_cast<std::uint32_t>(values[at]);
              const std::uint32_t next = sum + value;
              const double exact_next = exact + value % 1000;
              ASSERT_EQ(static_cast<std::uint32_t>(sums[at]), exclusive ? sum : next) << n << " " << inner << " " << i;
              ASSERT_EQ(rounded[at], static_cast<float>(exclusive ? exact : exact_next))
                  << n << " " << inner << " " << i;
              sum = next;
              exact = exact_next;
            }
          }
      }
}

TEST(LargeMoves, AProductThatBeginsWithZeroStaysZero) {
  std::vector<float> values(200'000, 3e38f);
  values[0] = 0;
  for (const float y : cumprod(tensor<float>(values, {200'000})).to_vector<float>()) ASSERT_EQ(y, 0);
}

TEST(LargeMoves, RunningExtremesOfLongLines) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr Extent kLines = 3, kCount = 3001;
  for (const bool is_largest : {false, true})
    for (const bool reverse : {false, true}) {
      const Numbers raw = numbers(kLines * kCount, 500);  // many ties with the extreme
      std::vector<float> values(raw.begin(), raw.end());
      for (std::size_t i = 2 * kCount; i < 3 * kCount; ++i) values[i] = static_cast<float>(i);  // one order
      values[kCount + 700] = kNaN;
      const Tensor x = tensor<float>(values, {kLines, kCount});
      const ValuesAndPositions found = is_largest ? cummax(x, -1, reverse) : cummin(x, -1, reverse);
      const std::vector<float> got = found.values.to_vector<float>();
      const Numbers positions = found.positions.to_vector<std::int32_t>();
      for (Extent line = 0; line < kLines; ++line) {
        float best = is_largest ? -1 : 1e9f;
        std::int32_t at = -1;
        for (Extent done = 0; done < kCount; ++done) {
          const Extent i = reverse ? kCount - 1 - done : done;
          const float value = values[static_cast<std::size_t>(line * kCount + i)];
          if (std::isnan(value) || (is_largest ? value >= best : value <= best)) best = value, at = static_cast<int>(i);
          const auto place = static_cast<std::size_t>(line * kCount + i);
          ASSERT_TRUE(got[place] == best || (std::isnan(got[place]) && std::isnan(best))) << line << " " << i;
          ASSERT_EQ(positions[place], at) << line << " " << i;
        }
      }
    }
}

TEST(LargeMoves, RowsInReverse) {
  constexpr Extent kBeyondTheCaches = 6'600'000;
  for (const auto& [count, columns] : std::vector<std::array<Extent, 2>>{{30000, 1},
                                                                         {30000, 15},
                                                                         {30000, 16},
                                                                         {30000, 17},
                                                                         {30000, 1023},
                                                                         {30000, 1500},
                                                                         {kBeyondTheCaches, 15},
                                                                         {kBeyondTheCaches, 1024},
                                                                         {kBeyondTheCaches, 20001}}) {
    const Extent rows = count / columns;
    const Numbers values = numbers(rows * columns, 1 << 30);
    const Numbers got = flip(tensor<std::int32_t>(values, {rows, columns}), {1}).to_vector<std::int32_t>();
    for (Extent i = 0; i < rows; ++i)
      for (Extent j = 0; j < columns; ++j)
        ASSERT_EQ(got[static_cast<std::size_t>(i * columns + j)],
                  values[static_cast<std::size_t>((i + 1) * columns - 1 - j)]);
  }
}

TEST(LargeMoves, ShortRowsChangePlacesBeyondTheCaches) {
  constexpr Extent kBatch = 3, kHeads = 70, kPositions = 301, kWidth = 100;
  const Numbers values = numbers(kBatch * kPositions * kHeads * kWidth, 1 << 30);
  const Tensor x = tensor<std::int32_t>(values, {kBatch, kPositions, kHeads, kWidth});
  const Numbers got = permute(x, {0, 2, 1, 3}).to_vector<std::int32_t>();
  for (Extent i = 0; i < static_cast<Extent>(got.size()); ++i) {
    const Extent w = i % kWidth, p = i / kWidth % kPositions, h = i / kWidth / kPositions % kHeads;
    const Extent b = i / kWidth / kPositions / kHeads;
    ASSERT_EQ(got[static_cast<std::size_t>(i)],
              values[static_cast<std::size_t>(((b * kPositions + p) * kHeads + h) * kWidth + w)])
        << i;
  }
}

TEST(LargeMoves, FirstRanksOfShortLines) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr Extent kLines = 40, kCount = 1000;
  for (const bool descending : {false, true}) {
    const Numbers raw = numbers(kLines * kCount, 300);  // many ties
    std::vector<float> values(raw.begin(), raw.end());
    for (std::size_t i = 0; i < values.size(); i += 77) values[i] = i % 2 == 0 ? kNaN : -0.0f;
    for (Extent i = 0; i < kCount; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(descending ? i : -i);
    const Tensor x = tensor<float>(values, {kLines, kCount});
    for (const Extent k : {1, 10, 100}) {
      const ValuesAndPositions first = topk(x, k, -1, descending);
      const ValuesAndPositions all = sort(x, -1, descending);
      EXPECT_EQ(first.positions.to_vector<std::int32_t>(), narrow(all.positions, 1, 0, k).to_vector<std::int32_t>());
      const std::vector<float> got = first.values.to_vector<float>();
      const std::vector<std::int32_t> positions = first.positions.to_vector<std::int32_t>();
      for (std::size_t i = 0; i < got.size(); ++i) {
        const float expected =
            values[i / static_cast<std::size_t>(k) * kCount + static_cast<std::size_t>(positions[i])];
        ASSERT_TRUE(got[i] == expected || (std::isnan(got[i]) && std::isnan(expected))) << i;
      }
    }
  }
}

TEST(LargeMoves, RowsAddedUpByIndex) {
  constexpr Extent kRows = 900, kCount = 3000, kColumns = 40;
  for (const std::int32_t below : {900, 1000, 3}) {  // one row each, some outside, and few rows with most updates
    const Numbers indices = numbers(kCount, below, below == 1000 ? -5 : 0),
                  updates = numbers(kCount * kColumns, 1 << 30);
    const Numbers got =
        scatter_add(tensor<std::int32_t>(indices, {kCount}), tensor<std::int32_t>(updates, {kCount, kColumns}), kRows)
            .to_vector<std::int32_t>();
    std::vector<std::uint32_t> expected(static_cast<std::size_t>(kRows * kColumns));
    for (Extent i = 0; i < kCount; ++i) {
      const Extent row = indices[static_cast<std::size_t>(i)];
      if (row < 0 || row >= kRows) continue;
      for (Extent c = 0; c < kColumns; ++c)
        expected[static_cast<std::size_t>(row * kColumns + c)] +=
            static_cast<std::uint32_t>(updates[static_cast<std::size_t>(i * kColumns + c)]);
    }
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(static_cast<std::uint32_t>(got[i]), expected[i]) << below << " " << i;
  }
}

TEST(LargeMoves, RowsAddedToOthersByIndex) {
  constexpr Extent kRows = 900, kCount = 3000, kColumns = 40;
  for (const std::int32_t below : {900, 3}) {  // some updates each, and few rows with most updates
    const Numbers indices = numbers(kCount, below), raw = numbers(kCount * kColumns, 1000),
                  raw_base = numbers(kRows * kColumns, 1000, -1000);
    const Tensor i = tensor<std::int32_t>(indices, {kCount});
    const std::vector<float> updates(raw.begin(), raw.end()), base(raw_base.begin(), raw_base.end());
    std::vector<float> expected = base;  // whole numbers, so that the order of additions does not matter
    for (Extent k = 0; k < kCount * kColumns; ++k)
      expected[static_cast<std::size_t>(indices[static_cast<std::size_t>(k / kColumns)] * kColumns + k % kColumns)] +=
          updates[static_cast<std::size_t>(k)];
    const Tensor x = tensor<float>(base, {kRows, kColumns}), u = tensor<float>(updates, {kCount, kColumns});
    EXPECT_EQ(index_add(x, 0, i, u).to_vector<float>(), expected);
    const Tensor sums = scatter_add(i, u, kRows);  // read by two kernels
    const std::vector<float> both = cumsum(concat({x + sums, sums}, 0), 0).to_vector<float>();
    std::vector<double> total(kColumns);
    for (Extent k = 0; k < 2 * kRows * kColumns; ++k) {
      const auto at = static_cast<std::size_t>(k % (kRows * kColumns)), column = static_cast<std::size_t>(k % kColumns);
      total[column] += k < kRows * kColumns ? expected[at] : expected[at] - base[at];
      ASSERT_EQ(both[static_cast<std::size_t>(k)], static_cast<float>(total[column])) << k;
    }
  }
}

}  // namespace
}  // namespace weft
