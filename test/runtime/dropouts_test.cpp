// Draws that keep statistics: dropouts of selu, of channels, and normal numbers with a mean and a deviation each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/ops/random.hpp"

namespace weft::test {
namespace {

using Floats = std::vector<float>;

TEST(AlphaDropout, KeepsMeanAndVariance) {
  manual_seed(3);
  const Tensor x = randn({400, 500}).eval();
  for (const double p : {0.1, 0.5, 0.9}) {
    SCOPED_TRACE(p);
    const Tensor y = alpha_dropout(x, p).eval();
    EXPECT_NEAR(mean(y).item<float>(), 0, 0.02);
    EXPECT_NEAR(var(y).item<float>(), 1, 0.03);
    constexpr double kLeast = -1.7580993408473766;
    const double scale = 1 / std::sqrt((1 - p) * (1 + kLeast * kLeast * p)), dropped = scale * kLeast * (1 - p);
    EXPECT_NEAR(mean(cast(abs(y - dropped) < 1e-5, DType::f32)).item<float>(), p, 0.02);
  }
  EXPECT_EQ(alpha_dropout(x, 0).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(amax(abs(alpha_dropout(x, 1))).item<float>(), 0);
}

TEST(ChannelDropout, DropsWholeChannels) {
  manual_seed(4);
  const Tensor x = ones({8, 50, 3, 2});
  const Floats kept = channel_dropout(x, 0.4).to_vector<float>(),
               moved = feature_alpha_dropout(x, 0.4).to_vector<float>();
  int dropped = 0;
  for (std::size_t channel = 0; channel < 400; ++channel) {
    EXPECT_EQ(std::set<float>(kept.begin() + channel * 6, kept.begin() + channel * 6 + 6).size(), 1u);
    EXPECT_EQ(std::set<float>(moved.begin() + channel * 6, moved.begin() + channel * 6 + 6).size(), 1u);
    dropped += kept[channel * 6] == 0 ? 1 : 0;
    if (kept[channel * 6] != 0) {
      EXPECT_FLOAT_EQ(kept[channel * 6], 1 / 0.6f);
    }
  }
  EXPECT_NEAR(dropped, 160, 40);
  EXPECT_EQ(std::set<float>(moved.begin(), moved.end()).size(), 2u);
  // Each run of a compiled function draws anew; narrow floats stay narrow.
  auto step = compile([](const Tensor& v) { return channel_dropout(v, 0.5); });
  EXPECT_NE(step(x).to_vector<float>(), step(x).to_vector<float>());
  EXPECT_EQ(channel_dropout(cast(x, DType::f16), 0.5).dtype(), DType::f16);
}

TEST(Normal, HasAMeanAndADeviationForEachElement) {
  manual_seed(5);
  const Tensor m = tensor({{0.0f}, {100.0f}}), d = tensor({1.0f, 0.0f, 3.0f});
  const Tensor wide = expand(unsqueeze(m, 2), {2, 1, 20000}), y = normal(wide, unsqueeze(d, 1)).eval();
  EXPECT_EQ(y.shape(), (Shape{2, 3, 20000}));
  const Floats means = mean(y, 2).to_vector<float>(), deviations = stddev(y, 2).to_vector<float>();
  for (std::size_t i = 0; i < 6; ++i) {
    const float deviation = i % 3 == 0 ? 1 : i % 3 == 1 ? 0 : 3;
    EXPECT_NEAR(means[i], i < 3 ? 0 : 100, 0.1);
    EXPECT_NEAR(deviations[i], deviation, 0.06);
  }
  // The gradient to the deviation is the standard draw.
  const Tensor mean_of = tensor({1.0f, 2.0f}), deviation_of = tensor({2.0f, 0.5f}), z = normal(mean_of, deviation_of);
  const Floats drawn = ((z - mean_of) / deviation_of).to_vector<float>(),
               slope = grad(sum(z), deviation_of).to_vector<float>();
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(slope[i], drawn[i], 1e-5);
  EXPECT_EQ(grad(sum(z), mean_of).to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(normal(5, zeros({2})).to_vector<float>(), (Floats{5, 5}));
  EXPECT_THROW(normal(zeros({2}), zeros({3})).eval(), ShapeError);
}

}  // namespace
}  // namespace weft::test
