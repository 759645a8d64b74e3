// Mel filters, and the log-mel spectrograms of Whisper.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensor/element.hpp"
#include "weft/audio/features.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::audio {
namespace {

constexpr double kLinearHz = 200.0 / 3;  // of a mel, below the knee
constexpr double kKneeHz = 1000, kKneeMel = kKneeHz / kLinearHz;
const double kLogStep = std::log(6.4) / 27;
constexpr Extent kMelsMax = 4096;

}  // namespace

double hz_to_mel(double hz, MelScale scale) {
  if (scale == MelScale::htk) return 2595 * std::log10(1 + hz / 700);
  return hz < kKneeHz ? hz / kLinearHz : kKneeMel + std::log(hz / kKneeHz) / kLogStep;
}

double mel_to_hz(double mel, MelScale scale) {
  if (scale == MelScale::htk) return 700 * (std::pow(10, mel / 2595) - 1);
  return mel < kKneeMel ? mel * kLinearHz : kKneeHz * std::exp(kLogStep * (mel - kKneeMel));
}

Tensor mel_filters(const MelOptions& o, DType type, Device device) {
  const double high = o.high == 0 ? o.rate / 2 : o.high;
  if (o.mels < 1 || o.mels > kMelsMax)
    throw UsageError(fmt::format("mel_filters: {} mels; there must be 1 to {}", o.mels, kMelsMax));
  if (o.size < 2 || o.size > (1 << 20))
    throw UsageError(fmt::format("mel_filters: a transform of {} samples; it must have 2 to {}", o.size, 1 << 20));
  if (!(o.rate > 0 && std::isfinite(o.rate) && o.low >= 0 && o.low < high && high <= o.rate / 2))
    throw UsageError(fmt::format("mel_filters: from {} to {} Hz at a rate of {}; give 0 <= low < high <= rate / 2",
                                 o.low, high, o.rate));
  if (!is_float(type)) throw DTypeError(fmt::format("mel_filters: {} is not a float", name_of(type)));
  std::vector<double> corners;
  const double first = hz_to_mel(o.low, o.scale), last = hz_to_mel(high, o.scale);
  for (Extent i = 0; i < o.mels + 2; ++i)
    corners.push_back(
        mel_to_hz(first + (last - first) * static_cast<double>(i) / static_cast<double>(o.mels + 1), o.scale));
  const Extent bins = o.size / 2 + 1;
  const std::size_t size = size_bytes(type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(o.mels * bins) * size);
  for (Extent m = 0; m < o.mels; ++m) {
    const auto i = static_cast<std::size_t>(m);
    const double left = corners[i], middle = corners[i + 1], right = corners[i + 2];
    const double height = o.normalized ? 2 / (right - left) : 1;
    for (Extent k = 0; k < bins; ++k) {
      const double hz = static_cast<double>(k) * o.rate / static_cast<double>(o.size);
      const double value = std::max(0.0, std::min((hz - left) / (middle - left), (right - hz) / (right - middle)));
      write_element(type, rounded_to(type, height * value),
                    bytes.data() + static_cast<std::size_t>(m * bins + k) * size);
    }
  }
  return tensor_from_bytes(bytes.data(), {o.mels, bins}, type, device);
}

Tensor log_mel_spectrogram(const Tensor& x, Extent mels, Where where) {
  const MelOptions options{.mels = mels};
  const Tensor spectrum = power(stft(x, {.size = options.size, .hop = 160}, where), where);
  const Tensor frames = narrow(spectrum, -2, 0, spectrum.dim(-2) - 1);
  const Tensor energies = matmul(mel_filters(options, x.dtype(), x.device()), transpose(frames), where);
  const Tensor logs = elementwise("log10", {elementwise("maximum", {energies, scalar_like(1e-10, energies)})});
  const Tensor floor = amax(logs, {-2, -1}, {.keepdims = true}) - 8.0;
  return (elementwise("maximum", {logs, floor}) + 4.0) / 4.0;
}

}  // namespace weft::audio
