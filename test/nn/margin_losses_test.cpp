// Losses with margins that take a function, which no row of the table can hold.
#include "weft/nn/margin_losses.hpp"

#include <gtest/gtest.h>

#include "weft/grad.hpp"
#include "weft/ops/distances.hpp"

namespace weft::nn {
namespace {

TEST(TripletMarginWithDistance, IsTripletMarginForTheDefaultDistance) {
  manual_seed(1);
  const Tensor a = randn({6, 5}), p = randn({6, 5}), n = randn({6, 5});
  for (const bool swap : {false, true}) {
    const Tensor wanted = triplet_margin(a, p, n, {.margin = 2, .swap = swap, .reduction = Reduction::none});
    const Tensor got = triplet_margin_with_distance(a, p, n, {.margin = 2, .swap = swap, .reduction = Reduction::none});
    EXPECT_LT(amax(abs(got - wanted)).item<float>(), 1e-5f);
    const Tensor slope = grad(sum(got), a), wanted_slope = grad(sum(wanted), a);
    EXPECT_LT(amax(abs(slope - wanted_slope)).item<float>(), 1e-5f);
  }
}

TEST(TripletMarginWithDistance, TakesADistanceOfYourOwn) {
  const Distance angle = [](const Tensor& x, const Tensor& y) { return 1.0 - cosine_similarity(x, y); };
  const Tensor a = tensor({{1.0f, 0.0f}}), p = tensor({{0.0f, 2.0f}}), n = tensor({{3.0f, 0.0f}});
  EXPECT_EQ(triplet_margin_with_distance(a, p, n, {.distance = angle, .margin = 0.5}).item<float>(), 1.5f);
  EXPECT_EQ(triplet_margin_with_distance(a, n, p, {.distance = angle, .margin = 0.5}).item<float>(), 0.0f);
}

}  // namespace
}  // namespace weft::nn
