// Whole runs: what they learn, what they write, and how they go on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/file.hpp"
#include "io/quantise_model.hpp"
#include "llm/byte_model.hpp"
#include "llm/convert.hpp"
#include "tune/talk_template.hpp"
#include "weft/error.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

/// A model, and conversations in which the answer is always the same.
class TuneRun : public ::testing::Test {
 protected:
  TuneRun() {
    test::put_byte_model(folder_, kTalkTemplate);
    std::string lines;
    for (int i = 0; i < 24; ++i)
      lines += R"({"messages": [{"role": "user", "content": "q)" + std::to_string(i * 7919 % 100) +
               R"("}, {"role": "assistant", "content": "yes"}]})" + "\n";
    folder_.put("talks.jsonl", lines);
  }
  Request request(const std::string& out) const {
    Request r{.model = folder_.path(), .data = folder_.path() / "talks.jsonl", .out = outs_.path() / out};
    r.context = 48;
    r.batch = 2;
    r.steps = 8;
    r.learning_rate = 2e-2;
    r.log_every = 1;
    r.tuner.rank = 4;
    r.tuner.alpha = 8;
    return r;
  }
  std::string saved(const std::string& out) const {
    return read_text_file(outs_.path() / out / "adapter_model.safetensors", 1 << 30);
  }

  test::TemporaryFolder folder_, outs_;
};

/// The losses of some steps.
std::vector<double> losses_of(const llm::Model& model, const Examples& examples, TunerOptions options, int steps = 6) {
  options.rank = 4;
  Tuner tuner(model, options);
  RowStream stream(examples.all, 48, 1);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i)
    losses.push_back(static_cast<double>(tuner.step({stream.batch(2 * i, 2)}, 1e-2).loss.item<float>()));
  return losses;
}

TEST_F(TuneRun, AModelLearnsItsAnswer) {
  Request r = request("a");
  r.steps = 160;
  r.learning_rate = 5e-3;
  r.to_gguf = true;
  std::vector<double> losses;
  const RunReport report = run(r, {.step = [&](const Progress& p) { losses.push_back(p.loss); }});
  EXPECT_EQ(report.steps, 160);
  EXPECT_FALSE(report.interrupted);
  ASSERT_TRUE(report.first_validation && report.last_validation);
  EXPECT_GT(*report.first_validation, 4);
  EXPECT_LT(*report.last_validation, 1);  // the head of this model gives no token more than half
  for (const char* name :
       {"adapter_config.json", "adapter_model.safetensors", "adapter.gguf", "best/adapter_config.json", "metrics.jsonl",
        "loss.svg", "run.json", "checkpoint.safetensors"})
    EXPECT_TRUE(std::filesystem::exists(r.out / name)) << name;
  for (const std::filesystem::path& adapter : {r.out, r.out / "adapter.gguf"}) {
    const llm::Model model = llm::load(folder_.path(), {.context = 64, .adapters = {{adapter}}});
    EXPECT_EQ(model.chat({{"user", "q5"}}, {.max_tokens = 8, .sampling = {.temperature = 0}}).result().text, "yes");
  }
}

TEST_F(TuneRun, ARunThatWasStoppedEndsWithTheSameBits) {
  for (const Extent accumulate : {Extent{1}, Extent{2}}) {
    Request whole = request("whole" + std::to_string(accumulate)),
            parts = request("parts" + std::to_string(accumulate));
    whole.tuner.accumulate = parts.tuner.accumulate = accumulate;
    whole.tuner.dropout = parts.tuner.dropout = 0.1;
    run(whole);
    std::stop_source stop;
    const RunReport first = run(parts,
                                {.step =
                                     [&](const Progress& p) {
                                       if (p.step == 3) stop.request_stop();
                                     }},
                                stop.get_token());
    EXPECT_TRUE(first.interrupted);
    EXPECT_LT(first.steps, 8);
    EXPECT_THROW(run(parts), UsageError);  // the folder has a run
    parts.resume = true;
    EXPECT_EQ(run(parts).steps, 8);
    EXPECT_EQ(saved("parts" + std::to_string(accumulate)), saved("whole" + std::to_string(accumulate)));
    parts.learning_rate = 1e-3;
    try {
      run(parts);
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("(learning_rate)"), std::string::npos) << error.what();
    }
  }
}

TEST_F(TuneRun, EveryRuleStopsAndGoesOnWithTheSameBits) {
  const std::pair<std::string, std::vector<std::string>> rules[] = {
      {"lion", {}}, {"sgd", {"momentum=0.9"}}, {"adafactor", {}}, {"muon", {"iterations=3"}}};
  for (const auto& [rule, options] : rules) {
    SCOPED_TRACE(rule);
    Request whole = request("whole-" + rule), parts = request("parts-" + rule);
    for (Request* r : {&whole, &parts}) {
      r->tuner.optimizer = rule;
      r->tuner.optimizer_options = options;
      r->learning_rate = 1e-3;
    }
    const RunNeed need = run_need(whole);
    Tuner tuner(llm::load(folder_.path(), {.context = 48}), whole.tuner);
    EXPECT_EQ(need.trained, tuner.trained_bytes());
    EXPECT_GE(need.trained, static_cast<std::uint64_t>(tuner.parameter_count()) * 4);
    if (rule == "lion") {
      EXPECT_EQ(need.trained, static_cast<std::uint64_t>(tuner.parameter_count()) * 8);  // one moment
      EXPECT_NE(need.to_string().find("and the state of Lion"), std::string::npos) << need.to_string();
    }
    run(whole);
    std::stop_source stop;
    run(parts,
        {.step =
             [&](const Progress& p) {
               if (p.step == 3) stop.request_stop();
             }},
        stop.get_token());
    parts.resume = true;
    EXPECT_EQ(run(parts).steps, 8);
    EXPECT_EQ(saved("parts-" + rule), saved("whole-" + rule));
    parts.tuner.optimizer = "adamw";
    parts.tuner.optimizer_options = {};
    try {
      run(parts);
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("(optimizer, optimizer_options)"), std::string::npos) << error.what();
    }
  }
  Request r = request("none");
  r.tuner.optimizer_options = {"momentum=0.9"};
  EXPECT_THROW(run(r), UsageError);  // AdamW has none
  r.tuner.optimizer = "nonsense";
  EXPECT_THROW(run(r), UsageError);
}

TEST_F(TuneRun, ARefusedRunLeavesNoFolder) {
  Request r = request("none");
  r.tuner.targets = {"q_proj", "nonsense"};
  try {
    run(r);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(
        std::string(error.what()).find("no product of the model is called \"nonsense\"; it has down, down_proj, gate"),
        std::string::npos)
        << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(r.out));
  r = request("none");
  r.tuner.rank = 0;
  EXPECT_THROW(run(r), UsageError);
  r = request("none");
  r.learning_rate = 0;
  EXPECT_THROW(run(r), UsageError);
  r = request("none");
  r.batch = 65536;
  r.tuner.recompute = false;
  try {
    run(r);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("take a smaller batch or context, or let layers"), std::string::npos)
        << error.what();
  }
  r = request("none");
  r.resume = true;
  EXPECT_THROW(run(r), UsageError);
  r = request("none");
  r.data = folder_.path() / "missing.jsonl";
  EXPECT_THROW(run(r), FileError);
  EXPECT_FALSE(std::filesystem::exists(r.out));
}

TEST_F(TuneRun, TheNeedOfARunIsKnownBeforeItsWeightsAreRead) {
  Request r = request("need");
  r.tuner.accumulate = 2;
  r.steps = 0;
  r.epochs = 3;
  const RunNeed need = run_need(r);
  EXPECT_FALSE(std::filesystem::exists(r.out));
  const llm::Model model = llm::load(folder_.path(), {.context = 48});
  Tuner tuner(model, r.tuner);
  EXPECT_EQ(need.parameters, tuner.parameter_count());
  EXPECT_EQ(need.trained, static_cast<std::uint64_t>(tuner.parameter_count()) * 16);  // with moments and the sum
  EXPECT_EQ(need.step, tuner.planned_bytes(r.batch, r.context));
  EXPECT_EQ(need.validation, tuner.planned_measure_bytes(r.batch, r.context));
  EXPECT_EQ(need.steps, run(r).steps);
  EXPECT_TRUE(need.fits);
  ASSERT_TRUE(need.available && need.largest_batch);
  EXPECT_GT(*need.largest_batch, r.batch);
  // A limit between the needs of two batches.
  r.device_memory = need.total() + need.step / 2;
  const RunNeed limited = run_need(r);
  EXPECT_TRUE(limited.fits);
  r.batch = *limited.largest_batch;
  EXPECT_TRUE(run_need(r).fits);
  r.batch += 1;
  EXPECT_FALSE(run_need(r).fits);
  EXPECT_NE(run_need(r).to_string().find("the run does not fit"), std::string::npos);
  r.out = outs_.path() / "refused";
  r.device_memory = need.total() / 2;
  EXPECT_THROW(run(r), UsageError);
  r.device_memory = 1000;
  EXPECT_EQ(run_need(r).largest_batch, 0);
  EXPECT_NE(run_need(r).to_string().find("no batch fits: weights"), std::string::npos);
  r.tuner.dora = true;  // whose lengths are of weights that are not there
  EXPECT_GT(run_need(r).parameters, need.parameters);
}

TEST_F(TuneRun, LengthsOfRowsTrainToo) {
  const llm::Model model = llm::load(folder_.path(), {.context = 64});
  const Examples examples = read_examples(folder_.path() / "talks.jsonl", model, 48);
  RowStream stream(examples.all, 48, 1);
  const Rows rows = stream.batch(0, 2);
  Tuner dora(model, {.rank = 4, .dora = true}), plain(model, {.rank = 4});
  EXPECT_NEAR(dora.loss(rows), plain.loss(rows), 1e-6);  // rows have the lengths that they had
  const Tuner::StepResult step = dora.step({rows}, 1e-2);
  EXPECT_NE(step.grad_norm.item<float>(), plain.step({rows}, 1e-2).grad_norm.item<float>());
  dora.save(outs_.path() / "dora");
  EXPECT_TRUE(read_json_file(outs_.path() / "dora" / "adapter_config.json").at("use_dora").get<bool>());
  EXPECT_THROW(dora.save(outs_.path() / "dora.gguf"), FileError);
  // Beside packed weights too, and by a share of the change.
  const test::TemporaryFolder files;
  const std::filesystem::path gguf = files.path() / "f32.gguf", packed = files.path() / "q8.gguf";
  llm::convert_to_gguf(io::TensorSource::open(folder_.path()), gguf);
  io::quantise_model(io::TensorSource::open(gguf), packed, {.type = "Q8_0", .pure = true});
  const std::vector<double> losses =
      losses_of(llm::load(packed, {.context = 64}), examples, {.dora = true, .precision = DType::f16});
  EXPECT_LT(losses.back(), losses.front() - 0.5);
  const std::vector<std::int32_t> text = {1, 2, 3};
  const auto logits = [&](double scale) {
    return llm::load(folder_.path(), {.context = 64, .adapters = {{outs_.path() / "dora", scale}}}).forward(text);
  };
  const std::vector<float> none = model.forward(text), off = logits(0), half = logits(0.5), all = logits(1);
  double moved = 0, bent = 0;
  for (std::size_t i = 0; i < none.size(); ++i) {
    EXPECT_NEAR(off[i], none[i], 1e-5);
    moved = std::max(moved, std::abs(double{all[i]} - none[i]));
    bent = std::max(bent, std::abs(double{half[i]} - (double{all[i]} + none[i]) / 2));
  }
  EXPECT_GT(moved, 1e-2);
  EXPECT_LT(bent, moved / 5);
}

TEST_F(TuneRun, TargetsAndASecondRunThatGoesOn) {
  Request r = request("first");
  r.tuner.targets = {"q_proj", "v"};
  run(r);
  const Json config = read_json_file(r.out / "adapter_config.json");
  EXPECT_EQ(config.at("target_modules"), Json({"q_proj", "v_proj"}));
  EXPECT_EQ(config.at("r"), 4);
  EXPECT_EQ(config.at("lora_alpha"), 8);
  Request more = request("second");
  more.tuner.from = r.out;
  more.tuner.rank = 99;  // that of the adapter counts
  const RunReport report = run(more);
  EXPECT_EQ(read_json_file(more.out / "adapter_config.json").at("r"), 4);
  const RunReport fresh = run([&] {
    Request q = request("fresh");
    q.tuner.targets = r.tuner.targets;
    return q;
  }());
  EXPECT_LT(*report.first_validation, *fresh.first_validation);
}

TEST_F(TuneRun, PackedWeightsTrainAsTheSameWeightsUnpacked) {
  for (const char* type : {"Q8_0", "F16", "BF16"}) {
    SCOPED_TRACE(type);
    const test::TemporaryFolder files;
    const std::filesystem::path gguf = files.path() / "f32.gguf", packed_file = files.path() / "packed.gguf",
                                again = files.path() / "unpacked";
    llm::convert_to_gguf(io::TensorSource::open(folder_.path()), gguf);
    io::quantise_model(io::TensorSource::open(gguf), packed_file, {.type = type, .pure = true});
    llm::convert_to_folder(io::TensorSource::open(packed_file), again, {.type = io::BlockType::f32});
    const llm::Model packed = llm::load(packed_file, {.context = 64}), plain = llm::load(again, {.context = 64});
    const Examples examples = read_examples(folder_.path() / "talks.jsonl", plain, 48);
    const std::vector<double> wanted = losses_of(plain, examples, {});
    for (const bool recompute : {true, false}) {
      const std::vector<double> losses = losses_of(packed, examples, {.recompute = recompute});
      for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], wanted[i], 2e-4) << i;
      EXPECT_LT(losses.back(), losses.front() - 0.5);
    }
  }
}

TEST_F(TuneRun, UnpackedWeightsOfOneLayerAreInMemoryAtATime) {
  Json config = test::base_config("llama");
  config.update({{"hidden_size", 128}, {"intermediate_size", 512}, {"num_hidden_layers", 8}});
  const test::TemporaryFolder folder;
  test::put(test::finish("wide", std::move(config)), folder);
  const std::filesystem::path gguf = outs_.path() / "wide.gguf", blocks = outs_.path() / "wide-q8.gguf";
  llm::convert_to_gguf(io::TensorSource::open(folder.path()), gguf);
  io::quantise_model(io::TensorSource::open(gguf), blocks, {.type = "Q8_0"});
  const llm::Model model = llm::load(blocks, {.context = 64});
  const std::uint64_t all = 8 * (3 * 128 * 512 + 3 * 128 * 128) * sizeof(float);
  EXPECT_LT(Tuner(model, {.rank = 2}).planned_bytes(1, 8), all / 3);
  EXPECT_GT(Tuner(model, {.rank = 2, .recompute = false}).planned_bytes(1, 8), all);
}

TEST_F(TuneRun, NarrowTypesTrainNearlyAsF32) {
  const llm::Model model = llm::load(folder_.path(), {.context = 64});
  const Examples examples = read_examples(folder_.path() / "talks.jsonl", model, 48);
  const std::vector<double> wide = losses_of(model, examples, {});
  for (const DType type : {DType::f16, DType::bf16}) {
    const std::vector<double> narrow = losses_of(model, examples, {.precision = type});
    for (std::size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], type == DType::f16 ? 0.02 : 0.1);
    EXPECT_NE(narrow, wide);
  }
  EXPECT_THROW(Tuner(model, {.precision = DType::f64}), UsageError);
}

TEST_F(TuneRun, RecomputingTakesLessMemoryAndGivesTheSame) {
  const llm::Model model = llm::load(folder_.path(), {.context = 64});
  const Examples examples = read_examples(folder_.path() / "talks.jsonl", model, 48);
  const std::vector<double> kept = losses_of(model, examples, {.recompute = false}),
                            again = losses_of(model, examples, {.recompute = true});
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_NEAR(kept[i], again[i], 1e-5);
  Tuner keeps(model, {.recompute = false}), recomputes(model, {.recompute = true});
  EXPECT_LT(recomputes.planned_bytes(8, 48), keeps.planned_bytes(8, 48) * 3 / 4);
}

TEST_F(TuneRun, ADeviceTrainsAsTheCpu) {
  if (default_device() == kCpu) GTEST_SKIP() << "the default device is the CPU";
  const llm::Model here = llm::load(folder_.path(), {.context = 64}),
                   cpu = llm::load(folder_.path(), {.context = 64, .device = kCpu});
  const Examples examples = read_examples(folder_.path() / "talks.jsonl", cpu, 48);
  const TunerOptions few{.targets = {"q_proj", "down_proj"}};  // fewer kernels to compile
  const std::vector<double> a = losses_of(here, examples, few, 3);
  set_default_device(kCpu);
  const std::vector<double> b = losses_of(cpu, examples, few, 3);
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-3) << i;
}

}  // namespace
}  // namespace weft::tune
