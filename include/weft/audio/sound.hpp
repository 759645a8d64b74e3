// Sounds in memory and in files (WAV, FLAC, Ogg, MP3), and their conversion to one channel and to other rates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "weft/tensor.hpp"

namespace weft::audio {

/// Samples of one or more channels. Full scale is [-1, 1]; floats of a file may exceed it.
struct Sound {
  std::vector<float> samples;  ///< interleaved: [frames, channels], row-major
  int channels = 1;
  int rate = 16000;  ///< frames per second

  std::size_t frames() const { return channels > 0 ? samples.size() / static_cast<std::size_t>(channels) : 0; }
  double seconds() const { return rate > 0 ? static_cast<double>(frames()) / rate : 0; }
};

/// The largest rate, in frames per second.
inline constexpr int kRateMax = 768'000;

/// Reads a WAV file: PCM of 8, 16, 24 or 32 bits, or floats of 32 or 64 bits, with any number of channels, also as
/// WAVE_FORMAT_EXTENSIBLE. PCM of b bits is divided by 2^(b-1). A data chunk of size 0xFFFFFFFF (written to a pipe) reaches to the
/// end of the file.
/// Errors  FileError: a file that cannot be read, is truncated, breaks a rule of the format, has another encoding (A-law, MPEG), or
///         holds floats that are not finite; detected before memory for the samples is allocated. More than 2^30 samples.
Sound load_wav(const std::filesystem::path& path);
/// The same from memory; `source` names the bytes in messages.
Sound parse_wav(std::span<const std::byte> bytes, std::string_view source);

/// What a file may ask for. A short file of a packed format may hold hours.
struct Limits {
  std::uint64_t samples_max = std::uint64_t{1} << 30;  ///< of all channels together
};

/// Reads a sound: a WAV file as `load_wav` does, or FLAC, Ogg (Vorbis and Opus) and MP3. The bytes tell the format, not the name.
/// Integers of b bits are divided by 2^(b-1). Memory grows with what is unpacked, whatever the header promises.
/// Errors  FileError: as `load_wav`; another format, damage, a FLAC file that ends too early, more samples than the limit. (An Ogg or
///         MP3 file that ends too early is a shorter one.) UsageError: a packed format, where this build of Weft was made without
///         libsndfile.
Sound load(const std::filesystem::path& path, const Limits& limits = {});
/// The same from memory; `source` names the bytes in messages.
Sound parse(std::span<const std::byte> bytes, std::string_view source, const Limits& limits = {});

/// How a file stores samples.
enum class SampleFormat : std::uint8_t { pcm8, pcm16, pcm24, pcm32, f32, f64 };
/// That of a name, as it stands here. Errors: UsageError.
SampleFormat sample_format(std::string_view name);

/// Writes a WAV file atomically. PCM rounds to the nearest step and clips at full scale. More than two channels, and PCM of more
/// than 16 bits, are written as WAVE_FORMAT_EXTENSIBLE.
/// Errors  FileError: the file cannot be written. UsageError: a rate outside of [1, kRateMax], channels outside of [1, 65535], samples
///         that are not whole frames or not finite, or more than 4 GiB of data.
void save_wav(const std::filesystem::path& path, const Sound& sound, SampleFormat format = SampleFormat::pcm16);
/// The bytes of such a file.
std::vector<std::byte> wav_bytes(const Sound& sound, SampleFormat format = SampleFormat::pcm16);

/// One channel: the mean of all channels. Errors: UsageError as `save_wav`.
Sound to_mono(const Sound& sound);

/// The sound at another rate. A windowed sinc interpolates, with a cut-off below half of the lower rate:
///
///   y[n] = sum_k x[k] h(n M / L - k) / sum_k h(n M / L - k),   h(t) = sinc(c t) kaiser(c t / 48, beta = 10)
///
/// where L / M = rate / sound.rate, and c = 0.933 min(1, L / M). Frequencies below 0.86 of half the lower rate pass, with an
/// error below 10^-4; what lies above half the lower rate is damped by 95 dB. Outside of the sound are zeros.
///
/// Shapes    frames -> ceil(frames L / M)
/// Errors    UsageError: a rate outside of [1, kRateMax]; a result of more than 2^30 samples; otherwise as `save_wav`
Sound resample(const Sound& sound, int rate);

/// The samples as a tensor. Shapes: -> f32 [channels, frames]
Tensor to_tensor(const Sound& sound, Device device = default_device());
/// The sound of samples [channels, frames], or [frames] of one channel; floats of any dtype. Errors: ShapeError for another rank,
/// DTypeError for integers, UsageError as `save_wav`.
Sound from_tensor(const Tensor& samples, int rate);

}  // namespace weft::audio
