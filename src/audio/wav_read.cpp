// WAV files to samples. Sizes are checked against the file before memory is allocated.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <optional>

#include "audio/wav.hpp"
#include "base/file.hpp"
#include "base/quote.hpp"
#include "weft/error.hpp"

namespace weft::audio {
namespace {

static_assert(std::endian::native == std::endian::little, "WAV files are little-endian");

struct WavFormat {
  std::uint16_t tag = 0, channels = 0, bits = 0;
  std::uint32_t rate = 0;
  std::size_t sample_bytes() const { return bits / 8u; }
};

class WavReader {
 public:
  WavReader(std::span<const std::byte> bytes, std::string_view source) : bytes_(bytes), source_(source) {}

  Sound read() {
    if (text(0, 4) == "RF64" || text(0, 4) == "RIFX")
      fail(fmt::format("is a WAV file of the kind {}, which Weft does not read; convert it to RIFF", text(0, 4)));
    if (text(0, 4) != "RIFF" || text(8, 4) != "WAVE") fail("does not begin with RIFF and WAVE; it is not a WAV file");
    std::optional<WavFormat> format;
    for (std::size_t at = 12; at < bytes_.size();) {
      if (bytes_.size() - at < 8) fail(fmt::format("ends within a chunk's header at byte {}; it is truncated", at));
      const std::string_view name = text(at, 4);
      const std::uint32_t size = number<std::uint32_t>(at + 4);
      const std::size_t body = at + 8, left = bytes_.size() - body;
      if (name == "data") {
        if (!format) fail("has its data before its format; write the file again");
        return samples(*format, bytes_.subspan(body, data_size(size, left)));
      }
      if (size > left)
        fail(fmt::format("the chunk {} at byte {} takes {} bytes, but {} follow; the file is truncated", quote(name),
                         at, size, left));
      if (name == "fmt ") {
        if (format) fail(fmt::format("has a second format at byte {}; write the file again", at));
        format = read_format(bytes_.subspan(body, size));
      }
      at = body + size + size % 2;  // chunks begin at even bytes
    }
    fail(format ? "has no data; it is truncated" : "has neither a format nor data; it is truncated");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw FileError(fmt::format("{}: {}", source_, what)); }

  std::string_view text(std::size_t at, std::size_t length) const {
    if (at + length > bytes_.size()) return {};
    return {reinterpret_cast<const char*>(bytes_.data()) + at, length};
  }
  template <class T>
  T number(std::size_t at) const {
    T value;
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }

  std::size_t data_size(std::uint32_t size, std::size_t left) const {
    if (size == 0xFFFFFFFF) return left;
    if (size > left)
      fail(fmt::format("{} bytes of data are announced, but {} follow; the file is truncated", size, left));
    return size;
  }

  WavFormat read_format(std::span<const std::byte> chunk) const {
    if (chunk.size() < 16) fail(fmt::format("the format has {} bytes; it needs 16", chunk.size()));
    const WavReader in(chunk, source_);
    WavFormat f{in.number<std::uint16_t>(0), in.number<std::uint16_t>(2), in.number<std::uint16_t>(14),
                in.number<std::uint32_t>(4)};
    const auto block = in.number<std::uint16_t>(12);
    if (f.tag == kExtensible) {
      if (chunk.size() < 40) fail(fmt::format("the extensible format has {} bytes; it needs 40", chunk.size()));
      if (in.text(26, 14) != kSubformatTail)
        fail("the extensible format names a subformat that is not one of WAV's; convert the file to PCM");
      f.tag = in.number<std::uint16_t>(24);
    }
    if (f.tag != kPcm && f.tag != kFloat)
      fail(fmt::format("the encoding {:#06x}{} is not PCM or float; convert the file to PCM of 16 bits", f.tag,
                       f.tag == 6   ? " (A-law)"
                       : f.tag == 7 ? " (mu-law)"
                       : f.tag == 2 ? " (ADPCM)"
                                    : ""));
    const bool known =
        f.tag == kPcm ? f.bits == 8 || f.bits == 16 || f.bits == 24 || f.bits == 32 : f.bits == 32 || f.bits == 64;
    if (!known)
      fail(fmt::format("{} of {} bits; Weft reads PCM of 8, 16, 24 and 32 bits, and floats of 32 and 64",
                       f.tag == kPcm ? "PCM" : "floats", f.bits));
    if (f.channels == 0) fail("has 0 channels; write the file again");
    if (f.rate == 0 || f.rate > static_cast<std::uint32_t>(kRateMax))
      fail(fmt::format("a rate of {} Hz; it must be in [1, {}]", f.rate, kRateMax));
    if (block != f.channels * f.sample_bytes())
      fail(fmt::format("frames of {} bytes do not hold {} samples of {} bits; write the file again", block, f.channels,
                       f.bits));
    return f;
  }

  Sound samples(const WavFormat& f, std::span<const std::byte> data) const {
    const std::size_t size = f.sample_bytes(), frame = size * f.channels, count = data.size() / size;
    if (data.size() % frame != 0)
      fail(fmt::format("{} bytes of data are not whole frames of {} bytes; the file is truncated", data.size(), frame));
    if (count > kSamplesMax)
      fail(fmt::format("has {} samples; Weft reads up to {}, so cut the file into parts", count, kSamplesMax));
    Sound sound{std::vector<float>(count), f.channels, static_cast<int>(f.rate)};
    for (std::size_t i = 0; i < count; ++i) {
      const float value = sample(f, data.data() + i * size);
      if (!std::isfinite(value))
        fail(fmt::format("sample {} of channel {} is not finite; repair the file", i / f.channels, i % f.channels));
      sound.samples[i] = value;
    }
    return sound;
  }

  static float sample(const WavFormat& f, const std::byte* at) {
    if (f.tag == kFloat) {
      if (f.bits == 64) {
        double value;
        std::memcpy(&value, at, sizeof value);
        return static_cast<float>(value);
      }
      float value;
      std::memcpy(&value, at, sizeof value);
      return value;
    }
    if (f.bits == 8) return (static_cast<float>(std::to_integer<int>(*at)) - 128.0f) / 128.0f;
    // The bytes become the upper ones of 32 bits, so that the sign is in its place.
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < f.sample_bytes(); ++i)
      bits |= std::to_integer<std::uint32_t>(at[i]) << (32 - f.bits + 8 * static_cast<unsigned>(i));
    return static_cast<float>(std::ldexp(static_cast<double>(static_cast<std::int32_t>(bits)), -31));
  }

  std::span<const std::byte> bytes_;
  std::string_view source_;
};

}  // namespace

Sound parse_wav(std::span<const std::byte> bytes, std::string_view source) { return WavReader(bytes, source).read(); }

Sound load_wav(const std::filesystem::path& path) { return parse_wav(MappedFile(path).bytes(), path.string()); }

}  // namespace weft::audio
