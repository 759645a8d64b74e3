// Copies between layouts, element by element: permutations of axes, sides of every remainder, instruction sets, threads.
#include "backend/cpu/turned_copy.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backend/cpu/move_support.hpp"

namespace weft::cpu::turned_copy_test {
namespace {

/// A copy whose result has the axes of the source in another order.
struct Permutation {
  std::vector<Extent> extents;  // of the result
  std::vector<std::size_t> order;
  std::vector<Extent> strides() const {  // of the source, along the axes of the result
    std::vector<Extent> source(extents.size()), by_result(extents.size());
    for (std::size_t d = 0; d < order.size(); ++d) source[order[d]] = extents[d];
    for (std::size_t d = 0; d < order.size(); ++d)
      by_result[d] = std::accumulate(source.begin() + static_cast<std::ptrdiff_t>(order[d]) + 1, source.end(),
                                     Extent{1}, std::multiplies<>());
    return by_result;
  }
  Extent count() const { return std::accumulate(extents.begin(), extents.end(), Extent{1}, std::multiplies<>()); }
};

kernel::LoopKernel copy_of(const Permutation& p, DType type, Extent from_offset, Extent to_offset) {
  kernel::LoopKernel k{.name = "copy"};
  const Extent n = p.count();
  k.outer = n;
  k.inputs = {{0, type, from_offset, n}};
  k.outputs = {{1, type, to_offset, n}};
  kernel::Step load{kernel::StepKind::load};
  load.type = type;
  load.operand = 0;
  load.level = kernel::Level::outer;
  load.view = {p.extents, p.strides(), 0, {}};
  k.steps = {load};
  k.stores = {{0, 0, {{n}, {1}, 0, {}}}};
  return k;
}

/// Whether a copy was prepared, and if so, whether it put each element at its place and nothing elsewhere.
template <class Word>
bool copies(const Permutation& p, DType type, Extent from_offset = 0, Extent to_offset = 0) {
  const std::unique_ptr<Prepared> prepared = prepare_turned_copy(copy_of(p, type, from_offset, to_offset));
  if (!prepared) return false;
  std::vector<Word> from(static_cast<std::size_t>(p.count() + from_offset));
  GuardedResult<Word> to(to_offset, p.count());
  std::iota(from.begin(), from.end(), Word{1});
  char* const buffers[] = {reinterpret_cast<char*>(from.data()), reinterpret_cast<char*>(to.words.data())};
  prepared->bind(Memory(buffers));
  prepared->run();
  const std::vector<Extent> strides = p.strides();
  for (Extent i = 0; i < p.count(); ++i) {
    Extent rest = i, at = from_offset;
    for (std::size_t d = p.extents.size(); d-- > 0; rest /= p.extents[d]) at += rest % p.extents[d] * strides[d];
    if (to.at(i) != from[static_cast<std::size_t>(at)]) {
      ADD_FAILURE() << "element " << i << " of " << prepared->to_string();
      return true;
    }
  }
  to.expect_guards(prepared->to_string());
  return true;
}

const Permutation kPermutations[] = {
    {{128, 128}, {1, 0}},
    {{131, 257}, {1, 0}},
    {{16, 5000}, {1, 0}},
    {{5000, 16}, {1, 0}},
    {{1023, 17}, {1, 0}},
    {{7, 60, 45}, {0, 2, 1}},
    {{33, 21, 48}, {2, 1, 0}},
    {{3, 40, 9, 50}, {0, 3, 1, 2}},   // channels first
    {{4, 40, 50, 19}, {0, 2, 3, 1}},  // channels last
    {{20, 6, 5, 70}, {3, 1, 2, 0}},
};

TEST(TurnedCopy, PutsEachElementAtItsPlace) {
  for_each_setting([] {
    for (const Permutation& p : kPermutations) {
      SCOPED_TRACE(testing::PrintToString(p.extents));
      EXPECT_TRUE(copies<std::uint32_t>(p, DType::f32));
      EXPECT_TRUE(copies<std::uint64_t>(p, DType::i64));
      EXPECT_TRUE(copies<std::uint32_t>(p, DType::u32, 5, 3));  // neither begins at a cache line
    }
  });
}

TEST(TurnedCopy, ResultsBeyondTheCachesToo) {
  for (const Permutation& p :
       {Permutation{{2560, 2600}, {1, 0}}, Permutation{{2501, 2603}, {1, 0}}, Permutation{{40, 400, 416}, {2, 1, 0}}}) {
    EXPECT_TRUE(copies<std::uint32_t>(p, DType::f32));
    EXPECT_TRUE(copies<std::uint32_t>(p, DType::f32, 0, 4));
  }
}

// Lines are written in pairs; the last one of these is alone.
TEST(TurnedCopy, AnOddNumberOfLinesBeyondTheCaches) {
  for_each_setting([] {
    EXPECT_TRUE(copies<std::uint32_t>({{2560, 2608}, {1, 0}}, DType::f32));
    EXPECT_TRUE(copies<std::uint64_t>({{1792, 1816}, {1, 0}}, DType::i64));
  });
}

TEST(TurnedCopy, LeavesOtherCopiesToLoops) {
  EXPECT_FALSE(copies<std::uint32_t>({{200, 300}, {0, 1}}, DType::f32));        // nothing is turned
  EXPECT_FALSE(copies<std::uint32_t>({{30, 20, 100}, {1, 0, 2}}, DType::f32));  // rows stay whole
  EXPECT_FALSE(copies<std::uint32_t>({{8, 4000}, {1, 0}}, DType::f32));         // too narrow
  EXPECT_FALSE(copies<std::uint32_t>({{64, 64}, {1, 0}}, DType::f32));          // too small
  EXPECT_EQ(prepare_turned_copy(copy_of({{128, 256}, {1, 0}}, DType::f16, 0, 0)), nullptr);
  kernel::LoopKernel padded = copy_of({{128, 256}, {1, 0}}, DType::f32, 0, 0);
  padded.steps[0].view.bounds = {{0, 100}, {0, 256}};
  EXPECT_EQ(prepare_turned_copy(padded), nullptr);
}

}  // namespace
}  // namespace weft::cpu::turned_copy_test
