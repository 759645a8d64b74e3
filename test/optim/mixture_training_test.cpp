// A mixture of experts learns, and its experts share the work.
#include <gtest/gtest.h>

#include "weft/weft.hpp"

namespace weft::nn {
namespace {

// Four maps, one for each quadrant of the first two numbers: a single map cannot fit them.
TEST(Mixture, LearnsAMapForEachRegion) {
  manual_seed(1);
  Mixture net(4, 16, 4, {.top_k = 2});
  optim::Adam optimizer(net, {.learning_rate = 0.01});
  const Tensor x = randn({256, 4}).eval();
  const Tensor sign = tanh(narrow(x, 1, 0, 2) * 50.0);
  const Tensor wanted = concat({narrow(x, 1, 2, 2) * sign, narrow(x, 1, 2, 2) * narrow(sign, 1, 0, 1)}, 1).eval();
  auto step = compile([&](Tensor in, Tensor target) {
    const MixtureResult r = net.forward(in);
    const Tensor loss = mse(r.output, target);
    optimizer.step(grad(loss + r.balance_loss * 0.01, optimizer.parameters()));
    return loss;
  });
  const float first = step(x, wanted).item<float>();
  float last = first;
  for (int i = 0; i < 300; ++i) last = step(x, wanted).item<float>();
  EXPECT_LT(last, 0.1f * first);
  const MixtureResult after = net.forward(x);
  const auto ends = after.routing.ends.to_vector<std::int32_t>();
  for (std::size_t e = 0; e < 4; ++e) EXPECT_GT(ends[e] - (e ? ends[e - 1] : 0), 20) << "rows of expert " << e;
  EXPECT_LT(after.balance_loss.item<float>(), 1.5f);
}

}  // namespace
}  // namespace weft::nn
