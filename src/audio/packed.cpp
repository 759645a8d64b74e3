// FLAC, Ogg (Vorbis, Opus) and MP3, by libsndfile.
#include "audio/packed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "weft/error.hpp"

#ifdef WEFT_HAS_SNDFILE
#include <sndfile.h>
#endif

namespace weft::audio {

// Libsndfile would open thirty formats; only these are let through to it.
bool is_packed_sound(std::span<const std::byte> bytes) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 4));
  if (start == "fLaC" || start == "OggS" || start.starts_with("ID3")) return true;
  // A frame of MPEG: eleven bits set, and layer III.
  return start.size() == 4 && static_cast<unsigned char>(start[0]) == 0xff &&
         (static_cast<unsigned char>(start[1]) & 0xe6) == 0xe2;
}

#ifdef WEFT_HAS_SNDFILE
namespace {

/// The bytes as libsndfile reads them.
struct BytesInMemory {
  std::span<const std::byte> bytes;
  std::size_t place = 0;

  static BytesInMemory& of(void* self) { return *static_cast<BytesInMemory*>(self); }
  static sf_count_t length(void* self) { return static_cast<sf_count_t>(of(self).bytes.size()); }
  static sf_count_t tell(void* self) { return static_cast<sf_count_t>(of(self).place); }
  static sf_count_t seek(sf_count_t offset, int whence, void* self) {
    BytesInMemory& in = of(self);
    const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? tell(self) : length(self);
    // Neither sum overflows: the base is a size of memory.
    const sf_count_t place = offset > length(self) ? length(self) : base + std::max(offset, -length(self));
    in.place = static_cast<std::size_t>(std::clamp<sf_count_t>(place, 0, length(self)));
    return tell(self);
  }
  static sf_count_t read(void* out, sf_count_t count, void* self) {
    BytesInMemory& in = of(self);
    const std::size_t taken =
        std::min(in.bytes.size() - in.place, static_cast<std::size_t>(std::max<sf_count_t>(count, 0)));
    if (taken > 0) std::memcpy(out, in.bytes.data() + in.place, taken);
    in.place += taken;
    return static_cast<sf_count_t>(taken);
  }
  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
};

}  // namespace

Sound unpack_sound(std::span<const std::byte> bytes, std::string_view source, const Limits& limits) {
  constexpr sf_count_t kBlockFrames = 1 << 14;
  const auto fail = [&](std::string_view fact) { throw FileError(fmt::format("{}: {}", source, fact)); };
  const auto check_count = [&](std::uint64_t samples) {
    if (samples > limits.samples_max)
      fail(fmt::format("has more than {} samples, which is the limit; cut the file into parts", limits.samples_max));
  };
  SF_VIRTUAL_IO io = {BytesInMemory::length, BytesInMemory::seek, BytesInMemory::read, BytesInMemory::write,
                      BytesInMemory::tell};
  BytesInMemory in{bytes};
  SF_INFO info = {};
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open_virtual(&io, SFM_READ, &info, &in), sf_close);
  if (!file) fail(fmt::format("damaged sound: {}; fetch or write it again", sf_strerror(nullptr)));
  const int format = info.format & SF_FORMAT_TYPEMASK;
  if (format != SF_FORMAT_FLAC && format != SF_FORMAT_OGG && format != SF_FORMAT_MPEG)
    fail("is not a FLAC, Ogg or MP3 file, though it begins like one; convert it to WAV");
  if (info.channels < 1 || info.channels > 65535 || info.samplerate < 1 || info.samplerate > kRateMax)
    fail(fmt::format("{} channels at {} Hz; a rate is in [1, {}]", info.channels, info.samplerate, kRateMax));
  const auto channels = static_cast<std::uint64_t>(info.channels);
  const bool is_counted = format == SF_FORMAT_FLAC && info.frames > 0 && info.frames < SF_COUNT_MAX;
  if (is_counted)
    check_count(static_cast<std::uint64_t>(info.frames) > limits.samples_max / channels ? limits.samples_max + 1 : 0);
  Sound sound{{}, info.channels, info.samplerate};
  std::vector<float> block(static_cast<std::size_t>(kBlockFrames) * channels);
  for (;;) {
    const sf_count_t frames = sf_readf_float(file.get(), block.data(), kBlockFrames);
    if (frames <= 0) break;
    const auto count = static_cast<std::size_t>(frames) * channels;
    check_count(sound.samples.size() + count);
    for (std::size_t i = 0; i < count; ++i)
      if (!std::isfinite(block[i])) fail("a sample is not finite; repair the file");
    sound.samples.insert(sound.samples.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
  }
  if (sf_error(file.get()) != SF_ERR_NO_ERROR)
    fail(fmt::format("damaged sound: {}; fetch or write it again", sf_strerror(file.get())));
  if (is_counted && sound.frames() != static_cast<std::uint64_t>(info.frames))
    fail(fmt::format("{} frames are announced, and {} follow; the file is truncated", info.frames, sound.frames()));
  return sound;
}

#else

Sound unpack_sound(std::span<const std::byte>, std::string_view source, const Limits&) {
  throw UsageError(
      fmt::format("{}: this build of Weft reads WAV only; convert the sound, or install libsndfile (Debian: "
                  "libsndfile1-dev) and build again",
                  source));
}

#endif

}  // namespace weft::audio
