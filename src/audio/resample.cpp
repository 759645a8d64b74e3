// Fewer channels, and other rates.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "audio/wav.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::audio {
namespace {

constexpr double kZeros = 48;                // zeros of the sinc on each side of the kernel
constexpr double kBeta = 10;                 // of the Kaiser window: 95 dB
constexpr double kRolloff = 0.933;           // the transition ends at half of the lower rate
constexpr std::int64_t kTableMax = 1 << 20;  // coefficients kept for all phases; other ratios compute theirs each time
constexpr std::int64_t kBlock = 2048;        // frames of a task

/// The modified Bessel function of order 0.
double bessel_i0(double x) {
  double sum = 1, term = 1;
  for (int k = 1; term > 1e-17 * sum; ++k) sum += term *= (x / (2 * k)) * (x / (2 * k));
  return sum;
}

/// The windowed sinc around a place between samples.
class Kernel {
 public:
  explicit Kernel(double cutoff) : cutoff_(cutoff), reach_(static_cast<std::int64_t>(std::ceil(kZeros / cutoff))) {}

  std::int64_t taps() const { return 2 * reach_; }
  /// Coefficients of the samples floor(place) - reach + 1 ... floor(place) + reach, where `fraction` is place - floor(place). Their
  /// sum is 1, so that constants stay what they are.
  void coefficients(double fraction, std::span<double> out) const {
    double sum = 0;
    for (std::int64_t i = 0; i < taps(); ++i)
      sum += out[static_cast<std::size_t>(i)] = at(fraction - static_cast<double>(i - reach_ + 1));
    for (double& c : out) c /= sum;
  }
  std::int64_t reach() const { return reach_; }

 private:
  double at(double t) const {
    const double x = cutoff_ * t, edge = x / kZeros;
    if (std::abs(edge) >= 1) return 0;
    const double angle = std::numbers::pi * x;
    const double sinc = std::abs(angle) < 1e-9 ? 1 : std::sin(angle) / angle;
    return sinc * bessel_i0(kBeta * std::sqrt(1 - edge * edge));
  }
  double cutoff_;
  std::int64_t reach_;
};

}  // namespace

Sound to_mono(const Sound& sound) {
  check_sound(sound, "to_mono");
  if (sound.channels == 1) return sound;
  const auto channels = static_cast<std::size_t>(sound.channels);
  Sound mono{std::vector<float>(sound.frames()), 1, sound.rate};
  for (std::size_t f = 0; f < mono.samples.size(); ++f) {
    double sum = 0;
    for (std::size_t c = 0; c < channels; ++c) sum += sound.samples[f * channels + c];
    mono.samples[f] = static_cast<float>(sum / sound.channels);
  }
  return mono;
}

Sound resample(const Sound& sound, int rate) {
  check_sound(sound, "resample");
  if (rate < 1 || rate > kRateMax)
    throw UsageError(fmt::format("resample: a rate of {} Hz; it must be in [1, {}]", rate, kRateMax));
  if (rate == sound.rate || sound.samples.empty()) return {sound.samples, sound.channels, rate};
  const std::int64_t common = std::gcd(rate, sound.rate), up = rate / common, down = sound.rate / common;
  const auto frames = static_cast<std::int64_t>(sound.frames());
  // No overflow: there are at most 2^62 / kRateMax frames in any memory.
  const std::int64_t count = (frames * up + down - 1) / down;
  if (static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(sound.channels) > kSamplesMax)
    throw UsageError(
        fmt::format("resample: {} frames of {} channels at {} Hz are more than {} samples; cut the sound into parts",
                    count, sound.channels, rate, kSamplesMax));
  const Kernel kernel(kRolloff * std::min(1.0, static_cast<double>(up) / static_cast<double>(down)));
  const auto taps = static_cast<std::size_t>(kernel.taps());
  const bool has_table = up <= kTableMax / kernel.taps();
  std::vector<double> table(has_table ? static_cast<std::size_t>(up) * taps : 0);
  const auto coefficients_of = [&](std::int64_t phase, std::span<double> out) {
    kernel.coefficients(static_cast<double>(phase) / static_cast<double>(up), out);
  };
  if (has_table)
    parallel_for(up, [&](std::int64_t phase) {
      coefficients_of(phase, std::span(table).subspan(static_cast<std::size_t>(phase) * taps, taps));
    });

  const auto channels = static_cast<std::size_t>(sound.channels);
  Sound result{std::vector<float>(static_cast<std::size_t>(count) * channels), sound.channels, rate};
  parallel_for((count + kBlock - 1) / kBlock, [&](std::int64_t block) {
    std::vector<double> computed(has_table ? 0 : taps);
    for (std::int64_t n = block * kBlock; n < std::min(count, (block + 1) * kBlock); ++n) {
      const std::int64_t place = n * down / up, phase = n * down % up, first = place - kernel.reach() + 1;
      std::span<const double> c;
      if (has_table) {
        c = std::span(table).subspan(static_cast<std::size_t>(phase) * taps, taps);
      } else {
        coefficients_of(phase, computed);
        c = computed;
      }
      const std::int64_t begin = std::max<std::int64_t>(first, 0), end = std::min(first + kernel.taps(), frames);
      for (std::size_t channel = 0; channel < channels; ++channel) {
        double sum = 0;
        for (std::int64_t k = begin; k < end; ++k)
          sum +=
              c[static_cast<std::size_t>(k - first)] * sound.samples[static_cast<std::size_t>(k) * channels + channel];
        result.samples[static_cast<std::size_t>(n) * channels + channel] = static_cast<float>(sum);
      }
    }
  });
  return result;
}

}  // namespace weft::audio
