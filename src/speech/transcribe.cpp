// Sounds of any length: windows of 30 s, each of which begins where the segments before it ended.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "speech/ctc_transcribe.hpp"
#include "speech/decoding.hpp"
#include "speech/log_mel.hpp"
#include "speech/moonshine_transcribe.hpp"
#include "speech/whisper.hpp"
#include "speech/windows.hpp"
#include "speech/word_times.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech {
namespace {

constexpr double kForgetAbove = 0.5;  // of the temperature: a text drawn so freely should not steer the next window
constexpr double kFramesPerSecond = static_cast<double>(kSpeechRate) / kHop;
constexpr Extent kFramesPerStep = 2;  // the encoder has a state for two frames, and times count states

void check(const TranscribeOptions& o, const Transcriber& model) {
  check_temperatures(o.temperatures);
  if (o.max_tokens < 0 || o.max_tokens > model.positions())
    throw UsageError(
        fmt::format("transcribe: {} tokens of a window; the model has {} positions", o.max_tokens, model.positions()));
}

class Transcription {
 public:
  Transcription(const Transcriber& model, detail::WhisperEngine& engine, const audio::Sound& sound,
                const TranscribeOptions& options)
      : model_(model),
        engine_(engine),
        options_(options),
        mel_(engine.config().mels, engine.config().frames(), engine.device()) {
    result_.seconds = sound.seconds();
    std::vector<float> samples = speech_samples(sound);
    if (options.speech) silence_outside(samples, *options.speech);
    mel_.read(samples);
  }

  Transcript run() {
    choose_language();
    if (!options_.prompt.empty())
      context_ = model_.tokenizer().encode(" " + stripped_text(options_.prompt),
                                           {.add_special = false, .parse_special = false});
    for (Extent at = next_speech(0); at < mel_.content() && !options_.cancel.stop_requested(); at = next_speech(at)) {
      const Extent advance = window(at, std::min(engine_.config().frames(), mel_.content() - at));
      if (options_.cancel.stop_requested()) break;
      at += std::max<Extent>(advance, 1);
    }
    result_.text = stripped_text(result_.text);
    return std::move(result_);
  }

 private:
  /// The first frame of speech from one on; frames are asked for in their order.
  Extent next_speech(Extent at) {
    if (!options_.speech) return at;
    const auto frame = [&](double seconds) {
      return std::min(seconds * kFramesPerSecond, static_cast<double>(mel_.content()));
    };
    for (; next_span_ < options_.speech->size(); ++next_span_) {
      const Span& span = (*options_.speech)[next_span_];
      if (std::ceil(frame(span.end)) > static_cast<double>(at))
        return std::max(at, static_cast<Extent>(frame(span.begin)));
    }
    return mel_.content();
  }

  struct Attempt {
    Decoded decoded;
    double temperature = 0, compression = 0;
  };

  void choose_language() {
    result_.language = options_.language;
    if (options_.language.empty()) {
      result_.language = model_.languages().front();
      if (model_.is_multilingual()) {
        engine_.encode(mel_.window(0));
        encoded_ = 0;
        std::tie(result_.language, result_.language_probability) = language_probabilities(engine_).front();
      }
    } else if (const std::string code = language_code(options_.language); !code.empty()) {
      result_.language = code;
    }
    start_ = model_.prompt_tokens(result_.language, options_.task, options_.timestamps);
    if (options_.words)
      word_times_.emplace(engine_, model_.prompt_tokens(result_.language, options_.task, /*timestamps=*/false),
                          options_.task == Task::translate || !is_written_without_spaces(result_.language));
  }

 public:
  static std::vector<std::pair<std::string, double>> language_probabilities(detail::WhisperEngine& engine) {
    const std::int32_t start[] = {engine.tokens().start};
    const Extent row[] = {0};
    const std::vector<float> logits = engine.pass(start, 0, row);
    std::vector<float> known;
    for (const auto& [code, id] : engine.tokens().languages) known.push_back(logits[static_cast<std::size_t>(id)]);
    std::vector<std::pair<std::string, double>> list;
    for (std::size_t i = 0; i < known.size(); ++i)
      list.emplace_back(engine.tokens().languages[i].first, probability_of(known, static_cast<std::int32_t>(i)));
    std::stable_sort(list.begin(), list.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    return list;
  }

 private:
  /// The text so far that fits into less than half of the positions, then the start.
  std::vector<std::int32_t> prompt() const {
    std::vector<std::int32_t> tokens;
    if (engine_.tokens().previous >= 0 && !context_.empty()) {
      const auto most = static_cast<std::size_t>(std::max<Extent>(model_.positions() / 2 - 1, 0));
      const std::size_t kept = std::min(context_.size(), most);
      tokens.push_back(engine_.tokens().previous);
      tokens.insert(tokens.end(), context_.end() - static_cast<std::ptrdiff_t>(kept), context_.end());
    }
    tokens.insert(tokens.end(), start_.begin(), start_.end());
    return tokens;
  }

  Attempt best_attempt(const std::vector<std::int32_t>& prompt) {
    Attempt attempt;
    for (const double temperature : options_.temperatures) {
      const Extent most = options_.max_tokens > 0 ? options_.max_tokens : model_.positions() / 2;
      attempt.temperature = temperature;
      attempt.decoded = model_.decode(prompt, {.timestamps = options_.timestamps,
                                               .max_tokens = most,
                                               .temperature = temperature,
                                               .beam_size = options_.beam_size,
                                               .best_of = options_.best_of,
                                               .patience = options_.patience,
                                               .length_penalty = options_.length_penalty,
                                               .seed = options_.seed,
                                               .draw = draws_,
                                               .cancel = options_.cancel});
      draws_ += static_cast<std::uint64_t>(most) + 1;
      attempt.compression = compression_ratio(stripped_text(text_of(attempt.decoded.tokens)));
      const bool repeats = attempt.compression > options_.compression_ratio_max;
      const bool is_unsure = attempt.decoded.mean_log_probability < options_.log_probability_min;
      // Silence is unsure, and another draw does not help.
      if (!repeats && (!is_unsure || is_silent(attempt.decoded))) break;
      if (options_.cancel.stop_requested()) break;
    }
    return attempt;
  }

  bool is_silent(const Decoded& d) const {
    return d.no_speech_probability > options_.no_speech_max && d.mean_log_probability < options_.log_probability_min;
  }

  std::string text_of(std::span<const std::int32_t> tokens) const {
    std::vector<std::int32_t> words;
    for (const std::int32_t token : tokens)
      if (token < engine_.tokens().end) words.push_back(token);
    return engine_.tokenizer().decode(words, /*skip_special=*/true);
  }

  /// Writes down a window; gives the frames to the next one.
  Extent window(Extent at, Extent frames) {
    if (encoded_ != at) engine_.encode(mel_.window(at));
    encoded_ = at;
    const Attempt attempt = best_attempt(prompt());
    if (options_.cancel.stop_requested()) return 0;
    if (is_silent(attempt.decoded)) return frames;
    const std::vector<std::int32_t>& tokens = attempt.decoded.tokens;
    const Cut cut = options_.timestamps ? cut_at_times(tokens, engine_.tokens(), frames, kFramesPerStep)
                                        : Cut{{{0, frames, tokens}}, frames};
    if (attempt.temperature > kForgetAbove || !options_.condition_on_previous) context_.clear();
    std::vector<SpokenPiece> spoken;
    if (word_times_) spoken = word_times_->find(cut.pieces, at, frames);
    for (std::size_t i = 0; i < cut.pieces.size(); ++i) {
      const Piece& piece = cut.pieces[i];
      const std::string text = text_of(piece.tokens);
      if (stripped_text(text).empty() || piece.begin == piece.end) continue;
      Segment segment{seconds(at + piece.begin),
                      seconds(at + piece.end),
                      stripped_text(text),
                      {piece.tokens.begin(), piece.tokens.end()},
                      attempt.temperature,
                      attempt.decoded.mean_log_probability,
                      attempt.compression,
                      attempt.decoded.no_speech_probability,
                      {}};
      if (word_times_) {
        segment.begin = spoken[i].begin, segment.end = spoken[i].end;
        segment.words = std::move(spoken[i].words);
      }
      result_.text += text;
      if (options_.condition_on_previous && attempt.temperature <= kForgetAbove)
        context_.insert(context_.end(), piece.tokens.begin(), piece.tokens.end());
      if (options_.on_segment) options_.on_segment(segment);
      result_.segments.push_back(std::move(segment));
    }
    return cut.advance;
  }

  static double seconds(Extent frame) { return static_cast<double>(frame * kHop) / kSpeechRate; }

  const Transcriber& model_;
  detail::WhisperEngine& engine_;
  const TranscribeOptions& options_;
  LogMel mel_;
  Transcript result_;
  std::vector<std::int32_t> start_, context_;
  std::optional<WordTimes> word_times_;
  std::size_t next_span_ = 0;
  Extent encoded_ = -1;  // where the window begins that the engine has read
  std::uint64_t draws_ = 0;
};

}  // namespace

std::vector<float> speech_samples(const audio::Sound& sound) {
  return audio::resample(audio::to_mono(sound), kSpeechRate).samples;
}

void normalize_sound(std::span<float> samples) {
  constexpr double kLeast = 1e-7;
  double sum = 0, squares = 0;
  for (const float x : samples) sum += static_cast<double>(x);
  const double mean = sum / static_cast<double>(samples.size());
  for (const float x : samples) squares += (static_cast<double>(x) - mean) * (static_cast<double>(x) - mean);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(samples.size()) + kLeast);
  for (float& x : samples) x = static_cast<float>((static_cast<double>(x) - mean) * scale);
}

std::string stripped_text(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

void check_temperatures(std::span<const double> temperatures) {
  if (temperatures.empty()) throw UsageError("transcribe: no temperature; give at least one");
  for (const double t : temperatures)
    if (!(t >= 0 && std::isfinite(t)))
      throw UsageError(fmt::format("transcribe: a temperature of {}; it must be at least 0", t));
}

void silence_outside(std::span<float> samples, std::span<const Span> spans) {
  std::size_t at = 0;
  const auto place = [&](double seconds) {
    return static_cast<std::size_t>(std::min(seconds * kSpeechRate, static_cast<double>(samples.size())));
  };
  double last = 0;
  for (const Span& span : spans) {
    if (!(span.begin >= last && span.end > span.begin))
      throw UsageError(
          fmt::format("transcribe: speech from {} s to {} s; spans have lengths and follow each other, and the one "
                      "before ends at {} s",
                      span.begin, span.end, last));
    last = span.end;
    std::fill(samples.begin() + static_cast<std::ptrdiff_t>(at),
              samples.begin() + static_cast<std::ptrdiff_t>(std::max(place(span.begin), at)), 0.0f);
    at = place(span.end);
  }
  std::fill(samples.begin() + static_cast<std::ptrdiff_t>(at), samples.end(), 0.0f);
}

Cut cut_at_times(std::span<const std::int32_t> tokens, const WhisperTokens& special, Extent frames,
                 Extent frames_per_step) {
  Cut cut{{}, frames};
  const auto frame_of = [&](std::int32_t token) { return (token - special.first_time) * frames_per_step; };
  const auto is_time = [&](std::size_t i) { return i < tokens.size() && special.is_time(tokens[i]); };
  const std::size_t n = tokens.size();
  std::vector<std::size_t> places;  // behind which a piece ends
  for (std::size_t i = 1; i < n; ++i)
    if (is_time(i - 1) && is_time(i)) places.push_back(i);
  const bool ends_with_one = n >= 2 && is_time(n - 1) && !is_time(n - 2);
  if (places.empty()) {
    // One segment, up to its last time if it has one.
    Piece whole{0, frames, tokens};
    for (std::size_t i = n; i-- > 0;)
      if (is_time(i)) {
        if (tokens[i] != special.first_time) whole.end = frame_of(tokens[i]);
        break;
      }
    if (n > 0) cut.pieces.push_back(whole);
    return cut;
  }
  if (ends_with_one) places.push_back(n);
  std::size_t begin = 0;
  for (const std::size_t end : places) {
    const auto piece = tokens.subspan(begin, end - begin);
    const Extent first = special.is_time(piece.front()) ? frame_of(piece.front()) : 0;
    cut.pieces.push_back({first, frame_of(piece.back()), piece});
    begin = end;
  }
  if (!ends_with_one) cut.advance = frame_of(tokens[begin - 1]);
  return cut;
}

Transcript Transcriber::transcribe(const audio::Sound& sound, const TranscribeOptions& options) const {
  if (ctc_) return transcribe_by_ctc(*ctc_, sound, options);
  if (moonshine_) return transcribe_by_moonshine(*moonshine_, sound, options);
  check(options, *this);
  return Transcription(*this, *engine_, sound, options).run();
}

std::vector<std::pair<std::string, double>> Transcriber::detect_language(const audio::Sound& sound) const {
  if (ctc_) throw UsageError("detect_language: a recogniser by CTC knows one language, and does not tell which");
  if (moonshine_) throw UsageError("detect_language: a Moonshine knows one language, and does not tell which");
  if (!is_multilingual()) throw UsageError("detect_language: the model knows only English");
  engine_->encode(features(sound));
  return Transcription::language_probabilities(*engine_);
}

}  // namespace weft::speech
