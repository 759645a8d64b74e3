// Training in f16 and bf16 beside f32, with accumulated gradients, and with blocks computed again.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/file.hpp"
#include "base/temporary_folder.hpp"
#include "weft/train/run.hpp"
#include "weft/train/trainer.hpp"
#include "weft/weft.hpp"

namespace weft::train {
namespace {

TextData rhyme() {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "row, row, row your boat, gently down the stream\n";
  TextData data;
  data.vocabulary = Alphabet::characters_of(text);
  data.tokens = data.vocabulary.encode(text);
  data.training_count = data.tokens.size() - data.tokens.size() / 10;
  return data;
}

RunConfig run_in(DType precision, const TextData& data) {
  RunConfig c;
  c.model = {.vocabulary = data.vocabulary.size(), .context = 16, .layers = 2, .heads = 2, .width = 32};
  c.batch = 8;
  c.steps = 60;
  c.seed = 3;
  c.precision = precision;
  return c;
}

const DType kPrecisions[] = {DType::f32, DType::bf16, DType::f16};

TEST(Precision, EachLearnsAsF32Does) {
  const TextData data = rhyme();
  double exact = 0;
  for (const DType precision : kPrecisions) {
    Trainer trainer(run_in(precision, data), data);
    for (int i = 0; i < 60; ++i) trainer.step(0);
    const double loss = trainer.evaluate().loss;
    if (precision == DType::f32) exact = loss;
    EXPECT_LT(loss, 1.0) << name_of(precision);
    EXPECT_NEAR(loss, exact, 0.03 * exact) << name_of(precision);
    EXPECT_EQ(precision == DType::f16, trainer.loss_scale() != nullptr);
    for (const nn::NamedArray& array : trainer.checkpoint().model) EXPECT_EQ(array.dtype, DType::f32) << array.name;
  }
}

// What a step does beyond f32: weights become narrow once, attention's results and gradients once a layer, and AdamW stays
// one kernel for each of the two groups.
TEST(Precision, CastsAreInTheirNeighboursKernels) {
  const TextData data = rhyme();
  std::size_t exact = 0;
  for (const DType precision : kPrecisions) {
    RunConfig config = run_in(precision, data);
    config.model.width = 128;  // large enough that kernels are not joined for being tiny
    config.model.context = 64;
    Trainer trainer(config, data);
    trainer.step(0);
    const std::size_t kernels = trainer.compiled_step().kernel_count();
    if (precision == DType::f32) exact = kernels;
    EXPECT_LE(kernels, exact + 2 + 4 * 2) << name_of(precision) << "\n" << trainer.compiled_step().explain();
  }
}

void expect_equal(const nn::StateDict& a, const nn::StateDict& b, std::string_view what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i] == b[i]) << what << ": " << a[i].name;
}

TEST(Precision, ResumesBitForBit) {
  const TextData data = rhyme();
  const test::TemporaryFolder folder;
  for (const DType precision : kPrecisions)
    for (const Extent accumulate : {1, 2}) {
      RunConfig config = run_in(precision, data);
      config.accumulate = accumulate;
      Trainer whole(config, data), first(config, data);
      for (int i = 0; i < 6; ++i) whole.step(0);
      for (int i = 0; i < 3; ++i) first.step(0);
      save_checkpoint(folder / "half.safetensors", first.checkpoint());
      Trainer second(config, data, load_checkpoint(folder / "half.safetensors"));
      for (int i = 0; i < 3; ++i) second.step(0);
      const Checkpoint wanted = whole.checkpoint(), given = second.checkpoint();
      expect_equal(given.model, wanted.model, name_of(precision));
      expect_equal(given.optimizer, wanted.optimizer, name_of(precision));
      expect_equal(given.loss_scale, wanted.loss_scale, name_of(precision));
      EXPECT_EQ(given.loss_scale.empty(), precision != DType::f16);
    }
}

TEST(Precision, CheckpointsGoFromOneToAnother) {
  const TextData data = rhyme();
  Checkpoint last = Trainer(run_in(DType::f32, data), data).checkpoint();
  double before = 1e9;
  for (const DType precision : {DType::f16, DType::bf16, DType::f32, DType::f16}) {
    last.config.precision = precision;
    Trainer trainer(last.config, data, last);
    for (int i = 0; i < 15; ++i) trainer.step(0);
    const double loss = trainer.evaluate().loss;
    EXPECT_LT(loss, before) << name_of(precision);
    before = loss;
    last = trainer.checkpoint();
  }
  EXPECT_EQ(last.step, 60);
}

// An overflow on the way: the step is left out, and the run goes on as if it had not been there, with half the factor.
TEST(Precision, AnOverflowLeavesTheStepOut) {
  const TextData data = rhyme();
  Trainer start(run_in(DType::f16, data), data);
  for (int i = 0; i < 3; ++i) start.step(0);
  Checkpoint checkpoint = start.checkpoint();
  for (nn::NamedArray& array : checkpoint.loss_scale)
    if (array.name == "factor") {
      const float factor = 0x1p24f;
      std::memcpy(array.bytes.data(), &factor, sizeof factor);
    }
  Trainer trainer(checkpoint.config, data, checkpoint);
  const Trainer::StepResult result = trainer.step(0);
  EXPECT_TRUE(std::isfinite(result.loss.item<float>()));
  EXPECT_FALSE(std::isfinite(result.grad_norm.item<float>()));
  const Checkpoint after = trainer.checkpoint();
  expect_equal(after.model, checkpoint.model, "model");
  expect_equal(after.optimizer, checkpoint.optimizer, "optimizer");
  EXPECT_EQ(trainer.loss_scale()->value(), 0x1p23);
  EXPECT_EQ(trainer.loss_scale()->skipped_steps(), 1);
  for (int i = 0; i < 20; ++i) trainer.step(0);
  EXPECT_LT(trainer.loss_scale()->skipped_steps(), 15);
  EXPECT_TRUE(std::isfinite(trainer.evaluate().loss));
}

TEST(Precision, RunFilesRecordIt) {
  const test::TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "row, row, row your boat, gently down the stream\n";
  TrainRequest request;
  request.out = folder / "run";
  request.data = folder.put("text.txt", text);
  request.device = "cpu";
  request.preset = "tiny";
  request.steps = 3;
  request.precision = "f16";
  request.accumulate = 2;
  request.sample_tokens = 0;
  train_text(request);
  EXPECT_EQ(load_checkpoint(folder / "run" / kLastCheckpoint).config.precision, DType::f16);
  EXPECT_NE(read_text_file(folder / "run" / "config.json").find("\"precision\": \"f16\""), std::string::npos);
  EXPECT_NE(read_text_file(folder / "run" / "metrics.jsonl").find("\"loss_scale\":"), std::string::npos);
  request.resume = true;
  request.steps = 5;
  request.precision = "bf16";
  EXPECT_EQ(train_text(request).steps, 5);
  const Checkpoint last = load_checkpoint(folder / "run" / kLastCheckpoint);
  EXPECT_EQ(last.config.precision, DType::bf16);
  EXPECT_TRUE(last.loss_scale.empty());
  request.accumulate = 3;  // belongs to the run
  EXPECT_THROW(train_text(request), UsageError);
  request.accumulate.reset();
  request.precision = "f64";
  EXPECT_THROW(train_text(request), UsageError);
}

// Two batches of 4 make the update of one of 8, but for the order of sums.
TEST(Accumulation, IsALargerBatch) {
  const TextData data = rhyme();
  RunConfig one = run_in(DType::f32, data), two = one;
  two.batch = 4;
  two.accumulate = 2;
  EXPECT_EQ(one.tokens_per_step(), two.tokens_per_step());
  Trainer a(one, data), b(two, data);
  for (int i = 0; i < 4; ++i) {
    const Trainer::StepResult x = a.step(0), y = b.step(0);
    EXPECT_NEAR(x.loss.item<float>(), y.loss.item<float>(), 1e-4);
    EXPECT_NEAR(x.grad_norm.item<float>(), y.grad_norm.item<float>(), 1e-3 * x.grad_norm.item<float>());
  }
}

// The same values, so the same bits; and less memory, the more so the deeper the model is.
TEST(Recompute, GivesTheSameBitsInLessMemory) {
  const TextData data = rhyme();
  for (const DType precision : kPrecisions) {
    RunConfig config = run_in(precision, data);
    config.model.layers = 6;
    config.model.width = 64;
    config.model.context = 64;  // large enough that kernels are not joined for being tiny
    config.model.dropout = 0.1;
    std::vector<float> losses[2];
    nn::StateDict weights[2];
    std::size_t scratch[2] = {};
    for (const bool recompute : {false, true}) {  // one after the other: dropout draws from the session's generator
      config.recompute = recompute;
      Trainer trainer(config, data);
      for (int i = 0; i < 3; ++i) losses[recompute].push_back(trainer.step(0).loss.item<float>());
      weights[recompute] = trainer.checkpoint().model;
      scratch[recompute] = trainer.compiled_step().scratch_bytes();
    }
    if (precision == DType::f32) {
      EXPECT_EQ(losses[true], losses[false]);
      expect_equal(weights[true], weights[false], "weights");
    }
    EXPECT_NEAR(losses[true].back(), losses[false].back(), 0.02);
    // On the CPU each product that reads narrow operands has a buffer of its own besides what the plan needs.
    if (precision == DType::f32) {
      EXPECT_LT(scratch[true], scratch[false] * 2 / 3);
    }
  }
}

}  // namespace
}  // namespace weft::train
