// What the parts of `transcribe` share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "speech/whisper_config.hpp"
#include "weft/audio/sound.hpp"
#include "weft/shape.hpp"
#include "weft/speech/detector.hpp"

namespace weft::speech {

/// The samples of a sound as the models read them: one channel, at 16 kHz.
std::vector<float> speech_samples(const audio::Sound& sound);

/// Makes a sound of mean 0 and variance 1. It must not be empty.
void normalize_sound(std::span<float> samples);
/// A text without white space around it.
std::string stripped_text(std::string_view text);
/// UsageError for a list without a temperature, or with one below 0.
void check_temperatures(std::span<const double> temperatures);

/// Makes samples outside of the spans silent. Errors: UsageError unless the spans follow each other and have lengths.
void silence_outside(std::span<float> samples, std::span<const Span> spans);

/// A piece of a window's tokens, and its moments in frames from the window's beginning.
struct Piece {
  Extent begin = 0, end = 0;
  std::span<const std::int32_t> tokens;
};
struct Cut {
  std::vector<Piece> pieces;
  Extent advance = 0;  ///< frames to the beginning of the next window
};
/// Cuts the tokens of a window of `frames` frames where one time follows another. The next window begins where the last whole segment
/// ended, or behind this one if the text ends with a single time, or has no pair of times. `frames_per_step`: of a token of time.
Cut cut_at_times(std::span<const std::int32_t> tokens, const WhisperTokens& special, Extent frames,
                 Extent frames_per_step);

}  // namespace weft::speech
