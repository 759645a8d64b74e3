// Recurrent networks: names, shapes, directions and layers as the cells have them, and learning.
#include <gtest/gtest.h>

#include <cmath>

#include "weft/weft.hpp"

namespace weft::nn {
namespace {

std::vector<float> elements(const Tensor& x) { return x.to_vector<float>(); }

void expect_equal(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  const std::vector<float> x = elements(a), y = elements(b);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1e-6) << i;
}

TEST(Recurrent, HasTheParametersOfPyTorch) {
  const LSTM net(3, 4, {.layers = 2, .bidirectional = true});
  std::vector<std::string> names;
  for (const NamedParameter& p : net.named_parameters()) names.push_back(p.name);
  EXPECT_EQ(names, (std::vector<std::string>{"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                                             "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse",
                                             "bias_hh_l0_reverse", "weight_ih_l1", "weight_hh_l1", "bias_ih_l1",
                                             "bias_hh_l1", "weight_ih_l1_reverse", "weight_hh_l1_reverse",
                                             "bias_ih_l1_reverse", "bias_hh_l1_reverse"}));
  EXPECT_EQ(net.own_parameters()[8].second, (Shape{16, 8}));
  EXPECT_EQ(GRU(3, 4, {.bias = false}).parameter_count(), 12 * 3 + 12 * 4);
  EXPECT_EQ(net.describe(), "LSTM 3 -> 4, 2 layers, both ways");
}

// Layers and directions are cells one after another and side by side.
TEST(Recurrent, LayersAndDirectionsAreCells) {
  manual_seed(3);
  const LSTM net(3, 4, {.layers = 2, .bidirectional = true});
  const Tensor x = randn({5, 2, 3}).eval(), h = randn({4, 2, 4}).eval(), c = randn({4, 2, 4}).eval();
  const RecurrentResult all = net(x, h, c);
  const auto parameters = net.named_parameters();
  Tensor input = x;
  std::vector<Tensor> last_h, last_c;
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<Tensor> outputs;
    for (int way = 0; way < 2; ++way) {
      const std::size_t first = 4 * static_cast<std::size_t>(2 * layer + way);
      const RecurrentWeights w{parameters[first].variable, parameters[first + 1].variable,
                               parameters[first + 2].variable, parameters[first + 3].variable};
      const RecurrentStates y = lstm(input, select(h, 0, 2 * layer + way), select(c, 0, 2 * layer + way), w, way == 1);
      outputs.push_back(y.output);
      last_h.push_back(y.h);
      last_c.push_back(y.c);
    }
    input = concat(outputs, -1);
  }
  expect_equal(all.output, input);
  expect_equal(all.h, stack(last_h, 0));
  expect_equal(all.c, stack(last_c, 0));
  // The last step of the way there, and the first of the way back, are the last states.
  expect_equal(narrow(select(all.output, 0, 4), -1, 0, 4), select(all.h, 0, 2));
  expect_equal(narrow(select(all.output, 0, 0), -1, 4, 4), select(all.h, 0, 3));
}

TEST(Recurrent, BatchFirstAndZeroStates) {
  manual_seed(4);
  const GRU steps(3, 4);
  GRU batches(3, 4, {.batch_first = true});
  batches.load_state_dict(steps.state_dict());
  const Tensor x = randn({5, 2, 3}).eval();
  const RecurrentResult one = steps(x), other = batches(transpose(x, 0, 1), zeros({1, 2, 4}));
  expect_equal(one.output, transpose(other.output, 0, 1));
  expect_equal(one.h, other.h);
  EXPECT_FALSE(one.c.defined());
  EXPECT_THROW(steps(ones({5, 2, 4})), ShapeError);
  EXPECT_THROW(steps(x, zeros({2, 2, 4})), ShapeError);
  EXPECT_THROW(GRU(3, 4, {.dropout = 1}), UsageError);
  EXPECT_THROW(RNN(0, 4), ShapeError);
}

// A sequence in a padded batch gives what it gives alone, in both directions; so do its gradients.
TEST(Recurrent, LengthsOfAPaddedBatchAreThoseOfEachSequence) {
  manual_seed(5);
  const LSTM net(3, 4, {.bidirectional = true});
  const std::vector<std::int32_t> lengths{5, 2, 3};
  const Tensor x = randn({5, 3, 3}).eval();
  const RecurrentResult all = net(x, {}, {}, tensor<std::int32_t>(lengths));
  const Tensor gradient = grad(sum(square(all.output)) + sum(all.h) + sum(square(all.c)), x);
  for (Extent i = 0; i < 3; ++i) {
    const Extent length = lengths[static_cast<std::size_t>(i)];
    const Tensor one = narrow(narrow(x, 1, i, 1), 0, 0, length).eval();
    const RecurrentResult alone = net(one);
    expect_equal(narrow(narrow(all.output, 1, i, 1), 0, 0, length), alone.output);
    expect_equal(narrow(all.h, 1, i, 1), alone.h);
    expect_equal(narrow(all.c, 1, i, 1), alone.c);
    const Tensor wanted = grad(sum(square(alone.output)) + sum(alone.h) + sum(square(alone.c)), one);
    expect_equal(narrow(narrow(gradient, 1, i, 1), 0, 0, length), wanted);
    if (length < 5) {
      const Tensor rest = narrow(narrow(all.output, 1, i, 1), 0, length, 5 - length);
      expect_equal(rest, zeros(rest.shape()));
    }
  }
  EXPECT_THROW(net(x, {}, {}, tensor<std::int32_t>({5, 2})), ShapeError);
}

TEST(Recurrent, IsOneKernelForAllSteps) {
  manual_seed(6);
  const GRU net(3, 4);
  const auto kernels = [&](Extent steps) {
    auto step = compile([&](const Tensor& x) { return grad(sum(square(net(x).output)), net.parameters()); });
    step(randn({steps, 2, 3}).eval());
    return step.compiled().kernel_count();
  };
  EXPECT_EQ(kernels(4), kernels(50));
  EXPECT_LT(kernels(50), 20u);
}

// Parameters are drawn when they are first read. A compiled function may be the first reader.
TEST(Recurrent, ParametersMayBeDrawnInsideACompiledFunction) {
  manual_seed(7);
  const Tensor x = randn({4, 2, 3}).eval();
  const GRU compiled(3, 4);
  auto step = compile([&](const Tensor& v) { return compiled(v).output; });
  const Tensor first = step(x);
  EXPECT_EQ(elements(first), elements(compiled(x).output));
  EXPECT_EQ(elements(first), elements(step(x)));
}

// Whether the first number was positive, said four steps later.
TEST(Recurrent, RemembersWhatItHasSeen) {
  manual_seed(5);
  LSTM net(1, 8);
  Linear head(8, 2);
  std::vector<float> inputs;
  std::vector<std::int32_t> targets;
  for (int t = 0; t < 5; ++t)
    for (int n = 0; n < 16; ++n) inputs.push_back(t > 0 ? 0.f : n % 3 ? 2.f : -2.f);
  for (std::size_t n = 0; n < 16; ++n) targets.push_back(inputs[n] > 0);
  const Tensor x = tensor<float>(std::span<const float>(inputs), {5, 16, 1}), y = tensor(targets);
  std::vector<Variable> parameters = net.parameters();
  for (const Variable& v : head.parameters()) parameters.push_back(v);
  auto step = compile([&](Tensor in, Tensor wanted) {
    const Tensor loss = cross_entropy(head(select(net(in).h, 0, 0)), wanted);
    const std::vector<Tensor> slopes = grad(loss, parameters);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i] -= slopes[i] * 1.0;
    return loss;
  });
  float loss = 0;
  for (int i = 0; i < 400; ++i) loss = step(x, y).item<float>();
  EXPECT_LT(loss, 0.1f);
}

}  // namespace
}  // namespace weft::nn
