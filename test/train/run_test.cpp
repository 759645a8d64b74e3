// A run as a library call: what observers are told, how it stops and goes on, and that it prints nothing.
#include "weft/train/run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/temporary_folder.hpp"
#include "weft/error.hpp"
#include "weft/train/checkpoint.hpp"

namespace weft::train::run_test {
namespace {

struct Recorder : Observer {
  std::vector<std::string> events;
  std::vector<Metrics> metrics, whole_run;
  std::vector<std::string> warnings;

  void begin(const RunStart& run) override { add(run.resumed ? "resumed " : "begin ", run.steps); }
  void step(const Metrics& m) override {
    add("step ", m.step);
    metrics.push_back(m);
  }
  void validating(const Metrics& m) override { add("validating ", m.step); }
  void validation(const Validation& v) override { add(v.best ? "best validation " : "validation ", v.step); }
  void sample(const Sample& s) override { add("sample ", s.step); }
  void checkpoint(const SavedCheckpoint& c) override {
    EXPECT_EQ(load_checkpoint(c.path).step, c.step);
    add(c.best ? "best checkpoint " : "checkpoint ", c.step);
  }
  void warning(std::string_view text) override { warnings.emplace_back(text); }
  void end(const RunEnd& run) override {
    add(run.result.interrupted ? "interrupted " : "end ", run.result.steps);
    whole_run.assign(run.metrics.begin(), run.metrics.end());
  }

 private:
  void add(const char* event, std::int64_t step) { events.push_back(event + std::to_string(step)); }
};

// Asks for a stop at a step.
struct StopAt : Observer {
  std::stop_source stop;
  std::int64_t last;
  explicit StopAt(std::int64_t last) : last(last) {}
  void step(const Metrics& m) override {
    if (m.step >= last) stop.request_stop();
  }
};

class Run : public testing::Test {
 protected:
  Run() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "the quick brown fox jumps over the lazy dog\n";
    folder_.put("fox.txt", text);
    request_.out = folder_ / "run";
    request_.data = folder_ / "fox.txt";
    request_.device = "cpu";
    request_.preset = "tiny";
    request_.layers = 1;
    request_.width = 16;
    request_.heads = 1;
    request_.context = 8;
    request_.batch = 2;
    request_.steps = 4;
    request_.log_every = 1;
    request_.eval_every = 2;
    request_.sample_every = 2;
    request_.eval_batches = 1;
    request_.checkpoint_every = 3;
    request_.sample_tokens = 3;
  }

  TrainResult train(std::vector<Observer*> observers, const std::stop_token& stop = {}) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    TrainResult result;
    std::exception_ptr error;
    try {
      result = train_text(request_, observers, stop);
    } catch (...) {
      error = std::current_exception();
    }
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    if (error) std::rethrow_exception(error);
    return result;
  }

  test::TemporaryFolder folder_;
  TrainRequest request_;
};

TEST_F(Run, ObserversAreToldInOrderAndNothingIsPrinted) {
  Recorder first, second;
  const TrainResult result = train({&first, &second});
  EXPECT_EQ(result.steps, 4);
  EXPECT_FALSE(result.interrupted);
  const std::vector<std::string> expected = {"begin 0",           "step 1",      "validating 2", "best validation 2",
                                             "best checkpoint 2", "step 2",      "sample 2",     "step 3",
                                             "checkpoint 3",      "validating 4"};
  ASSERT_GE(first.events.size(), expected.size());
  EXPECT_EQ(std::vector(first.events.begin(), first.events.begin() + static_cast<std::ptrdiff_t>(expected.size())),
            expected);
  EXPECT_EQ(std::vector(first.events.end() - 4, first.events.end()),
            (std::vector<std::string>{"step 4", "checkpoint 4", "sample 4", "end 4"}));
  EXPECT_EQ(first.events, second.events);
  ASSERT_EQ(first.metrics.size(), 4u);
  EXPECT_FALSE(first.metrics[0].val_loss.has_value());
  EXPECT_EQ(first.metrics[3].val_loss, result.validation_loss);
  EXPECT_EQ(first.whole_run.size(), 4u);
  EXPECT_TRUE(first.warnings.empty());
}

TEST_F(Run, AStopLeavesACheckpointThatARunGoesOnFrom) {
  StopAt stop(2);
  Recorder stopped, resumed;
  const TrainResult half = train({&stop, &stopped}, stop.stop.get_token());
  EXPECT_TRUE(half.interrupted);
  EXPECT_EQ(half.steps, 2);
  EXPECT_EQ(std::vector(stopped.events.end() - 2, stopped.events.end()),
            (std::vector<std::string>{"checkpoint 2", "interrupted 2"}));
  EXPECT_EQ(load_checkpoint(request_.out / kLastCheckpoint).step, 2);

  folder_.put("run/last.safetensors.tmp-0123456789abcdef", "half");
  request_.resume = true;
  const TrainResult whole = train({&resumed});
  EXPECT_EQ(whole.steps, 4);
  EXPECT_EQ(resumed.events.front(), "resumed 2");
  EXPECT_EQ(resumed.whole_run.size(), 4u);
  ASSERT_EQ(resumed.warnings.size(), 1u);
  EXPECT_NE(resumed.warnings[0].find("tmp-0123456789abcdef"), std::string::npos);
}

TEST_F(Run, WhatAnObserverThrowsEndsTheRun) {
  struct Thrower : Observer {
    void step(const Metrics&) override { throw std::runtime_error("enough"); }
  } thrower;
  EXPECT_THROW(train({&thrower}), std::runtime_error);
}

TEST_F(Run, ALossThatIsNotFiniteIsReportedAndThenAnError) {
  Recorder recorder;
  request_.learning_rate = 1e6;  // with weight decay: weights grow by a factor of 1e5 a step
  request_.warm_up = 0;
  request_.clip_norm = 0;
  request_.steps = 50;
  EXPECT_THROW(train({&recorder}), Error);
  ASSERT_FALSE(recorder.metrics.empty());
  EXPECT_FALSE(std::isfinite(recorder.metrics.back().loss));
  EXPECT_NE(recorder.events.back().substr(0, 3), "end");
}

}  // namespace
}  // namespace weft::train::run_test
