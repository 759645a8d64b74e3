// A tiny random Whisper against the transformers library (make.py): features, states, logits, greedy texts and windows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "runtime/devices.hpp"
#include "speech/tiny_whisper.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech {
namespace {

using test::message_of;
using test::TemporaryFolder;
using test::whisper_golden;
using test::whisper_sound;

Transcriber tiny(const std::string& type = "F32", Device device = kCpu) {
  const TemporaryFolder folder;
  test::put_whisper(folder, type);
  return load_transcriber(folder.path(), {.device = device});
}

double worst_of(const Tensor& x, const Json& elements) {
  const std::vector<float> values = x.to_vector<float>();
  double worst = 0;
  for (const Json& e : elements)
    worst =
        std::max(worst, std::abs(values[static_cast<std::size_t>(e[0].get<Extent>() * x.dim(1) + e[1].get<Extent>())] -
                                 e[2].get<double>()));
  return worst;
}

double worst_logit(const Transcriber& model) {
  const Json& golden = whisper_golden();
  const std::vector<float> logits = model.logits(golden["tokens"].get<std::vector<std::int32_t>>());
  const auto width = static_cast<std::size_t>(model.vocabulary());
  double worst = 0;
  for (std::size_t r = 0; r < golden["rows"].size(); ++r)
    for (std::size_t i = 0; i < width; ++i)
      worst = std::max(worst, std::abs(logits[golden["rows"][r].get<std::size_t>() * width + i] -
                                       golden["logits"][r][i].get<double>()));
  return worst;
}

TEST(Whisper, ReadsASoundAsTransformersDoes) {
  const Transcriber model = tiny();
  const Tensor features = model.features(whisper_sound(0.98));
  EXPECT_EQ(features.shape(), (Shape{16, 100}));
  EXPECT_LT(worst_of(features, whisper_golden()["features"]), 1e-4);
  EXPECT_LT(worst_of(model.encode(features), whisper_golden()["states"]), 1e-4);
  EXPECT_LT(worst_logit(model), 5e-5);
}

TEST(Whisper, HalvesArePackedAndStayClose) {
  const Transcriber whole = tiny(), half = tiny("F16");
  EXPECT_LT(half.weight_bytes(), whole.weight_bytes() * 3 / 4);
  half.encode(half.features(whisper_sound(0.98)));
  EXPECT_LT(worst_logit(half), 1e-2);
}

TEST(Whisper, GreedyTextsAreThoseOfTransformers) {
  const Transcriber model = tiny();
  model.encode(model.features(whisper_sound(0.98)));
  for (const auto& [name, wanted] : whisper_golden()["texts"].items()) {
    SCOPED_TRACE(name);
    const bool timestamps = name.ends_with("-times");
    std::vector<std::int32_t> tokens =
        model.prompt_tokens("German", name.starts_with("translate") ? Task::translate : Task::transcribe, timestamps);
    const Decoded decoded = model.decode(tokens, {.timestamps = timestamps, .max_tokens = 16});
    tokens.insert(tokens.end(), decoded.tokens.begin(), decoded.tokens.end());
    const auto expected = wanted.get<std::vector<std::int32_t>>();
    ASSERT_GE(tokens.size(), expected.size());
    tokens.resize(expected.size());
    EXPECT_EQ(tokens, expected);
  }
}

TEST(Whisper, DetectsTheLanguage) {
  const Transcriber model = tiny();
  const auto list = model.detect_language(whisper_sound(0.98));
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].first, "de");
  for (const auto& [code, p] : list) EXPECT_NEAR(p, whisper_golden()["languages"][code].get<double>(), 1e-4);
  const Transcript t = model.transcribe(whisper_sound(0.98), {.temperatures = {0}, .log_probability_min = -100});
  EXPECT_EQ(t.language, "de");
  EXPECT_NEAR(t.language_probability, list[0].second, 1e-6);
}

// Windows that the sound fills: behind its end, the library pads features with zeros, and Weft with silence.
TEST(Whisper, WindowsFollowEachOtherAsInTransformers) {
  const Transcriber model = tiny();
  for (const Json& c : whisper_golden()["windows"]) {
    const double seconds = c["seconds"];
    SCOPED_TRACE(seconds);
    std::vector<Segment> streamed;
    const Transcript t =
        model.transcribe(whisper_sound(seconds), {.language = "de",
                                                  .temperatures = {0},
                                                  .log_probability_min = -100,
                                                  .condition_on_previous = false,
                                                  .max_tokens = 16,
                                                  .on_segment = [&](const Segment& s) { streamed.push_back(s); }});
    EXPECT_EQ(t.seconds, seconds);
    ASSERT_EQ(streamed.size(), t.segments.size());
    double window = 0;
    std::size_t compared = 0;
    for (std::size_t i = 0; i < c["segments"].size() && window + 1 <= seconds; ++i, ++compared) {
      ASSERT_LT(i, t.segments.size());
      const Json& wanted = c["segments"][i];
      EXPECT_NEAR(t.segments[i].begin, wanted[0].get<double>(), 1e-6);
      EXPECT_NEAR(t.segments[i].end, wanted[1].get<double>(), 1e-6);
      EXPECT_EQ(t.segments[i].tokens, wanted[2].get<std::vector<std::int32_t>>());
      EXPECT_EQ(streamed[i].text, t.segments[i].text);
      window = wanted[1];
    }
    EXPECT_GE(compared, seconds > 2 ? 3u : 1u);
  }
}

TEST(Whisper, RunsOnWebGpu) {
  if (test::choose_driver().empty()) GTEST_SKIP() << "no driver";
  const Device gpu = parse_device("webgpu:0");
  runtime::backend_of(gpu);
  const Transcriber model = tiny("F16", gpu), cpu = tiny("F16");
  const audio::Sound sound = whisper_sound(1.7);
  const auto states = model.encode(model.features(sound)).to_vector<float>(),
             wanted = cpu.encode(cpu.features(sound)).to_vector<float>();
  ASSERT_EQ(states.size(), wanted.size());
  for (std::size_t i = 0; i < states.size(); ++i) ASSERT_NEAR(states[i], wanted[i], 5e-3) << i;
  const TranscribeOptions options{.language = "fr", .temperatures = {0}, .log_probability_min = -100, .max_tokens = 8};
  const Transcript a = model.transcribe(sound, options), b = cpu.transcribe(sound, options);
  ASSERT_EQ(a.segments.size(), b.segments.size());
  for (std::size_t i = 0; i < a.segments.size(); ++i) EXPECT_EQ(a.segments[i].tokens, b.segments[i].tokens);
}

TEST(Whisper, TheTextSoFarIsInThePrompt) {
  const Transcriber model = tiny();
  const TranscribeOptions plain{.language = "de", .temperatures = {0}, .log_probability_min = -100, .max_tokens = 12};
  TranscribeOptions prompted = plain;
  prompted.prompt = "Weft, Whisper";
  const Transcript a = model.transcribe(whisper_sound(0.98), plain),
                   b = model.transcribe(whisper_sound(0.98), prompted);
  // The same as decoding with that prompt.
  std::vector<std::int32_t> prompt = model.tokenizer().encode(" Weft, Whisper");
  prompt.insert(prompt.begin(), *model.tokenizer().id_of("<|startofprev|>"));
  for (const std::int32_t id : model.prompt_tokens("de", Task::transcribe, true)) prompt.push_back(id);
  model.encode(model.features(whisper_sound(0.98)));
  const Decoded decoded = model.decode(prompt, {.max_tokens = 12});
  ASSERT_FALSE(b.segments.empty());
  EXPECT_TRUE(std::equal(b.segments[0].tokens.begin(), b.segments[0].tokens.end(), decoded.tokens.begin()));
  EXPECT_NEAR(b.segments[0].no_speech_probability, decoded.no_speech_probability, 1e-9);
  EXPECT_NE(a.segments.at(0).mean_log_probability, b.segments[0].mean_log_probability);
}

TEST(Whisper, DrawsRepeatAndFallBack) {
  const Transcriber model = tiny();
  const auto text = [&](double temperature, std::uint64_t seed) {
    return model.transcribe(whisper_sound(0.98), {.language = "de",
                                                  .timestamps = false,
                                                  .temperatures = {temperature},
                                                  .log_probability_min = -100,
                                                  .max_tokens = 14,
                                                  .seed = seed});
  };
  EXPECT_EQ(text(1, 3).text, text(1, 3).text);
  EXPECT_NE(text(1, 3).text, text(1, 4).text);
  // Nothing compresses below zero, so every temperature is tried.
  const Transcript t = model.transcribe(whisper_sound(0.98), {.language = "de",
                                                              .timestamps = false,
                                                              .temperatures = {0, 0.5, 1},
                                                              .compression_ratio_max = -1,
                                                              .max_tokens = 8});
  ASSERT_EQ(t.segments.size(), 1u);
  EXPECT_EQ(t.segments[0].temperature, 1);
  // A limit of the log-probability that no text keeps, and silence that every window has.
  EXPECT_TRUE(model.transcribe(whisper_sound(0.98), {.language = "de", .log_probability_min = 0, .no_speech_max = -1})
                  .segments.empty());
}

TEST(Whisper, CanBeStopped) {
  const Transcriber model = tiny();
  std::stop_source stop;
  const Transcript t = model.transcribe(whisper_sound(3), {.language = "de",
                                                           .temperatures = {0},
                                                           .log_probability_min = -100,
                                                           .max_tokens = 8,
                                                           .on_segment = [&](const Segment&) { stop.request_stop(); },
                                                           .cancel = stop.get_token()});
  EXPECT_EQ(t.segments.size(), 1u);
}

TEST(Whisper, EdgesOfSounds) {
  const Transcriber model = tiny();
  EXPECT_TRUE(model.transcribe({{}, 1, 16000}).segments.empty());
  EXPECT_TRUE(model.transcribe({std::vector<float>(159), 1, 16000}).segments.empty());
  // Silence, stereo, another rate: what matters is that it ends.
  const Transcript t =
      model.transcribe({std::vector<float>(2 * 44100), 2, 44100}, {.temperatures = {0}, .max_tokens = 4});
  EXPECT_EQ(t.seconds, 1);
}

TEST(Whisper, RefusesWrongOptions) {
  const Transcriber model = tiny();
  EXPECT_NE(message_of<UsageError>([&] {
              model.transcribe(whisper_sound(0.98), {.language = "xx"});
            }).find("does not know the language \"xx\"; known are en, de, fr"),
            std::string::npos);
  EXPECT_THROW(model.transcribe(whisper_sound(0.98), {.temperatures = {}}), UsageError);
  EXPECT_THROW(model.transcribe(whisper_sound(0.98), {.temperatures = {-1}}), UsageError);
  EXPECT_THROW(model.transcribe(whisper_sound(0.98), {.max_tokens = -1}), UsageError);
  EXPECT_THROW(model.transcribe({{0}, 1, 0}), UsageError);
  EXPECT_NE(message_of<UsageError>([&] { tiny().logits(std::vector<std::int32_t>{1}); }).find("call encode first"),
            std::string::npos);
  model.encode(model.features(whisper_sound(0.98)));
  EXPECT_THROW(model.logits(std::vector<std::int32_t>{-1}), UsageError);
  EXPECT_THROW(model.logits(std::vector<std::int32_t>(41, 0)), UsageError);
  EXPECT_THROW(model.encode(zeros({16, 99}, DType::f32, kCpu)), ShapeError);
}

TEST(Whisper, RefusesFoldersThatDoNotFit) {
  const auto refusal = [](const Json& changes) {
    const TemporaryFolder folder;
    test::put_whisper(folder, "F32", changes);
    return message_of<FileError>([&] { load_transcriber(folder.path()); });
  };
  EXPECT_NE(refusal({{"model_type", "llama"}})
                .find("is \"llama\"; speech models are \"whisper\", \"moonshine\", \"wav2vec2\" or \"hubert\""),
            std::string::npos);
  EXPECT_NE(refusal({{"d_model", 30}}).find("30, which 4 and 2 heads do not divide"), std::string::npos);
  EXPECT_NE(refusal({{"encoder_layers", 3}}).find("encoder.layers.2"), std::string::npos);
  EXPECT_NE(refusal({{"encoder_layers", 1}}).find("15 tensors are of another model"), std::string::npos)
      << refusal({{"encoder_layers", 1}});
  EXPECT_NE(refusal({{"vocab_size", 319}}).find("the configuration asks for [319, 32]"), std::string::npos);
  EXPECT_NE(refusal({{"encoder_ffn_dim", -5}}).find("encoder_ffn_dim"), std::string::npos);
  EXPECT_NE(refusal({{"decoder_layers", 4'000'000'000}}).find("decoder_layers"), std::string::npos);
  EXPECT_NE(refusal({{"activation_function", "sigmoid"}}).find("known are gelu"), std::string::npos);
  const TemporaryFolder folder;
  EXPECT_THROW(load_transcriber(folder.path()), FileError);
  EXPECT_FALSE(is_transcriber(folder.path()));
  test::put_whisper(folder);
  EXPECT_TRUE(is_transcriber(folder.path()));
  folder.put("generation_config.json", R"({"suppress_tokens": [999999]})");
  EXPECT_NE(
      message_of<FileError>([&] { load_transcriber(folder.path()); }).find("not a token of the vocabulary of 318"),
      std::string::npos)
      << message_of<FileError>([&] { load_transcriber(folder.path()); });
}

}  // namespace
}  // namespace weft::speech
