// The face of speech models, and the decoding of one window.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/philox.hpp"
#include "speech/decoding.hpp"
#include "speech/log_mel.hpp"
#include "speech/model_type.hpp"
#include "speech/whisper.hpp"
#include "speech/windows.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech {
namespace {

double uniform_of(std::uint64_t seed, std::uint64_t draw) {
  const auto words = philox::block({static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)},
                                   {static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32), 0,
                                    static_cast<std::uint32_t>(philox::Use::sampling)});
  return philox::to_unit_double(words[0], words[1]);
}

}  // namespace

Tensor Transcriber::features(const audio::Sound& sound, double begin) const {
  if (!(begin >= 0 && begin <= sound.seconds()))
    throw UsageError(fmt::format("features: second {} of a sound of {}", begin, sound.seconds()));
  LogMel mel(engine_->config().mels, engine_->config().frames(), device());
  mel.read(speech_samples(sound));
  return mel.window(static_cast<Extent>(std::lround(begin * kSpeechRate / kHop)));
}

Tensor Transcriber::encode(const Tensor& features) const { return engine_->encode(features); }

std::vector<float> Transcriber::logits(std::span<const std::int32_t> tokens) const {
  return engine_->all_logits(tokens);
}

Decoded Transcriber::decode(std::span<const std::int32_t> prompt, const DecodeOptions& options) const {
  const WhisperTokens& t = engine_->tokens();
  if (!(options.temperature >= 0 && std::isfinite(options.temperature)))
    throw UsageError(fmt::format("decode: a temperature of {}; it must be at least 0", options.temperature));
  if (options.max_tokens < 0)
    throw UsageError(fmt::format("decode: {} tokens at most; give 0 or more", options.max_tokens));
  const Extent room = positions() - static_cast<Extent>(prompt.size());
  const Extent most = options.max_tokens == 0 ? room : std::min(room, options.max_tokens);
  const auto vocabulary = static_cast<std::size_t>(this->vocabulary());
  // Silence shows in the token after the start, which comes after the text so far.
  const auto start = std::find(prompt.begin(), prompt.end(), t.start);
  const Extent rows[] = {start == prompt.end() ? 0 : start - prompt.begin(), static_cast<Extent>(prompt.size()) - 1};
  std::vector<float> logits = engine_->pass(prompt, 0, rows);
  Decoded result;
  if (t.no_speech >= 0) result.no_speech_probability = probability_of(std::span(logits).first(vocabulary), t.no_speech);
  logits.erase(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocabulary));
  double sum = 0;
  while (static_cast<Extent>(result.tokens.size()) < most && !options.cancel.stop_requested()) {
    apply_rules(logits, result.tokens, t, options.timestamps);
    const double uniform = options.temperature > 0 ? uniform_of(options.seed, options.draw + result.tokens.size()) : 0;
    const Choice choice = choose(logits, options.temperature, uniform);
    sum += choice.log_probability;
    if (choice.token == t.end) {
      result.has_ended = true;
      break;
    }
    result.tokens.push_back(choice.token);
    if (static_cast<Extent>(result.tokens.size()) == most) break;
    const Extent last[] = {0};
    logits = engine_->pass({&choice.token, 1}, static_cast<Extent>(prompt.size() + result.tokens.size()) - 1, last);
  }
  result.mean_log_probability = sum / static_cast<double>(result.tokens.size() + 1);
  return result;
}

std::vector<std::int32_t> Transcriber::prompt_tokens(std::string_view language, Task task, bool timestamps) const {
  const WhisperTokens& t = engine_->tokens();
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

const std::vector<std::string>& Transcriber::languages() const { return engine_->languages(); }
bool Transcriber::is_multilingual() const { return !engine_->tokens().languages.empty(); }
llm::Tokenizer Transcriber::tokenizer() const { return engine_->tokenizer(); }
Extent Transcriber::vocabulary() const { return engine_->config().vocabulary; }
Extent Transcriber::positions() const { return engine_->config().target_positions; }
Device Transcriber::device() const { return engine_->device(); }
std::uint64_t Transcriber::weight_bytes() const { return engine_->weight_bytes(); }

std::string Transcriber::describe() const {
  const WhisperConfig& c = engine_->config();
  return fmt::format("whisper: width {}, {} + {} layers, {} mels, {} language{}, {:.1f} MB of weights on {}", c.width,
                     c.encoder_layers, c.decoder_layers, c.mels, languages().size(), languages().size() == 1 ? "" : "s",
                     static_cast<double>(weight_bytes()) / 1e6, device().to_string());
}

Transcriber load_transcriber(const std::filesystem::path& folder, const LoadOptions& options) {
  return Transcriber(std::make_shared<detail::WhisperEngine>(folder, options));
}

bool is_transcriber(const std::filesystem::path& folder) { return model_type_of(folder) == "whisper"; }

}  // namespace weft::speech
