// Moonshine against the transformers library (make_moonshine.py), and where long sounds are cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/message_of.hpp"
#include "runtime/devices.hpp"
#include "speech/moonshine_config.hpp"
#include "speech/sound_windows.hpp"
#include "speech/tiny_moonshine.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech::moonshine_test {
namespace {

using test::message_of;
using test::moonshine_golden;
using test::TemporaryFolder;

using Tokens = std::vector<std::int32_t>;

Transcriber tiny(const std::string& name, const std::string& type = "F32", Device device = kCpu,
                 const Json& changes = {}) {
  const TemporaryFolder folder;
  test::put_moonshine(folder, name, type, changes);
  return load_transcriber(folder.path(), {.device = device});
}

audio::Sound sound() { return test::whisper_sound(2.5); }

/// The tokens that the library writes behind the start.
Tokens text_of(const Json& golden) {
  Tokens tokens = golden["text"];
  tokens.erase(tokens.begin());
  return tokens;
}

double worst_state(const Transcriber& model, const Json& golden) {
  const Tensor states = model.encode(model.features(sound()));
  EXPECT_EQ(states.dim(0), golden["frames"].get<Extent>());
  const std::vector<float> values = states.to_vector<float>();
  double worst = 0;
  for (const Json& e : golden["states"])
    worst = std::max(
        worst, std::abs(values[static_cast<std::size_t>(e[0].get<Extent>() * states.dim(1) + e[1].get<Extent>())] -
                        e[2].get<double>()));
  return worst;
}

double worst_logit(const Transcriber& model, const Json& golden) {
  const std::vector<float> logits = model.logits(golden["tokens"].get<Tokens>());
  const auto vocabulary = static_cast<std::size_t>(model.vocabulary());
  double worst = 0;
  for (std::size_t i = 0; i < golden["rows"].size(); ++i)
    for (std::size_t j = 0; j < vocabulary; ++j)
      worst = std::max(worst, std::abs(logits[golden["rows"][i].get<std::size_t>() * vocabulary + j] -
                                       golden["logits"][i][j].get<double>()));
  return worst;
}

TEST(Moonshine, StatesLogitsAndTextsAreThoseOfTransformers) {
  for (const char* name : {"tiny", "base"}) {
    SCOPED_TRACE(name);
    const Json& golden = moonshine_golden()[name];
    const Transcriber model = tiny(name);
    EXPECT_EQ(model.kind(), "moonshine");
    EXPECT_LT(worst_state(model, golden), 1e-4);
    EXPECT_LT(worst_logit(model, golden), 1e-4);
    const Decoded text = model.decode(model.prompt_tokens("", Task::transcribe, true), {.max_tokens = 30});
    EXPECT_EQ(text.tokens, text_of(golden));
    EXPECT_FALSE(text.has_ended);
  }
}

TEST(Moonshine, ATranscriptIsTheTextOfTheWindow) {
  const Tokens wanted = text_of(moonshine_golden()["base"]);
  const Transcriber model = tiny("base");
  std::vector<std::string> streamed;
  TranscribeOptions options{.language = "German", .temperatures = {0}, .max_tokens = 30};
  options.on_segment = [&](const Segment& s) { streamed.push_back(s.text); };
  const Transcript t = model.transcribe(sound(), options);
  ASSERT_EQ(t.segments.size(), 1u);
  EXPECT_EQ(t.segments[0].tokens, wanted);
  EXPECT_EQ(t.text, model.tokenizer().decode(wanted));
  EXPECT_EQ(streamed, std::vector<std::string>{t.text});
  EXPECT_EQ(t.segments[0].end, 2.5);
  EXPECT_EQ(t.seconds, 2.5);
  EXPECT_EQ(t.language, "de");
  EXPECT_LT(t.segments[0].mean_log_probability, 0);
  // Behind its end a text has nothing.
  const std::int32_t end = wanted[2];
  const Transcriber ended = tiny("base", "F32", kCpu, {{"eos_token_id", end}});
  EXPECT_EQ(ended.transcribe(sound(), {.temperatures = {0}}).segments.at(0).tokens,
            Tokens(wanted.begin(), std::find(wanted.begin(), wanted.end(), end)));
  // Draws have a seed, and are taken where a text is improbable or repeats itself.
  const auto drawn = [&](std::uint64_t seed) {
    return model.transcribe(sound(), {.temperatures = {0, 0.9}, .log_probability_min = 0, .seed = seed}).segments.at(0);
  };
  EXPECT_EQ(drawn(1).temperature, 0.9);
  EXPECT_EQ(drawn(1).tokens, drawn(1).tokens);
  EXPECT_NE(drawn(1).tokens, drawn(2).tokens);
}

TEST(Moonshine, LengthsOfTextsFollowTheSound) {
  const Transcriber model = tiny("tiny");
  const auto tokens = [&](double seconds) {
    return model.transcribe(test::whisper_sound(seconds), {.temperatures = {0}}).segments.at(0).tokens.size();
  };
  EXPECT_EQ(tokens(2), 26u);
  EXPECT_EQ(tokens(0.5), 16u);  // at least
  EXPECT_EQ(model.transcribe(sound(), {.temperatures = {0}, .max_tokens = 5}).segments.at(0).tokens.size(), 5u);
}

TEST(Moonshine, HalvesArePackedAndStayClose) {
  const Transcriber whole = tiny("base"), half = tiny("base", "F16");
  EXPECT_LT(half.weight_bytes(), whole.weight_bytes());
  EXPECT_LT(worst_state(half, moonshine_golden()["base"]), 0.05);
}

TEST(Moonshine, RunsOnWebGpu) {
  if (test::choose_driver().empty()) GTEST_SKIP() << "no driver";
  const Device gpu = parse_device("webgpu:0");
  runtime::backend_of(gpu);
  for (const char* name : {"tiny", "base"}) {
    SCOPED_TRACE(name);
    const Json& golden = moonshine_golden()[name];
    const Transcriber model = tiny(name, "F32", gpu);
    EXPECT_LT(worst_state(model, golden), 1e-3);
    EXPECT_LT(worst_logit(model, golden), 1e-3);
    EXPECT_EQ(model.decode(model.prompt_tokens("", Task::transcribe, true), {.max_tokens = 30}).tokens,
              text_of(golden));
  }
}

// The states of a long window need more room than there is at first; those of the next, shorter one are seen alone.
TEST(Moonshine, WindowsOfAnyLengthFollowEachOther) {
  const Transcriber model = tiny("base");
  const std::vector<float> first = [&] {
    model.encode(model.features(sound()));
    return model.logits(Tokens{257, 3});
  }();
  audio::Sound tone = test::whisper_sound(3);
  for (int i = 0; i < 4; ++i) tone.samples.insert(tone.samples.end(), tone.samples.begin(), tone.samples.end());
  EXPECT_EQ(model.features(tone, 20).dim(0), 24 * 16000);
  const Tensor samples = tensor<float>(tone.samples, {48 * 16000}).to(kCpu);
  EXPECT_EQ(model.encode(samples).dim(0), MoonshineConfig::frames(48 * 16000));
  EXPECT_NE(model.logits(Tokens{257, 3}), first);
  model.encode(model.features(sound()));
  EXPECT_EQ(model.logits(Tokens{257, 3}), first);
}

TEST(Moonshine, LongSoundsAreCutWhereTheyAreQuiet) {
  const Extent rate = 16000;
  std::vector<float> samples(static_cast<std::size_t>(60 * rate), 0.5f);
  const auto quieten = [&](double begin, double end) {
    std::fill(samples.begin() + static_cast<std::ptrdiff_t>(begin * 16000),
              samples.begin() + static_cast<std::ptrdiff_t>(end * 16000), 0.01f);
  };
  quieten(5, 6), quieten(19, 19.2), quieten(40, 40.1);
  const auto windows = sound_windows(samples, {}, 12 * rate, 24 * rate);
  ASSERT_EQ(windows.size(), 3u);  // a window has 12 s at least, so that none ends at 5 s
  EXPECT_EQ(windows[0].begin, 0);
  EXPECT_NEAR(static_cast<double>(windows[0].end) / 16000, 19.1, 0.06);
  EXPECT_EQ(windows[1].begin, windows[0].end);
  EXPECT_NEAR(static_cast<double>(windows[1].end) / 16000, 40.05, 0.01);
  EXPECT_EQ(windows[2].end, 60 * rate);
  // With spans, as many as fit; a long one is cut.
  const auto spans = sound_windows(samples, {{{1, 4}, {6, 14}, {20, 26}, {30, 58}, {59, 70}}}, 12 * rate, 24 * rate);
  ASSERT_EQ(spans.size(), 5u);
  EXPECT_EQ(spans[0].begin, 1 * rate);
  EXPECT_EQ(spans[0].end, 14 * rate);
  EXPECT_EQ(spans[1].begin, 20 * rate);
  EXPECT_EQ(spans[1].end, 26 * rate);
  EXPECT_EQ(spans[2].begin, 30 * rate);
  EXPECT_EQ(spans[3].end, 58 * rate);
  EXPECT_EQ(spans[4].begin, 59 * rate);
  EXPECT_EQ(spans[4].end, 60 * rate);
  EXPECT_TRUE(sound_windows({}, {}, 12 * rate, 24 * rate).empty());
  EXPECT_TRUE(sound_windows(samples, {std::vector<Span>{}}, 12 * rate, 24 * rate).empty());
  for (const auto& window : windows) EXPECT_LE(window.end - window.begin, 24 * rate);
}

TEST(Moonshine, EachWindowIsASegment) {
  const Transcriber model = tiny("base");
  audio::Sound talk;
  for (int i = 0; i < 10; ++i) {
    const audio::Sound part = sound();
    talk.samples.insert(talk.samples.end(), part.samples.begin(), part.samples.end());
    talk.samples.resize(static_cast<std::size_t>((i + 1) * 3 * 16000));  // half a second of silence
  }
  const TranscribeOptions greedy{.temperatures = {0}, .max_tokens = 8};
  const Transcript t = model.transcribe(talk, greedy);
  ASSERT_EQ(t.segments.size(), 2u);
  EXPECT_NEAR(t.segments[0].end, 23.9, 0.1);  // the last silence of 24 s
  EXPECT_EQ(t.segments[1].begin, t.segments[0].end);
  EXPECT_EQ(t.text, t.segments[0].text + " " + t.segments[1].text);
  // Only what has speech is heard.
  TranscribeOptions some = greedy;
  some.speech = {{{0, 2.5}, {27, 29.5}}};
  const Transcript spoken = model.transcribe(talk, some);
  ASSERT_EQ(spoken.segments.size(), 2u);
  EXPECT_EQ(spoken.segments[0].tokens, model.transcribe(sound(), greedy).segments.at(0).tokens);
  EXPECT_EQ(spoken.segments[1].begin, 27);
  EXPECT_EQ(spoken.segments[1].tokens, spoken.segments[0].tokens);
}

TEST(Moonshine, EdgesOfSounds) {
  const Transcriber model = tiny("tiny");
  EXPECT_TRUE(model.transcribe({{}, 1, 16000}).segments.empty());
  EXPECT_TRUE(model.transcribe({std::vector<float>(894, 0.5f), 1, 16000}).segments.empty());
  EXPECT_EQ(model.transcribe({std::vector<float>(895, 0.5f), 1, 16000}).segments.size(), 1u);
  EXPECT_TRUE(model.transcribe({std::vector<float>(16000), 1, 16000}).segments.empty());  // silence is not read
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(model.transcribe(sound(), {.cancel = stop.get_token()}).segments.empty());
}

TEST(Moonshine, WhatItCannotDoIsRefused) {
  const Transcriber model = tiny("tiny");
  const auto refusal = [](const auto& f) { return message_of<UsageError>(f); };
  const auto expect = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal([&] { (void)model.logits(Tokens{1}); }), "no sound has been read");
  expect(refusal([&] { model.transcribe(sound(), {.task = Task::translate}); }), "does not translate");
  expect(refusal([&] { model.transcribe(sound(), {.prompt = "Weft"}); }), "reads no prompt");
  expect(refusal([&] { model.transcribe(sound(), {.words = true}); }), "does not know the times of words");
  expect(refusal([&] { model.transcribe(sound(), {.beam_size = 2}); }), "without beams");
  expect(refusal([&] { model.transcribe(sound(), {.temperatures = {-1}}); }), "a temperature of -1");
  expect(refusal([&] { model.transcribe(sound(), {.max_tokens = 48}); }), "the model has 48 positions");
  expect(refusal([&] { (void)model.detect_language(sound()); }), "knows one language");
  expect(refusal([&] { (void)model.frame_logits(sound()); }), "this model is moonshine");
  expect(refusal([&] { model.check_language("de", Task::translate); }), "does not translate");
  expect(refusal([&] { (void)model.encode(zeros({894})); }), "894 samples at 16 kHz; the model needs 895");
  EXPECT_THROW((void)model.encode(zeros({1, 2000})), ShapeError);
  model.encode(model.features(sound()));
  expect(refusal([&] { (void)model.logits(Tokens(49, 1)); }), "49 tokens; the model has 48 positions");
  expect(refusal([&] { (void)model.logits(Tokens{259}); }), "token 259 is outside of the vocabulary of 259");
  EXPECT_TRUE(model.languages().empty());
  EXPECT_FALSE(model.is_multilingual());
}

TEST(Moonshine, FoldersThatDoNotFitAreRefused) {
  const auto refusal = [](const Json& changes, const std::function<void(const TemporaryFolder&)>& also = {}) {
    const TemporaryFolder folder;
    test::put_moonshine(folder, "tiny", "F32", changes);
    EXPECT_TRUE(is_transcriber(folder.path()));
    if (also) also(folder);
    return message_of<FileError>([&] { load_transcriber(folder.path()); });
  };
  const auto expect = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal({{"hidden_size", 37}}), "which does not divide a width of 37");
  expect(refusal({{"encoder_num_hidden_layers", 3}}), "encoder.layers.2");
  expect(refusal({{"decoder_num_hidden_layers", 2}}), "of another model");
  expect(refusal({{"decoder_num_key_value_heads", 1}}), "is 1 of 3 heads; heads of a Moonshine share no keys");
  expect(refusal({{"decoder_hidden_act", "tanh"}}), "known are gelu");
  expect(refusal({{"rope_parameters", {{"rope_type", "yarn"}}}}), "rope_parameters.rope_type is \"yarn\"");
  expect(refusal({{"rope_parameters", {{"partial_rotary_factor", 1.5}}}}), "must be in (0, 1]");
  expect(refusal({{"rope_parameters", {{"partial_rotary_factor", 0.01}}}}), "makes 0 pairs of the 12 channels");
  expect(refusal({{"eos_token_id", 259}}), "not a token of the vocabulary of 259");
  expect(refusal({}, [](const TemporaryFolder& f) { f.put("preprocessor_config.json", R"({"sampling_rate": 8000})"); }),
         "sampling_rate is 8000; a Moonshine reads 16000 Hz");
  expect(refusal({}, [](const TemporaryFolder& f) { std::filesystem::remove(f / "tokenizer.json"); }), "tokenizer");
}

// Older files have the settings of rotation beside the others.
TEST(Moonshine, OlderConfigurationsAreRead) {
  const TemporaryFolder folder;
  test::put_moonshine(folder, "base");
  Json config = moonshine_golden()["base"]["config"];
  const Json rotation = config["rope_parameters"];
  config.erase("rope_parameters");
  config["rope_theta"] = rotation["rope_theta"], config["partial_rotary_factor"] = rotation["partial_rotary_factor"];
  folder.put("config.json", config.dump());
  folder.put("preprocessor_config.json", R"({"do_normalize": false, "sampling_rate": 16000})");
  EXPECT_LT(worst_state(load_transcriber(folder.path(), {.device = kCpu}), moonshine_golden()["base"]), 1e-4);
  folder.put("preprocessor_config.json", R"({"do_normalize": true})");
  EXPECT_GT(worst_state(load_transcriber(folder.path(), {.device = kCpu}), moonshine_golden()["base"]), 1e-3);
}

}  // namespace
}  // namespace weft::speech::moonshine_test
