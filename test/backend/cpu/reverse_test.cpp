// Rows in the opposite order by the functions of each instruction set: counts and places around vectors and cache lines.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backend/cpu/isa.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "backend/cpu/move_support.hpp"
#include "backend/cpu/run_writer.hpp"

namespace weft::cpu::reverse_test {
namespace {

TEST(Reverse, WritesEachWordOnce) {
  for (const Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (isa > best_isa()) continue;
    for (const Extent count : {0, 1, 3, 4, 7, 15, 16, 17, 31, 33, 100, 1000})
      for (const Extent shift : {0, 1, 8, 15})
        for (const bool streams : {false, true})
          for (const bool asks : {false, true}) {
            std::vector<std::uint32_t> from(static_cast<std::size_t>(count) + 16);
            std::iota(from.begin(), from.end(), 1u);
            GuardedResult<std::uint32_t> to(shift, count);
            const std::uint32_t* const last = from.data() + count + 7;
            tile_table(isa).reverse32(last, to.words.data() + shift, count, asks ? last : nullptr, streams);
            fence_streams();
            for (Extent i = 0; i < count; ++i)
              ASSERT_EQ(to.at(i), count + 8 - i) << name(isa) << ", " << i << " of " << count << ", shift " << shift;
            to.expect_guards(name(isa));
          }
  }
}

}  // namespace
}  // namespace weft::cpu::reverse_test
