#include "weft/train/trainer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

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
