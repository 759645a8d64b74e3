// Selective state spaces: the scans against their loops, and Mamba-2's layer, by steps, trained, and saved.
#include "weft/nn/state_space.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/message_of.hpp"
#include "weft/grad.hpp"
#include "weft/nn.hpp"
#include "weft/ops.hpp"
#include "weft/ops/random.hpp"

namespace weft::nn {
namespace {

using test::message_of;

/// y and the last state of one sequence, step by step in f64.
struct Loop {
  std::vector<double> y, state;
};
Loop loop_of(const std::vector<float>& x, const std::vector<float>& dt, const std::vector<float>& a,
             const std::vector<float>& b, const std::vector<float>& c, std::vector<double> s, int steps, int heads,
             int width, int groups, int states) {
  Loop loop;
  for (int t = 0; t < steps; ++t)
    for (int h = 0; h < heads; ++h) {
      const int g = h * groups / heads;
      const double step = dt[static_cast<std::size_t>(t * heads + h)],
                   kept = std::exp(step * a[static_cast<std::size_t>(h)]);
      for (int p = 0; p < width; ++p) {
        double y = 0;
        for (int n = 0; n < states; ++n) {
          const auto shared = static_cast<std::size_t>((t * groups + g) * states + n);
          double& each = s[static_cast<std::size_t>((h * width + p) * states + n)];
          each = kept * each + step * x[static_cast<std::size_t>((t * heads + h) * width + p)] * b[shared];
          y += each * c[shared];
        }
        loop.y.push_back(y);
      }
    }
  loop.state = s;
  return loop;
}

TEST(StateSpace, ChunksGiveWhatStepsGive) {
  constexpr int kSteps = 37, kHeads = 6, kWidth = 4, kGroups = 2, kStates = 5;
  manual_seed(3);
  const Tensor x = randn({1, kSteps, kHeads, kWidth}).eval(), dt = rand({1, kSteps, kHeads}, 0.01, 1.5).eval(),
               a = rand({kHeads}, -3, -0.1).eval(), b = randn({1, kSteps, kGroups, kStates}).eval(),
               c = randn({1, kSteps, kGroups, kStates}).eval(), s = randn({1, kHeads, kWidth, kStates}).eval();
  for (const bool from_state : {false, true}) {
    const std::vector<float> first = s.to_vector<float>();
    std::vector<double> start(first.size(), 0);
    if (from_state) start.assign(first.begin(), first.end());
    const Loop wanted = loop_of(x.to_vector<float>(), dt.to_vector<float>(), a.to_vector<float>(), b.to_vector<float>(),
                                c.to_vector<float>(), start, kSteps, kHeads, kWidth, kGroups, kStates);
    for (const Extent chunk : {1, 4, 36, 37, 256}) {
      SCOPED_TRACE(chunk);
      const StateSpaceScan found = state_space_scan(x, dt, a, b, c, from_state ? s : Tensor(), chunk);
      const std::vector<float> y = found.output.to_vector<float>(), last = found.state.to_vector<float>();
      for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], wanted.y[i], 2e-5 * (1 + std::abs(wanted.y[i])));
      for (std::size_t i = 0; i < last.size(); ++i) ASSERT_NEAR(last[i], wanted.state[i], 2e-5);
    }
  }
}

TEST(StateSpace, StepsOfAnySizeDoNotOverflow) {
  // exp(decay_i - decay_j) of a later step j would be infinite.
  const Tensor x = ones({1, 64, 1, 2}), dt = full({1, 64, 1}, 20), a = full({1}, -16.0), b = ones({1, 64, 1, 3});
  const Tensor y = state_space_scan(x, dt, a, b, b).output;
  for (const float value : y.to_vector<float>()) ASSERT_FLOAT_EQ(value, 60.0f);  // only the step itself is left
}

TEST(StateSpace, ALayerByStepsIsTheLayerOverAll) {
  manual_seed(5);
  Mamba2 layer(16, {.states = 8, .head_width = 4, .groups = 2, .chunk = 4});
  const Tensor u = randn({2, 11, 16}).eval();
  const std::vector<float> whole = layer(u).to_vector<float>();
  Mamba2State state;
  std::vector<Tensor> parts;
  for (const auto& [at, count] : {std::pair<Extent, Extent>{0, 5}, {5, 1}, {6, 4}, {10, 1}})
    parts.push_back(layer(narrow(u, 1, at, count), &state));
  const std::vector<float> joined = concat(parts, 1).to_vector<float>();
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(joined[i], whole[i], 1e-5) << i;
  EXPECT_EQ(state.scan.shape(), (Shape{2, 8, 4, 8}));
  EXPECT_EQ(state.convolution.shape(), (Shape{2, 3, 64}));
}

TEST(StateSpace, ALayerHasTheNamesOfOtherFilesAndDrawsItsSteps) {
  const Mamba2 layer(32, {.states = 16, .head_width = 8});
  std::vector<std::string> names;
  for (const NamedParameter& p : layer.named_parameters())
    names.push_back(p.name + " " + p.variable.shape().to_string());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"A_log [8]", "D [8]", "conv1d.bias [96]", "conv1d.weight [96, 1, 4]",
                                             "dt_bias [8]", "in_proj.weight [168, 32]", "norm.weight [64]",
                                             "out_proj.weight [32, 64]"}));
  for (const NamedParameter& p : layer.named_parameters())
    if (p.name == "dt_bias")
      for (const float bias : p.variable.value().to_vector<float>()) {
        const double dt = std::log1p(std::exp(double{bias}));
        EXPECT_GE(dt, 0.0009);
        EXPECT_LE(dt, 0.101);
      }
}

TEST(StateSpace, GradientsOfALayerAreThoseOfDifferences) {
  manual_seed(7);
  Mamba2 layer(8, {.states = 4, .head_width = 4, .groups = 2, .chunk = 3});
  const Tensor u = randn({2, 8, 8}).eval(), weights = randn({2, 8, 8}).eval();
  const auto loss = [&] { return sum(layer(u) * weights); };
  std::vector<Variable> parameters = layer.parameters();
  const std::vector<Tensor> gradients = grad(loss(), parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    SCOPED_TRACE(layer.named_parameters()[i].name);
    const Tensor before = parameters[i].value().eval(), direction = randn(before.shape()).eval();
    const auto at = [&](double distance) {
      parameters[i].assign(before + direction * distance);
      return static_cast<double>(loss().item<float>());
    };
    constexpr double kDistance = 2e-3;
    const double difference = (at(kDistance) - at(-kDistance)) / (2 * kDistance);
    parameters[i].assign(before);
    const double slope = sum(gradients[i] * direction).item<float>();
    EXPECT_NEAR(difference, slope, 0.02 * std::abs(slope) + 0.02);
    EXPECT_NE(slope, 0.0);
  }
}

TEST(StateSpace, LayersThatDoNotFitAreRefused) {
  EXPECT_NE(
      message_of<ShapeError>([] { Mamba2(16, {.head_width = 7}); }).find("heads of 7 channels do not divide the 32"),
      std::string::npos);
  EXPECT_NE(message_of<ShapeError>([] { Mamba2(16, {.head_width = 8, .groups = 3}); }).find("3 groups do not divide 4"),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([] { Mamba2(16, {.kernel = 0}); }).find("kernel is 0; it must be at least 1"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { Mamba2(32, {.dt_least = 0}); }).find("give two numbers above 0"),
            std::string::npos);
  const Mamba2 layer(16, {.head_width = 8});
  EXPECT_NE(message_of<ShapeError>([&] {
              layer(ones({2, 16}));
            }).find("u [2, 16] is not [batch, steps, 16]"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::nn
