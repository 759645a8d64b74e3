// Recognisers by CTC against the transformers library (make_ctc.py), and how frames become words.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "runtime/devices.hpp"
#include "speech/ctc_text.hpp"
#include "speech/ctc_transcribe.hpp"
#include "speech/tiny_ctc.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech::ctc_test {
namespace {

using test::ctc_golden;
using test::message_of;
using test::TemporaryFolder;

constexpr const char* kModels[] = {"wav2vec2 base", "wav2vec2 large", "hubert base", "hubert large"};

Transcriber tiny(const std::string& name, const std::string& type = "F32", Device device = kCpu) {
  const TemporaryFolder folder;
  test::put_ctc(folder, name, type);
  return load_transcriber(folder.path(), {.device = device});
}

double worst_logit(const Transcriber& model, const Json& golden) {
  const Tensor logits = model.frame_logits(test::ctc_sound());
  EXPECT_EQ(logits.shape(), (Shape{golden["frames"].get<Extent>(), model.vocabulary()}));
  const std::vector<float> values = logits.to_vector<float>();
  double worst = 0;
  for (const Json& e : golden["logits"])
    worst = std::max(
        worst, std::abs(values[static_cast<std::size_t>(e[0].get<Extent>() * logits.dim(1) + e[1].get<Extent>())] -
                        e[2].get<double>()));
  return worst;
}

void expect_words(const Transcript& t, const Json& golden) {
  EXPECT_EQ(t.text, golden["text"].get<std::string>());
  std::vector<Word> words;
  for (const Segment& s : t.segments) words.insert(words.end(), s.words.begin(), s.words.end());
  ASSERT_EQ(words.size(), golden["words"].size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    EXPECT_EQ(words[i].text, " " + golden["words"][i][0].get<std::string>());
    EXPECT_NEAR(words[i].begin, golden["words"][i][1].get<double>(), 1e-6);
    EXPECT_NEAR(words[i].end, golden["words"][i][2].get<double>(), 1e-6);
    EXPECT_TRUE(words[i].probability > 0 && words[i].probability <= 1);
  }
}

TEST(Ctc, LogitsAndWordsAreThoseOfTransformers) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    const Json& golden = ctc_golden()[name];
    const Transcriber model = tiny(name);
    EXPECT_TRUE(model.is_ctc());
    EXPECT_LT(worst_logit(model, golden), 3e-4);
    std::vector<std::string> streamed;
    const Transcript t = model.transcribe(
        test::ctc_sound(), {.words = true, .on_segment = [&](const Segment& s) { streamed.push_back(s.text); }});
    EXPECT_EQ(t.seconds, 6);
    expect_words(t, golden);
    std::string joined;
    for (const std::string& text : streamed) joined += (joined.empty() ? "" : " ") + text;
    EXPECT_EQ(joined, t.text);
    // Without words, and as one segment.
    const Transcript one = model.transcribe(test::ctc_sound(), {.language = "German", .timestamps = false});
    EXPECT_EQ(one.text, t.text);
    ASSERT_EQ(one.segments.size(), 1u);
    EXPECT_TRUE(one.segments[0].words.empty());
    EXPECT_EQ(one.language, "de");
  }
}

TEST(Ctc, HalvesArePackedAndStayClose) {
  const Transcriber whole = tiny("wav2vec2 large"), half = tiny("wav2vec2 large", "F16");
  EXPECT_LT(half.weight_bytes(), whole.weight_bytes());
  EXPECT_LT(worst_logit(half, ctc_golden()["wav2vec2 large"]), 0.05);
}

TEST(Ctc, RunsOnWebGpu) {
  if (test::choose_driver().empty()) GTEST_SKIP() << "no driver";
  const Device gpu = parse_device("webgpu:0");
  runtime::backend_of(gpu);
  const Transcriber model = tiny("hubert base", "F32", gpu);
  expect_words(model.transcribe(test::ctc_sound(), {.words = true}), ctc_golden()["hubert base"]);
}

// Frames in the middle of a window are those of the window alone.
TEST(Ctc, LongSoundsAreHeardInWindows) {
  const TemporaryFolder folder;
  test::put_ctc(folder, "wav2vec2 base");
  folder.put("preprocessor_config.json", R"({"do_normalize": false, "sampling_rate": 16000})");
  const Transcriber model = load_transcriber(folder.path());
  detail::CtcEngine engine(folder.path(), {.device = kCpu});
  audio::Sound sound;
  for (int i = 0; i < 12; ++i) {
    const audio::Sound part = test::ctc_sound();
    for (const float x : part.samples) sound.samples.push_back(x * static_cast<float>(12 - i) / 12);
  }
  const CtcConfig& c = engine.config();
  EXPECT_EQ(c.hop(), 320);
  const auto size = static_cast<Extent>(sound.samples.size());  // 72 s
  const Extent frames = c.frames(size), window = 1500, margin = 200;
  std::vector<Segment> wanted;
  CtcWriter writer(engine.tokens(), 0.02, 40, [&](Segment s) { wanted.push_back(std::move(s)); });
  for (Extent done = 0; done < frames;) {
    const Extent first = std::max<Extent>(done - margin, 0);
    const Extent end = std::min((first + window) * 320 + c.reach() - 320, size);
    const auto best =
        engine.best(std::span(sound.samples)
                        .subspan(static_cast<std::size_t>(first * 320), static_cast<std::size_t>(end - first * 320)));
    const Extent kept = end == size ? frames : first + window - margin;
    for (; done < kept; ++done)
      writer.put(best.tokens[static_cast<std::size_t>(done - first)],
                 static_cast<double>(best.log_probabilities[static_cast<std::size_t>(done - first)]));
  }
  writer.finish();
  const Transcript t = model.transcribe(sound, {.words = true});
  ASSERT_EQ(t.segments.size(), wanted.size());
  std::size_t words = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(t.segments[i].text, wanted[i].text);
    EXPECT_EQ(t.segments[i].tokens, wanted[i].tokens);
    EXPECT_NEAR(t.segments[i].end, wanted[i].end, 1e-9);
    words += t.segments[i].words.size();
  }
  EXPECT_GT(words, 20u);
  EXPECT_GT(t.segments.back().end, 60);
}

TEST(Ctc, OnlySpeechIsHeard) {
  const Transcriber model = tiny("wav2vec2 base");
  const Transcript all = model.transcribe(test::ctc_sound(), {.words = true});
  const Transcript some = model.transcribe(test::ctc_sound(), {.words = true, .speech = {{{2, 4}}}});
  ASSERT_FALSE(some.segments.empty());
  EXPECT_LT(some.text.size(), all.text.size());
  EXPECT_GE(some.segments.front().begin, 1.98);
  EXPECT_LE(some.segments.back().end, 4.02);
}

TEST(Ctc, FramesBecomeWords) {
  CtcTokens tokens;
  tokens.texts = {"", "A", "B", "", "\xC3\x89"};  // blank, two letters, a space, a letter of two bytes
  tokens.delimiter = 3;
  const auto segments_of = [&](const std::vector<std::int32_t>& frames, Extent pause) {
    std::vector<Segment> segments;
    CtcWriter writer(tokens, 0.5, pause, [&](Segment s) { segments.push_back(std::move(s)); });
    for (const std::int32_t token : frames) writer.put(token, -0.5);
    writer.finish();
    return segments;
  };
  std::vector<Segment> made = segments_of({0, 1, 1, 0, 1, 2, 3, 3, 0, 4, 4, 0}, 4);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].text, "AAB \xC3\x89");
  EXPECT_EQ(made[0].tokens, (std::vector<std::int32_t>{1, 1, 2, 3, 4}));
  EXPECT_EQ(made[0].words[0].begin, 0.5);
  EXPECT_EQ(made[0].words[0].end, 3);
  EXPECT_EQ(made[0].words[1].begin, 4.5);
  EXPECT_EQ(made[0].words[1].end, 5.5);
  EXPECT_NEAR(made[0].words[1].probability, std::exp(-0.5), 1e-12);
  EXPECT_NEAR(made[0].mean_log_probability, -0.5, 1e-12);
  // A pause parts segments, whether or not the model writes a space.
  made = segments_of({1, 3, 0, 0, 0, 2, 0, 0, 0, 0, 1}, 4);
  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(made[0].tokens, (std::vector<std::int32_t>{1}));
  EXPECT_EQ(made[2].begin, 5);
  EXPECT_EQ(segments_of({1, 3, 0, 0, 0, 2, 0, 0, 0, 0, 1}, 0).size(), 1u);
  EXPECT_EQ(segments_of({1, 3, 0, 0, 2}, 4).size(), 1u);
  EXPECT_TRUE(segments_of({0, 3, 0}, 4).empty());
  EXPECT_TRUE(segments_of({}, 4).empty());
  tokens.small_letters = true;
  EXPECT_EQ(segments_of({1, 4}, 4)[0].text, "a\xC3\xA9");
}

TEST(Ctc, EdgesOfSounds) {
  const Transcriber model = tiny("wav2vec2 base");
  EXPECT_TRUE(model.transcribe({{}, 1, 16000}).segments.empty());
  EXPECT_TRUE(model.transcribe({std::vector<float>(100), 1, 16000}).segments.empty());
  EXPECT_EQ(model.transcribe({std::vector<float>(2 * 44100), 2, 44100}).seconds, 1);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_TRUE(model.transcribe(test::ctc_sound(), {.cancel = stop.get_token()}).segments.empty());
}

TEST(Ctc, WhatItCannotDoIsRefused) {
  const Transcriber model = tiny("hubert base");
  const auto refusal = [](const auto& f) { return message_of<UsageError>(f); };
  const audio::Sound sound = test::ctc_sound();
  EXPECT_NE(refusal([&] { model.transcribe(sound, {.task = Task::translate}); }).find("does not translate"),
            std::string::npos);
  EXPECT_NE(refusal([&] { model.transcribe(sound, {.prompt = "Weft"}); }).find("reads no prompt"), std::string::npos);
  EXPECT_NE(refusal([&] { model.transcribe(sound, {.beam_size = 5}); }).find("without beams"), std::string::npos);
  EXPECT_NE(refusal([&] { model.detect_language(sound); }).find("knows one language"), std::string::npos);
  EXPECT_NE(refusal([&] {
              model.features(sound);
            }).find("features is a part of models of the Whisper family, and this one is hubert"),
            std::string::npos);
  EXPECT_THROW((void)model.decode(std::vector<std::int32_t>{1}), UsageError);
  EXPECT_THROW((void)model.tokenizer(), UsageError);
  EXPECT_THROW(model.check_language("de", Task::translate), UsageError);
  model.check_language("de", Task::transcribe);
  EXPECT_NE(refusal([&] {
              (void)model.frame_logits({std::vector<float>(100), 1, 16000});
            }).find("a sound of 100 samples at 16 kHz; the model needs"),
            std::string::npos);
  EXPECT_TRUE(model.languages().empty());
  EXPECT_EQ(model.positions(), 0);
}

TEST(Ctc, FoldersThatDoNotFitAreRefused) {
  const auto refusal = [](const Json& changes, const std::function<void(const TemporaryFolder&)>& also = {}) {
    const TemporaryFolder folder;
    test::put_ctc(folder, "wav2vec2 base", "F32", changes);
    if (also) also(folder);
    return message_of<FileError>([&] { load_transcriber(folder.path()); });
  };
  const auto expect = [](const std::string& message, std::string_view part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal({{"hidden_size", 25}}), "25, which 3 heads do not divide");
  expect(refusal({{"num_hidden_layers", 3}}), "encoder.layers.2");
  expect(refusal({{"num_hidden_layers", 1}}), "tensors are of another model");
  expect(refusal({{"conv_stride", {5, 8}}}), "conv_stride 2; they must be equally many");
  expect(refusal({{"conv_stride", {5, 8, 800}}}), "makes frames of more than a second");
  expect(refusal({{"conv_kernel", {10, 8, 0}}}), "has 0, not a whole number");
  expect(refusal({{"feat_extract_norm", "batch"}}), "known are group and layer");
  expect(refusal({{"hidden_act", "tanh"}}), "known are gelu");
  expect(refusal({{"add_adapter", true}}), "with an adapter are not read");
  expect(refusal({{"adapter_attn_dim", 16}}), "adapters for languages (MMS) are not read");
  expect(refusal({{"num_conv_pos_embedding_groups", 5}}), "does not divide a width of 24");
  expect(refusal({{"vocab_size", 9}}), "not a token of the vocabulary of 9");
  expect(refusal({}, [](const TemporaryFolder& f) { f.put("vocab.json", R"({"de": {"a": 0}})"); }),
         "has a vocabulary for each language");
  expect(refusal({}, [](const TemporaryFolder& f) { f.put("preprocessor_config.json", R"({"sampling_rate": 8000})"); }),
         "sampling_rate is 8000; recognisers read 16000 Hz");
  expect(refusal({}, [](const TemporaryFolder& f) { std::filesystem::remove(f / "vocab.json"); }), "vocab.json");
  // A body that was trained on sounds alone.
  const TemporaryFolder folder;
  test::put_ctc(folder, "wav2vec2 base");
  Json config = ctc_golden()["wav2vec2 base"]["config"];
  test::put({"ctc", config, {{"wav2vec2.masked_spec_embed", test::random_values("a", Shape{24}, 1)}}}, folder, "F32");
  expect(message_of<FileError>([&] { load_transcriber(folder.path()); }),
         "has no lm_head.weight, so the model writes no text");
  EXPECT_TRUE(is_transcriber(folder.path()));
}

}  // namespace
}  // namespace weft::speech::ctc_test
