// Runs that go on: what a checkpoint remembers besides weights counts in what follows.
#include <gtest/gtest.h>

#include <fstream>

#include "base/file.hpp"
#include "base/temporary_folder.hpp"
#include "weft/train/checkpoint.hpp"
#include "weft/train/run.hpp"

namespace weft::train {
namespace {

TrainRequest request_in(const test::TemporaryFolder& folder, std::int64_t steps) {
  TrainRequest request;
  request.out = folder / "run";
  request.device = "cpu";
  request.steps = steps;
  request.eval_every = 2;
  request.eval_batches = 1;
  request.sample_every = 0;
  request.sample_tokens = 0;
  return request;
}

class ResumedRun : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 60; ++i) text += "row, row, row your boat, gently down the stream\n";
    TrainRequest request = request_in(folder_, 2);
    request.data = folder_.put("text.txt", text);
    request.preset = "tiny";
    request.layers = 1;
    request.width = 16;
    request.context = 8;
    request.batch = 2;
    train_text(request);
  }
  std::filesystem::path last() const { return folder_ / "run" / kLastCheckpoint; }
  TrainResult go_on(std::int64_t steps) {
    TrainRequest request = request_in(folder_, steps);
    request.resume = true;
    return train_text(request);
  }
  test::TemporaryFolder folder_;
};

TEST_F(ResumedRun, KeepsItsBestUntilItIsBetter) {
  Checkpoint c = load_checkpoint(last());
  ASSERT_TRUE(c.best_loss.has_value());
  c.best_loss = 1e-3;  // no model of two letters gets there
  c.best_step = 1;
  save_checkpoint(last(), c);
  const std::filesystem::path best = last().parent_path() / kBestCheckpoint;
  const std::string before = read_text_file(best);
  EXPECT_EQ(go_on(6).steps, 6);
  const Checkpoint after = load_checkpoint(last());
  EXPECT_EQ(after.step, 6);
  EXPECT_EQ(after.best_loss, 1e-3);
  EXPECT_EQ(after.best_step, 1);
  EXPECT_EQ(read_text_file(best), before);
}

TEST_F(ResumedRun, ReplacesItsBestByABetterOne) {
  Checkpoint c = load_checkpoint(last());
  c.best_loss = 100;
  c.best_step = 1;
  save_checkpoint(last(), c);
  go_on(4);
  const Checkpoint after = load_checkpoint(last());
  EXPECT_LT(after.best_loss.value(), 100);
  EXPECT_GT(after.best_step, 1);
}

TEST_F(ResumedRun, CountsTheTimeBefore) {
  Checkpoint c = load_checkpoint(last());
  EXPECT_LT(c.elapsed_seconds, 1000);
  c.elapsed_seconds = 5000;
  save_checkpoint(last(), c);
  go_on(4);
  EXPECT_GE(load_checkpoint(last()).elapsed_seconds, 5000);
  EXPECT_LT(load_checkpoint(last()).elapsed_seconds, 6000);
}

}  // namespace
}  // namespace weft::train
