#include <gtest/gtest.h>

#include <cmath>

#include "weft/compile.hpp"
#include "weft/grid.hpp"
#include "weft/nn/losses.hpp"
#include "weft/ops.hpp"

namespace weft::grid::targets {
namespace {

std::vector<float> values(const Tensor& x) { return x.to_vector<float>(); }

Tensor inputs() {
  manual_seed(2);
  return rand({32, 3}, -1, 1).eval();
}
Tensor wanted_of(const Tensor& x) {
  return tanh(matmul(x, tensor<float>({0.5f, -0.3f, 0.8f, 0.1f, -0.6f, 0.4f}, {3, 2}))).eval();
}
float train(Network& network, const TargetOptions& options, const Tensor& x, const Tensor& y, int steps) {
  TargetPropagation propagation(network, options);
  auto step = compile([&](const Tensor& in, const Tensor& out) {
    propagation.step(in, out);
    return nn::mse(network(in), out);
  });
  Tensor loss;
  for (int i = 0; i < steps; ++i) loss = step(x, y);
  return loss.item<float>();
}

// Trap 19.
TEST(GridTargetPropagation, LossFallsByTheChainRule) {
  const Tensor x = inputs(), y = wanted_of(x);
  Network network(mlp({3, 5, 2}, Activation::tanh));
  const float before = nn::mse(network(x), y).item<float>();
  const float after = train(network, {.learning_rate = 0.1}, x, y, 300);
  EXPECT_LT(after, 0.3f * before);
}

// Trap: the output gradient was used as that of the weight, with a wrong shape and sign.
TEST(GridTargetPropagation, OneLayerMovesAlongItsGradient) {
  const Tensor x = inputs(), y = wanted_of(x);
  Network network(mlp({3, 2}));
  const Tensor before = network.layer(0).weights()[0].eval();
  const Tensor e = y - linear(x, before);
  TargetPropagation propagation(network, {.learning_rate = 0.1});
  const std::vector<LinkState> states = propagation.step(x, y);
  ASSERT_EQ(states.size(), 1u);
  const float budget = states[0].budget.item<float>();
  const std::vector<float> moved = values(network.layer(0).weights()[0]),
                           wanted = values(before + matmul(transpose(e), x) * (0.1 * (0.5 + budget / 2) / 32));
  for (std::size_t i = 0; i < moved.size(); ++i) EXPECT_NEAR(moved[i], wanted[i], 1e-5);
  EXPECT_NEAR(states[0].gap.item<float>(), std::sqrt(mean(e * e).item<float>()), 1e-5);
}

// Trap: weights were read as [in, out]; these are rectangular.
TEST(GridTargetPropagation, LossFallsByGaps) {
  const Tensor x = inputs(), y = wanted_of(x);
  Network one(mlp({3, 2}));
  const float before = nn::mse(one(x), y).item<float>();
  EXPECT_LT(train(one, {.mode = TargetMode::gap, .learning_rate = 0.2}, x, y, 200), 0.1f * before);

  Network two(mlp({3, 7, 2}, Activation::linear));
  const float first = nn::mse(two(x), y).item<float>();
  EXPECT_LT(train(two, {.mode = TargetMode::gap, .learning_rate = 0.05}, x, y, 200), 0.5f * first);
}

TEST(GridTargetPropagation, GapTargetsAreMeansByWeights) {
  Network network(Description::chain({dense_layer(2, 2, Activation::linear), dense_layer(2, 3, Activation::linear)}));
  const Tensor x = rand({1, 2}, -1, 1).eval(), t = rand({1, 3}, -1, 1).eval();
  const std::vector<float> w = values(network.layer(1).weights()[0]), target = values(t);
  TargetPropagation propagation(network, {.mode = TargetMode::gap});
  const std::vector<float> got = values(propagation.step(x, t)[0].target);
  for (std::size_t j = 0; j < 2; ++j) {
    double numerator = 0, denominator = 0;
    for (std::size_t o = 0; o < 3; ++o) {
      numerator += static_cast<double>(w[o * 2 + j]) * target[o];
      denominator += std::fabs(static_cast<double>(w[o * 2 + j]));
    }
    EXPECT_NEAR(got[j], numerator / denominator, 1e-5);
  }
}

TEST(GridTargetPropagation, EveryTypeOfLayerTakesPart) {
  for (const TargetMode mode : {TargetMode::chain_rule, TargetMode::gap}) {
    for (const Layer& layer : {attention_layer(4, 2), lstm_layer(4, 4), rnn_layer(4, 4), swiglu_layer(4, 6),
                               rms_norm_layer(4), layer_norm_layer(4), dense_layer(4, 4), embedding_layer(7, 4)}) {
      SCOPED_TRACE(name_of(layer.type));
      manual_seed(1);
      Network network(Description::chain({layer, residual_layer(), dense_layer(4, 3, Activation::linear)}));
      network.set_disabled({0, 0, 0, 1}, mode == TargetMode::gap);  // leaves its input as its own target
      const nn::StateDict before = network.state_dict();
      TargetPropagation propagation(network, {.mode = mode, .learning_rate = 1, .budget_min = 0});
      const bool takes_ids = layer.type == LayerType::embedding;
      const Tensor x = takes_ids ? tensor<std::int32_t>({0, 1, 2, 3, 4, 5}, {2, 3}) : rand({2, 3, 4}, -1, 1);
      const std::vector<LinkState> states = propagation.step(x, rand({2, 3, 3}, -1, 1));
      ASSERT_EQ(states.size(), mode == TargetMode::gap ? 2u : 3u);
      EXPECT_EQ(states.front().path, "0,0,0,0");
      for (const LinkState& s : states) {
        const float budget = s.budget.item<float>();
        EXPECT_GE(budget, 0);
        EXPECT_LE(budget, 1.0001f);
      }
      const nn::StateDict after = network.state_dict();
      bool has_moved = false;
      for (std::size_t i = 0; i < after.size(); ++i) {
        has_moved |= after[i].name.starts_with("z0y0x0l0") && after[i] != before[i];
        for (const float v :
             std::span(reinterpret_cast<const float*>(after[i].bytes.data()), after[i].bytes.size() / 4))
          EXPECT_TRUE(std::isfinite(v));
      }
      EXPECT_EQ(has_moved, mode == TargetMode::chain_rule || !takes_ids);
    }
  }
}

TEST(GridTargetPropagation, LayersWithASmallBudgetStay) {
  const Tensor x = inputs();
  Network network(mlp({3, 2}));
  const Tensor y = (-network(x)).eval();  // opposite: cosine -1, budget 0
  const nn::StateDict before = network.state_dict();
  TargetPropagation propagation(network, {.learning_rate = 1});
  const std::vector<LinkState> states = propagation.step(x, y);
  EXPECT_NEAR(states[0].budget.item<float>(), 0, 1e-5);
  EXPECT_EQ(network.state_dict(), before);
}

TEST(GridTargetPropagation, LearnsOnAMeshToo) {
  const Tensor x = inputs(), y = wanted_of(x);
  Network network(mlp({3, 2}));
  Systolic mesh(network);
  TargetPropagation propagation(network, {.mode = TargetMode::gap, .learning_rate = 0.2});
  EXPECT_THROW(propagation.step(mesh, y), UsageError);
  mesh.set_input(x);
  mesh.tick();
  const float before = nn::mse(mesh.output(), y).item<float>();
  for (int i = 0; i < 100; ++i) {
    propagation.step(mesh, y);
    mesh.tick();
  }
  EXPECT_LT(nn::mse(mesh.output(), y).item<float>(), 0.2f * before);
  Network other(mlp({3, 2}));
  EXPECT_THROW(TargetPropagation(other).step(mesh, y), UsageError);
}

// The second layer's output is the first one's input in the next tick, so the first layer sends it a target.
TEST(GridTargetPropagation, LinksSendTargetsToLaterLayers) {
  const auto moved = [](bool linked) {
    manual_seed(9);
    Description d = Description::chain({dense_layer(2, 2, Activation::linear), dense_layer(2, 2, Activation::linear),
                                        dense_layer(2, 2, Activation::linear)});
    if (linked) d.layers[0].link = Coordinate{0, 0, 0, 1};
    Network network(d);
    network.initialize(4);
    Systolic mesh(network);
    mesh.set_input(rand({4, 2}, -1, 1));
    if (linked) mesh.set_output({0, 0, 0, 1}, rand({4, 2}, -1, 1));
    mesh.ticks(3);
    const std::vector<float> before = values(network.layer(1).weights()[0]);
    TargetPropagation propagation(network, {.gradient_scale = 1, .learning_rate = 1, .budget_min = 0});
    const std::vector<LinkState> states = propagation.step(mesh, rand({4, 2}, -1, 1));
    EXPECT_EQ(states.size(), 3u);
    // Its own update alone: rate e^T x / batch.
    const Tensor y = mesh.output({0, 0, 0, 1}), x = mesh.input({0, 0, 0, 1});
    const double rate = 0.5 + states[1].budget.item<float>() / 2;
    const std::vector<float> own = values(matmul(transpose(states[1].target - y), x) * (rate / 4)),
                             after = values(network.layer(1).weights()[0]);
    double rest = 0;
    for (std::size_t i = 0; i < own.size(); ++i) rest += std::fabs(after[i] - before[i] - own[i]);
    return rest;
  };
  EXPECT_LT(moved(false), 1e-5);
  EXPECT_GT(moved(true), 1e-3);
}

TEST(GridTargetPropagation, RefusesWhatDoesNotFit) {
  Network network(mlp({3, 2}));
  EXPECT_THROW(TargetPropagation(network).step(inputs(), zeros({32, 3})), ShapeError);
  EXPECT_THROW(TargetPropagation(network, {.learning_rate = -1}), UsageError);
  EXPECT_THROW(TargetPropagation(network, {.budget_min = 2}), UsageError);
}

}  // namespace
}  // namespace weft::grid::targets
