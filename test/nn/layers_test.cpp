#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "weft/weft.hpp"

namespace weft::nn {
namespace {

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

TEST(Linear, IsXTimesTransposedWeightPlusBias) {
  Linear linear_layer(3, 2);
  const StateDict state = linear_layer.state_dict();
  const auto* w = reinterpret_cast<const float*>(state[0].bytes.data());
  const auto* b = reinterpret_cast<const float*>(state[1].bytes.data());
  const std::vector<float> y = values(linear_layer(tensor({1.f, 2.f, 3.f}, {1, 3})));
  for (int o = 0; o < 2; ++o) EXPECT_NEAR(y[o], w[3 * o] + 2 * w[3 * o + 1] + 3 * w[3 * o + 2] + b[o], 1e-6);
  EXPECT_EQ(Linear(3, 2, {.bias = false}).parameters().size(), 1u);
}

TEST(Layers, RefuseAnotherWidth) {
  EXPECT_THROW(Linear(3, 2)(ones({1, 4})), ShapeError);
  EXPECT_THROW(LayerNorm(3)(ones({1, 4})), ShapeError);
  EXPECT_THROW(RMSNorm(3)(ones({1, 4})), ShapeError);
  EXPECT_THROW(Linear(0, 2), ShapeError);
  EXPECT_THROW(Dropout(1.0), UsageError);
  EXPECT_THROW(Dropout(-0.1), UsageError);
}

TEST(Norms, MatchTheirFormulas) {
  const std::vector<float> x = {1, -2, 4, 0.5};
  double mean = 0, squares = 0;
  for (const float v : x) mean += v / 4.0, squares += v * v / 4.0;
  const double variance = squares - mean * mean;
  const std::vector<float> layer = values(LayerNorm(4)(tensor<float>(x, {1, 4}))),
                           rms = values(RMSNorm(4)(tensor<float>(x, {1, 4})));
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(layer[i], (x[i] - mean) / std::sqrt(variance + 1e-5), 1e-5);
    EXPECT_NEAR(rms[i], x[i] / std::sqrt(squares + 1e-6), 1e-5);
  }
}

TEST(Embedding, GivesRows) {
  Embedding table(5, 2);
  const std::vector<float> rows = values(table.weight()), picked = values(table(tensor<std::int32_t>({4, 0, 4})));
  EXPECT_EQ(picked, (std::vector<float>{rows[8], rows[9], rows[0], rows[1], rows[8], rows[9]}));
}

TEST(Dropout, KeepsScaledWhileTrainingAndAllOtherwise) {
  manual_seed(3);
  Dropout dropout(0.25);
  const std::vector<float> y = values(dropout(ones({10'000})));
  std::size_t zeros_count = 0;
  for (const float v : y) {
    EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.75f) < 1e-6);
    zeros_count += v == 0;
  }
  EXPECT_NEAR(static_cast<double>(zeros_count), 2500, 200);
  dropout.eval();
  EXPECT_EQ(values(dropout(ones({4}))), std::vector<float>(4, 1));
}

TEST(Dropout, ModesAreTracesOfTheirOwn) {
  Dropout dropout(0.5);
  auto f = compile([&](const Tensor& x) { return dropout(x); });
  const Tensor x = ones({64});
  const auto dropped = [&] { return values(f(x)) != std::vector<float>(64, 1); };
  EXPECT_TRUE(dropped());
  dropout.eval();
  EXPECT_FALSE(dropped());
  dropout.train();
  EXPECT_TRUE(dropped());
  dropout.eval();
  EXPECT_FALSE(dropped());
  EXPECT_EQ(f.compiled().trace_count(), 2u);
}

TEST(AlphaDropout, DropsToTheLeastOfSeluWhileTraining) {
  manual_seed(3);
  AlphaDropout elements(0.5);
  FeatureAlphaDropout channels(0.5);
  const Tensor x = ones({4, 8, 5});
  const std::vector<float> y = values(elements(x)), z = values(channels(x));
  EXPECT_EQ(std::set<float>(y.begin(), y.end()).size(), 2u);
  for (std::size_t i = 0; i < z.size(); ++i) EXPECT_EQ(z[i], z[i / 5 * 5]);
  elements.eval();
  channels.eval();
  EXPECT_EQ(values(elements(x)), values(x));
  EXPECT_EQ(values(channels(x)), values(x));
  EXPECT_THROW(AlphaDropout(1), UsageError);
  EXPECT_THROW(FeatureAlphaDropout(-0.5), UsageError);
}

TEST(Bilinear, IsAProductWithAWeightForEachPair) {
  manual_seed(2);
  Bilinear layer(2, 3, 4);
  EXPECT_EQ(layer.named_parameters()[0].name, "weight");
  const Tensor x = randn({5, 2}), y = randn({5, 3});
  const std::vector<float> got = values(layer(x, y)), w = values(layer.weight()), a = values(x), b = values(y),
                           bias = values(layer.named_parameters()[1].variable);
  for (std::size_t row = 0; row < 5; ++row)
    for (std::size_t o = 0; o < 4; ++o) {
      double wanted = bias[o];
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t j = 0; j < 3; ++j) wanted += a[row * 2 + i] * w[o * 6 + i * 3 + j] * b[row * 3 + j];
      EXPECT_NEAR(got[row * 4 + o], wanted, 1e-5);
    }
  EXPECT_EQ(Bilinear(2, 3, 4, /*bias=*/false).named_parameters().size(), 1u);
  EXPECT_THROW(layer(x, x), ShapeError);
  EXPECT_THROW(Bilinear(2, 0, 4), ShapeError);
}

TEST(Sequential, RunsInOrderAndNamesByPlace) {
  Sequential net;
  net.emplace<Linear>(2, 3).then([](const Tensor& x) { return x * 0.0 + 2.0; }).emplace<Linear>(3, 1);
  EXPECT_EQ(net.named_parameters()[2].name, "2.weight");
  const StateDict state = net.state_dict();
  const auto* w = reinterpret_cast<const float*>(state[2].bytes.data());
  const auto* b = reinterpret_cast<const float*>(state[3].bytes.data());
  EXPECT_NEAR(net(ones({1, 2})).item<float>(), 2 * (w[0] + w[1] + w[2]) + b[0], 1e-5);
}

TEST(Losses, MatchScalarFormulas) {
  const std::vector<float> p = {0.3f, -2, 50, -80}, t = {0, 1, 1, 0};
  double mse_sum = 0, l1_sum = 0, huber_sum = 0, bce_sum = 0;
  for (int i = 0; i < 4; ++i) {
    const double d = static_cast<double>(p[i]) - t[i], a = std::abs(d), x = p[i];
    mse_sum += d * d;
    l1_sum += a;
    huber_sum += a < 1 ? d * d / 2 : a - 0.5;
    bce_sum += std::max(x, 0.0) - x * t[i] + std::log1p(std::exp(-std::abs(x)));
  }
  const Tensor prediction = tensor<float>(p), target = tensor<float>(t);
  EXPECT_NEAR(mse(prediction, target, Reduction::sum).item<float>(), mse_sum, 1e-6 * mse_sum);
  EXPECT_NEAR(mse(prediction, target).item<float>(), mse_sum / 4, 1e-6 * mse_sum);
  EXPECT_NEAR(l1(prediction, target).item<float>(), l1_sum / 4, 1e-5);
  EXPECT_NEAR(huber(prediction, target).item<float>(), huber_sum / 4, 1e-5);
  EXPECT_NEAR(binary_cross_entropy(prediction, target, Reduction::sum).item<float>(), bce_sum, 1e-5);
  EXPECT_EQ(mse(prediction, target, Reduction::none).shape(), (Shape{4}));
  EXPECT_THROW(mse(prediction, ones({4, 1})), ShapeError);
  EXPECT_THROW(huber(prediction, target, 0), UsageError);

  const Tensor logits = tensor({1.f, 2.f, 3.f, 0.f, 0.f, 0.f}, {2, 3}), classes = tensor<std::int32_t>({2, 0});
  const double expected = (std::log(std::exp(-2.0) + std::exp(-1.0) + 1) + std::log(3.0)) / 2;
  EXPECT_NEAR(cross_entropy(logits, classes).item<float>(), expected, 1e-6);
  EXPECT_NEAR(nll(log_softmax(logits), classes).item<float>(), expected, 1e-6);
}

}  // namespace
}  // namespace weft::nn
