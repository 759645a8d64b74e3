// FLAC, Ogg and MP3 against FFmpeg, damage, limits; sounds as tensors.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "audio/packed.hpp"
#include "base/json.hpp"
#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "weft/audio.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::audio::packed_test {
namespace {

using test::message_of;

struct Packed {
  Json json;
  std::string bytes;
  std::string name() const { return json["name"].get<std::string>(); }
};
const std::vector<Packed>& packed() {
  static const std::vector<Packed> all = [] {
    std::vector<Packed> made;
    const Json json = read_json_file(WEFT_TEST_PACKED);
    for (const Json& each : json["files"]) {
      const auto hex = each["file"].get<std::string>();
      std::string bytes;
      for (std::size_t i = 0; i < hex.size(); i += 2)
        bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
      made.push_back({each, bytes});
    }
    return made;
  }();
  return all;
}
const std::string& file_of(const std::string& name) {
  for (const Packed& each : packed())
    if (each.name() == name) return each.bytes;
  throw std::out_of_range(name);
}
Sound parsed(std::string_view bytes, const Limits& limits = {}) {
  return parse(std::as_bytes(std::span(bytes)), "it", limits);
}

TEST(PackedSounds, HaveTheSamplesThatFfmpegHears) {
  ASSERT_EQ(packed().size(), 7u);
  for (const Packed& each : packed()) {
    SCOPED_TRACE(each.name());
    const Sound sound = parsed(each.bytes);
    EXPECT_EQ(sound.channels, each.json["channels"].get<int>());
    EXPECT_EQ(sound.rate, each.json["rate"].get<int>());
    // FFmpeg decodes Opus at 48 kHz and resamples; libsndfile asks for the rate of the file.
    const double tolerance = each.name().starts_with("flac") ? 1e-7 : each.name() == "ogg-opus" ? 1e-3 : 2e-4;
    // FFmpeg does not cut the last packet of Vorbis where the file says that the sound ends.
    EXPECT_EQ(sound.frames(), each.name() == "ogg-vorbis" ? 4000 : each.json["frames"].get<std::size_t>());
    for (const Json& row : each.json["samples"]) {
      const auto frame = row[0].get<std::size_t>();
      for (std::size_t c = 0; c + 1 < row.size() && frame < sound.frames(); ++c)
        EXPECT_NEAR(sound.samples[frame * static_cast<std::size_t>(sound.channels) + c], row[c + 1].get<float>(),
                    tolerance)
            << frame;
    }
  }
}

TEST(PackedSounds, AreFoundByTheirBytes) {
  const test::TemporaryFolder folder;
  folder.put("talk.wav", file_of("mp3"));  // whatever its name says
  EXPECT_EQ(load(folder / "talk.wav").frames(), 4000u);
  save_wav(folder / "tone.mp3", {{0.5f, -0.5f}, 1, 8000});
  EXPECT_EQ(load(folder / "tone.mp3").samples, (std::vector<float>{0.5f, -0.5f}));
  for (const char* other : {"", "OGG", "no sound at all", "\xff\xd8\xff\xe0 a JPEG file"})
    EXPECT_EQ(message_of([&] { parsed(other); }),
              "it: is not a WAV, FLAC, Ogg or MP3 file; convert the sound to one of these");
  // Libsndfile would read AIFF; nothing asked for it.
  EXPECT_FALSE(is_packed_sound(std::as_bytes(std::span(std::string_view("FORM\0\0\0\0AIFF", 12)))));
  EXPECT_NE(message_of([&] { parsed("ID3 and nothing more"); }), "no error");
}

TEST(PackedSounds, LimitsHoldWhateverTheHeaderSays) {
  for (const Packed& each : packed()) {
    SCOPED_TRACE(each.name());
    EXPECT_EQ(message_of([&] { parsed(each.bytes, {.samples_max = 1000}); }),
              "it: has more than 1000 samples, which is the limit; cut the file into parts");
  }
  EXPECT_NE(message_of([&] {
              const std::vector<std::byte> wav = wav_bytes({std::vector<float>(2000), 1, 8000});
              parse(wav, "it", {.samples_max = 1999});
            }).find("at most 1999"),
            std::string::npos);
  // 36 bits of the number of samples in the header of FLAC.
  std::string flac = file_of("flac-16");
  flac[21] = static_cast<char>(flac[21] | 0x0f);
  const test::MemoryLimit limit(std::size_t{64} << 20);
  EXPECT_EQ(message_of([&] { parsed(flac); }),
            "it: has more than 1073741824 samples, which is the limit; cut the file into parts");
}

TEST(PackedSounds, AFlacFileThatEndsTooEarlyIsRefused) {
  for (const char* name : {"flac-16", "flac-24", "flac-8"}) {
    const std::string& file = file_of(name);
    for (const std::size_t left : {std::size_t{4}, std::size_t{60}, file.size() / 2, file.size() - 20})
      EXPECT_NE(message_of([&] { parsed(file.substr(0, left)); }), "no error") << name << left;
  }
}

TEST(PackedSounds, SurviveDamage) {
  const test::MemoryLimit limit(std::size_t{256} << 20);
  int taken = 0, refused = 0;
  for (const Packed& each : packed())
    test::for_each_mutation(each.bytes, each.bytes.size(), 120, [&](const std::string& mutated, const std::string&) {
      try {
        const Sound sound = parsed(mutated, {.samples_max = 1 << 20});
        EXPECT_TRUE(std::all_of(sound.samples.begin(), sound.samples.end(), [](float x) { return std::isfinite(x); }));
        ++taken;
      } catch (const FileError&) {
        ++refused;
      }
    });
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(Sounds, AreTensorsAndBack) {
  const Sound stereo{{1, 2, 3, 4, 5, 6}, 2, 8000};
  const Tensor samples = to_tensor(stereo);
  EXPECT_EQ(samples.shape(), (Shape{2, 3}));
  EXPECT_EQ(samples.to_vector<float>(), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  const Sound again = from_tensor(samples, 8000);
  EXPECT_EQ(again.samples, stereo.samples);
  EXPECT_EQ(again.channels, 2);
  EXPECT_EQ(from_tensor(cast(tensor({0.5f, 0.25f}), DType::f16), 16000).samples, (std::vector<float>{0.5f, 0.25f}));
  EXPECT_EQ(from_tensor(zeros({1, 0}), 16000).frames(), 0u);
  EXPECT_THROW(from_tensor(zeros({1, 1, 2}), 16000), ShapeError);
  EXPECT_THROW(from_tensor(zeros({2}, DType::i16), 16000), DTypeError);
  EXPECT_THROW(from_tensor(zeros({2}), 0), UsageError);
  EXPECT_THROW(from_tensor(full({2}, std::nan("")), 16000), UsageError);
  EXPECT_THROW(from_tensor({}, 16000), UsageError);
}

TEST(Sounds, NamesOfOptions) {
  EXPECT_EQ(sample_format("pcm24"), SampleFormat::pcm24);
  EXPECT_EQ(window_kind("blackman"), WindowKind::blackman);
  EXPECT_EQ(mel_scale("htk"), MelScale::htk);
  EXPECT_EQ(message_of([] { mel_scale("bark"); }), "audio: there is no scale of mels \"bark\"; known are slaney, htk");
}

}  // namespace
}  // namespace weft::audio::packed_test
