// What a training run needs in memory, against what is allocated; and runs that are refused before they start.
#include "weft/train/need.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "weft/memory_limit.hpp"
#include "weft/train/run.hpp"
#include "weft/train/trainer.hpp"
#include "weft/weft.hpp"

namespace weft::train {
namespace {

using test::message_of;
using test::TemporaryFolder;

TrainRequest make_request(const TemporaryFolder& folder) {
  std::ofstream text(folder.path() / "text.txt");
  for (int i = 0; i < 400; ++i) text << "the quick brown fox jumps over the lazy dog\n";
  TrainRequest request;
  request.out = folder.path() / "run";
  request.data = folder.path() / "text.txt";
  request.device = "cpu";
  request.preset = "tiny";
  request.steps = 2;
  request.batch = 8;
  return request;
}

TEST(TrainingNeed, MomentsOfEveryRuleAreExact) {
  for (const char* rule : {"sgd", "adafactor", "muon", "lion", "rmsprop"}) {
    const TemporaryFolder folder;
    TrainRequest request = make_request(folder);
    request.optimizer = rule;
    const TrainingNeed need = training_need(request);
    const TextData data = TextData::load(*request.data, Alphabet::Kind::characters, need.config.model.context);
    const std::uint64_t before = device_memory_used(kCpu);
    Trainer trainer(need.config, data);
    (void)trainer.step(0).loss.item<float>();
    const std::uint64_t held = device_memory_used(kCpu) - before;
    EXPECT_GE(held, need.weights + need.moments) << rule;
    std::uint64_t state = 0;
    for (const nn::NamedArray& each : trainer.checkpoint().optimizer)
      if (each.name != "step" && each.name != "learning_rate") state += each.bytes.size();
    EXPECT_EQ(need.moments, state) << rule;
  }
}

TEST(TrainingNeed, BytesAreThoseOfTheRun) {
  for (const Extent accumulate : {1, 3}) {
    const TemporaryFolder folder;
    TrainRequest request = make_request(folder);
    request.accumulate = accumulate;
    const TrainingNeed need = training_need(request);
    EXPECT_FALSE(std::filesystem::exists(request.out));
    EXPECT_EQ(need.weights, 4 * static_cast<std::uint64_t>(need.parameters));
    EXPECT_EQ(need.moments, need.weights * (accumulate > 1 ? 3 : 2));
    EXPECT_TRUE(need.fits && need.available);
    const TextData data = TextData::load(*request.data, Alphabet::Kind::characters, need.config.model.context);
    const std::uint64_t before = device_memory_used(kCpu);
    Trainer trainer(need.config, data);
    EXPECT_EQ(trainer.model().parameter_count(), need.parameters);
    (void)trainer.step(0).loss.item<float>();
    const std::uint64_t held = device_memory_used(kCpu) - before;
    EXPECT_GE(held, need.weights + need.moments);
    EXPECT_LE(held, need.total() + 65536);  // counters, random state and batches
    if (accumulate == 1) {
      EXPECT_EQ(trainer.compiled_step().scratch_bytes(), *need.step);
    }
    EXPECT_GT(*need.validation, 0u);
    const std::string text = need.to_string();
    EXPECT_NE(text.find("the run fits"), std::string::npos) << text;
  }
}

TEST(TrainingNeed, TheLargestBatchIsTheLargest) {
  const TemporaryFolder folder;
  TrainRequest request = make_request(folder);
  const TrainingNeed alone = training_need(request);
  request.device_memory = alone.total() * 3;
  const TrainingNeed need = training_need(request);
  ASSERT_TRUE(need.fits && need.largest_rows);
  EXPECT_GT(*need.largest_rows, 16);
  request.batch = *need.largest_rows;
  EXPECT_TRUE(training_need(request).fits);
  request.batch = *need.largest_rows * 5 / 4 + 1;
  const TrainingNeed more = training_need(request);
  EXPECT_FALSE(more.fits);
  // The same answer from a batch that does not fit.
  EXPECT_NEAR(static_cast<double>(*more.largest_rows), static_cast<double>(*need.largest_rows),
              0.1 * static_cast<double>(*need.largest_rows));
  EXPECT_NE(more.to_string().find("the run does not fit"), std::string::npos);
}

TEST(TrainingNeed, RunsThatDoNotFitAreRefusedBeforeTheyStart) {
  const TemporaryFolder folder;
  TrainRequest request = make_request(folder);
  const TrainingNeed need = training_need(request);
  request.device_memory = need.weights;
  const TrainingNeed none = training_need(request);
  EXPECT_FALSE(none.fits || none.step);
  EXPECT_EQ(*none.largest_rows, 0);
  EXPECT_NE(message_of<UsageError>([&] { train_text(request); }).find("fewer --layers"), std::string::npos);
  request.out = folder.path() / "other";
  request.device_memory = need.weights + need.moments + *need.step / 2;
  const std::string message = message_of<UsageError>([&] { train_text(request); });
  EXPECT_NE(message.find("smaller --batch or --context"), std::string::npos) << message;
  EXPECT_NE(message.find("--dry-run"), std::string::npos) << message;
  request.out = folder.path() / "third";
  request.device_memory = need.total() * 2;
  EXPECT_EQ(train_text(request).steps, 2);
}

TEST(TrainingNeed, ADeviceThatDoesNotTellItsMemory) {
  const TemporaryFolder folder;
  TrainRequest request = make_request(folder);
  request.device = default_device().to_string();
  if (default_device().kind == Device::Kind::cpu) GTEST_SKIP() << "WEFT_DEVICE names no other device";
  const TrainingNeed need = training_need(request);
  EXPECT_FALSE(need.available || need.largest_rows);
  EXPECT_TRUE(need.step && *need.step > 0);
  EXPECT_NE(need.to_string().find("does not tell how much memory it has"), std::string::npos);
}

}  // namespace
}  // namespace weft::train
