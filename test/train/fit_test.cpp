#include "weft/train/fit.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "weft/error.hpp"
#include "weft/nn/layers.hpp"
#include "weft/nn/losses.hpp"
#include "weft/ops.hpp"

namespace weft::train::fitting {
namespace {

Tensor mse(const Tensor& output, const Tensor& y) { return nn::mse(output, y); }
Tensor cross_entropy(const Tensor& output, const Tensor& y) { return nn::cross_entropy(output, y); }

Examples line(Extent count) {
  manual_seed(4);
  const Tensor x = rand({count, 2}, -1, 1).eval();
  return {x, (narrow(x, 1, 0, 1) * 2.0 - narrow(x, 1, 1, 1) + 0.5).eval()};
}

TEST(Fit, FindsALine) {
  nn::Linear model(2, 1);
  optim::SGD optimizer(model, {.learning_rate = 0.2});
  std::vector<int> seen;
  const History history = fit(model, mse, optimizer, line(70),
                              {.epochs = 30, .batch = 16, .validation = line(9), .on_epoch = [&](const EpochReport& r) {
                                 seen.push_back(r.epoch);
                                 return true;
                               }});
  EXPECT_EQ(history.epochs.size(), 30u);
  EXPECT_EQ(seen.size(), 30u);
  EXPECT_EQ(seen.back(), 30);
  EXPECT_LT(history.final_loss(), 1e-4);
  EXPECT_EQ(*history.epochs.back().validation_loss, history.final_loss());
  EXPECT_EQ(history.parameter_bytes, 12u);
  EXPECT_TRUE(history.seconds_to(history.epochs[0].loss));
  EXPECT_FALSE(history.seconds_to(-1));
  EXPECT_GE(history.epochs[1].seconds, history.epochs[0].seconds);
}

TEST(Fit, AStopEndsItBeforeTheNextBatch) {
  nn::Linear model(2, 1);
  optim::SGD optimizer(model, {.learning_rate = 0.2});
  std::stop_source stop;
  FitOptions options{.epochs = 30, .batch = 16, .stop = stop.get_token()};
  options.on_epoch = [&](const EpochReport& r) {
    if (r.epoch == 3) stop.request_stop();
    return true;
  };
  EXPECT_EQ(fit(model, mse, optimizer, line(70), options).epochs.size(), 3u);
  const std::vector<float> learnt = Tensor(model.parameters()[0]).to_vector<float>();
  EXPECT_TRUE(fit(model, mse, optimizer, line(70), options).epochs.empty());
  EXPECT_EQ(Tensor(model.parameters()[0]).to_vector<float>(), learnt);
}

TEST(Fit, TheSameSeedGivesTheSameBits) {
  const auto run = [](std::uint64_t seed) {
    nn::Linear model(2, 1);
    model.initialize(3);
    optim::Adam optimizer(model);
    return fit(model, mse, optimizer, line(40), {.epochs = 3, .batch = 7, .seed = seed}).final_loss();
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

// The losses of an epoch are those of the batches before their updates: with a rate of 0, the mean over the examples.
TEST(Fit, EveryExampleCountsOnce) {
  nn::Linear model(2, 1);
  optim::SGD optimizer(model, {.learning_rate = 0});
  const Examples examples = line(23);
  const History history = fit(model, mse, optimizer, examples, {.epochs = 2, .batch = 5});
  const double wanted = mse(model(examples.x), examples.y).item<float>();
  for (const EpochReport& r : history.epochs) EXPECT_NEAR(r.loss, wanted, 1e-6);
  const Forward forward = [&](const Tensor& x) { return model(x); };
  EXPECT_NEAR(mean_loss(model, forward, mse, examples, 4), wanted, 1e-6);
}

// Trap 23: cross-entropy and clipping do something.
TEST(Fit, CrossEntropyAndClippingDoSomething) {
  manual_seed(2);
  const Tensor x = rand({60, 2}, -1, 1).eval();
  const Examples classes{x, cast(select(x, 1, 0) > select(x, 1, 1), DType::i32).eval()};
  const auto run = [&](double clip) {
    nn::Linear model(2, 2);
    model.initialize(1);
    optim::SGD optimizer(model, {.learning_rate = 1, .clip_norm = clip});
    return fit(model, cross_entropy, optimizer, classes, {.epochs = 20}).final_loss();
  };
  EXPECT_LT(run(0), 0.2);
  EXPECT_GT(run(1e-3), run(0) + 0.2);
}

struct Noisy : nn::Module {
  nn::Child<nn::Linear> linear{this, "linear", 2, 1};
  nn::Child<nn::Dropout> dropout{this, "dropout", 0.5};
  Tensor operator()(const Tensor& x) const { return linear(dropout(x)); }
};

TEST(Fit, ValidationRunsInEvaluationMode) {
  Noisy model;
  model.eval();
  optim::SGD optimizer(model, {.learning_rate = 0});
  const Examples examples = line(64);
  const History history = fit(model, mse, optimizer, examples, {.epochs = 1, .validation = examples});
  EXPECT_FALSE(model.is_training());  // as before
  EXPECT_NEAR(*history.epochs[0].validation_loss, mse(model(examples.x), examples.y).item<float>(), 1e-6);
  EXPECT_GT(std::fabs(history.epochs[0].loss - *history.epochs[0].validation_loss), 1e-3);
}

TEST(Fit, EndsWhenAsked) {
  nn::Linear model(2, 1);
  optim::SGD optimizer(model, {.learning_rate = 0.2});
  EXPECT_EQ(fit(model, mse, optimizer, line(40), {.on_epoch = [](const EpochReport& r) { return r.epoch < 3; }})
                .epochs.size(),
            3u);
  const History history = fit(model, mse, optimizer, line(40), {.epochs = 500, .batch = 8, .loss_target = 1e-3});
  EXPECT_LT(history.epochs.size(), 500u);
  EXPECT_LE(history.final_loss(), 1e-3);
}

TEST(Fit, MethodsAreCompared) {
  History fast, slow;
  fast.epochs = {{1, 0.5, {}, 1}, {2, 0.1, {}, 2}};
  slow.epochs = {{1, 0.9, {}, 1}};
  fast.parameter_bytes = 8;
  const std::pair<std::string, History> methods[] = {{"fast", fast}, {"slow", slow}};
  const double milestones[] = {0.5, 0.2};
  EXPECT_EQ(comparison_table(methods, milestones),
            "method        loss    seconds         bytes     s to 0.5     s to 0.2\n"
            "fast           0.1      2.000             8        1.000        2.000\n"
            "slow           0.9      1.000             0            -            -\n");
}

TEST(Fit, RefusesWhatDoesNotFit) {
  nn::Linear model(2, 1);
  optim::SGD optimizer(model);
  EXPECT_THROW(fit(model, mse, optimizer, {ones({3, 2}), ones({4, 1})}), UsageError);
  EXPECT_THROW(fit(model, mse, optimizer, {}), UsageError);
  EXPECT_THROW(fit(model, mse, optimizer, line(4), {.epochs = 0}), UsageError);
  EXPECT_THROW(fit(model, mse, optimizer, line(4), {.validation = {ones({3, 2}), {}}}), UsageError);
  EXPECT_THROW(fit(
                   model, [](const Tensor& y, const Tensor&) { return y; }, optimizer, line(4)),
               ShapeError);
  EXPECT_THROW((void)History().final_loss(), UsageError);
}

TEST(Fit, LossesByName) {
  const Tensor output = tensor({{1.0f, 2.0f}}), classes = tensor<std::int32_t>({1});
  EXPECT_EQ(loss_named("mse")(output, zeros({1, 2})).item<float>(), 2.5f);
  EXPECT_NEAR(loss_named("cross_entropy")(output, classes).item<float>(), 0.3132617f, 1e-6f);
  EXPECT_THROW(loss_named("mae"), UsageError);
}

}  // namespace
}  // namespace weft::train::fitting
