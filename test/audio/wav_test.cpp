// WAV files: what is written is read again, files of other programs are read, and bad ones are refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/file.hpp"
#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "weft/audio/sound.hpp"
#include "weft/error.hpp"

namespace weft::audio {
namespace {

using test::message_of;

std::string low_bytes(std::uint64_t value, std::size_t count) {
  return std::string(reinterpret_cast<const char*>(&value), count);
}

/// The pieces of a WAV file as another program might write them.
struct WavFile {
  std::uint16_t tag = 1, channels = 1, bits = 16;
  std::uint32_t rate = 8000;
  std::string extra = {};                // behind the first 16 bytes of the format
  std::string before = {}, data = {};    // chunks before the data
  std::uint32_t data_size = 0xFFFFFFFE;  // the true one
  std::uint16_t block = 0;               // 0: the right one

  std::string text() const {
    std::string format = low_bytes(tag, 2) + low_bytes(channels, 2) + low_bytes(rate, 4) +
                         low_bytes(std::uint64_t{rate} * channels * bits / 8, 4) +
                         low_bytes(block ? block : channels * bits / 8, 2) + low_bytes(bits, 2) + extra;
    const std::string body = "WAVEfmt " + low_bytes(format.size(), 4) + format + before + "data" +
                             low_bytes(data_size == 0xFFFFFFFE ? data.size() : data_size, 4) + data;
    return "RIFF" + low_bytes(body.size(), 4) + body;
  }
};

Sound parse(const std::string& text) { return parse_wav(std::as_bytes(std::span(text)), "a.wav"); }
std::string refusal(const WavFile& file) {
  return message_of<FileError>([&] { parse(file.text()); });
}

TEST(Wav, EveryFormatComesBack) {
  Sound sound{{}, 3, 44100};
  for (int i = 0; i < 300; ++i) sound.samples.push_back(static_cast<float>(std::sin(0.1 * i)));
  sound.samples[7] = -1, sound.samples[8] = 1, sound.samples[9] = 0;
  struct Case {
    SampleFormat format;
    double step;
  };
  for (const Case& c : {Case{SampleFormat::pcm8, 1 / 128.0}, Case{SampleFormat::pcm16, 1 / 32768.0},
                        Case{SampleFormat::pcm24, 1 / 8388608.0}, Case{SampleFormat::pcm32, 1 / 8388608.0},
                        Case{SampleFormat::f32, 0}, Case{SampleFormat::f64, 0}}) {
    SCOPED_TRACE(static_cast<int>(c.format));
    const std::vector<std::byte> bytes = wav_bytes(sound, c.format);
    const Sound back = parse_wav(bytes, "memory");
    EXPECT_EQ(back.channels, 3);
    EXPECT_EQ(back.rate, 44100);
    ASSERT_EQ(back.samples.size(), sound.samples.size());
    for (std::size_t i = 0; i < sound.samples.size(); ++i)
      EXPECT_NEAR(back.samples[i], sound.samples[i], sound.samples[i] > 1 - c.step ? c.step : c.step / 2);
    EXPECT_EQ(wav_bytes(back, c.format), bytes);  // a second time nothing is lost
    std::uint32_t riff = 0;
    std::memcpy(&riff, bytes.data() + 4, 4);
    EXPECT_EQ(riff + 8, bytes.size());
  }
}

TEST(Wav, ClipsAtFullScale) {
  const Sound back = parse_wav(wav_bytes({{2, -2, 0.99999f}, 1, 8000}), "memory");
  EXPECT_EQ(back.samples, (std::vector<float>{32767 / 32768.f, -1, 32767 / 32768.f}));
}

TEST(Wav, ReadsFilesOfOtherPrograms) {
  const std::string two = low_bytes(0x4000, 2) + low_bytes(0x8000, 2);
  EXPECT_EQ(parse(WavFile{.data = two}.text()).samples, (std::vector<float>{0.5f, -1}));
  // A list of an odd size before the data, and bytes of another chunk behind it.
  const std::string list = "LIST" + low_bytes(3, 4) + "abc" + std::string(1, '\0');
  EXPECT_EQ(parse(WavFile{.before = list, .data = two}.text() + "junk" + low_bytes(0, 4)).frames(), 2u);
  EXPECT_EQ(parse(WavFile{.data = two, .data_size = 0xFFFFFFFF}.text()).frames(), 2u);  // written to a pipe
  // 24 of 32 bits, extensible.
  const std::string tail("\x01\x00\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 16);
  const WavFile wide{.tag = 0xFFFE,
                     .bits = 32,
                     .extra = low_bytes(22, 2) + low_bytes(24, 2) + low_bytes(4, 4) + tail,
                     .data = low_bytes(0x40000000, 4)};
  EXPECT_EQ(parse(wide.text()).samples, std::vector<float>{0.5f});
  EXPECT_EQ(parse(WavFile{.bits = 8, .data = std::string("\x00\x80\xC0", 3)}.text()).samples,
            (std::vector<float>{-1, 0, 0.5f}));
  EXPECT_EQ(parse(WavFile{}.text()).frames(), 0u);
}

TEST(Wav, RefusesBadHeaders) {
  EXPECT_EQ(message_of<FileError>([] { parse("nothing of the kind"); }),
            "a.wav: does not begin with RIFF and WAVE; it is not a WAV file");
  EXPECT_NE(refusal({.tag = 6, .bits = 8}).find("the encoding 0x0006 (A-law) is not PCM or float"), std::string::npos);
  EXPECT_NE(refusal({.bits = 12}).find("PCM of 12 bits"), std::string::npos);
  EXPECT_NE(refusal({.tag = 3, .bits = 16}).find("floats of 16 bits"), std::string::npos);
  EXPECT_NE(refusal({.channels = 0}).find("0 channels"), std::string::npos);
  EXPECT_NE(refusal({.rate = 0}).find("a rate of 0 Hz"), std::string::npos);
  EXPECT_NE(refusal({.rate = 4'000'000'000u}).find("a rate of 4000000000 Hz"), std::string::npos);
  EXPECT_NE(refusal({.block = 3}).find("frames of 3 bytes"), std::string::npos);
  EXPECT_NE(refusal({.data = "abc"}).find("3 bytes of data are not whole frames of 2"), std::string::npos);
  EXPECT_NE(
      refusal({.data = "ab", .data_size = 0xFFFFFF00}).find("4294967040 bytes of data are announced, but 2 follow"),
      std::string::npos);
  EXPECT_NE(refusal({.tag = 0xFFFE, .extra = "ab"}).find("the extensible format has 18 bytes"), std::string::npos);
  EXPECT_NE(refusal({.before = "LIST" + low_bytes(0xFFFFFFFF, 4)}).find("the file is truncated"), std::string::npos);
  const float none = std::numeric_limits<float>::quiet_NaN();
  std::uint32_t bits = 0;
  std::memcpy(&bits, &none, 4);
  EXPECT_NE(refusal({.tag = 3, .bits = 32, .data = low_bytes(bits, 4)}).find("sample 0 of channel 0 is not finite"),
            std::string::npos);
}

TEST(Wav, RefusesBadSounds) {
  EXPECT_THROW(wav_bytes({{0}, 1, 0}), UsageError);
  EXPECT_THROW(wav_bytes({{0, 0, 0}, 2, 8000}), UsageError);
  EXPECT_THROW(wav_bytes({{0}, 0, 8000}), UsageError);
  EXPECT_THROW(wav_bytes({{std::numeric_limits<float>::infinity()}, 1, 8000}), UsageError);
  EXPECT_THROW(load_wav("/nowhere/at-all.wav"), FileError);
}

TEST(Wav, SurvivesDamage) {
  const Sound sound{{0.25f, -0.25f, 0.5f, -0.5f}, 2, 8000};
  for (const SampleFormat format : {SampleFormat::pcm16, SampleFormat::pcm24, SampleFormat::f32}) {
    const std::vector<std::byte> bytes = wav_bytes(sound, format);
    const std::string good(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const test::MemoryLimit limit(std::size_t{64} << 20);
    test::for_each_mutation(good, good.size(), 1000, [&](const std::string& bad, const std::string& what) {
      SCOPED_TRACE(what);
      try {
        EXPECT_LE(parse(bad).samples.size(), bad.size());
      } catch (const FileError&) {
      }
    });
  }
}

TEST(Wav, FilesAreWhole) {
  const test::TemporaryFolder folder;
  const Sound sound{{0.25f, -0.25f}, 1, 16000};
  save_wav(folder / "a.wav", sound);
  EXPECT_EQ(load_wav(folder / "a.wav").samples, sound.samples);
  EXPECT_THROW(save_wav(folder / "a.wav", {{0}, 1, -5}), UsageError);
  EXPECT_EQ(load_wav(folder / "a.wav").samples, sound.samples);
}

}  // namespace
}  // namespace weft::audio
