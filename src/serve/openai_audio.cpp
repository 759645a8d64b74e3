#include "serve/openai_audio.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/quote.hpp"
#include "serve/multipart.hpp"
#include "serve/openai.hpp"
#include "serve/openai_fields.hpp"
#include "weft/error.hpp"

namespace weft::serve {
namespace {

using Format = TranscriptionRequest::Format;

// A small file may claim a low rate, and would be hours of features.
constexpr double kServedSecondsMax = 2 * 3600;
// Of all channels; a packed file of some megabytes may hold hours of them.
constexpr std::uint64_t kServedSamplesMax = std::uint64_t{1} << 28;

double number_of(const FormPart& part, double least, double most) {
  double value = 0;
  const char *begin = part.content.data(), *end = begin + part.content.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stop != end || !(value >= least && value <= most))
    refuse_field(part.name, fmt::format("is {}, not a number from {} to {}", quote(part.content, 40), least, most));
  return value;
}

Format format_of(const FormPart& part) {
  constexpr std::pair<std::string_view, Format> kFormats[] = {{"json", Format::json},
                                                              {"text", Format::text},
                                                              {"srt", Format::srt},
                                                              {"verbose_json", Format::verbose_json},
                                                              {"vtt", Format::vtt}};
  for (const auto& [name, format] : kFormats)
    if (part.content == name) return format;
  refuse_field(part.name,
               fmt::format("is {}; known are json, text, srt, verbose_json and vtt", quote(part.content, 40)));
}

/// Which times an answer has: those of segments, of words or both. Without the field: of segments.
void read_granularities(std::span<const FormPart> parts, TranscriptionRequest& request) {
  bool has_segments = false, has_words = false;
  for (const FormPart& part : parts) {
    if (part.name != "timestamp_granularities[]" && part.name != "timestamp_granularities") continue;
    if (part.content == "segment")
      has_segments = true;
    else if (part.content == "word")
      has_words = true;
    else
      refuse_field(part.name, fmt::format("has {}; known are segment and word", quote(part.content, 40)));
  }
  request.has_segments = has_segments || !has_words;
  const bool shows_times = request.format != Format::json && request.format != Format::text;
  request.options.words = has_words && shows_times;
}

Value words_value(const speech::Transcript& transcript) {
  Value::Array words;
  for (const speech::Segment& segment : transcript.segments)
    for (const speech::Word& word : segment.words)
      words.push_back(
          Value::object({{"word", word.text.substr(std::min(word.text.find_first_not_of(' '), word.text.size()))},
                         {"start", word.begin},
                         {"end", word.end}}));
  return words;
}

Value segment_value(const speech::Segment& s, std::size_t index) {
  Value::Array tokens;
  for (const std::int32_t token : s.tokens) tokens.emplace_back(token);
  return Value::object({{"id", index},
                        {"seek", static_cast<std::int64_t>(std::llround(s.begin * 100))},
                        {"start", s.begin},
                        {"end", s.end},
                        {"text", s.text},
                        {"tokens", tokens},
                        {"temperature", s.temperature},
                        {"avg_logprob", s.mean_log_probability},
                        {"compression_ratio", s.compression_ratio},
                        {"no_speech_prob", s.no_speech_probability}});
}

}  // namespace

TranscriptionRequest read_transcription_request(std::string_view type, std::string_view body, std::string_view model,
                                                const speech::Transcriber& transcriber, speech::Task task) {
  const std::vector<FormPart> parts = parse_form(type, body);
  const FormPart* file = find_part(parts, "file");
  if (!file) refuse_field("file", "is missing: a sound in WAV, FLAC, Ogg or MP3");
  if (const FormPart* name = find_part(parts, "model"); name && name->content != model)
    throw OpenAiError(
        404,
        fmt::format("the model {} does not exist here; {} writes down speech", quote(name->content, 60), quote(model)),
        "model", "model_not_found");
  TranscriptionRequest request;
  request.options.task = task;
  if (const FormPart* part = find_part(parts, "language")) request.options.language = part->content;
  if (const FormPart* part = find_part(parts, "prompt")) request.options.prompt = part->content;
  if (const FormPart* part = find_part(parts, "response_format")) request.format = format_of(*part);
  if (const FormPart* part = find_part(parts, "stream"))
    request.streams = part->content == "true" || part->content == "1";
  // A temperature of 0 leaves it to the server to raise it where a text is improbable.
  if (const FormPart* part = find_part(parts, "temperature"))
    if (const double temperature = number_of(*part, 0, 1); temperature > 0)
      request.options.temperatures = {temperature};
  read_granularities(parts, request);
  try {
    transcriber.check_language(request.options.language, task);
  } catch (const UsageError& error) {
    throw OpenAiError(400, error.what(), "language");
  }
  try {
    request.sound =
        audio::parse(std::as_bytes(std::span(file->content)),
                     file->file_name.empty() ? "file" : quote(file->file_name, 60), {.samples_max = kServedSamplesMax});
  } catch (const FileError& error) {
    throw OpenAiError(400, error.what(), "file");
  }
  if (request.sound.seconds() > kServedSecondsMax)
    refuse_field("file", fmt::format("has {:.0f} s; a request has at most {:.0f}, so cut it into parts",
                                     request.sound.seconds(), kServedSecondsMax));
  return request;
}

AudioAnswer transcription_answer(const TranscriptionRequest& request, const speech::Transcript& t) {
  using Cues = speech::WordCues;
  const bool words = request.options.words;
  switch (request.format) {
    case Format::text: return {"text/plain; charset=utf-8", t.text + "\n"};
    case Format::srt: return {"text/plain; charset=utf-8", speech::to_srt(t, words ? Cues::each : Cues::none)};
    case Format::vtt: return {"text/vtt; charset=utf-8", speech::to_vtt(t, words ? Cues::marks : Cues::none)};
    case Format::json: break;
    case Format::verbose_json: {
      Value::Array segments;
      for (const speech::Segment& s : t.segments) segments.push_back(segment_value(s, segments.size()));
      Value answer =
          Value::object({{"task", request.options.task == speech::Task::translate ? "translate" : "transcribe"},
                         {"language", speech::language_name(t.language)},
                         {"duration", t.seconds},
                         {"text", t.text}});
      if (request.has_segments) answer.members().set("segments", segments);
      if (words) answer.members().set("words", words_value(t));
      return {"application/json", answer.to_json()};
    }
  }
  const Value usage =
      Value::object({{"type", "duration"}, {"seconds", static_cast<std::int64_t>(std::ceil(t.seconds))}});
  return {"application/json", Value::object({{"text", t.text}, {"usage", usage}}).to_json()};
}

SpeechRequest read_speech_request(const Value& body, std::string_view model, const speech::Voice& voice) {
  constexpr std::size_t kInputBytesMax = 1 << 16;
  constexpr int kFormatsRate = 24000;
  if (!body.is_object()) throw OpenAiError(400, "the body is not a JSON object");
  if (const Value* name = given(body, "model"); name && string_in(*name, "model") != model)
    throw OpenAiError(
        404, fmt::format("the model {} does not exist here; {} speaks", quote(name->string(), 60), quote(model)),
        "model", "model_not_found");
  SpeechRequest request;
  const Value* input = given(body, "input");
  if (!input) refuse_field("input", "is missing: the text to say");
  request.text = string_in(*input, "input");
  if (request.text.size() > kInputBytesMax)
    refuse_field("input", fmt::format("has more than {} bytes", kInputBytesMax));
  if (const Value* format = given(body, "response_format")) {
    const std::string name = string_in(*format, "response_format");
    if (name != "wav" && name != "pcm")
      refuse_field("response_format",
                   fmt::format("is {}; known are wav and pcm (16 bits, {} Hz)", quote(name, 40), kFormatsRate));
    if (name == "pcm") request.format = SpeechRequest::Format::pcm;
  }
  if (given(body, "speed")) request.options.rate = number_in(body, "speed", 0.25, 4, 1);
  if (const Value* stream = given(body, "stream_format"); stream && string_in(*stream, "stream_format") != "audio")
    refuse_field("stream_format", "is not audio; sounds are sent as they are");
  request.options.seed = static_cast<std::uint64_t>(integer_in(body, "seed", 0, INT64_MAX, 0));
  if (const Value* speaker = given(body, "voice")) {
    const std::string name = string_in(*speaker, "voice");
    Extent number = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && stop == name.data() + name.size()) {
      if (number < 0 || number >= voice.speakers())
        refuse_field("voice", fmt::format("is {}; the model has {} speakers, from 0 on", number, voice.speakers()));
      request.options.speaker = number;
    } else if (const auto names = voice.speaker_names(); std::ranges::find(names, name) != names.end()) {
      request.options.speaker_name = name;
    }
  }
  return request;
}

AudioAnswer speech_answer(const SpeechRequest& request, const audio::Sound& sound) {
  constexpr int kPcmRate = 24000;
  constexpr std::size_t kHeaderBytes = 44;  // of PCM of one channel
  const bool is_pcm = request.format == SpeechRequest::Format::pcm;
  const std::vector<std::byte> bytes = audio::wav_bytes(is_pcm ? audio::resample(sound, kPcmRate) : sound);
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return {is_pcm ? "audio/pcm" : "audio/wav", std::string(is_pcm ? all.substr(kHeaderBytes) : all)};
}

Value transcription_delta(const speech::Segment& segment) {
  return Value::object({{"type", "transcript.text.delta"}, {"delta", segment.text + " "}});
}

Value transcription_done(const speech::Transcript& t) {
  return Value::object({{"type", "transcript.text.done"}, {"text", t.text}});
}

}  // namespace weft::serve
