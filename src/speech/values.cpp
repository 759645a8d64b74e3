#include "weft/speech/values.hpp"

#include "schema/value_options.hpp"

namespace weft::speech {

Value to_value(const Word& w) {
  return Value::object({{"begin", w.begin}, {"end", w.end}, {"text", w.text}, {"probability", w.probability}});
}

Value to_value(const Segment& s) {
  Value::Array words;
  for (const Word& word : s.words) words.push_back(to_value(word));
  return Value::object({{"begin", s.begin},
                        {"end", s.end},
                        {"text", s.text},
                        {"tokens", Value::Array(s.tokens.begin(), s.tokens.end())},
                        {"temperature", s.temperature},
                        {"mean_log_probability", s.mean_log_probability},
                        {"compression_ratio", s.compression_ratio},
                        {"no_speech_probability", s.no_speech_probability},
                        {"words", std::move(words)}});
}

Value to_value(const Transcript& t) {
  Value::Array segments;
  for (const Segment& s : t.segments) segments.push_back(to_value(s));
  return Value::object({{"text", t.text},
                        {"language", t.language},
                        {"language_probability", t.language_probability},
                        {"seconds", t.seconds},
                        {"segments", std::move(segments)}});
}

Value to_value(const std::vector<Span>& spans) {
  Value::Array pairs;
  for (const Span& span : spans) pairs.push_back(Value::array({span.begin, span.end}));
  return pairs;
}

TranscribeOptions transcribe_options(const Value& options) {
  TranscribeOptions o;
  std::string task = "transcribe";
  std::optional<std::vector<std::vector<double>>> speech;
  ValueOptions given(options, "transcribe");
  given.read("language", o.language)
      .read("task", task)
      .read("timestamps", o.timestamps)
      .read("words", o.words)
      .read("speech", speech)
      .read("temperatures", o.temperatures)
      .read("compression_ratio_max", o.compression_ratio_max)
      .read("log_probability_min", o.log_probability_min)
      .read("no_speech_max", o.no_speech_max)
      .read("beam_size", o.beam_size)
      .read("best_of", o.best_of)
      .read("patience", o.patience)
      .read("length_penalty", o.length_penalty)
      .read("condition_on_previous", o.condition_on_previous)
      .read("prompt", o.prompt)
      .read("max_tokens", o.max_tokens)
      .read("seed", o.seed)
      .finish();
  if (task != "transcribe" && task != "translate")
    throw UsageError(fmt::format("transcribe: the task is transcribe or translate, not {}", quote(task)));
  if (speech) {
    o.speech.emplace();
    for (const std::vector<double>& span : *speech) {
      if (span.size() != 2) throw UsageError("transcribe: speech: a span is not a pair [begin, end] of seconds");
      o.speech->push_back({span[0], span[1]});
    }
  }
  o.task = task == "translate" ? Task::translate : Task::transcribe;
  return o;
}

SpeakOptions speak_options(const Value& options) {
  SpeakOptions o;
  ValueOptions given(options, "speak");
  const Value* const speaker = options.is_object() ? options.find("speaker") : nullptr;
  if (speaker && speaker->is_string())
    given.read("speaker", o.speaker_name);
  else
    given.read("speaker", o.speaker);
  given.read("rate", o.rate)
      .read("noise", o.noise)
      .read("duration_noise", o.duration_noise)
      .read("seed", o.seed)
      .read("pause", o.pause)
      .read("is_phonemes", o.is_phonemes)
      .finish();
  return o;
}

DetectorOptions detector_options(const Value& options) {
  DetectorOptions o;
  ValueOptions given(options, "spans");
  given.read("threshold", o.threshold)
      .read("speech_min", o.speech_min)
      .read("silence_min", o.silence_min)
      .read("margin", o.margin)
      .finish();
  return o;
}

}  // namespace weft::speech
