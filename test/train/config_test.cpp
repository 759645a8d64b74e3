#include "weft/train/config.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "weft/error.hpp"

namespace weft::train {
namespace {

TrainRequest request() {
  TrainRequest r;
  r.out = "runs/test";
  r.data = "text.txt";
  return r;
}

TEST(RunConfig, PresetsAreTheirSizes) {
  struct Row {
    const char* name;
    Extent layers, width, heads, context, batch;
  };
  for (const Row& row :
       {Row{"small", 4, 128, 4, 64, 16}, Row{"char-gpt", 6, 384, 6, 256, 64}, Row{"gpt2", 12, 768, 12, 1024, 8}}) {
    const Preset& p = preset(row.name);
    EXPECT_EQ(p.model.layers, row.layers);
    EXPECT_EQ(p.model.width, row.width);
    EXPECT_EQ(p.model.heads, row.heads);
    EXPECT_EQ(p.model.context, row.context);
    EXPECT_EQ(p.batch, row.batch);
    p.model.check();
  }
  EXPECT_EQ(nn::GPT(preset("gpt2").model).parameter_count(), 124'439'808);
  EXPECT_THROW(preset("huge"), UsageError);
}

TEST(RunConfig, GoesThroughJson) {
  TrainRequest r = request();
  r.seconds = 1.5;
  r.seed = ~std::uint64_t{0};
  r.learning_rate = 0.1;
  r.tied = false;
  r.optimizer = "RMSprop";
  r.optimizer_options = {"momentum=0.5", "centered=true"};
  RunConfig c = new_run(r);
  EXPECT_EQ(c.optimizer, "rmsprop");
  EXPECT_EQ(c.optimizer_options, (optim::OptionValues{{"momentum", 0.5}, {"centered", true}}));
  c.data = "a \"quoted\"\nname";
  c.data_hash = 0xfedcba9876543210;
  EXPECT_EQ(run_config_from_json(to_json(c), "test"), c);
  EXPECT_THROW(run_config_from_json("{}", "test"), FileError);
  EXPECT_THROW(run_config_from_json("[", "test"), FileError);
}

TEST(RunConfig, RateRisesAndFallsOverSteps) {
  TrainRequest r = request();
  r.steps = 1000;
  r.learning_rate = 1;
  const RunConfig c = new_run(r);
  EXPECT_NEAR(c.learning_rate_at(0, 0), 0.01, 1e-12);
  EXPECT_NEAR(c.learning_rate_at(100, 0), 1, 1e-12);
  EXPECT_NEAR(c.learning_rate_at(550, 1e9), 0.55, 1e-12);  // time does not count
  EXPECT_NEAR(c.learning_rate_at(1000, 0), 0.1, 1e-12);
}

// However long the rise is to be, it takes at most a tenth of the run.
TEST(RunConfig, AShortRunRisesShortly) {
  TrainRequest r = request();
  r.steps = 20;
  r.warm_up = 100;
  r.learning_rate = 1;
  const RunConfig c = new_run(r);
  EXPECT_NEAR(c.learning_rate_at(0, 0), 0.5, 1e-12);
  EXPECT_NEAR(c.learning_rate_at(1, 0), 1, 1e-12);
  r.steps = 2000;
  EXPECT_NEAR(new_run(r).learning_rate_at(49, 0), 0.5, 1e-12);
}

TEST(RunConfig, RateRisesAndFallsOverTime) {
  TrainRequest r = request();
  r.seconds = 100;
  r.learning_rate = 1;
  const RunConfig c = new_run(r);
  EXPECT_EQ(c.steps, 0);
  EXPECT_NEAR(c.learning_rate_at(0, 0), 0.01, 1e-12);
  EXPECT_NEAR(c.learning_rate_at(5000, 50), 0.55, 1e-12);
  EXPECT_NEAR(c.learning_rate_at(1, 50), 0.55, 1e-12);  // slow steps do not keep the rate down
  EXPECT_NEAR(c.learning_rate_at(5000, 100), 0.1, 1e-12);
}

TEST(RunConfig, ResumingTakesTheStoredRun) {
  TrainRequest r = request();
  r.steps = 100;
  r.seed = 9;
  const RunConfig stored = new_run(r);
  TrainRequest again;
  again.out = "runs/test";
  again.resume = true;
  EXPECT_EQ(resumed_run(stored, again, 12), stored);
  again.preset = "small";
  again.seed = 9;
  again.steps = 200;
  EXPECT_EQ(resumed_run(stored, again, 12).steps, 200);
  again.steps.reset();
  again.seconds = 30;
  EXPECT_EQ(resumed_run(stored, again, 12).seconds, 42);
  EXPECT_EQ(resumed_run(stored, again, 12).steps, 0);
  again.seed = 1;
  again.width = 64;
  again.optimizer = "lion";
  again.optimizer_options = {"maximize=true"};
  try {
    resumed_run(stored, again, 12);
    FAIL();
  } catch (const UsageError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("--seed 1  (the run has 9)"), std::string::npos) << message;
    EXPECT_NE(message.find("--width 64  (the run has 128)"), std::string::npos) << message;
    EXPECT_NE(message.find("--optimizer lion  (the run has adamw)"), std::string::npos) << message;
    EXPECT_NE(message.find("--optimizer-option maximize=true  (the run has "), std::string::npos) << message;
  }
}

TEST(RunConfig, BadNumbersAreErrors) {
  const std::function<void(TrainRequest&)> mistakes[] = {
      [](TrainRequest& r) { r.steps = 0; },
      [](TrainRequest& r) { r.seconds = -1; },
      [](TrainRequest& r) { r.batch = 0; },
      [](TrainRequest& r) { r.layers = 0; },
      [](TrainRequest& r) { r.heads = 3; },
      [](TrainRequest& r) { r.learning_rate = NAN; },
      [](TrainRequest& r) { r.beta_1 = 1; },
      [](TrainRequest& r) { r.dropout = 1; },
      [](TrainRequest& r) { r.vocabulary = "word"; },
      [](TrainRequest& r) { r.preset = "smal"; },
      [](TrainRequest& r) { r.data.reset(); },
      [](TrainRequest& r) { r.final_fraction = 2; },
      [](TrainRequest& r) { r.context = 1LL << 40; },
      [](TrainRequest& r) { r.optimizer = "adm"; },
      [](TrainRequest& r) { r.optimizer_options = {"momentum=0.9"}; },  // AdamW has none
      [](TrainRequest& r) { r.optimizer_options = {"amsgrad"}; },
      [](TrainRequest& r) { r.optimizer_options = {"epsilon=tiny"}; }};
  int index = 0;
  for (const auto& mistake : mistakes) {
    TrainRequest r = request();
    mistake(r);
    EXPECT_THROW(new_run(r), UsageError) << index;
    ++index;
  }
}

}  // namespace
}  // namespace weft::train
