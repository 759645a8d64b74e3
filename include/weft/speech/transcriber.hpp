// Speech to text: models of the Whisper family, Moonshine, and recognisers by CTC (wav2vec 2.0, HuBERT), from Hugging Face folders.
//
//   const auto model = speech::load_transcriber("whisper-tiny");
//   for (const speech::Segment& s : model.transcribe(audio::load_wav("talk.wav")).segments)
//     fmt::print("{:.1f} {}\n", s.begin, s.text);
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/audio/sound.hpp"
#include "weft/device.hpp"
#include "weft/speech/detector.hpp"
#include "weft/speech/load.hpp"
#include "weft/tensor.hpp"
#include "weft/tokenizer.hpp"

namespace weft::speech {

/// What is written: the words, or their translation into English.
enum class Task : std::uint8_t { transcribe, translate };

/// A word of a segment.
struct Word {
  double begin = 0, end = 0;  ///< seconds from the beginning of the sound
  std::string text;  ///< with the space before it and the marks beside it: the words of a segment, joined, are its text
  double probability = 0;  ///< that the model gives the word
};

/// A piece of speech between two moments.
struct Segment {
  double begin = 0, end = 0;  ///< seconds from the beginning of the sound
  std::string text;
  std::vector<std::int32_t> tokens;  ///< with those of time
  double temperature = 0;            ///< that its window was written with
  double mean_log_probability = 0;   ///< of the tokens of its window, its end included, under the rules of decoding
  double compression_ratio = 0;  ///< bytes of the window's text by bytes of the same packed; repetitions make it large
  double no_speech_probability = 0;  ///< of its window
  std::vector<Word> words;           ///< if `TranscribeOptions::words` asks for them
};

struct Transcript {
  std::string text;      ///< of all segments
  std::string language;  ///< code, such as "en"
  /// Of the detected language; 1 if it was given, or the model knows only one.
  double language_probability = 1;
  double seconds = 0;  ///< of the sound
  std::vector<Segment> segments;
};

struct TranscribeOptions {
  std::string language = {};  ///< a code ("de") or a name ("german"); empty: detected in the first window
  Task task = Task::transcribe;
  /// The model writes tokens of time, which cut the text into segments and say where the next window begins. Otherwise, each window
  /// is one segment.
  bool timestamps = true;
  /// Segments have words with times. Each window is read once more for them. Segments then begin and end with their words, unless those
  /// are far longer than the segment. The texts are the same as without.
  bool words = false;
  /// The first attempt at a window uses the first temperature; 0 takes the most probable token. The next one is used if the text
  /// compresses by more than `compression_ratio_max`, or its mean log-probability is below `log_probability_min`.
  std::vector<double> temperatures = {0, 0.2, 0.4, 0.6, 0.8, 1};
  double compression_ratio_max = 2.4;
  double log_probability_min = -1;
  /// A window is silent if "no speech" is more probable than this, and the text has a mean log-probability below the limit.
  double no_speech_max = 0.6;
  Extent beam_size = 1;  ///< at temperature 0, as in DecodeOptions
  Extent best_of = 1;    ///< at temperatures above 0
  double patience = 1;
  std::optional<double> length_penalty = {};
  bool condition_on_previous = true;  ///< the model sees the end of the text so far
  std::string prompt = {};            ///< text that comes before the sound: names and spellings to expect
  Extent max_tokens = 0;              ///< of a window; 0: half of the model's positions
  std::uint64_t seed = 0;             ///< of draws at temperatures above 0
  /// The parts of the sound that have speech, one behind the other, such as `Detector::spans` finds them. The rest is heard as silence, and
  /// no window begins in it. Unset: all of the sound.
  std::optional<std::vector<Span>> speech = {};
  std::function<void(const Segment&)> on_segment = {};  ///< called with each segment once it is certain
  std::stop_token cancel = {};  ///< checked before every token; the transcript then has the segments of whole windows
};

/// How the tokens of one window are chosen under the model's rules (`transcribe` builds on this).
struct DecodeOptions {
  bool timestamps = true;
  Extent max_tokens = 0;   ///< 0: as many as fit
  double temperature = 0;  ///< 0: the most probable tokens
  /// Beginnings of texts that are kept in each step at temperature 0; 1: only the most probable token is. They run as one batch, and the
  /// caches of tokens grow by this factor.
  Extent beam_size = 1;
  Extent best_of = 1;   ///< texts that are drawn, as one batch, at temperatures above 0
  double patience = 1;  ///< the search of beams ends with `beam_size * patience` whole texts
  /// The text with the largest sum of log-probabilities by ((5 + n) / 6)^length_penalty wins, for n tokens; unset: by n.
  std::optional<double> length_penalty = {};
  std::uint64_t seed = 0, draw = 0;  ///< draw i of a seed is always the same number
  std::stop_token cancel = {};
};
struct Decoded {
  std::vector<std::int32_t> tokens;  ///< after the prompt, without the end
  double mean_log_probability = 0, no_speech_probability = 0;
  bool has_ended = false;  ///< by the token of the end, not by a limit
};

namespace detail {
class CtcEngine;
class MoonshineEngine;
class WhisperEngine;
}  // namespace detail

/// A speech model on its device. A cheap handle; one thread at a time.
///
/// A recogniser by CTC hears a sound of any length in windows that overlap, and writes the most probable token of each frame. Segments
/// end at pauses. It always knows the times of words. Of the options it uses `timestamps` (false: one segment), `words`, `speech`, `on_segment` and
/// `cancel`; `language` is only told in the transcript. Whisper's parts are not there: they are UsageErrors.
///
/// A Moonshine hears windows of at most 24 s, which end where the sound is quiet, or are spans of `speech`, and writes a segment for each.
/// Of the options it uses `temperatures` and their limits, `max_tokens`, `seed`, `speech`, `on_segment` and `cancel`; `language` is only
/// told. Of the parts, `features` are the samples of a window, f32 [n], and `encode` takes any number of them from 895 on.
class Transcriber {
 public:
  /// Writes down a sound of any length, rate and number of channels, window by window (30 s).
  /// Errors: UsageError for a language that the model lacks, for `translate` with a model that knows only English, and for
  /// options out of range; for a recogniser by CTC if a translation, a prompt or beams are asked for, for a Moonshine also words.
  Transcript transcribe(const audio::Sound& sound, const TranscribeOptions& options = {}) const;
  /// Languages of the first window by their probability, the most probable one first. Errors: UsageError for a model of one language.
  std::vector<std::pair<std::string, double>> detect_language(const audio::Sound& sound) const;

  /// UsageError unless the model writes down this language for this task, as `transcribe` would be. An empty language is any.
  void check_language(std::string_view language, Task task) const;

  /// The model_type of its folder: "whisper", "moonshine", "wav2vec2" or "hubert".
  std::string kind() const;
  /// Whether it is a recogniser by CTC.
  bool is_ctc() const { return ctc_ != nullptr; }
  /// Of a recogniser by CTC: the logits of the tokens for each frame of a sound, which is read as a whole. Shapes: -> f32 [frames,
  /// vocabulary], on the device. Errors: UsageError for other models, and for a sound without a frame.
  Tensor frame_logits(const audio::Sound& sound) const;

  // The parts of Whisper, and of Moonshine.

  /// The features of a window that begins at a second. Shapes: -> f32 [mels, frames], on the device
  Tensor features(const audio::Sound& sound, double begin = 0) const;
  /// Reads a window: later calls of `logits` and `decode` are about it. Gives the encoder's states.
  /// Shapes: features [mels, frames] -> f32 [frames / 2, width]
  Tensor encode(const Tensor& features) const;
  /// Logits after each of the tokens, [tokens, vocabulary]. Errors: UsageError before `encode`, for tokens outside of the
  /// vocabulary, and for more than the model has positions.
  std::vector<float> logits(std::span<const std::int32_t> tokens) const;
  /// Goes on from a prompt of tokens. Errors as `logits`; UsageError for options out of range.
  Decoded decode(std::span<const std::int32_t> prompt, const DecodeOptions& options = {}) const;
  /// The tokens that a text begins with: the start, and if the model is multilingual language and task; then the token that turns
  /// times off, unless `timestamps`.
  std::vector<std::int32_t> prompt_tokens(std::string_view language, Task task, bool timestamps) const;

  /// Codes of the languages, in the order of their tokens; only "en" if the model is not multilingual; none for a recogniser by CTC
  /// and a Moonshine, whose files do not tell their language.
  const std::vector<std::string>& languages() const;
  bool is_multilingual() const;
  llm::Tokenizer tokenizer() const;
  Extent vocabulary() const;
  Extent positions() const;  ///< most tokens of a window, its prompt included; 0 for a recogniser by CTC
  Device device() const;
  std::uint64_t weight_bytes() const;
  std::string describe() const;  ///< sizes in a line

 private:
  friend Transcriber load_transcriber(const std::filesystem::path& folder, const LoadOptions& options);
  explicit Transcriber(std::shared_ptr<detail::WhisperEngine> engine) : engine_(std::move(engine)) {}
  explicit Transcriber(std::shared_ptr<detail::CtcEngine> engine) : ctc_(std::move(engine)) {}
  explicit Transcriber(std::shared_ptr<detail::MoonshineEngine> engine) : moonshine_(std::move(engine)) {}
  detail::WhisperEngine& whisper(const char* call) const;
  template <class F>
  auto with_engine(const F& function) const;
  std::shared_ptr<detail::WhisperEngine> engine_;  // one of the three
  std::shared_ptr<detail::CtcEngine> ctc_;
  std::shared_ptr<detail::MoonshineEngine> moonshine_;
};

/// Loads a folder with config.json (model_type whisper), tokenizer.json and safetensors; generation_config.json is read if it is there.
/// Moonshine's folders (model_type moonshine) have the same files, and preprocessor_config.json is read if it is there.
/// Or with config.json (wav2vec2 or hubert), vocab.json and safetensors; tokenizer_config.json and preprocessor_config.json are read if
/// they are there. Errors: FileError that names file, place and cure; DeviceError.
Transcriber load_transcriber(const std::filesystem::path& folder, const LoadOptions& options = {});
/// Whether the folder's config.json is that of a speech model which `load_transcriber` reads.
bool is_transcriber(const std::filesystem::path& folder);

/// "english" for "en"; the code itself if it is not known.
std::string language_name(std::string_view code);

/// How the words of segments are shown in subtitles.
enum class WordCues : std::uint8_t {
  none,   ///< a cue for each segment
  marks,  ///< WebVTT: the time of each word inside the cue of its segment, as players of karaoke read it. SubRip has no such marks: as none
  each,   ///< a cue for each word
};
/// By its name. Errors: UsageError for another one.
WordCues word_cues(std::string_view name);
// Transcripts as files of subtitles (SubRip, WebVTT). Where words are shown, a segment whose text is in words of others has no cue.
std::string to_srt(const Transcript& transcript, WordCues words = WordCues::none);
std::string to_vtt(const Transcript& transcript, WordCues words = WordCues::none);

}  // namespace weft::speech
