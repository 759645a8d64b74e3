// Ops that move memory, on tensors that are large enough for the orders, blocks and lists that small ones do without: every
// element against a loop.
#include <gtest/gtest.h>

#include <algorithm>
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

}  // namespace
}  // namespace weft
