// Attention means the same as one kernel and as what it is made of, also where a query sees no key.
#include <gtest/gtest.h>

#include <array>

#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

using Results = std::vector<std::vector<float>>;

/// The output, and the gradients of its square by q, k and v.
Results attended(Extent queries, Extent keys, bool fused) {
  const bool before = compile_settings().fused_composites;
  compile_settings().fused_composites = fused;
  const auto values = [](const Shape& shape, double phase) {
    return elementwise("sin", {cast(reshape(arange(shape.numel()), shape), DType::f32) * 1.7 + phase});
  };
  const Tensor inputs[] = {values({2, 2, queries, 4}, 0), values({2, 2, keys, 4}, 1), values({2, 2, keys, 4}, 2)};
  const Tensor y = attention(inputs[0], inputs[1], inputs[2]);
  Results results = {y.to_vector<float>()};
  for (const Tensor& g : grad(sum(y * y), inputs)) results.push_back(g.to_vector<float>());
  compile_settings().fused_composites = before;
  return results;
}

TEST(Attention, AQueryThatSeesNoKeyGivesZero) {
  for (const auto& [queries, keys] : {std::array<Extent, 2>{5, 3}, {70, 2}, {3, 0}}) {
    const Results fused = attended(queries, keys, true), parts = attended(queries, keys, false);
    for (std::size_t i = 0; i < fused.size(); ++i) {
      ASSERT_EQ(fused[i].size(), parts[i].size());
      for (std::size_t e = 0; e < fused[i].size(); ++e) EXPECT_NEAR(fused[i][e], parts[i][e], 1e-5) << i << " " << e;
    }
    for (const Results& results : {fused, parts})
      for (const std::size_t i : {0, 1})  // the output and the gradient by q, [2, 2, T, 4]
        for (Extent head = 0; head < 4; ++head)
          for (Extent e = 0; e < (queries - keys) * 4; ++e)
            EXPECT_EQ(results[i][static_cast<std::size_t>(head * queries * 4 + e)], 0) << i << " " << e;
  }
}

}  // namespace
}  // namespace weft
