// Text to speech: VITS models in the layout of the transformers library, such as the voices of MMS-TTS, and voices of Piper and Kokoro.
//
//   const auto voice = speech::load_voice("mms-tts-eng");
//   audio::save_wav("hello.wav", voice.speak("Hello there."));
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
#include <vector>

#include "weft/audio/sound.hpp"
#include "weft/device.hpp"
#include "weft/speech/load.hpp"

namespace weft::speech {

struct SpeakOptions {
  std::optional<double> rate = {};   ///< above 1: faster; unset: the model's own
  std::optional<double> noise = {};  ///< deviation of the prior, as a factor: 0 is flat; unset: the model's own
  std::optional<double> duration_noise = {};  ///< the same of the lengths of sounds, of models that draw them
  Extent speaker = 0;                         ///< of a model with several
  std::string speaker_name = {};              ///< comes before the number, of a model whose speakers have names
  std::uint64_t seed = 0;                     ///< the same seed, text and device give the same sound
  double pause = 0.25;                        ///< seconds of silence between sentences
  bool is_phonemes = false;                   ///< the text is what the model's own front end would have made of it
  std::function<void(const audio::Sound&)> on_sentence =
      {};                       ///< called with the sound of each sentence, pause included
  std::stop_token cancel = {};  ///< checked before every sentence
};

namespace detail {
class VoiceEngine;
}

/// A voice on its device. A cheap handle; one thread at a time.
class Voice {
 public:
  /// Speaks a text sentence by sentence. Errors: UsageError for options out of range, for a text without a character that the voice
  /// knows, and for a model that reads phonemes or Latin letters if the text is not so (see `is_phonemes`).
  audio::Sound speak(std::string_view text, const SpeakOptions& options = {}) const;
  /// The sound of tokens. `sentence` numbers the draws: each sentence of a seed has other ones.
  audio::Sound synthesize(std::span<const std::int32_t> tokens, const SpeakOptions& options = {},
                          std::uint32_t sentence = 0) const;
  /// The tokens of a text, which is not cut into sentences.
  std::vector<std::int32_t> encode(std::string_view text, bool is_phonemes = false) const;

  int rate() const;                                ///< frames per second of the sounds
  Extent speakers() const;                         ///< number of them
  std::vector<std::string> speaker_names() const;  ///< in the order of their numbers; empty if they have none
  Device device() const;
  std::uint64_t weight_bytes() const;
  std::string describe() const;  ///< sizes in a line

 private:
  friend Voice load_voice(const std::filesystem::path& path, const LoadOptions& options);
  explicit Voice(std::shared_ptr<const detail::VoiceEngine> engine) : engine_(std::move(engine)) {}
  std::shared_ptr<const detail::VoiceEngine> engine_;
};

/// Loads a folder with config.json (model_type vits), vocab.json and safetensors; tokenizer_config.json is read if it is there. Or a
/// voice of Piper: a model in ONNX's format, with its settings in a file beside it that adds .json to the name. Or a voice of Kokoro: a
/// model in ONNX's format with a file voices*.bin beside it, or a folder with onnx/model.onnx and voices/NAME.bin.
/// Errors: FileError that names file, place and cure; DeviceError.
Voice load_voice(const std::filesystem::path& path, const LoadOptions& options = {});
/// Whether `load_voice` reads it: a folder whose config.json is that of a voice, or a model with settings or speakers beside it.
bool is_voice(const std::filesystem::path& path);

}  // namespace weft::speech
