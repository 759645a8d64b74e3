// The lists by which rows are added up, and the kernels that add them.
#include "backend/cpu/row_lists.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/run_writer.hpp"
#include "base/threads.hpp"

namespace weft::cpu {
namespace {

TEST(RowLists, HaveTheUpdatesOfEachRowInOrder) {
  std::mt19937 random(1);
  const int threads_before = thread_count();
  RowLists lists;  // one object, whose content before does not matter
  for (const auto& [count, rows] : std::vector<std::pair<Extent, Extent>>{
           {0, 3}, {1, 1}, {5, 0}, {100, 7}, {70'000, 1000}, {70'000, 60'000}, {40'000, 1}, {30'000, 2'000'000}})
    for (const int threads : {1, 2, 5}) {
      set_thread_count(threads);
      std::vector<std::uint32_t> indices(static_cast<std::size_t>(count));
      // Some are beyond all rows, as negative ones are.
      for (std::uint32_t& index : indices)
        index = random() % 50 == 0 ? 0xfffffff0u : random() % static_cast<std::uint32_t>(rows + 1);
      std::vector<std::vector<std::uint32_t>> expected(static_cast<std::size_t>(rows));
      for (std::size_t i = 0; i < indices.size(); ++i)
        if (indices[i] < expected.size()) expected[indices[i]].push_back(static_cast<std::uint32_t>(i));
      lists.fill(indices.data(), count, rows);
      std::size_t longest = 0;
      ASSERT_EQ(lists.starts.size(), expected.size() + 1);
      for (std::size_t r = 0; r < expected.size(); ++r) {
        ASSERT_EQ(std::vector(lists.order.begin() + lists.starts[r], lists.order.begin() + lists.starts[r + 1]),
                  expected[r])
            << "row " << r << " of " << rows << ", " << threads << " threads";
        longest = std::max(longest, expected[r].size());
      }
      EXPECT_EQ(lists.longest, longest);
      EXPECT_EQ(lists.order.size(), lists.starts.back());
    }
  set_thread_count(threads_before);
}

template <class T>
void check_sums(DType type) {
  constexpr T kUntouched = 77;
  std::mt19937 random(2);
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (isa > best_isa()) continue;
    for (const std::int64_t columns : {1, 15, 16, 64, 128, 131, 300})
      for (const std::int64_t chosen : {0, 1, 2, 5})
        for (const bool with_base : {false, true})
          for (const bool streams : {false, true})
            for (const std::int64_t shift : {0, 3}) {
              constexpr std::int64_t kRows = 9;
              std::vector<T> rows(static_cast<std::size_t>(kRows * columns)), base(static_cast<std::size_t>(columns));
              for (T& x : rows) x = static_cast<T>(random() % 1000);
              for (T& x : base) x = static_cast<T>(random() % 1000);
              if constexpr (std::is_floating_point_v<T>)
                rows[0] = std::numeric_limits<T>::infinity(), rows.back() = std::nan("");
              std::vector<std::uint32_t> order, later;
              for (std::int64_t k = 0; k < chosen; ++k)
                order.push_back(random() % kRows), later.push_back(random() % kRows);
              if (chosen == 5) later.clear();
              std::vector<T> memory(static_cast<std::size_t>(columns) + 64, kUntouched);
              T* const to = memory.data() + 8 +
                            (0 - reinterpret_cast<std::uintptr_t>(memory.data() + 8)) % 64 / sizeof(T) + shift;
              tile_table(isa).sum_rows[static_cast<std::size_t>(type)](
                  {rows.data(), columns, order.data(), chosen, with_base ? base.data() : nullptr, to, columns, streams,
                   later.data(), static_cast<std::int64_t>(later.size())});
              fence_streams();
              for (std::int64_t c = 0; c < columns; ++c) {
                T sum = 0;
                for (const std::uint32_t r : order) sum += rows[static_cast<std::size_t>(r * columns + c)];
                if (with_base) sum += base[static_cast<std::size_t>(c)];
                ASSERT_TRUE(to[c] == sum || (sum != sum && to[c] != to[c]))
                    << columns << " columns of " << chosen << ", at " << c;
              }
              for (const T& x : memory)
                if (&x < to || &x >= to + columns) {
                  ASSERT_EQ(x, kUntouched);
                }
            }
  }
}

TEST(RowSums, OfChosenRows) {
  check_sums<float>(DType::f32);
  check_sums<double>(DType::f64);
  check_sums<std::uint32_t>(DType::u32);
  check_sums<std::uint64_t>(DType::u64);
}

}  // namespace
}  // namespace weft::cpu
