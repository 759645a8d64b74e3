// Beams against OpenAI's whisper with equal weights (make_words.py), and the best of several draws.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/message_of.hpp"
#include "runtime/devices.hpp"
#include "speech/beams.hpp"
#include "speech/decoding.hpp"
#include "speech/tiny_whisper.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech::beams_test {
namespace {

const Json& golden() {
  static const Json json = read_json_file(WEFT_TEST_WORDS);
  return json;
}

/// The tiny model, whose texts end soon, and which never writes some tokens.
Transcriber model_of(const Json& suppressed, Device device = kCpu) {
  const test::TemporaryFolder folder;
  test::put_whisper(folder);
  const Json& config = test::whisper_golden().at("config");
  test::TinyTensors tensors = test::whisper_tensors(test::whisper_golden());
  test::TinyTensor& table = tensors.at("model.decoder.embed_tokens.weight");
  const auto width = config["d_model"].get<std::size_t>();
  const auto end = config["eos_token_id"].get<std::size_t>();
  for (std::size_t i = 0; i < width; ++i) table.values[end * width + i] *= golden()["end_scale"].get<float>();
  test::put({"whisper", config, tensors}, folder, "F32");
  folder.put("tokenizer.json", test::whisper_tokenizer(test::whisper_golden()));
  Json generation = test::whisper_golden().at("generation_config");
  generation["suppress_tokens"] = suppressed;
  folder.put("generation_config.json", generation.dump());
  Transcriber model = load_transcriber(folder.path(), {.device = device});
  model.encode(model.features(test::whisper_sound(0.98)));
  return model;
}

void expect_texts_of_whisper(Device device) {
  std::map<std::string, Transcriber> models;  // by what they never write
  std::size_t ended = 0;
  for (const Json& c : golden()["beams"]) {
    const Transcriber& model =
        models.try_emplace(c["suppressed"].dump(), model_of(c["suppressed"], device)).first->second;
    DecodeOptions options{.timestamps = c["timestamps"],
                          .max_tokens = c.value("sample_len", 20),
                          .beam_size = c["beam_size"],
                          .patience = c.value("patience", 1.0)};
    if (c.contains("length_penalty")) options.length_penalty = c["length_penalty"].get<double>();
    SCOPED_TRACE(fmt::format("{} beams, patience {}, penalty {}, {}", options.beam_size, options.patience,
                             options.length_penalty.value_or(-1), options.timestamps));
    const Decoded made = model.decode(model.prompt_tokens("de", Task::transcribe, options.timestamps), options);
    EXPECT_EQ(made.tokens, c["tokens"].get<std::vector<std::int32_t>>());
    EXPECT_NEAR(made.mean_log_probability, c["mean_log_probability"].get<double>(), 2e-4);
    ended += made.has_ended ? 1 : 0;
  }
  EXPECT_GE(ended, 16u);
}

TEST(Beams, TextsAreThoseOfWhisper) { expect_texts_of_whisper(kCpu); }

TEST(Beams, TextsAreTheSameOnWebGpu) {
  if (test::choose_driver().empty()) GTEST_SKIP() << "no driver";
  const Device gpu = parse_device("webgpu:0");
  runtime::backend_of(gpu);
  expect_texts_of_whisper(gpu);
}

TEST(Beams, KeepTheSequencesOfTheirSources) {
  // All from one: the first stays, the others are copied.
  BeamPlaces places = place_beams(std::vector<Extent>{0, 0, 0}, 3);
  EXPECT_EQ(places.sequence_of_beam, (std::vector<Extent>{0, 1, 2}));
  ASSERT_EQ(places.copies.size(), 2u);
  EXPECT_EQ(places.copies[1].from, 0);
  EXPECT_EQ(places.copies[1].to, 2);
  // In another order: nothing moves.
  places = place_beams(std::vector<Extent>{2, 0, 1}, 3);
  EXPECT_EQ(places.sequence_of_beam, (std::vector<Extent>{2, 0, 1}));
  EXPECT_TRUE(places.copies.empty());
  // One that ends, and one that splits.
  places = place_beams(std::vector<Extent>{2, 2, 1}, 3);
  EXPECT_EQ(places.sequence_of_beam, (std::vector<Extent>{2, 0, 1}));
  ASSERT_EQ(places.copies.size(), 1u);
  EXPECT_EQ(places.copies[0].to, 0);
}

TEST(Beams, AreAsGoodAsGreedyTextsAndLeaveTheModelAsItWas) {
  const Transcriber model = model_of(Json::array());
  const std::vector<std::int32_t> prompt = model.prompt_tokens("de", Task::transcribe, false);
  const DecodeOptions plain{.timestamps = false, .max_tokens = 12};
  DecodeOptions wide = plain;
  wide.beam_size = 6;
  const Decoded greedy = model.decode(prompt, plain), searched = model.decode(prompt, wide);
  EXPECT_GT(searched.mean_log_probability, greedy.mean_log_probability);
  EXPECT_EQ(model.decode(prompt, plain).tokens, greedy.tokens);
  const Transcript t = model.transcribe(test::whisper_sound(0.98), {.language = "de",
                                                                    .timestamps = false,
                                                                    .temperatures = {0},
                                                                    .log_probability_min = -100,
                                                                    .beam_size = 6,
                                                                    .max_tokens = 12});
  ASSERT_FALSE(t.segments.empty());
  EXPECT_NEAR(t.segments[0].mean_log_probability, searched.mean_log_probability, 1e-6);
}

TEST(Draws, TheBestOfThemIsKept) {
  const Transcriber model = model_of(Json::array());
  const std::vector<std::int32_t> prompt = model.prompt_tokens("de", Task::transcribe, false);
  const DecodeOptions one{.timestamps = false, .max_tokens = 10, .temperature = 1, .seed = 3};
  DecodeOptions several = one;
  several.best_of = 6;
  const Decoded single = model.decode(prompt, one), best = model.decode(prompt, several);
  const auto score = [](const Decoded& d) {  // the sum by the length without the end
    return d.mean_log_probability * static_cast<double>(d.tokens.size() + 1) / static_cast<double>(d.tokens.size());
  };
  // The first of the six is the single one.
  EXPECT_GT(score(best), score(single));
  EXPECT_EQ(model.decode(prompt, several).tokens, best.tokens);
  several.seed = 4;
  EXPECT_NE(model.decode(prompt, several).tokens, best.tokens);
  // The tokens' probabilities are those that the model gives them.
  std::vector<std::int32_t> all = prompt;
  all.insert(all.end(), best.tokens.begin(), best.tokens.end());
  const std::vector<float> logits = model.logits(all);
  const auto width = static_cast<std::size_t>(model.vocabulary());
  double sum = 0;
  for (std::size_t i = 0; i < best.tokens.size() + (best.has_ended ? 1 : 0); ++i) {
    std::vector<float> row(logits.begin() + static_cast<std::ptrdiff_t>((prompt.size() - 1 + i) * width),
                           logits.begin() + static_cast<std::ptrdiff_t>((prompt.size() + i) * width));
    if (i == 0)
      for (const std::int32_t token : {32, 256}) row[static_cast<std::size_t>(token)] = -1e9f;
    sum += std::log(probability_of(row, i < best.tokens.size() ? best.tokens[i] : 256));
  }
  EXPECT_NEAR(best.mean_log_probability, sum / static_cast<double>(best.tokens.size() + 1), 1e-4);
  // Hardly any temperature: all texts are the greedy one.
  several.temperature = 1e-4;
  EXPECT_EQ(model.decode(prompt, several).tokens, model.decode(prompt, {.timestamps = false, .max_tokens = 10}).tokens);
}

TEST(Beams, WrongOptionsAreRefused) {
  const Transcriber model = model_of(Json::array());
  const std::vector<std::int32_t> prompt = model.prompt_tokens("de", Task::transcribe, false);
  const auto refusal = [&](const DecodeOptions& options) {
    return test::message_of<UsageError>([&] { (void)model.decode(prompt, options); });
  };
  EXPECT_NE(refusal({.beam_size = 0}).find("0 beams; give 1 to 64"), std::string::npos);
  EXPECT_NE(refusal({.beam_size = 65}).find("65 beams"), std::string::npos);
  EXPECT_NE(refusal({.best_of = 0}).find("best of 0 texts"), std::string::npos);
  EXPECT_NE(refusal({.beam_size = 4, .patience = 0.1}).find("patience of 0.1 with 4 beams"), std::string::npos);
  EXPECT_NE(refusal({.patience = NAN}).find("patience of nan"), std::string::npos);
  EXPECT_NE(refusal({.length_penalty = 1.5}).find("length penalty of 1.5; it must be in [0, 1]"), std::string::npos);
}

TEST(BestChoices, RankTokens) {
  const std::vector<float> logits = {1, 3, -INFINITY, 3, 2};
  const std::vector<Choice> best = best_choices(logits, 3);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].token, 1);
  EXPECT_EQ(best[1].token, 3);
  EXPECT_EQ(best[2].token, 4);
  EXPECT_NEAR(best[2].log_probability, -std::log(std::exp(-1.0) + 2 * std::exp(1.0) + 1), 1e-6);
  EXPECT_EQ(best_choices(logits, 9).size(), 4u);
  EXPECT_THROW(best_choices(std::vector<float>{1, NAN}, 1), FileError);
}

}  // namespace
}  // namespace weft::speech::beams_test
