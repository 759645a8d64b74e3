// VITS voices: from tokens to frames to samples, with the draws of both.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "base/philox.hpp"
#include "speech/vits.hpp"
#include "speech/voice_engine.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::speech::detail {
namespace {

constexpr double kSecondsMax = 120;  // of a sentence; longer ones come from damaged weights

enum class Noise : std::uint32_t { durations, latents };

/// Normal numbers, the same on every device: element i is sqrt(-2 ln u) cos(2 pi v), where u and v are words of Philox.
Tensor normal_noise(const Shape& shape, std::uint64_t seed, std::uint32_t sentence, Noise kind, double scale,
                    Device device) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto words = philox::block({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                                     {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(kind), sentence,
                                      static_cast<std::uint32_t>(philox::Use::sampling)});
    const double u = (words[0] + 1.0) * 0x1p-32, v = words[1] * 0x1p-32;
    values[i] = static_cast<float>(scale * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
  }
  return tensor_from_bytes(values.data(), shape, DType::f32, device);
}

class VitsVoice : public VoiceEngine {
 public:
  VitsVoice(const std::filesystem::path& folder, const LoadOptions& options) : engine_(folder, options) {}

  std::vector<std::int32_t> encode(std::string_view text, bool is_phonemes) const override {
    return engine_.characters().encode(text, is_phonemes);
  }
  std::vector<float> synthesize(std::span<const std::int32_t> tokens, const SpeakOptions& options,
                                std::uint32_t sentence) const override;
  int rate() const override { return engine_.config().samples; }
  Extent vocabulary() const override { return engine_.config().vocabulary; }
  Extent speakers() const override { return engine_.config().speakers; }
  Device device() const override { return engine_.device(); }
  std::uint64_t weight_bytes() const override { return engine_.weight_bytes(); }
  std::string describe() const override {
    const VitsConfig& c = engine_.config();
    return fmt::format("vits: width {}, {} layers, {} flows, {} speaker{}, {} Hz, {:.1f} MB of weights on {}", c.width,
                       c.layers, c.flows, c.speakers, c.speakers == 1 ? "" : "s", c.samples,
                       static_cast<double>(weight_bytes()) / 1e6, device().to_string());
  }

 private:
  VitsEngine engine_;
};

std::vector<float> VitsVoice::synthesize(std::span<const std::int32_t> tokens, const SpeakOptions& options,
                                         std::uint32_t sentence) const {
  const VitsConfig& c = engine_.config();
  const auto count = static_cast<Extent>(tokens.size());
  const detail::VitsText text = engine_.read(tokens);
  const Tensor draws = normal_noise({2, count}, options.seed, sentence, Noise::durations,
                                    options.duration_noise.value_or(c.duration_noise), device());
  const Tensor log_durations = engine_.log_durations(text.states, options.speaker, draws);
  const Tensor* all[] = {&text.means, &text.log_spreads, &log_durations};
  eval(all);

  // Each token's part of the prior repeats for the frames that it lasts.
  const double stretch = 1 / options.rate.value_or(c.rate);
  const double frames_max = kSecondsMax * c.samples / static_cast<double>(c.frame_samples());
  std::vector<std::int32_t> token_of_frame;
  const std::vector<float> logs = log_durations.to_vector<float>();
  for (std::size_t i = 0; i < logs.size(); ++i) {
    const double frames = std::ceil(std::exp(static_cast<double>(logs[i])) * stretch);
    if (!(static_cast<double>(token_of_frame.size()) + frames <= frames_max))
      throw FileError(fmt::format(
          "speak: the voice makes a sentence longer than {} s; are its weights whole? If so, give shorter sentences",
          kSecondsMax));
    token_of_frame.insert(token_of_frame.end(), static_cast<std::size_t>(frames), static_cast<std::int32_t>(i));
  }
  if (token_of_frame.empty()) token_of_frame.push_back(0);
  const auto frames = static_cast<Extent>(token_of_frame.size());
  const Tensor index = tensor_from_bytes(token_of_frame.data(), {frames}, DType::i32, device());
  const Tensor noise =
      normal_noise({frames, c.flow}, options.seed, sentence, Noise::latents, options.noise.value_or(c.noise), device());
  const Tensor prior = embedding(text.means, index) + noise * elementwise("exp", {embedding(text.log_spreads, index)});
  return engine_.sound(prior, options.speaker).to_vector<float>();
}

}  // namespace

std::shared_ptr<const VoiceEngine> load_vits(const std::filesystem::path& folder, const LoadOptions& options) {
  return std::make_shared<VitsVoice>(folder, options);
}

}  // namespace weft::speech::detail
