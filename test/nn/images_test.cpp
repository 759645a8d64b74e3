// Layers of image networks: shapes, states, and what training makes of them.
#include <gtest/gtest.h>

#include <cmath>

#include "weft/weft.hpp"

namespace weft::nn {
namespace {

std::vector<float> floats(const Tensor& x) { return x.to_vector<float>(); }

std::vector<std::string> names(const Module& module) {
  std::vector<std::string> list;
  for (const NamedParameter& p : module.named_parameters()) list.push_back(p.name);
  for (const NamedVariable& b : module.named_buffers()) list.push_back(b.name);
  return list;
}

TEST(Conv, HasTheParametersOfPyTorch) {
  const Conv2d layer(4, 6, {3, 5}, {{.padding = {1, 2}, .groups = 2}});
  EXPECT_EQ(names(layer), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(layer.weight().shape(), (Shape{6, 2, 3, 5}));
  EXPECT_EQ(layer(ones({2, 4, 7, 8})).shape(), (Shape{2, 6, 7, 8}));
  EXPECT_EQ(layer.describe(), "Conv2d 4 -> 6, 3x5");
  const ConvTranspose1d back(6, 4, 3, {{.stride = 2, .padding = 1, .output_padding = 1}, false});
  EXPECT_EQ(back.weight().shape(), (Shape{6, 4, 3}));
  EXPECT_EQ(back(ones({2, 6, 5})).shape(), (Shape{2, 4, 10}));
  EXPECT_EQ(Conv3d(1, 2, 2, {{.stride = 2}})(ones({1, 1, 4, 6, 8})).shape(), (Shape{1, 2, 2, 3, 4}));
  EXPECT_THROW(Conv2d(4, 6, 3, {{.groups = 3}}), ShapeError);
  EXPECT_THROW(Conv2d(4, 6, {3, 3, 3}), ShapeError);
  EXPECT_THROW(Conv1d(4, 6, 3)(ones({2, 5, 7})), ShapeError);
  // The largest of many draws is close to the bound 1 / sqrt(fan in).
  float largest = 0;
  for (const float w : floats(Conv2d(64, 64, 3).weight())) largest = std::max(largest, std::abs(w));
  EXPECT_NEAR(largest, 1 / std::sqrt(64.f * 9), 1e-4);
}

TEST(BatchNorm, TrainsOnTheBatchAndRemembersIt) {
  BatchNorm norm(2);
  EXPECT_EQ(names(norm), (std::vector<std::string>{"weight", "bias", "running_mean", "running_var"}));
  const Tensor x =
      tensor({1.f, 2.f, 3.f, 6.f, -1.f, 4.f, 0.f, 9.f}, {2, 2, 2});  // channels {1, 2, -1, 4}, {3, 6, 0, 9}
  const std::vector<float> y = floats(norm(x));
  const double deviation = std::sqrt(3.25);  // of {1, 2, -1, 4}, mean 1.5
  EXPECT_NEAR(y[0], -0.5 / deviation, 1e-4);
  EXPECT_NEAR(y[5], 2.5 / deviation, 1e-4);
  const auto buffers = norm.named_buffers();
  EXPECT_NEAR(floats(buffers[0].variable)[0], 0.15, 1e-6);                  // 0.9 * 0 + 0.1 * 1.5
  EXPECT_NEAR(floats(buffers[1].variable)[0], 0.9 + 0.1 * 13.0 / 3, 1e-5);  // of a sample: 13 / 3
  norm.eval();
  const std::vector<float> later = floats(norm(x));
  EXPECT_NEAR(later[0], (1 - 0.15) / std::sqrt(0.9 + 0.1 * 13.0 / 3 + 1e-5), 1e-4);
  EXPECT_NEAR(floats(buffers[0].variable)[0], 0.15, 1e-6);
  norm.train();
  EXPECT_THROW(norm(ones({1, 2})), UsageError);
  EXPECT_THROW(norm(ones({4, 3})), ShapeError);
}

TEST(BatchNorm, ACompiledStepMovesItsStatistics) {
  BatchNorm norm(3);
  EXPECT_EQ(norm.parameters().size(), 2u);  // which draws them
  auto step = compile([&](Tensor x) { return sum(norm(x)); });
  manual_seed(5);
  for (int i = 0; i < 3; ++i) step(randn({16, 3}, 2)).eval();
  const std::vector<float> mean = floats(norm.named_buffers()[0].variable);
  for (const float m : mean) EXPECT_NEAR(m, 2 * (1 - 0.9 * 0.9 * 0.9), 0.15);
}

TEST(Norms, RefuseNumbersOutOfRange) {
  EXPECT_THROW(BatchNorm(0), ShapeError);
  EXPECT_THROW(BatchNorm(-1), ShapeError);
  EXPECT_THROW(BatchNorm(3, {.eps = -1}), UsageError);
  EXPECT_THROW(BatchNorm(3, {.momentum = 1.5}), UsageError);
  EXPECT_THROW(BatchNorm(3, {.momentum = std::nan("")}), UsageError);
  EXPECT_THROW(GroupNorm(1, 0), ShapeError);
  EXPECT_THROW(GroupNorm(2, -4), ShapeError);
  EXPECT_THROW(InstanceNorm(-4), ShapeError);
  EXPECT_THROW(InstanceNorm(4, false, std::nan("")), UsageError);
  EXPECT_THROW(LayerNorm(4, true, -1), UsageError);
  EXPECT_THROW(RMSNorm(4, INFINITY), UsageError);
  EXPECT_NO_THROW(BatchNorm(3, {.eps = 0, .momentum = 0}));
}

TEST(Norms, GroupAndInstanceNormsAreOfEachImageAlone) {
  manual_seed(1);
  const Tensor x = randn({2, 6, 4, 4}, 3, 2).eval();
  for (const Tensor& y : {GroupNorm(2, 6)(x), InstanceNorm(6)(x)}) {
    EXPECT_NEAR(mean(y).item<float>(), 0, 1e-5);
    EXPECT_NEAR(var(y).item<float>(), 1, 0.02);
  }
  EXPECT_EQ(names(GroupNorm(2, 6)), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_TRUE(names(InstanceNorm(6)).empty());
  EXPECT_THROW(GroupNorm(4, 6), ShapeError);
}

TEST(Pools, TakeTheAxesOfTheirInput) {
  const Tensor x = ones({1, 2, 6, 8});
  EXPECT_EQ(MaxPool(2)(x).shape(), (Shape{1, 2, 3, 4}));
  EXPECT_EQ(AvgPool(3, {.stride = 1, .padding = 1})(x).shape(), (Shape{1, 2, 6, 8}));
  EXPECT_EQ(AdaptiveAvgPool(1)(x).shape(), (Shape{1, 2, 1, 1}));
  EXPECT_EQ(AdaptiveMaxPool({2, 5})(x).shape(), (Shape{1, 2, 2, 5}));
  EXPECT_EQ(MaxPool(2)(ones({1, 2, 6})).shape(), (Shape{1, 2, 3}));
  EXPECT_EQ(Upsample(2)(x).shape(), (Shape{1, 2, 12, 16}));
  EXPECT_EQ(Flatten()(x).shape(), (Shape{1, 96}));
  EXPECT_THROW(MaxPool(2)(ones({2, 3})), ShapeError);
}

TEST(ChannelDropout, DropsWholeChannels) {
  manual_seed(2);
  Dropout2d dropout(0.5);
  const std::vector<float> y = floats(dropout(ones({4, 8, 3, 3})));
  int dropped = 0;
  for (std::size_t channel = 0; channel < 32; ++channel) {
    for (std::size_t i = 1; i < 9; ++i) EXPECT_EQ(y[9 * channel + i], y[9 * channel]);
    EXPECT_TRUE(y[9 * channel] == 0 || y[9 * channel] == 2);
    dropped += y[9 * channel] == 0;
  }
  EXPECT_GT(dropped, 6);
  EXPECT_LT(dropped, 26);
  dropout.eval();
  EXPECT_EQ(floats(dropout(ones({1, 1, 1}))), (std::vector<float>{1}));
}

// Two kinds of bars, which a convolution and a pool tell apart.
TEST(Conv, ASmallNetworkLearns) {
  manual_seed(7);
  Sequential net;
  net.emplace<Conv2d>(1, 8, 3, ConvOptions{{.padding = 1}}).emplace<BatchNorm>(8).then([](const Tensor& x) {
    return relu(x);
  });
  net.emplace<MaxPool>(2).emplace<Conv2d>(8, 8, 3).then([](const Tensor& x) { return relu(x); });
  net.emplace<AdaptiveAvgPool>(1).emplace<Flatten>().emplace<Linear>(8, 2);
  std::vector<float> images(32 * 64);
  std::vector<std::int32_t> targets;
  for (std::size_t i = 0; i < 32; ++i) {
    targets.push_back(static_cast<std::int32_t>(i % 2));
    for (std::size_t k = 0; k < 8; ++k) images[64 * i + (i % 2 ? 8 * (i / 2 % 8) + k : 8 * k + i / 2 % 8)] = 1;
  }
  const Tensor x = tensor<float>(std::span<const float>(images), {32, 1, 8, 8}), y = tensor(targets);
  std::vector<Variable> parameters = net.parameters();
  auto step = compile([&](Tensor in, Tensor wanted) {
    const Tensor loss = cross_entropy(net(in), wanted);
    const std::vector<Tensor> slopes = grad(loss, parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= slopes[i] * 0.2;
    return loss;
  });
  float loss = 0;
  for (int i = 0; i < 150; ++i) loss = step(x, y).item<float>();
  EXPECT_LT(loss, 0.1f);
}

TEST(KMeans, IsNearItsOwnCentres) {
  KMeans layer(3, 4, 0.1);
  const std::vector<float> y = floats(layer(layer.centres()));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_GT(y[4 * i + i], 0.99f);
  EXPECT_EQ(KMeans(3, 4, 1, true)(ones({5, 3})).shape(), (Shape{5, 3}));
}

TEST(GumbelSoftmax, DrawsByTheSeed) {
  const Tensor x = tensor({0.f, 1.f, 2.f}, {1, 3});
  manual_seed(4);
  const Tensor first = nn::gumbel_softmax(x, 0.5, true).eval(), second = nn::gumbel_softmax(x, 0.5).eval();
  manual_seed(4);
  EXPECT_EQ(floats(first), floats(nn::gumbel_softmax(x, 0.5, true)));
  EXPECT_EQ(floats(second), floats(nn::gumbel_softmax(x, 0.5)));
  float total = 0;
  for (const float v : floats(first)) {
    total += v;
    EXPECT_TRUE(v == 0 || v == 1);
  }
  EXPECT_EQ(total, 1);
}

}  // namespace
}  // namespace weft::nn
