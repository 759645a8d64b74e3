// The face of speech models.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/model_type.hpp"
#include "speech/ctc_transcribe.hpp"
#include "speech/log_mel.hpp"
#include "speech/moonshine_transcribe.hpp"
#include "speech/whisper.hpp"
#include "speech/windows.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech {

/// `function` of the engine that there is.
template <class F>
auto Transcriber::with_engine(const F& function) const {
  return ctc_ ? function(*ctc_) : moonshine_ ? function(*moonshine_) : function(*engine_);
}

std::string Transcriber::kind() const { return ctc_ ? ctc_->config().type : moonshine_ ? "moonshine" : "whisper"; }

detail::WhisperEngine& Transcriber::whisper(const char* call) const {
  if (!engine_)
    throw UsageError(
        fmt::format("speech: {} is a part of models of the Whisper family, and this one is {}", call, kind()));
  return *engine_;
}

void Transcriber::check_language(std::string_view language, Task task) const {
  if (ctc_) {
    if (task == Task::translate)
      throw UsageError("speech: a recogniser by CTC writes the language that it hears; it does not translate");
  } else if (moonshine_) {
    if (task == Task::translate)
      throw UsageError("speech: a Moonshine writes the language that it hears; it does not translate");
  } else if (!language.empty()) {
    (void)prompt_tokens(language, task, true);
  }
}

Tensor Transcriber::frame_logits(const audio::Sound& sound) const {
  if (!ctc_)
    throw UsageError(fmt::format("speech: frame_logits is of recognisers by CTC, and this model is {}", kind()));
  const std::vector<float> samples = ctc_samples(ctc_->config(), sound);
  if (ctc_->config().frames(static_cast<Extent>(samples.size())) == 0)
    throw UsageError(fmt::format("speech: a sound of {} samples at 16 kHz; the model needs {} for a frame",
                                 samples.size(), ctc_->config().reach()));
  return ctc_->logits(samples);
}

Tensor Transcriber::features(const audio::Sound& sound, double begin) const {
  if (!(begin >= 0 && begin <= sound.seconds()))
    throw UsageError(fmt::format("features: second {} of a sound of {}", begin, sound.seconds()));
  if (moonshine_) {
    const std::vector<float> all = moonshine_samples(moonshine_->config(), sound);
    const auto size = static_cast<Extent>(all.size());
    const Extent first = std::min(static_cast<Extent>(std::lround(begin * kSpeechRate)), size);
    return tensor_from_bytes(all.data() + first, {std::min(size - first, kMoonshineWindow)}, DType::f32, device());
  }
  const WhisperConfig& config = whisper("features").config();
  LogMel mel(config.mels, config.frames(), device());
  mel.read(speech_samples(sound));
  return mel.window(static_cast<Extent>(std::lround(begin * kSpeechRate / kHop)));
}

Tensor Transcriber::encode(const Tensor& features) const {
  return moonshine_ ? moonshine_->encode(features) : whisper("encode").encode(features);
}

std::vector<float> Transcriber::logits(std::span<const std::int32_t> tokens) const {
  return moonshine_ ? moonshine_->pass(tokens, 0, /*every=*/true) : whisper("logits").all_logits(tokens);
}

std::vector<std::int32_t> Transcriber::prompt_tokens(std::string_view language, Task task, bool timestamps) const {
  if (moonshine_) {
    check_language(language, task);
    return {moonshine_->config().start};
  }
  const WhisperTokens& t = whisper("prompt_tokens").tokens();
  std::vector<std::int32_t> prompt = {t.start};
  const std::string code = language_code(language).empty() ? std::string(language) : language_code(language);
  if (is_multilingual()) {
    const auto found =
        std::find_if(t.languages.begin(), t.languages.end(), [&](const auto& l) { return l.first == code; });
    if (found == t.languages.end())
      throw UsageError(fmt::format("speech: the model does not know the language \"{}\"; known are {}", language,
                                   fmt::join(languages(), ", ")));
    if (task == Task::translate && t.translate < 0) throw UsageError("speech: the model does not translate");
    prompt.push_back(found->second);
    prompt.push_back(task == Task::translate ? t.translate : t.transcribe);
  } else if (code != "en" || task != Task::transcribe) {
    throw UsageError(fmt::format("speech: the model writes down English only, so it can neither {}",
                                 task == Task::translate ? "translate nor read other languages"
                                                         : fmt::format("read \"{}\" nor translate", language)));
  }
  if (!timestamps && t.no_timestamps >= 0) prompt.push_back(t.no_timestamps);
  return prompt;
}

const std::vector<std::string>& Transcriber::languages() const {
  static const std::vector<std::string> none;
  return engine_ ? engine_->languages() : none;
}
bool Transcriber::is_multilingual() const { return engine_ && !engine_->tokens().languages.empty(); }
llm::Tokenizer Transcriber::tokenizer() const {
  return moonshine_ ? moonshine_->tokenizer() : whisper("tokenizer").tokenizer();
}
Extent Transcriber::vocabulary() const {
  return with_engine([](const auto& engine) { return engine.config().vocabulary; });
}
Extent Transcriber::positions() const {
  return ctc_ ? 0 : moonshine_ ? moonshine_->config().positions : engine_->config().target_positions;
}
Device Transcriber::device() const {
  return with_engine([](const auto& engine) { return engine.device(); });
}
std::uint64_t Transcriber::weight_bytes() const {
  return with_engine([](const auto& engine) { return engine.weight_bytes(); });
}

std::string Transcriber::describe() const {
  const double megabytes = static_cast<double>(weight_bytes()) / 1e6;
  if (ctc_) {
    const CtcConfig& c = ctc_->config();
    return fmt::format("{}: width {}, {} layers, {} tokens, {:.1f} MB of weights on {}", c.type, c.width, c.layers,
                       c.vocabulary, megabytes, device().to_string());
  }
  if (moonshine_) {
    const MoonshineConfig& c = moonshine_->config();
    return fmt::format("moonshine: width {}, {} + {} layers, {} tokens, {:.1f} MB of weights on {}", c.width,
                       c.encoder_layers, c.decoder_layers, c.vocabulary, megabytes, device().to_string());
  }
  const WhisperConfig& c = engine_->config();
  return fmt::format("whisper: width {}, {} + {} layers, {} mels, {} language{}, {:.1f} MB of weights on {}", c.width,
                     c.encoder_layers, c.decoder_layers, c.mels, languages().size(), languages().size() == 1 ? "" : "s",
                     megabytes, device().to_string());
}

Transcriber load_transcriber(const std::filesystem::path& folder, const LoadOptions& options) {
  const std::string type = io::model_type_of(folder);
  if (type == "moonshine") return Transcriber(std::make_shared<detail::MoonshineEngine>(folder, options));
  if (is_ctc_type(type)) return Transcriber(std::make_shared<detail::CtcEngine>(folder, options));
  return Transcriber(std::make_shared<detail::WhisperEngine>(folder, options));
}

bool is_transcriber(const std::filesystem::path& folder) {
  const std::string type = io::model_type_of(folder);
  return type == "whisper" || type == "moonshine" || is_ctc_type(type);
}

}  // namespace weft::speech
