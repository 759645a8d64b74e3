// Samples to WAV files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "audio/wav.hpp"
#include "base/file.hpp"
#include "weft/error.hpp"

namespace weft::audio {
namespace {

unsigned bits_of(SampleFormat format) {
  switch (format) {
    case SampleFormat::pcm8: return 8;
    case SampleFormat::pcm16: return 16;
    case SampleFormat::pcm24: return 24;
    case SampleFormat::pcm32:
    case SampleFormat::f32: return 32;
    case SampleFormat::f64: return 64;
  }
  throw InternalError("wav: an unknown format of samples");
}

class WavWriter {
 public:
  WavWriter(const Sound& sound, SampleFormat format)
      : sound_(sound), format_(format), is_float_(format == SampleFormat::f32 || format == SampleFormat::f64) {}

  std::vector<std::byte> write() {
    const unsigned bits = bits_of(format_), size = bits / 8;
    const std::uint64_t data = sound_.samples.size() * std::uint64_t{size};
    if (data > 0xFFFFFF00u)
      throw UsageError(fmt::format("save_wav: {} bytes of samples; a WAV file holds less than 4 GiB", data));
    const bool is_extensible = sound_.channels > 2 || (!is_float_ && bits > 16);
    const std::uint32_t format_bytes = is_extensible ? 40 : is_float_ ? 18 : 16;
    const std::uint32_t riff =
        4 + 8 + format_bytes + (is_float_ ? 12 : 0) + 8 + static_cast<std::uint32_t>(data + data % 2);
    out_.reserve(riff + 8);
    const auto channels = static_cast<std::uint16_t>(sound_.channels);
    const auto rate = static_cast<std::uint32_t>(sound_.rate);
    const std::uint16_t tag = is_float_ ? kFloat : kPcm;
    put("RIFF"), put(riff), put("WAVE");
    put("fmt "), put(format_bytes), put(is_extensible ? kExtensible : tag), put(channels), put(rate);
    put(static_cast<std::uint32_t>(std::uint64_t{rate} * channels * size));  // wraps where the field is too small
    put(static_cast<std::uint16_t>(channels * size)), put(static_cast<std::uint16_t>(bits));
    if (is_extensible)
      put(std::uint16_t{22}), put(static_cast<std::uint16_t>(bits)), put(std::uint32_t{0}), put(tag),
          put(kSubformatTail);
    else if (is_float_)
      put(std::uint16_t{0});
    if (is_float_) put("fact"), put(std::uint32_t{4}), put(static_cast<std::uint32_t>(sound_.frames()));
    put("data"), put(static_cast<std::uint32_t>(data));
    for (const float sample : sound_.samples) put_sample(sample);
    if (data % 2 != 0) put(std::uint8_t{0});
    return std::move(out_);
  }

 private:
  void put(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  template <class T>
  requires std::is_arithmetic_v<T>
  void put(T value) { put_low_bytes(value, sizeof value); }
  template <class T>
  void put_low_bytes(T value, std::size_t count) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + count);
  }
  void put_sample(float value) {
    if (format_ == SampleFormat::f32) return put(value);
    if (format_ == SampleFormat::f64) return put(static_cast<double>(value));
    const unsigned bits = bits_of(format_);
    const double full = std::ldexp(1.0, static_cast<int>(bits) - 1);
    const auto step = static_cast<std::int64_t>(std::nearbyint(std::clamp(value * full, -full, full - 1)));
    put_low_bytes(format_ == SampleFormat::pcm8 ? step + 128 : step, bits / 8);
  }

  const Sound& sound_;
  SampleFormat format_;
  bool is_float_;
  std::vector<std::byte> out_;
};

}  // namespace

void check_sound(const Sound& sound, std::string_view doing) {
  if (sound.rate < 1 || sound.rate > kRateMax)
    throw UsageError(fmt::format("{}: a rate of {} Hz; it must be in [1, {}]", doing, sound.rate, kRateMax));
  if (sound.channels < 1 || sound.channels > 65535)
    throw UsageError(fmt::format("{}: {} channels; there must be 1 to 65535", doing, sound.channels));
  if (sound.samples.size() % static_cast<std::size_t>(sound.channels) != 0)
    throw UsageError(
        fmt::format("{}: {} samples are not whole frames of {} channels", doing, sound.samples.size(), sound.channels));
  const auto bad = std::find_if(sound.samples.begin(), sound.samples.end(), [](float x) { return !std::isfinite(x); });
  if (bad != sound.samples.end())
    throw UsageError(
        fmt::format("{}: sample {} is {}; samples must be finite", doing, bad - sound.samples.begin(), *bad));
}

std::vector<std::byte> wav_bytes(const Sound& sound, SampleFormat format) {
  check_sound(sound, "save_wav");
  if (sound.channels * static_cast<int>(bits_of(format) / 8) > 65535)
    throw UsageError(fmt::format("save_wav: {} channels of {} bits; a frame holds at most 65535 bytes", sound.channels,
                                 bits_of(format)));
  return WavWriter(sound, format).write();
}

void save_wav(const std::filesystem::path& path, const Sound& sound, SampleFormat format) {
  const std::vector<std::byte> bytes = wav_bytes(sound, format);
  write_file_atomically(path, [&](AtomicFile& file) { file.write(bytes); }, {.expected_bytes = bytes.size()});
}

}  // namespace weft::audio
