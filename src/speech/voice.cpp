// The face of voices: texts, sentences, and the draws of a sound.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/philox.hpp"
#include "speech/model_type.hpp"
#include "speech/vits.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/speech/voice.hpp"

namespace weft::speech {
namespace {

constexpr Extent kTokensMax = 4096;
constexpr double kSecondsMax = 120;  // of a sentence; longer ones come of weights that are not whole

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

void check(const SpeakOptions& o, const VitsConfig& c) {
  const auto require = [](std::optional<double> value, double least, double most, const char* name) {
    if (value && !(*value >= least && *value <= most))
      throw UsageError(fmt::format("speak: {} {}; it must be in [{}, {}]", name, *value, least, most));
  };
  require(o.rate, 0.1, 10, "a rate of");
  require(o.noise, 0, 10, "a noise of");
  require(o.duration_noise, 0, 10, "a noise of durations of");
  require(o.pause, 0, 60, "a pause in seconds of");
  if (o.speaker < 0 || o.speaker >= c.speakers)
    throw UsageError(fmt::format("speak: speaker {}; the model has {}, from 0 on", o.speaker, c.speakers));
}

}  // namespace

audio::Sound Voice::synthesize(std::span<const std::int32_t> tokens, const SpeakOptions& options,
                               std::uint32_t sentence) const {
  const VitsConfig& c = engine_->config();
  check(options, c);
  if (tokens.empty() || static_cast<Extent>(tokens.size()) > kTokensMax)
    throw UsageError(fmt::format("speak: {} tokens; give 1 to {}, as sentences", tokens.size(), kTokensMax));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= c.vocabulary)
      throw UsageError(fmt::format("speak: token {} is outside of the vocabulary of {}", token, c.vocabulary));
  const auto count = static_cast<Extent>(tokens.size());
  const detail::VitsText text = engine_->read(tokens);
  const Tensor draws = normal_noise({2, count}, options.seed, sentence, Noise::durations,
                                    options.duration_noise.value_or(c.duration_noise), device());
  const Tensor log_durations = engine_->log_durations(text.states, options.speaker, draws);
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
  audio::Sound sound{engine_->sound(prior, options.speaker).to_vector<float>(), 1, c.samples};
  if (std::any_of(sound.samples.begin(), sound.samples.end(), [](float x) { return std::isnan(x); }))
    throw FileError("speak: the voice gives samples that are not numbers; are its weights whole?");
  return sound;
}

audio::Sound Voice::speak(std::string_view text, const SpeakOptions& options) const {
  check(options, engine_->config());
  audio::Sound whole{{}, 1, rate()};
  const auto pause = static_cast<std::size_t>(options.pause * rate());
  std::vector<std::vector<std::int32_t>> sentences;
  std::string refusal;
  for (const std::string& sentence : sentences_of(text)) {
    try {
      sentences.push_back(encode(sentence, options.is_phonemes));
    } catch (const UsageError& error) {
      // A sentence of unknown characters is left out if there are others.
      if (refusal.empty()) refusal = error.what();
      if (std::string_view(error.what()).find("knows no character") == std::string_view::npos) throw;
    }
  }
  if (sentences.empty()) throw UsageError(refusal.empty() ? "speak: the text has no letters" : refusal);
  for (std::size_t i = 0; i < sentences.size() && !options.cancel.stop_requested(); ++i) {
    audio::Sound sound = synthesize(sentences[i], options, static_cast<std::uint32_t>(i));
    if (i + 1 < sentences.size()) sound.samples.resize(sound.samples.size() + pause, 0);
    if (options.on_sentence) options.on_sentence(sound);
    whole.samples.insert(whole.samples.end(), sound.samples.begin(), sound.samples.end());
  }
  return whole;
}

std::vector<std::int32_t> Voice::encode(std::string_view text, bool is_phonemes) const {
  return engine_->characters().encode(text, is_phonemes);
}

int Voice::rate() const { return engine_->config().samples; }
Extent Voice::speakers() const { return engine_->config().speakers; }
Device Voice::device() const { return engine_->device(); }
std::uint64_t Voice::weight_bytes() const { return engine_->weight_bytes(); }

std::string Voice::describe() const {
  const VitsConfig& c = engine_->config();
  return fmt::format("vits: width {}, {} layers, {} flows, {} speaker{}, {} Hz, {:.1f} MB of weights on {}", c.width,
                     c.layers, c.flows, c.speakers, c.speakers == 1 ? "" : "s", c.samples,
                     static_cast<double>(weight_bytes()) / 1e6, device().to_string());
}

Voice load_voice(const std::filesystem::path& folder, const LoadOptions& options) {
  return Voice(std::make_shared<detail::VitsEngine>(folder, options));
}

bool is_voice(const std::filesystem::path& folder) { return model_type_of(folder) == "vits"; }

}  // namespace weft::speech
