// Text encoders that train, beside transformers and sentence-transformers (encoder/make.py), and what runs write.
#include <gtest/gtest.h>

#include <cmath>

#include "base/file.hpp"
#include "encoder/tiny_encoder.hpp"
#include "io/tensor_source.hpp"
#include "weft/error.hpp"
#include "weft/tune_encoder.hpp"

namespace weft::tune {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

double farthest_of(const std::vector<float>& made, const Json& wanted) {
  std::vector<double> flat;
  for (const Json& each : wanted) {
    if (!each.is_array()) {
      flat.push_back(each.get<double>());
      continue;
    }
    for (const Json& number : each) flat.push_back(number.get<double>());
  }
  EXPECT_GE(made.size(), flat.size());
  double worst = 0;
  for (std::size_t i = 0; i < flat.size(); ++i) worst = std::max(worst, std::abs(double{made[i]} - flat[i]));
  return worst;
}

std::string lines_of(const Json& examples) {
  std::string lines;
  for (const Json& example : examples) lines += example.dump() + "\n";
  return lines;
}

void put_tiny(const std::string& name, const fs::path& folder) {
  test::put_encoder(test::encoder_case(name), name, folder);
}

std::vector<std::string> texts_of(const Json& examples, const char* key) {
  std::vector<std::string> texts;
  for (const Json& example : examples) texts.push_back(example.at(key).get<std::string>());
  return texts;
}

/// What a saved model gives for the examples, as make.py takes it.
std::vector<float> scores_of(const encoder::Model& model, const EncoderExamples& data, const Json& examples,
                             bool normalizes) {
  if (model.task() == encoder::Task::classify) {
    const bool pairs = data.all[0].texts.size() == 2;
    const Tensor made = pairs ? model.logits(texts_of(examples, "sentence1"), texts_of(examples, "sentence2"))
                              : model.logits(texts_of(examples, "text"));
    return made.to_vector<float>();
  }
  const bool is_ranking = data.objective == Objective::ranking;
  return model.embed(texts_of(examples, is_ranking ? "anchor" : "sentence1"), {.normalize = normalizes})
      .to_vector<float>();
}

TEST(TuneEncoder, StepsGiveTheLossesAndWeightsOfTransformers) {
  int cases = 0;
  for (const auto& entry : fs::directory_iterator(WEFT_TEST_TUNED_ENCODERS)) {
    if (entry.path().extension() != ".json") continue;
    SCOPED_TRACE(entry.path().stem().string());
    ++cases;
    const Json golden = read_json_file(entry.path());
    const TemporaryFolder folder, outs;
    put_tiny(golden.at("model"), folder.path());
    folder.put("data.jsonl", lines_of(golden.at("examples")));
    const EncoderExamples data = read_encoder_examples(folder.path() / "data.jsonl", folder.path(),
                                                       objective_named(golden.at("objective").get<std::string>()));
    EncoderTuner tuner(folder.path(), data, {.recompute = cases % 2 == 0, .weight_decay = golden.at("decay")},
                       {.dropout = false});
    EXPECT_FALSE(tuner.has_new_head());
    for (const Json& loss : golden.at("losses")) {
      const Tuner::StepResult result = tuner.step({std::span(data.all)}, golden.at("rate"));
      EXPECT_NEAR(result.loss.item<float>(), loss.get<float>(), 1e-4);
    }
    tuner.save(outs.path() / "model");
    const io::TensorSource saved = io::TensorSource::open(outs.path() / "model");
    EXPECT_LT(farthest_of(saved.read_f32(golden.at("after_key").get<std::string>()), golden.at("after")), 1e-4);
    const encoder::Model model = encoder::load(outs.path() / "model");
    const std::string modules =
        read_json_file(folder.path() / "config.json").dump() +
        (fs::exists(folder.path() / "modules.json") ? read_text_file(folder.path() / "modules.json") : "");
    if (data.objective != Objective::tokens) {
      const bool normalizes = modules.find("Normalize") != std::string::npos;
      EXPECT_LT(farthest_of(scores_of(model, data, golden.at("examples"), normalizes), golden.at("scores")), 2e-3);
    }
    // What was saved is what trained.
    EncoderTuner again(outs.path() / "model", data, {}, {});
    EXPECT_NEAR(again.measure(data.all, 8).loss, tuner.measure(data.all, 8).loss, 1e-5);
  }
  EXPECT_GE(cases, 20);
}

// The names and shapes of tensors that transformers writes for a model with the head, from a model without.
TEST(TuneEncoder, NewHeadsAreNamedAsTransformersNamesThem) {
  const std::pair<const char*, const char*> pairs[] = {{"bert", "bert-classes"},
                                                       {"bert-masks", "bert-classes"},
                                                       {"bert", "bert-tokens"},
                                                       {"distilbert-masks", "distilbert-classes"},
                                                       {"modernbert-masks", "modernbert-tokens"},
                                                       {"roberta", "roberta-classes"},
                                                       {"electra-masks", "electra-classes"}};
  for (const auto& [from, to] : pairs) {
    SCOPED_TRACE(std::string(from) + " to " + to);
    const TemporaryFolder folder, outs;
    put_tiny(from, folder.path());
    const bool of_words = std::string_view(to).ends_with("tokens");
    EncoderExamples data;
    data.objective = of_words ? Objective::tokens : Objective::single_label;
    data.classes = {"O", "B-PER", "I-PER"};
    if (to == std::string_view("roberta-classes")) {
      data.objective = Objective::cross_encoder;
      data.classes = {"LABEL_0"};
    }
    const Json wanted = test::encoder_case(to);
    const EncoderTuner tuner(folder.path(), data, {}, {});
    EXPECT_TRUE(tuner.has_new_head());
    tuner.save(outs.path() / "model");
    const io::TensorSource saved = io::TensorSource::open(outs.path() / "model");
    for (const auto& [key, extents] : wanted.at("tensors").items()) {
      const io::SourceTensor* found = saved.find(key);
      ASSERT_TRUE(found) << key;
      EXPECT_EQ(found->shape, Shape(extents.get<std::vector<Extent>>())) << key;
    }
    const Json config = read_json_file(outs.path() / "model" / "config.json");
    EXPECT_EQ(config.at("architectures"), wanted.at("files").at("config.json").at("architectures"));
    EXPECT_FALSE(fs::exists(outs.path() / "model" / "modules.json"));
    EXPECT_EQ(encoder::load(outs.path() / "model").classes(), data.classes);
  }
}

TEST(TuneEncoder, AModelThatLearnsEmbeddingsLosesItsHead) {
  const TemporaryFolder folder, outs;
  put_tiny("roberta-classes", folder.path());
  const EncoderExamples data{Objective::cosent, {}, {{{"w9", "w8"}, {}, 1}, {{"w7", "w6"}, {}, 0}}};
  EncoderTuner tuner(folder.path(), data, {}, {});
  (void)tuner.step({std::span(data.all)}, 1e-3);
  tuner.save(outs.path() / "model");
  EXPECT_EQ(encoder::load(outs.path() / "model").task(), encoder::Task::embed);
  const Json modules = read_json_file(outs.path() / "model" / "modules.json");  // as sentence-transformers needs them
  EXPECT_EQ(modules.size(), 2u);
  EXPECT_EQ(modules[1].at("path"), "1_Pooling");
}

TEST(TuneEncoder, MeasuresOfPairsDoNotDependOnBatches) {
  const TemporaryFolder folder;
  put_tiny("bert", folder.path());
  EncoderExamples data;
  data.objective = Objective::cosine;
  for (int i = 0; i < 6; ++i)
    data.all.push_back({{"w" + std::to_string(9 + i), "w" + std::to_string(20 + 3 * i)}, {}, i == 5 ? 0.1 : 0.1 * i});
  EncoderTuner tuner(folder.path(), data, {}, {.dropout = false});
  const Measured whole = tuner.measure(data.all, 6), parts = tuner.measure(data.all, 4);
  EXPECT_NEAR(whole.loss, parts.loss, 1e-6);
  EXPECT_NEAR(whole.spearman.value(), parts.spearman.value(), 1e-12);
  const encoder::Model model = encoder::load(folder.path());
  double loss = 0;
  for (const EncoderExample& example : data.all) {
    const std::vector<float> rows = model.embed(example.texts).to_vector<float>();
    double cosine = 0;
    for (std::size_t i = 0; i < rows.size() / 2; ++i) cosine += double{rows[i]} * double{rows[rows.size() / 2 + i]};
    loss += (cosine - example.value) * (cosine - example.value) / 6;
  }
  EXPECT_NEAR(whole.loss, loss, 1e-5);
}

class TuneEncoderRun : public ::testing::Test {
 protected:
  /// Texts whose class is that of one of their words.
  TuneEncoderRun() {
    put_tiny("bert", folder_.path());
    std::string lines;
    for (int i = 0; i < 60; ++i)
      lines += "{\"text\": \"w" + std::to_string(10 + i % 7) + (i % 2 == 0 ? " w30" : " w40") + " w" +
               std::to_string(20 + i % 5) + "\", \"label\": \"" + (i % 2 == 0 ? "even" : "odd") + "\"}\n";
    folder_.put("data.jsonl", lines);
  }
  Request request(const std::string& out) const {
    Request r{.model = folder_.path(), .data = folder_.path() / "data.jsonl", .out = outs_.path() / out};
    r.batch = 8;
    r.steps = 60;
    r.learning_rate = 3e-3;
    r.schedule = RateSchedule::linear;
    return r;
  }
  std::string weights_of(const std::string& out) const {
    return read_text_file(outs_.path() / out / "model" / "model.safetensors", 1 << 30);
  }
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_, outs_;
};

TEST_F(TuneEncoderRun, AClassIsLearnt) {
  RunStart start;
  const RunReport report = run(request("a"), {.begin = [&](const RunStart& s) { start = s; }});
  EXPECT_EQ(start.learns, "single-label");
  EXPECT_EQ(start.examples, 57u);  // the last twentieth measures
  EXPECT_LT(report.last_validation.value(), 0.1);
  EXPECT_EQ(report.last_accuracy, 1.0);
  EXPECT_EQ(report.last_f1, 1.0);
  const encoder::Model model = encoder::load(outs_.path() / "a" / "best");
  EXPECT_EQ(model.classify("w12 w40 w22")[0].name, "odd");
  EXPECT_EQ(model.classify("w11 w30 w21")[0].name, "even");
  EXPECT_NE(read_text_file(outs_.path() / "a" / "metrics.jsonl").find("\"val_f1\""), std::string::npos);
}

TEST_F(TuneEncoderRun, ARunThatWasStoppedEndsWithTheSameBits) {
  Request whole = request("whole"), parts = request("parts");
  whole.steps = parts.steps = 12;
  (void)run(whole);
  std::stop_source stop;
  (void)run(parts,
            {.step =
                 [&](const Progress& p) {
                   if (p.step >= 4) stop.request_stop();
                 }},
            stop.get_token());
  parts.resume = true;
  EXPECT_FALSE(run(parts).interrupted);
  EXPECT_EQ(weights_of("whole"), weights_of("parts"));
  // Dropout is a part of the run: another seed gives other weights.
  Request other = request("other");
  other.steps = 12;
  other.tuner.seed = 2;
  (void)run(other);
  EXPECT_NE(weights_of("whole"), weights_of("other"));
}

TEST_F(TuneEncoderRun, BatchesThatAccumulateAreOneLargeBatch) {
  EncoderExamples data = read_encoder_examples(folder_.path() / "data.jsonl", folder_.path());
  EncoderTuner one(folder_.path(), data, {}, {.dropout = false}),
      two(folder_.path(), data, {.accumulate = 2}, {.dropout = false});
  const std::span<const EncoderExample> all(data.all);
  for (std::size_t step = 0; step < 3; ++step) {
    const Tensor a = one.step({all.subspan(8 * step, 8)}, 1e-3).loss,
                 b = two.step({all.subspan(8 * step, 4), all.subspan(8 * step + 4, 4)}, 1e-3).loss;
    EXPECT_NEAR(a.item<float>(), b.item<float>(), 1e-5);
  }
}

TEST_F(TuneEncoderRun, DropoutChangesAStepAndNotAMeasurement) {
  EncoderExamples data = read_encoder_examples(folder_.path() / "data.jsonl", folder_.path());
  const std::span<const EncoderExample> batch = std::span(data.all).first(8);
  EncoderTuner with(folder_.path(), data, {}, {}), without(folder_.path(), data, {}, {.dropout = false});
  EXPECT_EQ(with.measure(batch, 8).loss, without.measure(batch, 8).loss);
  const float dropped = with.step({batch}, 0).loss.item<float>(), plain = without.step({batch}, 0).loss.item<float>();
  EXPECT_NE(dropped, plain);
  EXPECT_NEAR(plain, without.measure(batch, 8).loss, 1e-5);
  EXPECT_NE(with.step({batch}, 0).loss.item<float>(), dropped);
}

TEST_F(TuneEncoderRun, LinesThatDoNotFitAreRefused) {
  const auto read = [&](const std::string& lines, std::optional<Objective> objective = {}) {
    folder_.put("wrong.jsonl", lines);
    return refusal([&] { (void)read_encoder_examples(folder_.path() / "wrong.jsonl", folder_.path(), objective); });
  };
  EXPECT_NE(read("{\"text\": \"a\"}\n").find("line 1: there is nothing to learn from it; write"), std::string::npos);
  EXPECT_NE(read("{\"tokens\": [\"a\"], \"labels\": [0, 1]}").find("2 labels for 1 words"), std::string::npos);
  EXPECT_NE(read("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"label\": \"b\"}").find("in one way"),
            std::string::npos);
  EXPECT_NE(read("{\"text\": \"a\", \"label\": \"b\"}").find("the same class"), std::string::npos);
  EXPECT_NE(
      read("{\"anchor\": \"a\", \"positive\": \"b\"}\n{\"anchor\": \"a\", \"positive\": \"b\", \"negative\": \"c\"}")
          .find("1 negatives, and the first example has 0"),
      std::string::npos);
  EXPECT_NE(read("{\"text\": \"a\", \"label\": 0.5}", Objective::cosine).find("two texts and their score"),
            std::string::npos);
  EXPECT_NE(
      read("{\"sentence1\": \"a\", \"sentence2\": \"b\", \"score\": 3}", Objective::cross_encoder).find("from 0 to 1"),
      std::string::npos);
  Request r = request("no");
  r.tuner.dora = true;
  EXPECT_NE(refusal([&] { (void)run(r); }).find("all weights"), std::string::npos);
  EXPECT_FALSE(fs::exists(r.out));
}

TEST_F(TuneEncoderRun, ADryRunPlansWhatTheRunTakes) {
  Request r = request("no");
  r.device_memory = std::uint64_t{1} << 33;
  const RunNeed need = run_need(r);
  EXPECT_EQ(need.steps, 60);
  EXPECT_EQ(need.batch, 8);
  EXPECT_GT(need.step, 0u);
  EXPECT_EQ(need.trained, 12 * static_cast<std::uint64_t>(need.parameters));
  EXPECT_TRUE(need.fits);
  r.device_memory = need.total() - 1;
  EXPECT_FALSE(run_need(r).fits);
  r.device_memory = need.trained + need.step - 1;
  EXPECT_NE(refusal([&] { (void)run(r); }).find("there is room for"), std::string::npos);
}

}  // namespace
}  // namespace weft::tune
