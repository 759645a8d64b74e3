// weft transcribe
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/commands.hpp"
#include "cli/language_model.hpp"
#include "cli/output.hpp"
#include "cli/stop_on_interrupt.hpp"
#include "weft/audio/sound.hpp"
#include "weft/device.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::cli {
namespace {

struct TranscribeRequest {
  ModelOptions model;  // path, device and threads
  std::filesystem::path file, detector;
  std::string task = "transcribe", format = "text";
  speech::TranscribeOptions options;
  bool shows_times = false, word_cues = false, detects = false, stats = false;
  std::int64_t max_tokens = 0, seed = 0, beam_size = 1, best_of = 1;
};

/// "01:02.34".
std::string clock(double seconds) {
  const auto hundredths = std::llround(seconds * 100);
  return fmt::format("{:02}:{:02}.{:02}", hundredths / 6000, hundredths / 100 % 60, hundredths % 100);
}

/// A segment's lines of text: the segment, or each word of it with its times.
std::string lines_of(const speech::Segment& s, bool shows_times, bool shows_words) {
  const auto line = [](double begin, double end, std::string_view text, bool has_times) {
    return (has_times ? fmt::format("[{} - {}] ", clock(begin), clock(end)) : "") + std::string(text) + "\n";
  };
  if (!shows_words) return line(s.begin, s.end, s.text, shows_times);
  std::string lines;
  for (const speech::Word& word : s.words)
    lines +=
        line(word.begin, word.end,
             std::string_view(word.text).substr(std::min(word.text.find_first_not_of(' '), word.text.size())), true);
  return lines;
}

int detect(const speech::Transcriber& model, const audio::Sound& sound) {
  for (const auto& [code, probability] : model.detect_language(sound))
    if (probability >= 0.001)
      put_text(fmt::format("{:<4}{:<20}{:.3f}\n", code, speech::language_name(code), probability));
  return kOk;
}

int transcribe(TranscribeRequest r) {
  const audio::Sound sound = audio::load(r.file);
  use_threads(r.model);
  set_default_device(parse_device(r.model.device));
  const speech::Transcriber model = speech::load_transcriber(model_path(r.model.path));
  if (r.detects) return detect(model, sound);
  StopOnInterrupt stop;
  if (!r.detector.empty()) r.options.speech = speech::load_detector(r.detector).spans(sound);
  r.options.task = r.task == "translate" ? speech::Task::translate : speech::Task::transcribe;
  r.options.max_tokens = r.max_tokens, r.options.beam_size = r.beam_size, r.options.best_of = r.best_of;
  r.options.seed = static_cast<std::uint64_t>(r.seed);
  r.options.cancel = stop.token();
  r.options.words = r.options.words || r.word_cues;
  if (r.format == "text")
    r.options.on_segment = [&](const speech::Segment& s) {
      if (!put_foreign(lines_of(s, r.shows_times, r.options.words))) stop.request_stop();
    };
  const auto start = std::chrono::steady_clock::now();
  const speech::Transcript t = model.transcribe(sound, r.options);
  if (r.format == "json") put_text(to_value(t).to_json(2) + "\n");
  using speech::WordCues;
  // SubRip has no marks of words inside of a cue.
  if (r.format == "srt") put_foreign(speech::to_srt(t, r.options.words ? WordCues::each : WordCues::none));
  if (r.format == "vtt")
    put_foreign(speech::to_vtt(t, r.word_cues ? WordCues::each : r.options.words ? WordCues::marks : WordCues::none));
  if (r.stats) {
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    put_message(fmt::format("{}; {:.1f} s of sound in {:.1f} s", model.describe(), t.seconds, taken));
  }
  return stop.signal() != 0 ? kInterrupted : kOk;
}

}  // namespace

void set_up_transcribe(CLI::App& app, Action& action) {
  auto request = std::make_shared<TranscribeRequest>();
  TranscribeRequest& r = *request;
  app.footer("docs/speech.md describes models, options and formats.");
  app.add_option("model", r.model.path,
                 std::string("folder of a Whisper, Moonshine, wav2vec 2.0 or HuBERT: config.json, tokenizer.json or "
                             "vocab.json, safetensors") +
                     kOrName)
      ->required();
  app.add_option("file", r.file, "the sound: WAV, FLAC, Ogg or MP3")->required();
  app.add_option("--language", r.options.language, "code or name of the language; otherwise it is detected");
  app.add_option("--task", r.task, "transcribe: the words as they are; translate: into English")
      ->capture_default_str()
      ->check(CLI::IsMember({"transcribe", "translate"}));
  app.add_flag("--timestamps", r.shows_times, "show the times of segments in front of them (text)");
  app.add_flag("!--no-timestamps", r.options.timestamps, "write no tokens of time: each window of 30 s is one segment");
  app.add_flag("--words", r.options.words,
               "times of words: a line for each (text), members of segments (json), marks in cues as for karaoke "
               "(vtt), a cue for "
               "each (srt)");
  app.add_flag("--word-cues", r.word_cues, "times of words, with a cue for each in vtt, too");
  app.add_option("--format", r.format, "text, json, srt or vtt")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json", "srt", "vtt"}));
  app.add_option("--detector", r.detector, "Silero's detector of speech (.onnx); only what it finds is heard");
  app.add_option("--prompt", r.options.prompt, "text that comes before the sound, with names and spellings to expect");
  app.add_option("--temperatures", r.options.temperatures,
                 "the first is used for each window, the next ones where a text repeats itself or is improbable")
      ->capture_default_str()
      ->delimiter(',');
  app.add_option("--beam-size", r.beam_size,
                 "beginnings of a text that are kept at temperature 0; 1: the most probable token is taken")
      ->capture_default_str();
  app.add_option("--best-of", r.best_of, "texts that are drawn at temperatures above 0, of which the best is kept")
      ->capture_default_str();
  app.add_option("--patience", r.options.patience, "the search of beams ends with this many whole texts for each beam")
      ->capture_default_str();
  app.add_option(
      "--length-penalty", r.options.length_penalty,
      "0 to 1: how much long texts may be less probable; otherwise texts are compared by the mean of their tokens");
  app.add_option("--max-tokens", r.max_tokens, "largest number of tokens of a window; 0: half of the model's positions")
      ->capture_default_str();
  app.add_option("--seed", r.seed, "of draws at temperatures above 0")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag("!--no-context", r.options.condition_on_previous, "do not show the text so far to the model");
  app.add_flag("--detect", r.detects, "print the probabilities of languages instead");
  app.add_flag("--stats", r.stats, "tell the speed at the end");
  app.add_option("--device", r.model.device, "auto, cpu, webgpu or webgpu:INDEX")->capture_default_str();
  app.add_option("--threads", r.model.threads, "CPU threads; 0: one for each core")->capture_default_str();
  app.callback([&action, request] { action = [request] { return transcribe(*request); }; });
}

}  // namespace weft::cli
