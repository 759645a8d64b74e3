// Training of all weights, beside the transformers library: full/make.py made the files.
#include <gtest/gtest.h>

#include "base/file.hpp"
#include "io/quantise_model.hpp"
#include "io/tensor_source.hpp"
#include "llm/byte_model.hpp"
#include "llm/convert.hpp"
#include "tune/peft_case.hpp"
#include "tune/talk_template.hpp"
#include "weft/error.hpp"

namespace weft::tune {
namespace {

const char* const kFullCases[] = {"llama-llama3",
                                  "llama-biases",
                                  "llama-biases-sgd",
                                  "llama-biases-rmsprop",
                                  "llama-biases-nadam",
                                  "gpt2",
                                  "phi3",
                                  "falcon-groups",
                                  "gemma2",
                                  "mamba2",
                                  "mixtral",
                                  "mixtral-balanced",
                                  "qwen2-moe",
                                  "qwen2-moe-balanced",
                                  "gpt-oss",
                                  "deepseek-v3",
                                  "llama4"};

double farthest(std::span<const float> values, const Json& wanted) {
  double worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    worst = std::max(worst, std::abs(double{values[i]} - wanted[i].get<double>()));
  return worst;
}

TEST(TuneFull, StepsGiveTheLossesAndWeightsOfTransformers) {
  for (const std::string name : kFullCases) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(name);
      const Json json = read_json_file(std::filesystem::path(WEFT_TEST_FULL) / (name + ".json"));
      const test::TemporaryFolder folder, outs;
      test::put(test::transformers_case(json.at("model")).model(), folder);
      std::vector<Example> examples;
      for (std::size_t t = 0; t < json.at("texts").size(); ++t) {
        Example& example = examples.emplace_back(Example{json.at("texts")[t].get<Tokens>(), {}});
        example.counts.assign(example.tokens.size(), true);
        std::fill_n(example.counts.begin(), json.at("skipped")[t].get<std::size_t>() + 1, false);
      }
      Tuner tuner(llm::load(folder.path(), {.context = 64}),
                  {.full = true,
                   .recompute = recompute,
                   .optimizer = json.value("optimizer", "adamw"),
                   .optimizer_options = json.value("optimizer_options", std::vector<std::string>()),
                   .weight_decay = json.at("decay"),
                   .balance = json.value("balance", 0.0)});
      RowStream stream(examples, 24, 1, false, tuner.texts_of_row());
      const Rows rows = stream.batch(0, stream.rows_of_epochs(1));
      // Adam's steps do not depend on a gradient's size, and Mamba's have elements that are nothing but rounding.
      const double tolerance = name == "mamba2" ? 1e-3 : 1e-4;
      for (std::size_t i = 0; i < json.at("losses").size(); ++i) {
        const Tuner::StepResult result = tuner.step({rows}, json.at("rate"));
        EXPECT_NEAR(result.loss.item<float>(), json.at("losses")[i].get<float>(), tolerance);
        EXPECT_EQ(result.balance.defined(), json.contains("balances"));
        if (!result.balance.defined()) continue;
        EXPECT_NEAR(result.balance.item<float>(), json.at("balances")[i].get<float>(), 1e-4);
      }
      tuner.save(outs.path() / "model");
      const io::TensorSource saved = io::TensorSource::open(outs.path() / "model");
      EXPECT_LT(farthest(saved.read_f32(json.at("after_key").get<std::string>()), json.at("after")), 1e-3);
      const llm::Model trained = llm::load(outs.path() / "model", {.context = 64});
      Tokens text = json.at("texts")[0].get<Tokens>();
      text.pop_back();
      const std::vector<float> logits = trained.forward(text);
      EXPECT_LT(farthest(std::span(logits).subspan(23 * json.at("last").size()), json.at("last")), 0.02);
      // What was saved is what trained.
      EXPECT_NEAR(Tuner(trained, {.rank = 1}).loss(rows), tuner.loss(rows), 1e-5);
    }
  }
}

// Tensors that hold the matrices of queries, keys and values in turn, and single numbers.
TEST(TuneFull, PartsOfTensorsAreWrittenToTheirPlaces) {
  for (const std::string name : {"bloom", "gpt-neox", "apertus"}) {
    SCOPED_TRACE(name);
    const test::TemporaryFolder folder, outs;
    test::put(test::transformers_case(name).model(), folder);
    std::vector<Example> examples = {{{1, 5, 3, 8, 2, 9, 4, 7}, {}}};
    examples[0].counts.assign(examples[0].tokens.size(), true);
    Tuner tuner(llm::load(folder.path(), {.context = 16}), {.full = true});
    RowStream stream(examples, 8, 1, false, tuner.texts_of_row());
    const Rows rows = stream.batch(0, 1);
    const double before = tuner.loss(rows);
    for (int i = 0; i < 3; ++i) (void)tuner.step({rows}, 1e-2);
    tuner.save(outs.path() / "model");
    EXPECT_LT(tuner.loss(rows), before - 0.1);
    EXPECT_NEAR(Tuner(llm::load(outs.path() / "model", {.context = 16}), {.rank = 1}).loss(rows), tuner.loss(rows),
                1e-5);
  }
}

// Files that have the experts of a layer in one tensor each, and folders made of them, which have each expert's apart.
TEST(TuneFull, MixturesOfGgufFilesTrainAndBecomeFolders) {
  for (const std::string name : {"mixtral", "gpt-oss"})
    for (const bool in_blocks : {false, true}) {
      SCOPED_TRACE(name);
      const test::TemporaryFolder folder, files;
      test::put(test::transformers_case(name).model(), folder);
      std::filesystem::path gguf = files.path() / "f32.gguf";
      llm::convert_to_gguf(io::TensorSource::open(folder.path()), gguf);
      if (in_blocks) {
        io::quantise_model(io::TensorSource::open(gguf), files.path() / "q8.gguf", {.type = "Q8_0", .pure = true});
        gguf = files.path() / "q8.gguf";
      }
      std::vector<Example> examples = {{{1, 5, 3, 8, 2, 9, 4, 7}, {}}};
      examples[0].counts.assign(examples[0].tokens.size(), true);
      Tuner tuner(llm::load(gguf, {.context = 16}), {.full = true, .balance = 0.01});
      RowStream stream(examples, 8, 1, false);
      const Rows rows = stream.batch(0, 1);
      const double before = tuner.loss(rows);
      for (int i = 0; i < 3; ++i) (void)tuner.step({rows}, 1e-2);
      tuner.save(files.path() / "model");
      EXPECT_LT(tuner.loss(rows), before - 0.1);
      EXPECT_NEAR(Tuner(llm::load(files.path() / "model", {.context = 16}), {.rank = 1}).loss(rows), tuner.loss(rows),
                  in_blocks ? 2e-3 : 1e-5);
    }
}

class TuneFullRun : public ::testing::Test {
 protected:
  TuneFullRun() {
    test::put_byte_model(folder_, kTalkTemplate);
    std::string lines;
    for (int i = 0; i < 24; ++i) lines += "{\"prompt\": \"" + std::to_string(i) + "?\", \"completion\": \" yes\"}\n";
    folder_.put("data.jsonl", lines);
  }
  Request request(const std::string& out) const {
    Request r{.model = folder_.path(), .data = folder_.path() / "data.jsonl", .out = outs_.path() / out};
    r.context = 32;
    r.batch = 2;
    r.steps = 8;
    r.learning_rate = 3e-3;
    r.log_every = 1;
    r.tuner.full = true;
    return r;
  }
  std::string weights_of(const Request& r) const {
    return read_text_file(r.out / "model" / "model.safetensors", 1 << 30);
  }
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_, outs_;
};

TEST_F(TuneFullRun, ARunThatWasStoppedEndsWithTheSameBits) {
  for (const Extent accumulate : {Extent{1}, Extent{2}}) {
    Request whole = request("whole" + std::to_string(accumulate)),
            parts = request("parts" + std::to_string(accumulate));
    whole.tuner.accumulate = parts.tuner.accumulate = accumulate;
    const RunReport report = run(whole);
    EXPECT_LT(*report.last_validation, *report.first_validation - 1);
    std::stop_source stop;
    EXPECT_TRUE(run(parts,
                    {.step =
                         [&](const Progress& p) {
                           if (p.step == 3) stop.request_stop();
                         }},
                    stop.get_token())
                    .interrupted);
    parts.resume = true;
    EXPECT_EQ(run(parts).steps, 8);
    EXPECT_EQ(weights_of(parts), weights_of(whole));
    parts.tuner.full = false;
    EXPECT_NE(refusal([&] { run(parts); }).find("full"), std::string::npos);
  }
  Request r = request("whole1");
  for (const char* name : {"model", "best"})
    EXPECT_TRUE(llm::load(r.out / name, {.context = 32}).has_template()) << name;
}

TEST_F(TuneFullRun, OtherTypesKeepTheirsAndBlocksBecomeF16) {
  const test::TemporaryFolder files;
  const std::filesystem::path gguf = files.path() / "f32.gguf", blocks = files.path() / "q8.gguf";
  llm::convert_to_gguf(io::TensorSource::open(folder_.path()), gguf);
  io::quantise_model(io::TensorSource::open(gguf), blocks, {.type = "Q8_0", .pure = true});
  Request r = request("blocks");
  r.model = blocks;
  r.tuner.precision = DType::bf16;
  const RunReport report = run(r);
  EXPECT_LT(*report.last_validation, *report.first_validation - 1);
  const io::TensorSource saved = io::TensorSource::open(r.out / "model");
  EXPECT_EQ(saved.at("model.layers.0.mlp.up_proj.weight").type, BlockType::f16);
  const llm::Model model = llm::load(r.out / "model", {.context = 32});
  const Examples examples = read_examples(folder_.path() / "data.jsonl", model, 32);
  RowStream stream(examples.all, 32, 1);
  EXPECT_LT(Tuner(model, {.rank = 1}).loss(stream.batch(0, 4)), *report.first_validation - 1);
}

TEST_F(TuneFullRun, ARunTellsHowExpertsAreBalanced) {
  const test::TemporaryFolder folder;
  test::put(test::transformers_case("qwen3-moe").model(), folder);
  folder.put("data.txt", "w1 w5 w3 w8 w2 w9 w4 w7 w1 w5 w3 w8 w2 w9 w4 w7");
  Request r = request("balanced");
  r.model = folder.path();
  r.data = folder.path() / "data.txt";
  r.context = 8;
  r.batch = 1;
  r.tuner.balance = 0.5;
  std::vector<double> balances;
  run(r, {.step = [&](const Progress& p) {
        if (p.balance) balances.push_back(*p.balance);
      }});
  ASSERT_EQ(balances.size(), 8u);
  EXPECT_LT(balances.back(), balances.front());
  EXPECT_GE(balances.back(), 1.99);  // two experts a token, in equal shares
  EXPECT_NE(read_text_file(r.out / "metrics.jsonl").find("\"balance\""), std::string::npos);
}

TEST_F(TuneFullRun, WhatCannotTrainIsRefusedWithSizes) {
  Request r = request("none");
  r.tuner.dora = true;
  EXPECT_NE(refusal([&] { run(r); }).find("leave out dora"), std::string::npos);
  r = request("none");
  r.to_gguf = true;
  EXPECT_NE(refusal([&] { run(r); }).find("weft convert"), std::string::npos);
  r = request("none");
  r.device_memory = 100'000;
  EXPECT_NE(refusal([&] { run(r); }).find("there is room for 0.1 MB"), std::string::npos);
  const RunNeed small = run_need(r);
  EXPECT_FALSE(small.fits);
  EXPECT_EQ(small.largest_batch, 0);
  r.device_memory = 0;
  const RunNeed need = run_need(r);
  EXPECT_EQ(need.trained, static_cast<std::uint64_t>(need.parameters) * 12);
  EXPECT_EQ(need.trained, small.trained);
  EXPECT_TRUE(need.fits);
  EXPECT_GT(need.step, 0u);
  EXPECT_FALSE(std::filesystem::exists(r.out));
  r.tuner.balance = 0.1;
  EXPECT_NE(refusal([&] { run(r); }).find("this one has none"), std::string::npos);
}

}  // namespace
}  // namespace weft::tune
