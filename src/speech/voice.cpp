// The face of voices: texts, and sentences.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "io/model_type.hpp"
#include "speech/vits_config.hpp"
#include "speech/voice_engine.hpp"
#include "weft/error.hpp"
#include "weft/speech/voice.hpp"

namespace weft::speech {
namespace {

/// The number of the speaker.
Extent speaker_of(const SpeakOptions& o, const detail::VoiceEngine& engine) {
  if (o.speaker_name.empty()) return o.speaker;
  const std::vector<std::string> names = engine.speaker_names();
  const auto found = std::ranges::find(names, o.speaker_name);
  if (found != names.end()) return found - names.begin();
  if (names.empty())
    throw UsageError(fmt::format("speak: speaker {}; the speakers of this voice have numbers, from 0 to {}",
                                 quote(o.speaker_name, 60), engine.speakers() - 1));
  throw UsageError(
      fmt::format("speak: there is no speaker {}; there are {}", quote(o.speaker_name, 60), fmt::join(names, ", ")));
}

void check(const SpeakOptions& o, Extent speaker, Extent speakers) {
  const auto require = [](std::optional<double> value, double least, double most, const char* name) {
    if (value && !(*value >= least && *value <= most))
      throw UsageError(fmt::format("speak: {} {}; it must be in [{}, {}]", name, *value, least, most));
  };
  require(o.rate, 0.1, 10, "a rate of");
  require(o.noise, 0, 10, "a noise of");
  require(o.duration_noise, 0, 10, "a noise of durations of");
  require(o.pause, 0, 60, "a pause in seconds of");
  if (speaker < 0 || speaker >= speakers)
    throw UsageError(fmt::format("speak: speaker {}; the model has {}, from 0 on", speaker, speakers));
}

bool has_piper_settings(const std::filesystem::path& path) {
  std::error_code ignored;
  return path.extension() == ".onnx" && std::filesystem::is_regular_file(detail::piper_settings(path), ignored);
}

}  // namespace

audio::Sound Voice::synthesize(std::span<const std::int32_t> tokens, const SpeakOptions& options,
                               std::uint32_t sentence) const {
  SpeakOptions with = options;
  with.speaker = speaker_of(options, *engine_);
  check(options, with.speaker, speakers());
  if (tokens.empty() || static_cast<Extent>(tokens.size()) > engine_->tokens_max())
    throw UsageError(fmt::format("speak: {} tokens; give 1 to {}, as sentences", tokens.size(), engine_->tokens_max()));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= engine_->vocabulary())
      throw UsageError(fmt::format("speak: token {} is outside of the vocabulary of {}", token, engine_->vocabulary()));
  audio::Sound sound{engine_->synthesize(tokens, with, sentence), 1, rate()};
  if (std::any_of(sound.samples.begin(), sound.samples.end(), [](float x) { return !std::isfinite(x); }))
    throw FileError("speak: the voice gives samples that are not numbers; are its weights whole?");
  return sound;
}

audio::Sound Voice::speak(std::string_view text, const SpeakOptions& options) const {
  check(options, speaker_of(options, *engine_), speakers());
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
  return engine_->encode(text, is_phonemes);
}

int Voice::rate() const { return engine_->rate(); }
Extent Voice::speakers() const { return engine_->speakers(); }
std::vector<std::string> Voice::speaker_names() const { return engine_->speaker_names(); }
Device Voice::device() const { return engine_->device(); }
std::uint64_t Voice::weight_bytes() const { return engine_->weight_bytes(); }
std::string Voice::describe() const { return engine_->describe(); }

Voice load_voice(const std::filesystem::path& path, const LoadOptions& options) {
  if (const auto files = has_piper_settings(path) ? std::nullopt : detail::kokoro_files(path))
    return Voice(detail::load_kokoro(*files, options));
  return Voice(path.extension() == ".onnx" ? detail::load_piper(path, options) : detail::load_vits(path, options));
}

bool is_voice(const std::filesystem::path& path) {
  return has_piper_settings(path) || detail::kokoro_files(path) || io::model_type_of(path) == "vits";
}

}  // namespace weft::speech
