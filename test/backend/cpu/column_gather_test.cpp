// Gathers down columns, element by element: ragged widths, axes around the rows, indices outside, instruction sets, threads.
#include "backend/cpu/column_gather.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "backend/cpu/move_support.hpp"

namespace weft::cpu::column_gather_test {
namespace {

/// y[o, r, c] = x[o, i[o, r, c], c], or x[i[o, r, c], c] if all outer indices share x.
struct Case {
  Extent outer, rows, columns, extent;
  bool shares = false;
};

kernel::LoopKernel gather_of(const Case& c, DType type, Extent to_offset) {
  kernel::LoopKernel k{.name = "gather"};
  const Extent n = c.outer * c.rows * c.columns, source = c.extent * c.columns;
  k.outer = n;
  k.inputs = {{0, DType::i32, 0, n}, {1, type, 0, (c.shares ? 1 : c.outer) * source}};
  k.outputs = {{2, type, to_offset, n}};
  kernel::Step load{kernel::StepKind::load};
  load.type = DType::i32;
  load.operand = 0;
  load.view = {{n}, {1}, 0, {}};
  kernel::Step gather{kernel::StepKind::gather};
  gather.type = type;
  gather.operand = 1;
  gather.a = 0;
  gather.axis_stride = c.columns;
  gather.axis_extent = c.extent;
  gather.view = {{c.outer, c.rows, c.columns}, {c.shares ? 0 : source, 0, 1}, 0, {}};
  k.steps = {load, gather};
  k.stores = {{1, 0, {{n}, {1}, 0, {}}}};
  return k;
}

/// Whether a gather was prepared, and if so, whether it put each element at its place and nothing elsewhere.
template <class Word>
bool gathers(const Case& c, DType type, Extent to_offset = 0) {
  const std::unique_ptr<Prepared> prepared = prepare_column_gather(gather_of(c, type, to_offset));
  if (!prepared) return false;
  const Extent n = c.outer * c.rows * c.columns;
  std::vector<std::int32_t> indices(static_cast<std::size_t>(n));
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int32_t> around(-2, static_cast<std::int32_t>(c.extent) + 1);
  for (std::int32_t& index : indices) index = around(random);
  std::vector<Word> from(static_cast<std::size_t>((c.shares ? 1 : c.outer) * c.extent * c.columns));
  GuardedResult<Word> to(to_offset, n);
  std::iota(from.begin(), from.end(), Word{1});
  char* const buffers[] = {reinterpret_cast<char*>(indices.data()), reinterpret_cast<char*>(from.data()),
                           reinterpret_cast<char*>(to.words.data())};
  prepared->bind(Memory(buffers));
  prepared->run();
  for (Extent i = 0; i < n; ++i) {
    const Extent index = indices[static_cast<std::size_t>(i)], outer = c.shares ? 0 : i / (c.rows * c.columns);
    const Extent at = (outer * c.extent + index) * c.columns + i % c.columns;
    const Word expected = index < 0 || index >= c.extent ? Word{} : from[static_cast<std::size_t>(at)];
    if (to.at(i) != expected) {
      ADD_FAILURE() << "element " << i << " of " << prepared->to_string();
      return true;
    }
  }
  to.expect_guards(prepared->to_string());
  return true;
}

const Case kCases[] = {
    {1, 700, 300, 700}, {1, 333, 259, 1001},       {1, 5000, 33, 4500},
    {3, 130, 517, 270}, {4, 600, 131, 1030, true}, {1, 4099, 16, 16000},
};

TEST(ColumnGather, PicksEachElement) {
  for_each_setting([] {
    for (const Case& c : kCases) {
      SCOPED_TRACE(c.columns);
      EXPECT_TRUE(gathers<std::uint32_t>(c, DType::f32));
      EXPECT_TRUE(gathers<std::uint32_t>(c, DType::u32, 3));
      EXPECT_TRUE(gathers<std::uint64_t>(c, DType::f64));
    }
  });
}

TEST(ColumnGather, ResultsBeyondTheCachesToo) {
  EXPECT_TRUE(gathers<std::uint32_t>({1, 2600, 2600, 700}, DType::f32));
  EXPECT_TRUE(gathers<std::uint32_t>({1, 2600, 2603, 700}, DType::i32, 1));
}

TEST(ColumnGather, LeavesOtherGathersToLoops) {
  EXPECT_FALSE(gathers<std::uint32_t>({1, 100, 300, 300}, DType::f32));     // the source is in a near cache
  EXPECT_FALSE(gathers<std::uint32_t>({1, 100, 300, 700}, DType::f32));     // most of a copy would not be read
  EXPECT_FALSE(gathers<std::uint32_t>({1, 50000, 15, 20000}, DType::f32));  // too narrow
  EXPECT_FALSE(gathers<std::uint32_t>({1, 20000, 32, 20000}, DType::f32));  // columns that fit no cache
  kernel::LoopKernel rows = gather_of({1, 700, 300, 700}, DType::f32, 0);   // one index for each row
  rows.steps[0].view = {{700, 300}, {1, 0}, 0, {}};
  EXPECT_EQ(prepare_column_gather(rows), nullptr);
  EXPECT_EQ(prepare_column_gather(gather_of({1, 700, 900, 700}, DType::f16, 0)), nullptr);
}

}  // namespace
}  // namespace weft::cpu::column_gather_test
