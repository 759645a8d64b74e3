// Tiny random voices against the transformers library (make_vits.py): tokens, durations and samples, with the noise that Weft draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "runtime/devices.hpp"
#include "speech/tiny_voice.hpp"
#include "speech/vits_config.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"
#include "weft/speech.hpp"

namespace weft::speech {
namespace {

using test::message_of;
using test::put_voice;
using test::TemporaryFolder;
using test::vits_golden;

constexpr const char* kText = "it's a weft-loom";
constexpr std::uint64_t kSeed = 7;

Voice tiny_voice(const std::string& name, Device device = kCpu) {
  const TemporaryFolder folder;
  put_voice(folder, vits_golden().at(name));
  return load_voice(folder.path(), {.device = device});
}

double worst_sample(const audio::Sound& sound, const Json& chosen) {
  double worst = 0;
  for (const Json& e : chosen)
    worst = std::max(worst, std::abs(sound.samples[e[0].get<std::size_t>()] - e[1].get<double>()));
  return worst;
}

TEST(Vits, SpeaksAsTransformersDoes) {
  for (const auto& [name, c] : vits_golden().items()) {
    SCOPED_TRACE(name);
    const Voice voice = tiny_voice(name);
    const std::vector<std::int32_t> tokens = voice.encode(kText);
    EXPECT_EQ(tokens, c["tokens"].get<std::vector<std::int32_t>>());
    const audio::Sound sound = voice.synthesize(tokens, {.speaker = c["speaker"], .seed = kSeed});
    EXPECT_EQ(sound.rate, 8000);
    ASSERT_EQ(sound.samples.size(), c["samples"].get<std::size_t>());
    EXPECT_LT(worst_sample(sound, c["chosen"]), 1e-4);
  }
}

TEST(Vits, CharactersAreThoseOfTransformers) {
  const Voice voice = tiny_voice("predicted");
  for (const auto& [text, wanted] : vits_golden().at("predicted").at("texts").items())
    EXPECT_EQ(voice.encode(text), wanted.get<std::vector<std::int32_t>>()) << text;
  EXPECT_EQ(message_of<UsageError>([&] { voice.encode("123"); }), "speak: the voice knows no character of \"123\"");
}

TEST(Vits, RunsOnWebGpu) {
  if (test::choose_driver().empty()) GTEST_SKIP() << "no driver";
  const Device gpu = parse_device("webgpu:0");
  runtime::backend_of(gpu);
  const Json& c = vits_golden().at("predicted");
  const Voice voice = tiny_voice("predicted", gpu);
  const audio::Sound sound = voice.synthesize(voice.encode(kText), {.seed = kSeed});
  ASSERT_EQ(sound.samples.size(), c["samples"].get<std::size_t>());
  EXPECT_LT(worst_sample(sound, c["chosen"]), 5e-4);
}

TEST(Vits, SentencesAndSettings) {
  const Voice voice = tiny_voice("predicted");
  std::size_t told = 0, count = 0;
  const audio::Sound two =
      voice.speak("First one. And then?",
                  {.pause = 0.5, .on_sentence = [&](const audio::Sound& s) { told += s.frames(), ++count; }});
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(told, two.frames());
  const std::size_t first = voice.synthesize(voice.encode("First one.")).frames(),
                    second = voice.synthesize(voice.encode("And then?"), {}, 1).frames();
  EXPECT_EQ(two.frames(), first + second + 4000);
  EXPECT_TRUE(std::all_of(two.samples.begin() + static_cast<std::ptrdiff_t>(first),
                          two.samples.begin() + static_cast<std::ptrdiff_t>(first + 4000),
                          [](float x) { return x == 0; }));
  // Faster is shorter, seeds differ, and without noise they do not.
  EXPECT_LT(voice.speak("the same words", {.rate = 2}).frames(), voice.speak("the same words", {.rate = 0.5}).frames());
  EXPECT_NE(voice.speak("words", {.seed = 1}).samples, voice.speak("words", {.seed = 2}).samples);
  EXPECT_EQ(voice.speak("words", {.noise = 0, .seed = 1}).samples,
            voice.speak("words", {.noise = 0, .seed = 2}).samples);
  const Voice several = tiny_voice("speakers-predicted");
  EXPECT_EQ(several.speakers(), 3);
  EXPECT_NE(several.speak("words", {.speaker = 0}).samples, several.speak("words", {.speaker = 1}).samples);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(voice.speak("never", {.cancel = stop.get_token()}).frames(), 0u);
}

TEST(Vits, RefusesWrongOptions) {
  const Voice voice = tiny_voice("predicted");
  EXPECT_THROW(voice.speak("a", {.rate = 0}), UsageError);
  EXPECT_THROW(voice.speak("a", {.noise = -1}), UsageError);
  EXPECT_THROW(voice.speak("a", {.speaker = 1}), UsageError);
  EXPECT_THROW(voice.speak("a", {.pause = NAN}), UsageError);
  EXPECT_THROW(voice.speak("..."), UsageError);
  EXPECT_THROW(voice.speak(""), UsageError);
  EXPECT_THROW(voice.synthesize(std::vector<std::int32_t>{99}), UsageError);
  EXPECT_THROW(voice.synthesize(std::vector<std::int32_t>{}), UsageError);
  EXPECT_THROW(voice.synthesize(std::vector<std::int32_t>(5000, 1)), UsageError);
}

TEST(Vits, RefusesFoldersThatDoNotFit) {
  const auto refusal = [](const Json& changes, const char* tokenizer = nullptr, const char* text = "abc") {
    const TemporaryFolder folder;
    put_voice(folder, vits_golden().at("drawn"), changes);
    if (tokenizer) folder.put("tokenizer_config.json", tokenizer);
    return message_of<Error>([&] { load_voice(folder.path()).encode(text); });
  };
  EXPECT_EQ(refusal({}), "no error");
  EXPECT_NE(refusal({{"model_type", "whisper"}}).find("voices are of the type \"vits\""), std::string::npos);
  EXPECT_NE(refusal({{"upsample_rates", {4, 3}}}).find("has 4 for a rate of 3"), std::string::npos);
  EXPECT_NE(refusal({{"upsample_rates", {4096, 4096, 4096}}}).find("differ in length"), std::string::npos);
  EXPECT_NE(refusal({{"hidden_size", 17}}).find("which 2 heads do not divide"), std::string::npos);
  EXPECT_NE(refusal({{"num_hidden_layers", 3}}).find("text_encoder.encoder.layers.2"), std::string::npos);
  EXPECT_NE(refusal({{"num_hidden_layers", 1}}).find("of another model"), std::string::npos);
  EXPECT_NE(refusal({{"hidden_act", "tanh"}}).find("known are relu and gelu"), std::string::npos);
  EXPECT_NE(refusal({{"depth_separable_channels", 4}}).find("must be 2"), std::string::npos);
  EXPECT_NE(refusal({{"sampling_rate", 0}}).find("sampling_rate"), std::string::npos);
  EXPECT_NE(refusal({}, R"({"phonemize": true})").find("reads phonemes"), std::string::npos);
  EXPECT_NE(refusal({}, R"({"is_uroman": true})", "абв").find("romanise the text first"), std::string::npos);
  EXPECT_NE(refusal({{"vocab_size", 20}}).find("not a token of the vocabulary of 20"), std::string::npos);
}

/// A voice of Piper's interface, made here: each token sounds for three samples of 0.1 times its number, scaled by the length scale, plus
/// noise scaled by the first scale.
void put_piper(const TemporaryFolder& folder, const std::string& settings) {
  onnx::save(folder / "voice.onnx",
             [](std::span<const Tensor> in) {
               const Tensor x = cast(in[0], DType::f32) * 0.1 * select(in[2], 0, 1) + cast(in[1], DType::f32) * 0.0;
               return std::vector<Tensor>{reshape(expand(unsqueeze(x, 2), {1, x.dim(1), 3}), {1, 1, x.dim(1) * 3})};
             },
             {zeros({1, 9}, DType::i64, kCpu), zeros({1}, DType::i64, kCpu), zeros({3}, DType::f32, kCpu)},
             {.inputs = {"input", "input_lengths", "scales"},
              .outputs = {"output"},
              .dynamic_axes = {{"input", {{1, "phonemes"}}}}});
  folder.put("voice.onnx.json", settings);
}
constexpr const char* kPiper =
    R"({"audio": {"sample_rate": 22050}, "num_symbols": 20, "inference": {"noise_scale": 0.5, "length_scale": 2, "noise_w": 0.1},
        "phoneme_id_map": {"_": [0], "^": [1], "$": [2], "a": [3], "\u02d0": [4], "b": [5, 6]}})";

TEST(Piper, SpeaksPhonemes) {
  const TemporaryFolder folder;
  put_piper(folder, kPiper);
  EXPECT_TRUE(is_voice(folder / "voice.onnx"));
  const Voice voice = load_voice(folder / "voice.onnx", {.device = kCpu});
  EXPECT_EQ(voice.rate(), 22050);
  EXPECT_EQ(voice.encode("a\u02d0?b", true), (std::vector<std::int32_t>{1, 0, 3, 0, 4, 0, 5, 6, 0, 2}));
  const std::vector<float> samples = voice.speak("ab", {.is_phonemes = true}).samples;
  ASSERT_EQ(samples.size(), 3u * 8);
  EXPECT_NEAR(samples[0], 0.1 * 2 * 1, 1e-6);
  EXPECT_NEAR(samples[6], 0.1 * 2 * 3, 1e-6);
  EXPECT_NEAR(voice.speak("ab", {.rate = 4, .is_phonemes = true}).samples[6], 0.1 / 4 * 3, 1e-6);
  EXPECT_NE(message_of<UsageError>([&] { voice.speak("ab"); }).find("reads phonemes"), std::string::npos);
  EXPECT_THROW(voice.speak("xyz", {.is_phonemes = true}), UsageError);
  EXPECT_THROW(voice.speak("a", {.speaker = 1, .is_phonemes = true}), UsageError);
}

TEST(Piper, LeavesTheGeneratorAsItWas) {
  const TemporaryFolder folder;
  put_piper(folder, kPiper);
  const Voice voice = load_voice(folder / "voice.onnx", {.device = kCpu});
  manual_seed(5);
  const std::vector<float> wanted = rand({4}, 0, 1).to_vector<float>();
  manual_seed(5);
  voice.speak("ab", {.is_phonemes = true});
  EXPECT_EQ(rand({4}, 0, 1).to_vector<float>(), wanted);
}

TEST(Piper, RefusesWrongSettings) {
  const auto refusal = [](const std::string& settings) {
    const TemporaryFolder folder;
    put_piper(folder, settings);
    return message_of<FileError>([&] { load_voice(folder / "voice.onnx", {.device = kCpu}); });
  };
  EXPECT_NE(refusal("{}").find("phoneme_id_map is not an object"), std::string::npos);
  EXPECT_NE(refusal(R"({"phoneme_id_map": {"a": [1]}})").find("lacks _, ^ or $"), std::string::npos);
  EXPECT_NE(refusal(R"({"num_symbols": 2, "phoneme_id_map": {"a": [2]}})").find("not one of 2 symbols"),
            std::string::npos);
  EXPECT_NE(
      refusal(R"({"num_speakers": 4, "phoneme_id_map": {"_": [0], "^": [1], "$": [2]}})").find("no input \"sid\""),
      std::string::npos);
  const TemporaryFolder folder;
  put_piper(folder, kPiper);
  std::filesystem::remove(folder / "voice.onnx.json");
  EXPECT_FALSE(is_voice(folder / "voice.onnx"));
  EXPECT_THROW(load_voice(folder / "voice.onnx", {.device = kCpu}), FileError);
}

TEST(Sentences, EndAtMarks) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(sentences_of("One. Two? Three"), (Texts{"One.", " Two?", " Three"}));
  EXPECT_EQ(sentences_of("pi is 3.14; e.g. e"), (Texts{"pi is 3.14;", " e.g.", " e"}));
  EXPECT_EQ(sentences_of("... - !"), Texts{});
  EXPECT_EQ(sentences_of("日本。語"), (Texts{"日本。", "語"}));
  for (const std::string& part : sentences_of(std::string(1000, 'a') + " " + std::string(50, 'b'), 100))
    EXPECT_LE(part.size(), 100u);
  EXPECT_EQ(sentences_of("aaa bbb ccc", 6), (Texts{"aaa ", "bbb ", "ccc"}));
  EXPECT_THROW(sentences_of("\xff"), FileError);
}

}  // namespace
}  // namespace weft::speech
