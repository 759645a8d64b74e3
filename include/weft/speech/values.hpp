// Options and results of speech as values: what operations, scripts and Python take and give.
#pragma once

#include "weft/speech/detector.hpp"
#include "weft/speech/transcriber.hpp"
#include "weft/speech/voice.hpp"
#include "weft/value.hpp"

namespace weft::speech {

/// {"begin", "end", "text", "probability"}.
Value to_value(const Word& word);
/// {"begin", "end", "text", "tokens", "temperature", "mean_log_probability", "compression_ratio", "no_speech_probability", "words": [...]}.
Value to_value(const Segment& segment);
/// {"text", "language", "language_probability", "seconds", "segments": [...]}.
Value to_value(const Transcript& transcript);

/// Pairs [begin, end], as `speech` of the options takes them.
Value to_value(const std::vector<Span>& spans);

/// From an object with some members of these structs, by their names, but functions and `cancel`; a task by its name. What is not given
/// keeps its default. Errors: UsageError for a member that is unknown or of the wrong kind; ranges are checked where the options are
/// used.
TranscribeOptions transcribe_options(const Value& options);
SpeakOptions speak_options(const Value& options);
DetectorOptions detector_options(const Value& options);

}  // namespace weft::speech
