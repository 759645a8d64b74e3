#include "weft/train/trainer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/message_of.hpp"
#include "base/sanitized.hpp"
#include "base/threads.hpp"
#include "weft/train/generate.hpp"
#include "weft/weft.hpp"

namespace weft::train {
namespace {

// A text with something to learn: words in a fixed order.
TextData make_data() {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox jumps over the lazy dog\n";
  TextData data;
  data.vocabulary = Alphabet::characters_of(text);
  data.tokens = data.vocabulary.encode(text);
  data.training_count = data.tokens.size() - data.tokens.size() / 10;
  return data;
}

RunConfig make_config(const TextData& data, double dropout = 0) {
  RunConfig c;
  c.model = {
      .vocabulary = data.vocabulary.size(), .context = 16, .layers = 2, .heads = 2, .width = 32, .dropout = dropout};
  c.batch = 8;
  c.steps = 60;
  c.seed = 3;
  return c;
}

TEST(Trainer, Learns) {
  const TextData data = make_data();
  Trainer trainer(make_config(data), data);
  const double before = trainer.evaluate().loss;
  EXPECT_NEAR(before, std::log(static_cast<double>(data.vocabulary.size())), 0.5);
  float first = 0, last = 0;
  for (int i = 0; i < 60; ++i) {
    last = trainer.step(0).loss.item<float>();
    if (i == 0) first = last;
  }
  EXPECT_LT(last, 0.6f * first);
  EXPECT_LT(trainer.evaluate().loss, 0.6 * before);
  EXPECT_EQ(trainer.steps(), 60);
  EXPECT_EQ(trainer.compiled_step().trace_count(), 1u);
}

TEST(Trainer, TheNumberOfThreadsDoesNotChangeABit) {
  const TextData data = make_data();
  RunConfig config = make_config(data, 0.1);
  config.model.context = 64;  // products large enough to be split
  config.model.width = 64;
  config.batch = 16;
  const int before = thread_count();
  std::vector<nn::StateDict> states;
  for (const int threads : {1, 2, 4}) {
    set_thread_count(threads);
    Trainer trainer(config, data);
    for (int i = 0; i < 6; ++i) trainer.step(0);
    states.push_back(trainer.checkpoint().model);
  }
  set_thread_count(before);
  for (std::size_t s = 1; s < states.size(); ++s) {
    ASSERT_EQ(states[s].size(), states[0].size());
    for (std::size_t i = 0; i < states[0].size(); ++i)
      EXPECT_EQ(states[s][i].bytes, states[0][i].bytes) << states[0][i].name;
  }
}

// Every tensor of two states agrees within `tolerance`.
void expect_near(const nn::StateDict& a, const nn::StateDict& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].bytes.size(), b[i].bytes.size()) << a[i].name;
    const std::span x(reinterpret_cast<const float*>(a[i].bytes.data()), a[i].bytes.size() / 4);
    const std::span y(reinterpret_cast<const float*>(b[i].bytes.data()), b[i].bytes.size() / 4);
    for (std::size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], y[k], tolerance) << a[i].name << " " << k;
  }
}

TEST(Trainer, SeveralDevicesComputeWhatOneWould) {
  const TextData data = make_data();
  const std::vector<Device> devices(4, kCpu);
  for (const Extent accumulate : {1, 3}) {
    RunConfig config = make_config(data);
    config.accumulate = accumulate;
    Trainer alone(config, data), together(config, data, std::span(devices).first(2)), four(config, data, devices);
    for (int i = 0; i < 8; ++i) {
      const float loss = alone.step(0).loss.item<float>();
      const Trainer::StepResult two = together.step(0);
      EXPECT_NEAR(two.loss.item<float>(), loss, 1e-4f) << i;
      EXPECT_GT(two.grad_norm.item<float>(), 0);
      EXPECT_NEAR(four.step(0).loss.item<float>(), loss, 1e-4f) << i;
    }
    EXPECT_NEAR(together.evaluate().loss, alone.evaluate().loss, 1e-4);
    // Adam divides by the root of the second moment, so rounding near 0 moves a weight by up to its learning rate.
    expect_near(together.checkpoint().model, alone.checkpoint().model, 2e-2f);
  }
}

TEST(Trainer, SeveralDevicesInF16AndAResumedRun) {
  const TextData data = make_data();
  const std::vector<Device> devices(2, kCpu);
  RunConfig config = make_config(data, 0.2);  // each device draws dropout of its own
  config.precision = DType::f16;
  config.accumulate = 2;
  Trainer whole(config, data, devices);
  float first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    last = whole.step(0).loss.item<float>();
    if (i == 0) first = last;
  }
  EXPECT_LT(last, 0.8f * first);

  Trainer begun(config, data, devices);
  for (int i = 0; i < 20; ++i) begun.step(0);
  Trainer resumed(config, data, begun.checkpoint(), devices);
  for (int i = 0; i < 10; ++i) resumed.step(0);
  const nn::StateDict a = whole.checkpoint().model, b = resumed.checkpoint().model;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].name;
}

TEST(Trainer, DevicesThatCannotShareABatchAreRefused) {
  const TextData data = make_data();
  const std::vector<Device> devices(3, kCpu);
  EXPECT_NE(test::message_of<UsageError>([&] {
              Trainer(make_config(data), data, devices);
            }).find("a batch of 8 texts cannot be divided over 3 devices"),
            std::string::npos);
  const Device trace[] = {{Device::Kind::trace, 0}, kCpu};
  EXPECT_THROW(Trainer(make_config(data), data, trace), UsageError);
}

/// Resident memory of this process in bytes.
std::size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * 4096;
}

TEST(Trainer, MemoryStaysFlatOverAThousandSteps) {
  const TextData data = make_data();
  Trainer trainer(make_config(data), data);
  for (int i = 0; i < 100; ++i) trainer.step(0).loss.item<float>();
  const std::size_t before = resident_bytes();
  for (int i = 0; i < 1000; ++i) trainer.step(0).loss.item<float>();
  EXPECT_LT(resident_bytes(), before + (std::size_t{1} << 20) + test::kFreedMemoryKept);
}

TEST(Trainer, ResumedRunHasTheBitsOfTheUninterruptedOne) {
  for (const double dropout : {0.0, 0.1}) {
    const TextData data = make_data();
    const RunConfig config = make_config(data, dropout);
    Checkpoint middle;
    nn::StateDict expected;
    std::vector<float> losses;
    {
      Trainer whole(config, data);
      for (int i = 0; i < 12; ++i) {
        if (i == 5) middle = whole.checkpoint();
        losses.push_back(whole.step(0).loss.item<float>());
      }
      expected = whole.checkpoint().model;
    }
    Trainer resumed(config, data, middle);
    EXPECT_EQ(resumed.steps(), 5);
    for (int i = 5; i < 12; ++i) {
      if (i == 8) resumed.evaluate(1);  // checks in between change nothing
      EXPECT_EQ(resumed.step(0).loss.item<float>(), losses[i]) << "step " << i << ", dropout " << dropout;
    }
    EXPECT_EQ(resumed.checkpoint().model, expected);
  }
}

TEST(Trainer, WholePassCountsEveryTargetOnce) {
  const TextData data = make_data();
  Trainer trainer(make_config(data), data);
  const Trainer::Evaluation whole = trainer.evaluate();
  EXPECT_EQ(whole.tokens, static_cast<std::int64_t>(data.validation().size()) - 1);
  const Trainer::Evaluation part = trainer.evaluate(2);
  EXPECT_EQ(part.tokens, 2 * 8 * 16);
  EXPECT_NEAR(part.loss, whole.loss, 0.2);
  EXPECT_EQ(trainer.evaluate(2).loss, part.loss);
}

TEST(Trainer, ForeignStateIsAFileError) {
  const TextData data = make_data();
  const RunConfig config = make_config(data);
  Checkpoint c = Trainer(config, data).checkpoint();
  c.optimizer.pop_back();
  EXPECT_THROW(Trainer(config, data, c), FileError);
  c.model.pop_back();
  EXPECT_THROW(Trainer(config, data, c), FileError);
}

TEST(Generator, WritesTheSameForTheSameSeed) {
  const TextData data = make_data();
  nn::GPT model(make_config(data).model);
  model.initialize(1);
  Generator generator(model, data.vocabulary);
  const std::string a = generator.generate("the ", 40, {.temperature = 1, .seed = 5});
  EXPECT_EQ(a, generator.generate("the ", 40, {.temperature = 1, .seed = 5}));
  EXPECT_NE(a, generator.generate("the ", 40, {.temperature = 1, .seed = 6}));
  EXPECT_EQ(data.vocabulary.encode(a).size(), 40u);
  EXPECT_EQ(generator.generate("", 3, {}).size(), 3u);
  EXPECT_THROW(generator.generate("Z", 3, {}), UsageError);
  int pieces = 0;
  generator.generate("the", 40, {}, [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(pieces, 3);
}

TEST(Generator, PaddingDoesNotReachTheLogits) {
  const TextData data = make_data();
  nn::GPT model(make_config(data).model);
  model.initialize(1);
  Generator generator(model, data.vocabulary);
  const std::vector<Token> tokens = data.vocabulary.encode("quick");
  const std::vector<float> padded = generator.logits(tokens);
  const std::vector<float> exact = model(tensor<Token>(tokens, {1, 5})).to_vector<float>();
  for (std::size_t i = 0; i < padded.size(); ++i) EXPECT_NEAR(padded[i], exact[4 * padded.size() + i], 1e-5);
  // Longer texts than the context are seen by their end.
  const std::vector<Token> text = data.vocabulary.encode("over the lazy dog over the lazy dog");
  EXPECT_EQ(generator.logits(text), generator.logits(std::span(text).last(16)));
}

TEST(Generator, BytesComeAsWholeCharacters) {
  nn::GPT model({.vocabulary = 256, .context = 8, .layers = 1, .heads = 1, .width = 8});
  model.initialize(2);
  const Alphabet bytes = Alphabet::bytes();
  Generator generator(model, bytes);
  generator.generate("\xC3\xA9", 200, {.temperature = 1}, [](std::string_view piece) {
    EXPECT_NO_THROW(Alphabet::characters_of(piece));
    return true;
  });
}

}  // namespace
}  // namespace weft::train
