// Sounds from files of any format and as tensors, and the names of options.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "audio/packed.hpp"
#include "audio/wav.hpp"
#include "base/file.hpp"
#include "base/quote.hpp"
#include "weft/audio/features.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::audio {
namespace {

template <class T, std::size_t N>
T named(const std::pair<std::string_view, T> (&names)[N], std::string_view name, std::string_view what) {
  for (const auto& [known, value] : names)
    if (known == name) return value;
  std::vector<std::string_view> all;
  for (const auto& row : names) all.push_back(row.first);
  throw UsageError(fmt::format("audio: there is no {} {}; known are {}", what, quote(name), fmt::join(all, ", ")));
}

}  // namespace

SampleFormat sample_format(std::string_view name) {
  constexpr std::pair<std::string_view, SampleFormat> kNames[] = {
      {"pcm8", SampleFormat::pcm8},   {"pcm16", SampleFormat::pcm16}, {"pcm24", SampleFormat::pcm24},
      {"pcm32", SampleFormat::pcm32}, {"f32", SampleFormat::f32},     {"f64", SampleFormat::f64}};
  return named(kNames, name, "format of samples");
}
WindowKind window_kind(std::string_view name) {
  constexpr std::pair<std::string_view, WindowKind> kNames[] = {{"hann", WindowKind::hann},
                                                                {"hamming", WindowKind::hamming},
                                                                {"blackman", WindowKind::blackman},
                                                                {"rectangular", WindowKind::rectangular}};
  return named(kNames, name, "window");
}
MelScale mel_scale(std::string_view name) {
  constexpr std::pair<std::string_view, MelScale> kNames[] = {{"slaney", MelScale::slaney}, {"htk", MelScale::htk}};
  return named(kNames, name, "scale of mels");
}

Sound parse(std::span<const std::byte> bytes, std::string_view source, const Limits& limits) {
  if (is_packed_sound(bytes)) return unpack_sound(bytes, source, limits);
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 4));
  if (start != "RIFF" && start != "RF64" && start != "RIFX")
    throw FileError(fmt::format("{}: is not a WAV, FLAC, Ogg or MP3 file; convert the sound to one of these", source));
  Sound sound = parse_wav(bytes, source);
  if (sound.samples.size() > limits.samples_max)
    throw FileError(fmt::format("{}: has {} samples; at most {} are read, so cut the file into parts", source,
                                sound.samples.size(), limits.samples_max));
  return sound;
}
Sound load(const std::filesystem::path& path, const Limits& limits) {
  return parse(MappedFile(path).bytes(), path.string(), limits);
}

Tensor to_tensor(const Sound& sound, Device device) {
  check_sound(sound, "to_tensor");
  const std::size_t frames = sound.frames(), channels = static_cast<std::size_t>(sound.channels);
  std::vector<float> planar(sound.samples.size());
  for (std::size_t f = 0; f < frames; ++f)
    for (std::size_t c = 0; c < channels; ++c) planar[c * frames + f] = sound.samples[f * channels + c];
  return tensor_from_bytes(planar.data(), {sound.channels, static_cast<Extent>(frames)}, DType::f32, device);
}

Sound from_tensor(const Tensor& samples, int rate) {
  if (!samples.defined()) throw UsageError("sound: there are no samples");
  if (samples.rank() != 1 && samples.rank() != 2)
    throw ShapeError(
        fmt::format("sound: the samples are {}; give [channels, frames] or [frames]", samples.shape().to_string()));
  if (!is_float(samples.dtype()))
    throw DTypeError(
        fmt::format("sound: the samples are {}; give floats, whose full scale is [-1, 1]", name_of(samples.dtype())));
  const Extent channels = samples.rank() == 2 ? samples.dim(0) : 1;
  Sound sound{{}, static_cast<int>(std::min<Extent>(channels, 1 << 20)), rate};
  const Tensor frames = samples.rank() == 2 ? transpose(samples, 0, 1) : samples;
  sound.samples = cast(frames, DType::f32).to_vector<float>();
  check_sound(sound, "sound");
  return sound;
}

}  // namespace weft::audio
