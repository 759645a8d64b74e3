// Voices of Kokoro: files, phonemes, speakers by name, and bad input. The published model is spoken and heard by real_speech_test.py.
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "runtime/devices.hpp"
#include "weft/error.hpp"
#include "weft/io.hpp"
#include "weft/onnx.hpp"
#include "weft/ops.hpp"
#include "weft/speech.hpp"

namespace weft::speech {
namespace {

using test::message_of;
using test::TemporaryFolder;

/// Each token sounds for two samples of (a hundredth of its number + the first number of the style) / speed.
void put_model(const std::filesystem::path& file, std::vector<std::string> names = {"tokens", "style", "speed"}) {
  const std::string tokens = names[0];
  onnx::save(file,
             [](std::span<const Tensor> in) {
               const Tensor x = (cast(in[0], DType::f32) * 0.01 + narrow(in[1], 1, 0, 1)) / in[2];
               return std::vector<Tensor>{reshape(expand(unsqueeze(x, 2), {1, x.dim(1), 2}), {x.dim(1) * 2})};
             },
             {zeros({1, 9}, DType::i64, kCpu), zeros({1, 256}, DType::f32, kCpu), ones({1}, DType::f32, kCpu)},
             {.inputs = std::move(names), .outputs = {"audio"}, .dynamic_axes = {{tokens, {{1, "tokens"}}}}});
}
/// Row r of a speaker begins with `first` + r.
Tensor styles(Extent rows, float first) {
  Tensor numbers = reshape(arange(rows, DType::f32, kCpu) + first, {rows, 1, 1});
  return concat({numbers, zeros({rows, 1, 255}, DType::f32, kCpu)}, 2);
}
void put_speakers(const std::filesystem::path& file) {
  save_npz(file, {{"af_sky", styles(4, 10)}, {"bm_lewis", styles(4, 20)}});
}

TEST(Kokoro, SpeaksPhonemesOfASpeaker) {
  const TemporaryFolder folder;
  put_model(folder / "kokoro-v1.0.onnx");
  EXPECT_FALSE(is_voice(folder / "kokoro-v1.0.onnx"));
  put_speakers(folder / "voices-v1.0.bin");
  EXPECT_TRUE(is_voice(folder / "kokoro-v1.0.onnx"));
  const Voice voice = load_voice(folder / "kokoro-v1.0.onnx", {.device = kCpu});
  EXPECT_EQ(voice.rate(), 24000);
  EXPECT_EQ(voice.speaker_names(), (std::vector<std::string>{"af_sky", "bm_lewis"}));
  // A newline, as espeak-ng writes it, counts as a space. Unknown characters are left out.
  EXPECT_EQ(voice.encode("h\u0259\nlU7\u02c8o", true), (std::vector<std::int32_t>{0, 50, 83, 16, 54, 156, 57, 0}));
  const std::vector<float> samples = voice.speak("ab", {.speaker = 1, .is_phonemes = true}).samples;
  ASSERT_EQ(samples.size(), 8u);
  EXPECT_NEAR(samples[0], 21, 1e-6) << "two phonemes have the second style";
  EXPECT_NEAR(samples[2], 21.43, 1e-5);
  EXPECT_NEAR(voice.speak("abcdef", {.is_phonemes = true}).samples[0], 13, 1e-6) << "the last style";
  const SpeakOptions fast{.rate = 2, .speaker_name = "bm_lewis", .is_phonemes = true};
  EXPECT_NEAR(voice.speak("ab", fast).samples[0], 10.5, 1e-6);
}

TEST(Kokoro, SentencesAreShort) {
  const TemporaryFolder folder;
  put_model(folder / "kokoro.onnx");
  put_speakers(folder / "voices.npz");
  const Voice voice = load_voice(folder / "kokoro.onnx", {.device = kCpu});
  EXPECT_EQ(voice.synthesize(std::vector<std::int32_t>(512)).samples.size(), 1024u);
  EXPECT_NE(message_of<UsageError>([&] { voice.synthesize(std::vector<std::int32_t>(513)); }).find("give 1 to 512"),
            std::string::npos);
  std::string text;
  for (int i = 0; i < 300; ++i) text += "abc ";
  EXPECT_GT(voice.speak(text, {.pause = 0, .is_phonemes = true}).samples.size(), 2 * 1190u);
}

TEST(Kokoro, FoldersOfTheHub) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "onnx");
  put_model(folder / "onnx/model.onnx", {"input_ids", "style", "speed"});
  EXPECT_FALSE(is_voice(folder.path()));
  std::filesystem::create_directories(folder / "voices");
  EXPECT_NE(message_of<FileError>([&] { load_voice(folder.path(), {.device = kCpu}); }).find("has no speaker"),
            std::string::npos);
  std::array<float, 512> numbers{};
  numbers[0] = 3, numbers[256] = 4;
  std::string bytes(sizeof(numbers), '\0');
  std::memcpy(bytes.data(), numbers.data(), sizeof(numbers));
  folder.put("voices/af_heart.bin", bytes);
  folder.put("config.json", R"({"vocab": {"a": 7, "b": 9}})");
  ASSERT_TRUE(is_voice(folder.path()));
  const Voice voice = load_voice(folder.path(), {.device = kCpu});
  EXPECT_EQ(voice.encode("abc", true), (std::vector<std::int32_t>{0, 7, 9, 0}));
  EXPECT_NEAR(voice.speak("ab", {.speaker_name = "af_heart", .is_phonemes = true}).samples[2], 4.07, 1e-5);
}

TEST(Kokoro, BadInput) {
  const TemporaryFolder folder;
  put_model(folder / "kokoro.onnx");
  put_speakers(folder / "voices.bin");
  const Voice voice = load_voice(folder / "kokoro.onnx", {.device = kCpu});
  const auto refused = [&](const std::string& text, const SpeakOptions& options) {
    return message_of<UsageError>([&] { voice.speak(text, options); });
  };
  EXPECT_NE(refused("hello", {}).find("reads phonemes"), std::string::npos);
  EXPECT_NE(refused("\u4f60", {.is_phonemes = true}).find("knows no character"), std::string::npos);
  EXPECT_NE(refused("a", {.speaker_name = "af_heart", .is_phonemes = true}).find("there are af_sky, bm_lewis"),
            std::string::npos);
  EXPECT_NE(refused("a", {.speaker = 2, .is_phonemes = true}).find("the model has 2"), std::string::npos);
  const auto unreadable = [&] {
    return message_of<FileError>([&] { load_voice(folder / "kokoro.onnx", {.device = kCpu}); });
  };
  save_npz(folder / "voices.bin", {{"af_sky", zeros({4, 128}, DType::f32, kCpu)}});
  EXPECT_NE(unreadable().find("is f32 [4, 128], and not f32 [phonemes, 256]"), std::string::npos);
  folder.put("voices.bin", "nothing");
  EXPECT_NE(unreadable().find("voices.bin"), std::string::npos);
  put_speakers(folder / "voices.bin");
  folder.put("config.json", R"({"vocab": {"ab": 7}})");
  EXPECT_NE(unreadable().find("has 7 for \"ab\""), std::string::npos) << unreadable();
  std::filesystem::remove(folder / "config.json");
  put_model(folder / "kokoro.onnx", {"tokens", "style", "tempo"});
  EXPECT_NE(unreadable().find("has no input \"speed\"; is it a voice of Kokoro?"), std::string::npos);
}

}  // namespace
}  // namespace weft::speech
