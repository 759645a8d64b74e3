// Sounds of any length for Moonshine: windows that end in silence, each of which is a segment.
#include "speech/moonshine_transcribe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "speech/beams.hpp"
#include "speech/decoding.hpp"
#include "speech/log_mel.hpp"
#include "speech/sound_windows.hpp"
#include "speech/windows.hpp"
#include "weft/error.hpp"

namespace weft::speech {
namespace {

constexpr Extent kLeastWindow = 12 * kSpeechRate;
constexpr float kSilence = 1e-4f;  // a window that is never louder is not read: models write what nobody said
// Twice what English needs at its fastest. A text that goes on for longer repeats itself.
constexpr double kTokensPerSecond = 13;
constexpr Extent kLeastTokens = 16;

void check_moonshine_options(const TranscribeOptions& o, const MoonshineConfig& config) {
  if (o.task == Task::translate)
    throw UsageError("transcribe: a Moonshine writes the language that it hears; it does not translate");
  if (!o.prompt.empty()) throw UsageError("transcribe: a Moonshine reads no prompt; leave it out");
  if (o.words) throw UsageError("transcribe: a Moonshine does not know the times of words; leave `words` out");
  if (o.beam_size != 1 || o.best_of != 1)
    throw UsageError("transcribe: a Moonshine writes one text at a time, without beams and best_of");
  check_temperatures(o.temperatures);
  if (o.max_tokens < 0 || o.max_tokens >= config.positions)
    throw UsageError(fmt::format("transcribe: {} tokens of a window; the model has {} positions, one of them the start",
                                 o.max_tokens, config.positions));
}

class MoonshineTranscription {
 public:
  MoonshineTranscription(detail::MoonshineEngine& engine, const audio::Sound& sound, const TranscribeOptions& options)
      : engine_(engine), options_(options), samples_(moonshine_samples(engine.config(), sound)) {
    result_.seconds = sound.seconds();
    result_.language = language_code(options.language).empty() ? options.language : language_code(options.language);
    if (options.speech) silence_outside(samples_, *options.speech);
  }

  Transcript run() {
    for (const SoundWindow& window : sound_windows(samples_, options_.speech, kLeastWindow, kMoonshineWindow)) {
      if (options_.cancel.stop_requested()) break;
      read(window);
    }
    return std::move(result_);
  }

 private:
  void read(const SoundWindow& window) {
    const auto part = std::span(samples_).subspan(static_cast<std::size_t>(window.begin),
                                                  static_cast<std::size_t>(window.end - window.begin));
    const auto size = static_cast<Extent>(part.size());
    const bool is_heard = std::any_of(part.begin(), part.end(), [](float x) { return std::abs(x) > kSilence; });
    if (!is_heard || MoonshineConfig::frames(size) == 0) return;
    engine_.encode(tensor_from_bytes(part.data(), {size}, DType::f32, engine_.device()));
    Segment segment;
    for (const double temperature : options_.temperatures) {
      segment = attempt(size, temperature);
      if (segment.compression_ratio <= options_.compression_ratio_max &&
          segment.mean_log_probability >= options_.log_probability_min)
        break;
      if (options_.cancel.stop_requested()) return;
    }
    if (options_.cancel.stop_requested() || segment.text.empty()) return;
    segment.begin = static_cast<double>(window.begin) / kSpeechRate;
    segment.end = static_cast<double>(window.end) / kSpeechRate;
    if (!result_.text.empty()) result_.text += ' ';
    result_.text += segment.text;
    if (options_.on_segment) options_.on_segment(segment);
    result_.segments.push_back(std::move(segment));
  }

  Segment attempt(Extent samples, double temperature) {
    const MoonshineConfig& c = engine_.config();
    const auto usual = static_cast<Extent>(std::ceil(static_cast<double>(samples) / kSpeechRate * kTokensPerSecond));
    const Extent most =
        options_.max_tokens > 0 ? options_.max_tokens : std::min(c.positions - 1, std::max(usual, kLeastTokens));
    const std::int32_t start[] = {c.start};
    Decoded decoded = decode_by_moonshine(engine_, start,
                                          {.max_tokens = most,
                                           .temperature = temperature,
                                           .seed = options_.seed,
                                           .draw = draws_,
                                           .cancel = options_.cancel});
    draws_ += static_cast<std::uint64_t>(most) + 1;
    Segment segment;
    segment.text = stripped_text(engine_.tokenizer().decode(decoded.tokens, /*skip_special=*/true));
    segment.tokens = std::move(decoded.tokens);
    segment.temperature = temperature;
    segment.mean_log_probability = decoded.mean_log_probability;
    segment.compression_ratio = compression_ratio(segment.text);
    return segment;
  }

  detail::MoonshineEngine& engine_;
  const TranscribeOptions& options_;
  std::vector<float> samples_;
  Transcript result_;
  std::uint64_t draws_ = 0;
};

}  // namespace

std::vector<float> moonshine_samples(const MoonshineConfig& config, const audio::Sound& sound) {
  std::vector<float> samples = speech_samples(sound);
  if (config.normalizes_sound && !samples.empty()) normalize_sound(samples);
  return samples;
}

Decoded decode_by_moonshine(detail::MoonshineEngine& engine, std::span<const std::int32_t> prompt,
                            const DecodeOptions& options) {
  if (options.beam_size != 1 || options.best_of != 1)
    throw UsageError("decode: a Moonshine writes one text at a time; beam_size and best_of are 1");
  std::vector<float> logits = engine.pass(prompt, 0);
  const Extent room = engine.config().positions - static_cast<Extent>(prompt.size());
  const Extent most = options.max_tokens == 0 ? room : std::min(room, options.max_tokens);
  Decoded text;
  double log_probability = 0;
  while (static_cast<Extent>(text.tokens.size()) < most && !options.cancel.stop_requested()) {
    const double uniform =
        options.temperature > 0 ? uniform_draw(options.seed, options.draw + text.tokens.size(), 0) : 0;
    const Choice choice = choose(logits, options.temperature, uniform);
    log_probability += choice.log_probability;
    text.has_ended = choice.token == engine.config().end;
    if (text.has_ended) break;
    text.tokens.push_back(choice.token);
    if (static_cast<Extent>(text.tokens.size()) == most) break;
    logits = engine.pass({&choice.token, 1}, static_cast<Extent>(prompt.size() + text.tokens.size()) - 1);
  }
  text.mean_log_probability = log_probability / static_cast<double>(text.tokens.size() + 1);
  return text;
}

Transcript transcribe_by_moonshine(detail::MoonshineEngine& engine, const audio::Sound& sound,
                                   const TranscribeOptions& options) {
  check_moonshine_options(options, engine.config());
  return MoonshineTranscription(engine, sound, options).run();
}

}  // namespace weft::speech
