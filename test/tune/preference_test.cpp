// Preferences: their files, their rows, their losses beside those of the trl library (trl/make.py made the files), and whole runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "io/tensor_source.hpp"
#include "llm/byte_model.hpp"
#include "train/metrics.hpp"
#include "tune/peft_case.hpp"
#include "tune/talk_template.hpp"
#include "weft/error.hpp"

namespace weft::tune {
namespace {

Example marked(Tokens tokens, std::size_t prompt) {
  Example example{std::move(tokens), {}};
  example.counts.assign(example.tokens.size(), true);
  std::fill_n(example.counts.begin(), prompt, false);
  return example;
}

TEST(TunePreferences, StepsGiveTheLossesAndMatricesOfTrl) {
  for (const char* name : {"sigmoid", "smoothed", "ipo"}) {
    for (const bool recompute : {false, true}) {
      SCOPED_TRACE(name);
      const Json wanted = read_json_file(std::filesystem::path(WEFT_TEST_TRL) / (std::string(name) + ".json"));
      const PeftCase c(wanted.at("adapter").get<std::string>());
      std::vector<Preference> preferences;
      for (std::size_t i = 0; i < wanted.at("pairs").size(); ++i) {
        const auto prompt = wanted.at("prompts")[i].get<std::size_t>();
        const Json& pair = wanted.at("pairs")[i];
        preferences.push_back({marked(pair[0].get<Tokens>(), prompt), marked(pair[1].get<Tokens>(), prompt)});
      }
      Tuner tuner(llm::load(c.model.path(), {.context = 64}),
                  {.from = c.adapter.path(),
                   .recompute = recompute,
                   .preference = {preference_loss_named(wanted.at("loss").get<std::string>()), wanted.at("beta"),
                                  wanted.at("label_smoothing")}});
      RowStream stream(preferences, 32, 1, false);
      Rows rows = stream.batch(0, stream.rows_of_epochs(1));
      rows.reference = tuner.log_probabilities(rows);
      for (std::size_t step = 0; step < wanted.at("losses").size(); ++step) {
        const Tuner::Measured before = tuner.measure(rows);
        const Tuner::StepResult result = tuner.step({rows}, wanted.at("rate"));
        EXPECT_NEAR(result.loss.item<float>(), wanted.at("losses")[step].get<float>(), 5e-5) << step;
        EXPECT_NEAR(before.loss, result.loss.item<float>(), 1e-5);
        EXPECT_NEAR(result.margin.item<float>(), wanted.at("margins")[step].get<float>(), 3e-4) << step;
        // At first both rewards are zero but for rounding.
        if (step == 0) continue;
        EXPECT_EQ(result.accuracy.item<float>(), wanted.at("accuracies")[step].get<float>()) << step;
      }
      const test::TemporaryFolder after;
      tuner.save(after.path());
      const std::vector<float> values = io::TensorSource::open(after.path() / "adapter_model.safetensors")
                                            .read_f32(wanted.at("after_key").get<std::string>());
      double worst = 0;
      for (std::size_t i = 0; i < wanted.at("after").size(); ++i)
        worst = std::max(worst, std::abs(double{values[i]} - wanted.at("after")[i].get<double>()));
      EXPECT_LT(worst, 2e-4);
    }
  }
}

TEST(TunePreferences, BothTextsAreAtTheSamePlaceOfNeighbouringRows) {
  const std::vector<Preference> preferences = {{marked({1, 2, 3, 4}, 2), marked({1, 2, 9}, 2)},
                                               {marked({5, 6}, 1), marked({5, 7, 8}, 1)},
                                               {marked({5, 6, 7, 8, 9, 10}, 1), marked({5, 7}, 1)}};
  RowStream stream(preferences, 6, 1, false);
  ASSERT_EQ(stream.rows_of_epochs(1), 4);
  const Rows rows = stream.batch(0, 4);
  EXPECT_EQ(rows.tokens, (Tokens{1, 2, 3, 5, 0, 0, 1, 2, 5, 7, 0, 0, 5, 6, 7, 8, 9, 0, 5, 0, 0, 0, 0, 0}));
  EXPECT_EQ(rows.targets, (Tokens{-100, 3, 4, 6, -100, -100, -100, 9,    7,    8,    -100, -100,  //
                                  6,    7, 8, 9, 10,   -100, 7,    -100, -100, -100, -100, -100}));
  EXPECT_EQ(rows.pairs[0], 0);
  EXPECT_EQ(rows.pairs[1], 1);
  EXPECT_EQ(rows.pairs[2], -1);
  EXPECT_EQ(rows.pairs[Rows::kTextsMax], 2);
  EXPECT_THROW(stream.batch(1, 2), UsageError);
  EXPECT_THROW(stream.batch(0, 3), UsageError);
  EXPECT_THROW(RowStream(preferences, 4, 1), UsageError);
  EXPECT_THROW(RowStream(std::vector<Preference>{}, 4, 1), UsageError);
}

/// A model, and preferences of an answer that is always the same.
class TunePreferenceFiles : public ::testing::Test {
 protected:
  TunePreferenceFiles() {
    test::put_byte_model(folder_, kTalkTemplate);
    model_.emplace(llm::load(folder_.path(), {.context = 128}));
    std::string lines;
    for (int i = 0; i < 24; ++i)
      lines +=
          R"({"prompt": [{"role": "user", "content": "q)" + std::to_string(i * 7919 % 100) +
          R"("}], "chosen": [{"role": "assistant", "content": "yes"}], "rejected": [{"role": "assistant", "content": "no"}]})" +
          "\n";
    folder_.put("preferences.jsonl", lines);
  }
  Examples read(const std::string& text, Extent context = 100) {
    folder_.put("read.jsonl", text);
    return read_examples(folder_.path() / "read.jsonl", *model_, context);
  }
  std::string text_of(const Example& example, bool counts) const {
    std::string text;
    for (std::size_t i = 0; i < example.tokens.size(); ++i)
      if (example.counts[i] == counts) text += model_->token_bytes(example.tokens[i]);
    return text;
  }
  std::string error_of(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  Request request(const std::string& out) const {
    Request r{.model = folder_.path(), .data = folder_.path() / "preferences.jsonl", .out = outs_.path() / out};
    r.context = 48;
    r.batch = 4;
    r.steps = 8;
    r.learning_rate = 5e-3;
    r.log_every = 1;
    r.tuner.rank = 4;
    return r;
  }

  test::TemporaryFolder folder_, outs_;
  std::optional<llm::Model> model_;
};

TEST_F(TunePreferenceFiles, EveryWayToWriteAPreferenceIsRead) {
  const std::string user = R"({"role": "user", "content": "hi"})", good = R"({"role": "assistant", "content": "yes"})",
                    bad = R"({"role": "assistant", "content": "no"})";
  const std::string lines[] = {
      R"({"prompt": [)" + user + R"(], "chosen": [)" + good + R"(], "rejected": [)" + bad + "]}",
      R"({"prompt": [)" + user + R"(], "chosen": )" + good + R"(, "rejected": )" + bad + "}",
      R"({"messages": [)" + user + R"(], "chosen": "yes", "rejected": "no"})",
      R"({"chosen": [)" + user + "," + good + R"(], "rejected": [)" + user + "," + bad + "]}"};
  for (const std::string& line : lines) {
    SCOPED_TRACE(line);
    const Examples examples = read(line);
    EXPECT_TRUE(examples.all.empty());
    ASSERT_EQ(examples.preferences.size(), 1u);
    const auto& [chosen, rejected] = examples.preferences[0];
    EXPECT_EQ(text_of(chosen, false), "[user]hi<|end|>[assistant]");
    EXPECT_EQ(text_of(chosen, true), "yes<|end|>");
    EXPECT_EQ(text_of(rejected, true), "no<|end|>");
  }
  const Examples texts = read(
      "{\"prompt\": \"1+1=\", \"chosen\": \"2\", \"rejected\": \"3\"}\n"
      "{\"chosen\": \"It is \xc3\xa9t\", \"rejected\": \"It is \xc3\xa8re\"}\n");
  ASSERT_EQ(texts.preferences.size(), 2u);
  EXPECT_EQ(text_of(texts.preferences[0].chosen, false), "1+1=");
  EXPECT_EQ(text_of(texts.preferences[0].rejected, true), "3<|end|>");
  EXPECT_EQ(text_of(texts.preferences[1].chosen, false), "It is");
  EXPECT_EQ(text_of(texts.preferences[1].rejected, true), " \xc3\xa8re<|end|>");
}

TEST_F(TunePreferenceFiles, LinesThatAreNoPreferencesAreNamed) {
  const auto has = [&](const std::string& text, const std::string& part) {
    EXPECT_NE(error_of(text).find(part), std::string::npos) << error_of(text);
  };
  has(R"({"prompt": "a", "chosen": "b"})", "line 1: there is no \"rejected\" beside the other answer");
  has("{\"text\": \"a\"}\n{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}",
      "line 2: the line is a preference, and those before it are examples");
  has(R"({"prompt": "a", "chosen": [{"role": "assistant", "content": "b"}], "rejected": "c"})",
      "an answer is not a text");
  has(R"({"prompt": [{"role": "user", "content": "b"}], "chosen": 3, "rejected": "c"})",
      "\"chosen\" is no list of messages");
  has(R"({"chosen": [{"role": "user", "content": "b"}], "rejected": [{"role": "user", "content": "c"}]})",
      "begin with different messages");
  has(R"({"chosen": [{"role": "user", "content": "b"}], "rejected": [{"role": "user", "content": "b"}]})",
      "one has no message that the other does not begin with");
  // A prompt that fills the context leaves nothing to compare.
  folder_.put("long.jsonl", R"({"prompt": "0123456789", "chosen": "a", "rejected": "b"})");
  EXPECT_THROW(read_examples(folder_.path() / "long.jsonl", *model_, 8), FileError);
}

TEST_F(TunePreferenceFiles, AModelLearnsWhatIsPreferred) {
  Request r = request("learns");
  r.steps = 40;
  std::vector<double> margins;
  const RunReport report = run(r, {.step = [&](const Progress& p) {
                                 if (p.margin) margins.push_back(*p.margin);
                               }});
  ASSERT_TRUE(report.first_validation && report.last_validation && report.last_accuracy);
  EXPECT_NEAR(*report.first_validation, std::log(2.0), 1e-4);  // the reference is the model itself
  EXPECT_LT(*report.last_validation, 0.3);
  EXPECT_EQ(*report.last_accuracy, 1);
  EXPECT_GT(margins.back(), 1);
  train::MetricsLog log(r.out / "metrics.jsonl", 1000);
  EXPECT_EQ(log.all().back().val_accuracy, 1.0);
  EXPECT_NEAR(log.all().back().margin.value_or(0), margins.back(), 1e-9);
  const auto score = [&](const llm::Model& model, const char* answer) {
    folder_.put("score.jsonl",
                std::string(R"({"messages": [{"role": "user", "content": "q5"}, {"role": "assistant", "content": ")") +
                    answer + "\"}]}");
    const Examples examples = read_examples(folder_.path() / "score.jsonl", model, 48);
    Tuner tuner(model, {.from = r.out});
    RowStream stream(examples.all, 48, 1);
    return double{tuner.log_probabilities(stream.batch(0, 1))[0]};
  };
  EXPECT_GT(score(*model_, "yes") - score(*model_, "no"), 1);
}

TEST_F(TunePreferenceFiles, ARunThatWasStoppedEndsWithTheSameBits) {
  for (const Extent accumulate : {Extent{1}, Extent{2}}) {
    Request whole = request("whole" + std::to_string(accumulate)),
            parts = request("parts" + std::to_string(accumulate));
    whole.tuner.accumulate = parts.tuner.accumulate = accumulate;
    whole.tuner.dropout = parts.tuner.dropout = 0.1;
    whole.tuner.dora = parts.tuner.dora = accumulate == 1;
    run(whole);
    std::stop_source stop;
    const RunReport first = run(parts,
                                {.step =
                                     [&](const Progress& p) {
                                       if (p.step == 3) stop.request_stop();
                                     }},
                                stop.get_token());
    EXPECT_TRUE(first.interrupted);
    parts.resume = true;
    EXPECT_EQ(run(parts).steps, 8);
    const auto saved = [&](const Request& r) { return read_text_file(r.out / "adapter_model.safetensors", 1 << 30); };
    EXPECT_EQ(saved(parts), saved(whole));
    parts.tuner.preference.beta = 0.2;
    try {
      run(parts);
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("(preference)"), std::string::npos) << error.what();
    }
  }
}

TEST_F(TunePreferenceFiles, ARunThatCannotLearnThemIsRefused) {
  const auto refused = [&](const Request& r, const std::string& part) {
    try {
      run(r);
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  Request r = request("none");
  r.batch = 3;
  refused(r, "give an even number");
  r = request("none");
  r.tuner.preference.beta = 0;
  refused(r, "beta of preferences is 0");
  r = request("none");
  r.tuner.preference.label_smoothing = 0.5;
  refused(r, "label_smoothing is 0.5");
  r = request("none");
  r.tuner.preference = {PreferenceLoss::ipo, 0.1, 0.1};
  refused(r, "label_smoothing is a part of the sigmoid loss");
  folder_.put("examples.jsonl", "{\"text\": \"abc\"}");
  r = request("none");
  r.validation = folder_.path() / "examples.jsonl";
  refused(r, "it has examples");
  EXPECT_THROW(preference_loss_named("hinge"), UsageError);
}

}  // namespace
}  // namespace weft::tune
