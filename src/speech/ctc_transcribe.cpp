// Sounds of any length for recognisers by CTC: windows that overlap, of which the frames in the middle are kept.
#include "speech/ctc_transcribe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "speech/ctc_text.hpp"
#include "speech/log_mel.hpp"
#include "speech/windows.hpp"
#include "weft/error.hpp"

namespace weft::speech {
namespace {

constexpr double kWindowSeconds = 30, kMarginSeconds = 4;  // a frame sees at least the margin on both sides of it
constexpr double kPauseSeconds = 0.8;                      // silence that parts segments

void check_options(const TranscribeOptions& o) {
  if (o.task == Task::translate)
    throw UsageError("transcribe: a recogniser by CTC writes the language that it hears; it does not translate");
  if (!o.prompt.empty()) throw UsageError("transcribe: a recogniser by CTC reads no prompt; leave it out");
  if (o.beam_size != 1)
    throw UsageError("transcribe: a recogniser by CTC takes the most probable token of each frame, without beams");
}

}  // namespace

std::vector<float> ctc_samples(const CtcConfig& config, const audio::Sound& sound) {
  std::vector<float> samples = speech_samples(sound);
  if (config.normalizes_sound && !samples.empty()) normalize_sound(samples);
  return samples;
}

Transcript transcribe_by_ctc(detail::CtcEngine& engine, const audio::Sound& sound, const TranscribeOptions& options) {
  check_options(options);
  const CtcConfig& c = engine.config();
  const Extent hop = c.hop();
  const auto frames_of = [&](double seconds) {
    return static_cast<Extent>(seconds * kSpeechRate / static_cast<double>(hop));
  };
  const double seconds_per_frame = static_cast<double>(hop) / kSpeechRate;
  Transcript result;
  result.seconds = sound.seconds();
  result.language = language_code(options.language).empty() ? options.language : language_code(options.language);
  CtcWriter writer(engine.tokens(), seconds_per_frame,
                   options.timestamps ? std::max<Extent>(frames_of(kPauseSeconds), 1) : 0, [&](Segment segment) {
                     if (!result.text.empty()) result.text += ' ';
                     result.text += segment.text;
                     if (!options.words) segment.words.clear();
                     if (options.on_segment) options.on_segment(segment);
                     result.segments.push_back(std::move(segment));
                   });

  std::vector<float> samples = ctc_samples(c, sound);
  if (options.speech) silence_outside(samples, *options.speech);
  std::size_t next_span = 0;
  const auto is_speech = [&](Extent frame) {  // of frames that come one after the other
    if (!options.speech) return true;
    const double at = static_cast<double>(frame) * seconds_per_frame;
    while (next_span < options.speech->size() && (*options.speech)[next_span].end <= at) ++next_span;
    return next_span < options.speech->size() && at + seconds_per_frame > (*options.speech)[next_span].begin;
  };
  const auto size = static_cast<Extent>(samples.size());
  const Extent margin = frames_of(kMarginSeconds),
               window = std::max(frames_of(kWindowSeconds), 2 * margin + 1) * hop + c.reach() - hop;
  const Extent frames = c.frames(size);
  // Frames [done, kept) come from the window that begins at frame `first`.
  for (Extent done = 0; done < frames && !options.cancel.stop_requested();) {
    const Extent first = std::max<Extent>(done - margin, 0);
    const Extent end = std::min(first * hop + window, size);
    const auto part =
        std::span(samples).subspan(static_cast<std::size_t>(first * hop), static_cast<std::size_t>(end - first * hop));
    const detail::CtcEngine::Best best = engine.best(part);
    const Extent seen = first + static_cast<Extent>(best.tokens.size());
    const Extent kept = seen == frames ? frames : seen - margin;
    for (; done < kept; ++done) {
      const auto at = static_cast<std::size_t>(done - first);
      if (!std::isfinite(best.log_probabilities[at]))
        throw FileError("speech: the model gives logits that are not numbers; are its weights whole?");
      writer.put(is_speech(done) ? best.tokens[at] : engine.tokens().blank,
                 static_cast<double>(best.log_probabilities[at]));
    }
  }
  if (!options.cancel.stop_requested()) writer.finish();
  return result;
}

}  // namespace weft::speech
