// Loss scaling: updates as without it, steps left out, and how the factor moves.
#include "weft/optim/loss_scale.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "weft/weft.hpp"

namespace weft::optim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Variable> two_parameters() {
  return {Variable(tensor<float>({1, 2, 3, 4}, {2, 2}), "w"), Variable(tensor<float>({-1, 0.5f, 2}), "b")};
}

std::vector<Tensor> gradients_times(double scale, float last = 0.125f) {
  return {tensor<float>({1, -2, 0.5f, 3}, {2, 2}) * scale, tensor<float>({0.25f, -1, last}) * scale};
}

std::vector<std::vector<std::byte>> bytes_of(const Optimizer& optimizer) {
  std::vector<std::vector<std::byte>> all;
  for (const nn::NamedArray& array : optimizer.state_dict()) all.push_back(array.bytes);
  for (const Variable& parameter : optimizer.parameters()) {
    const auto values = parameter.value().to_vector<float>();
    const auto* begin = reinterpret_cast<const std::byte*>(values.data());
    all.emplace_back(begin, begin + values.size() * sizeof(float));
  }
  return all;
}

struct ScaledCase {
  const char* name;
  std::function<std::unique_ptr<Optimizer>(const std::vector<Variable>&)> make;
};
const ScaledCase kScaledCases[] = {
    {"AdamW", [](const auto& p) { return std::make_unique<AdamW>(p, AdamWOptions{.learning_rate = 0.1}); }},
    {"AdamW, clipped",
     [](const auto& p) { return std::make_unique<AdamW>(p, AdamWOptions{.learning_rate = 0.1, .clip_norm = 1}); }},
    {"SGD", [](const auto& p) { return std::make_unique<SGD>(p, SgdOptions{.learning_rate = 0.1, .momentum = 0.9}); }},
};

TEST(LossScale, AFactorOfTwoToAPowerChangesNoBit) {
  for (const ScaledCase& c : kScaledCases) {
    const auto plain = c.make(two_parameters()), scaled = c.make(two_parameters());
    LossScale scale({.initial = 1024});
    for (int i = 0; i < 3; ++i) {
      const Tensor rate = scalar_like(0.1, tensor<float>({1}));
      const Tensor a = plain->step(gradients_times(1), rate), b = scaled->step(gradients_times(1024), rate, scale);
      EXPECT_EQ(a.item<float>(), b.item<float>()) << c.name;
    }
    EXPECT_EQ(bytes_of(*plain), bytes_of(*scaled)) << c.name;
    EXPECT_EQ(scale.good_steps(), 3);
    EXPECT_EQ(scale.skipped_steps(), 0);
  }
}

TEST(LossScale, AStepThatIsNotFiniteChangesNothingButTheFactor) {
  for (const ScaledCase& c : kScaledCases)
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()})
      for (const int before : {0, 2}) {
        const auto optimizer = c.make(two_parameters());
        LossScale scale({.initial = 512});
        const Tensor rate = scalar_like(0.1, tensor<float>({1}));
        for (int i = 0; i < before; ++i) optimizer->step(gradients_times(512), rate, scale);
        eval_pending();
        const auto kept = bytes_of(*optimizer);
        const Tensor norm = optimizer->step(gradients_times(512, bad), rate, scale);
        EXPECT_FALSE(std::isfinite(norm.item<float>()));
        EXPECT_EQ(bytes_of(*optimizer), kept) << c.name;
        EXPECT_EQ(optimizer->step_count(), before);
        EXPECT_EQ(scale.value(), 256);
        EXPECT_EQ(scale.good_steps(), 0);
        EXPECT_EQ(scale.skipped_steps(), 1);
        optimizer->step(gradients_times(256), rate, scale);
        EXPECT_NE(bytes_of(*optimizer), kept);
        EXPECT_EQ(optimizer->step_count(), before + 1);
      }
}

TEST(LossScale, GrowsAfterTheInterval) {
  LossScale scale({.initial = 8, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3});
  const auto update = [&](bool finite) { scale.update(tensor<bool>({finite}, {})); };
  const std::pair<bool, double> steps[] = {{true, 8},  {true, 8}, {true, 32}, {true, 32}, {true, 32},
                                           {false, 8}, {true, 8}, {true, 8},  {true, 32}, {false, 8},
                                           {false, 2}, {true, 2}, {true, 2},  {true, 8}};
  for (const auto& [finite, factor] : steps) {
    update(finite);
    EXPECT_EQ(scale.value(), factor);
  }
  EXPECT_EQ(scale.skipped_steps(), 3);
}

TEST(LossScale, StaysBetweenItsLimits) {
  LossScale scale({.initial = 0x1p23, .growth_interval = 1});
  for (int i = 0; i < 4; ++i) scale.update(tensor<bool>({true}, {}));
  EXPECT_EQ(scale.value(), 0x1p24);
  for (int i = 0; i < 60; ++i) scale.update(tensor<bool>({false}, {}));
  EXPECT_EQ(scale.value(), 0x1p-24);
}

// A factor that f16 cannot hold at first: the compiled step finds one that it can, by itself, and learns.
TEST(LossScale, ACompiledStepInF16FindsItsFactor) {
  Variable w(tensor<float>({0.5f, -0.25f, 0.125f, 1}, {1, 4}), "w");
  SGD optimizer(std::vector<Variable>{w}, {.learning_rate = 0.05});
  LossScale scale({.initial = 0x1p24, .growth_interval = 1000});
  const auto step = compile([&](Tensor x, Tensor y, Tensor rate) {
    const Autocast scope(DType::f16);
    const Tensor loss = mse_loss(linear(x, w), y);
    optimizer.step(grad(scale.apply(loss), optimizer.parameters()), rate, scale);
    return loss;
  });
  const Tensor x = tensor<float>({1, 2, 3, 4, 4, 3, 2, 1, 1, -1, 1, -1, 2, 0, 0, 1}, {4, 4});
  const Tensor y = tensor<float>({3, 1, -2, 1}, {4, 1}), rate = full({}, 0.05);
  const std::vector<float> begin = w.value().to_vector<float>();
  float loss = step(x, y, rate).item<float>();
  const float first = loss;
  EXPECT_EQ(w.value().to_vector<float>(), begin);
  EXPECT_EQ(optimizer.step_count(), 0);
  EXPECT_EQ(scale.value(), 0x1p23);
  for (int i = 0; i < 60; ++i) loss = step(x, y, rate).item<float>();
  EXPECT_LT(loss, 0.1f * first);
  const std::int64_t skipped = scale.skipped_steps();
  EXPECT_GT(skipped, 3);
  EXPECT_LT(skipped, 20);
  EXPECT_EQ(scale.value(), std::ldexp(1.0, 24 - static_cast<int>(skipped)));
  EXPECT_EQ(optimizer.step_count(), 61 - skipped);
  EXPECT_EQ(step.compiled().trace_count(), 1u);
}

// Gradients below the least number of f16 are there with a factor, and gone without.
TEST(LossScale, SavesSmallGradients) {
  Variable w(tensor<float>({1, 1}, {1, 2}), "w");
  const auto gradient = [&](bool scaled) {
    const LossScale scale({.initial = 65536});
    const Autocast scope(DType::f16);
    const Tensor y = elementwise("relu", {linear(tensor<float>({1, 1}, {1, 2}), w)});
    const Tensor loss = sum(y) * 1e-9;
    return grad(scaled ? scale.apply(loss) : loss, Tensor(w)).to_vector<float>()[0];
  };
  EXPECT_EQ(gradient(false), 0);
  EXPECT_NEAR(gradient(true) / 65536, 1e-9, 1e-12);
}

TEST(LossScale, StateGoesOutAndIn) {
  LossScale scale({.initial = 64, .growth_interval = 2}), other;
  for (const bool finite : {true, true, true, false, true}) scale.update(tensor<bool>({finite}, {}));
  other.load_state_dict(scale.state_dict());
  EXPECT_EQ(other.value(), 64);
  EXPECT_EQ(other.good_steps(), 1);
  EXPECT_EQ(other.skipped_steps(), 1);
  nn::StateDict state = scale.state_dict();
  state.pop_back();
  EXPECT_THROW(other.load_state_dict(state), UsageError);
}

TEST(LossScale, RefusesNumbersOutOfRange) {
  EXPECT_THROW(LossScale({.initial = 0}), UsageError);
  EXPECT_THROW(LossScale({.initial = 0x1p25}), UsageError);
  EXPECT_THROW(LossScale({.growth_factor = 1}), UsageError);
  EXPECT_THROW(LossScale({.backoff_factor = 1}), UsageError);
  EXPECT_THROW(LossScale({.growth_interval = 0}), UsageError);
}

}  // namespace
}  // namespace weft::optim
