#include "weft/train/trainer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/message_of.hpp"
#include "base/sanitized.hpp"
#include "base/threads.hpp"
#include "base/xxh64.hpp"
#include "weft/memory_limit.hpp"
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

TEST(Trainer, GradientsMayGoBetweenDevicesInHalves) {
  const TextData data = make_data();
  const std::vector<Device> devices(2, kCpu);
  struct Case {
    DType precision, exchange;
    float tolerance;
  };
  // Rounding to 8 or 11 bits moves the loss, but little; the first one was computed before any exchange.
  for (const Case& c : {Case{DType::f32, DType::bf16, 2e-2f}, Case{DType::bf16, DType::bf16, 2e-2f},
                        Case{DType::f16, DType::f16, 1e-2f}}) {
    RunConfig config = make_config(data);
    config.precision = c.precision;
    Trainer exact(config, data, devices);
    config.exchange = c.exchange;
    Trainer rounded(config, data, devices), begun(config, data, devices);
    float wanted = 0, loss = 0;
    for (int i = 0; i < 12; ++i) {
      wanted = exact.step(0).loss.item<float>();
      loss = rounded.step(0).loss.item<float>();
      if (i == 0) {
        EXPECT_EQ(loss, wanted);
      }
      EXPECT_NEAR(loss, wanted, c.tolerance) << i;
      if (i < 7) begun.step(0);
    }
    EXPECT_NE(loss, wanted);  // they do go in other numbers
    Trainer resumed(config, data, begun.checkpoint(), devices);
    for (int i = 7; i < 12; ++i) resumed.step(0);
    const nn::StateDict a = rounded.checkpoint().model, b = resumed.checkpoint().model;
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].name;
  }
}

// With a factor of the loss that is too large for f16, gradients become infinite on their way: the step is left out everywhere.
TEST(Trainer, GradientsThatF16CannotHoldLeaveAStepOut) {
  const TextData data = make_data();
  const std::vector<Device> devices(2, kCpu);
  RunConfig config = make_config(data);
  config.precision = DType::f16;
  config.exchange = DType::f16;
  Trainer trainer(config, data, devices);
  Checkpoint start = trainer.checkpoint();
  for (nn::NamedArray& entry : start.loss_scale)
    if (entry.name.ends_with("factor")) {
      const float large = 0x1p24f;
      std::memcpy(entry.bytes.data(), &large, sizeof large);
    }
  Trainer scaled(config, data, start, devices);
  EXPECT_FALSE(std::isfinite(scaled.step(0).grad_norm.item<float>()));
  EXPECT_EQ(scaled.loss_scale()->skipped_steps(), 1);
  const nn::StateDict before = start.model, after = scaled.checkpoint().model;
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].bytes, after[i].bytes) << before[i].name;
  for (int i = 0; i < 20; ++i) scaled.step(0);
  EXPECT_TRUE(std::isfinite(scaled.step(0).grad_norm.item<float>()));
}

/// By name, because stages put their parameters in another order.
nn::StateDict sorted(nn::StateDict state) {
  std::sort(state.begin(), state.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return state;
}

TEST(Trainer, ADividedModelComputesWhatOneDeviceWould) {
  const TextData data = make_data();
  const std::vector<Device> devices(3, kCpu);
  struct Case {
    std::size_t stages;
    Extent accumulate;
    bool tied;
    DType precision;
    float tolerance;
  };
  for (const Case& c : {Case{2, 1, true, DType::f32, 1e-4f}, Case{3, 5, true, DType::f32, 1e-4f},
                        Case{3, 2, false, DType::f32, 1e-4f}, Case{2, 3, true, DType::bf16, 2e-2f}}) {
    SCOPED_TRACE(c.stages);
    RunConfig config = make_config(data);
    config.model.layers = 3;
    config.accumulate = c.accumulate;
    config.model.tied = c.tied;
    config.precision = c.precision;
    config.clip_norm = 0.5;  // below the first norms
    Trainer alone(config, data), divided(config, data, std::span(devices).first(c.stages), Sharing::layers);
    for (int i = 0; i < 8; ++i) {
      const Trainer::StepResult one = alone.step(0), many = divided.step(0);
      EXPECT_NEAR(many.loss.item<float>(), one.loss.item<float>(), c.tolerance) << i;
      const float norm = one.grad_norm.item<float>();
      EXPECT_NEAR(many.grad_norm.item<float>(), norm, norm * 20 * c.tolerance) << i;
    }
    EXPECT_NEAR(divided.evaluate().loss, alone.evaluate().loss, c.tolerance);
    EXPECT_EQ(divided.evaluate(2).tokens, alone.evaluate(2).tokens);
    const Checkpoint whole = alone.checkpoint(), parts = divided.checkpoint();
    const nn::StateDict a = sorted(whole.optimizer), b = sorted(parts.optimizer);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].name, b[i].name);
    if (c.precision == DType::f32) expect_near(sorted(parts.model), sorted(whole.model), 2e-2f);
    // Either goes on from the checkpoint of the other.
    Trainer alone_again(config, data, parts), divided_again(config, data, whole, devices, Sharing::layers);
    const float wanted = alone.step(0).loss.item<float>();
    EXPECT_NEAR(alone_again.step(0).loss.item<float>(), wanted, 10 * c.tolerance);
    EXPECT_NEAR(divided_again.step(0).loss.item<float>(), wanted, 10 * c.tolerance);
  }
}

TEST(Trainer, AResumedRunOfADividedModelHasTheBitsOfTheUninterruptedOne) {
  const TextData data = make_data();
  const std::vector<Device> devices(2, kCpu);
  RunConfig config = make_config(data, 0.2);  // blocks that are computed again draw the same dropout
  config.accumulate = 3;
  Trainer whole(config, data, devices, Sharing::layers);
  float first = 0, last = 0;
  for (int i = 0; i < 30; ++i) {
    last = whole.step(0).loss.item<float>();
    if (i == 0) first = last;
  }
  EXPECT_LT(last, 0.8f * first);
  Trainer begun(config, data, devices, Sharing::layers);
  for (int i = 0; i < 20; ++i) begun.step(0);
  (void)begun.evaluate(1);
  Trainer resumed(config, data, begun.checkpoint(), devices, Sharing::layers);
  for (int i = 0; i < 10; ++i) resumed.step(0);
  const nn::StateDict a = whole.checkpoint().model, b = resumed.checkpoint().model;
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].bytes, b[i].bytes) << a[i].name;
}

// The norm of the gradient of a step, beside that of one graph whose parts draw as the stages do.
TEST(Trainer, BlocksThatAreComputedAgainDrawTheSameDropout) {
  const TextData data = make_data();
  const std::vector<Device> devices(2, kCpu);
  RunConfig config = make_config(data, 0.3);
  const auto draw_as = [&](std::uint64_t rank) {
    const std::uint64_t place[] = {config.seed, 0, 0, rank};  // seed, step, batch, stage
    random_state().assign(tensor<std::uint32_t>(
        std::vector<std::uint32_t>{static_cast<std::uint32_t>(xxh64(std::as_bytes(std::span(place)))), 0}));
  };
  nn::GPT model(config.model);
  model.initialize(config.seed);
  const Extent context = config.model.context;
  const std::vector<Token> drawn = draw_batch(data.training(), config.seed, 0, config.batch, context + 1);
  const Tensor batch = tensor_from_bytes(drawn.data(), {config.batch, context + 1}, DType::i32);
  draw_as(0);
  Tensor x = model.run_blocks(model.embed(narrow(batch, 1, 0, context)), 0, 1);
  draw_as(1);
  const Tensor loss = model.loss_behind_blocks(model.run_blocks(x, 1, 2), narrow(batch, 1, 1, context));
  Tensor squares = zeros({});
  for (const Tensor& gradient : grad(loss, model.parameters())) squares = squares + sum(gradient * gradient);
  const float wanted = sqrt(squares).item<float>(), wanted_loss = loss.item<float>();

  Trainer divided(config, data, devices, Sharing::layers);
  const Trainer::StepResult result = divided.step(0);
  EXPECT_NEAR(result.loss.item<float>(), wanted_loss, 1e-4f);
  EXPECT_NEAR(result.grad_norm.item<float>(), wanted, 1e-3f * wanted);
}

TEST(Trainer, AStageHoldsItsOwnLayersOnly) {
  const TextData data = make_data();
  RunConfig config = make_config(data);
  config.model.layers = 4;
  config.model.width = 64;
  const auto used_by = [&](std::size_t stages) {
    const std::vector<Device> devices(stages, kCpu);
    const std::uint64_t before = device_memory_used();
    Trainer trainer(config, data, devices, stages > 1 ? Sharing::layers : Sharing::batches);
    trainer.step(0).loss.item<float>();
    return device_memory_used() - before;
  };
  const std::uint64_t whole = used_by(1), quarter = used_by(4);  // of the session of the first device
  EXPECT_LT(quarter, whole / 2);
}

TEST(Trainer, DivisionsThatCannotBeAreRefused) {
  const TextData data = make_data();
  const std::vector<Device> devices(3, kCpu);
  const auto refused = [&](const RunConfig& config, std::size_t count) {
    return test::message_of<UsageError>(
        [&] { Trainer(config, data, std::span(devices).first(count), Sharing::layers); });
  };
  RunConfig config = make_config(data);
  EXPECT_NE(refused(config, 1).find("there is one; name more"), std::string::npos);
  EXPECT_NE(refused(config, 3).find("a model of 2 layers cannot be divided over 3 devices"), std::string::npos);
  config.precision = DType::f16;
  EXPECT_NE(refused(config, 2).find("choose bf16"), std::string::npos);
  config.precision = DType::f32;
  Trainer divided(config, data, std::span(devices).first(2), Sharing::layers);
  EXPECT_THROW((void)divided.compiled_step(), UsageError);
  EXPECT_THROW((void)divided.profile(), UsageError);
  Checkpoint damaged = divided.checkpoint();
  damaged.model.pop_back();
  EXPECT_THROW(
      {
        Trainer other(config, data, damaged, std::span(devices).first(2), Sharing::layers);
        other.step(0);
      },
      FileError);
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
