// Speech in the HTTP API of OpenAI: requests as forms, and answers in the formats that they ask for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/audio/sound.hpp"
#include "weft/speech.hpp"
#include "weft/value.hpp"

namespace weft::serve {

struct TranscriptionRequest {
  audio::Sound sound;
  speech::TranscribeOptions options;
  enum class Format : std::uint8_t { json, text, srt, verbose_json, vtt } format = Format::json;
  bool has_segments = true;  ///< of verbose_json; `options.words` says whether it has words
  bool streams = false;      ///< segments as server-sent events, then the whole text
};

/// Reads a form of /v1/audio/transcriptions, or of /v1/audio/translations. `type` is the header Content-Type. Fields that are not
/// known are ignored. Errors: OpenAiError with the name of the field; status 400, 404 for another model, 415 for another type.
TranscriptionRequest read_transcription_request(std::string_view type, std::string_view body, std::string_view model,
                                                const speech::Transcriber& transcriber, speech::Task task);

/// The answer: its body, and the type of it.
struct AudioAnswer {
  std::string type, body;
};
AudioAnswer transcription_answer(const TranscriptionRequest& request, const speech::Transcript& transcript);

// Events of a stream: a segment's text, and the end.
Value transcription_delta(const speech::Segment& segment);
Value transcription_done(const speech::Transcript& transcript);

/// A request of /v1/audio/speech.
struct SpeechRequest {
  std::string text;
  speech::SpeakOptions options;
  enum class Format : std::uint8_t { wav, pcm } format = Format::wav;
};
/// Reads the body. `voice` is a number or name of a speaker, or any other name, which is then the first one. Errors: OpenAiError as above.
SpeechRequest read_speech_request(const Value& body, std::string_view model, const speech::Voice& voice);
/// The bytes: a WAV file, or samples of 16 bits at 24 kHz, as the API says.
AudioAnswer speech_answer(const SpeechRequest& request, const audio::Sound& sound);

}  // namespace weft::serve
