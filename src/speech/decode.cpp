// The text of one window: greedy, drawn, or the best of several.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "speech/beams.hpp"
#include "speech/decoding.hpp"
#include "speech/moonshine_transcribe.hpp"
#include "weft/error.hpp"

namespace weft::speech {
namespace {

void check(const DecodeOptions& o) {
  constexpr Extent kTextsMax = 64;
  constexpr double kPatienceMax = 16;
  if (!(o.temperature >= 0 && std::isfinite(o.temperature)))
    throw UsageError(fmt::format("decode: a temperature of {}; it must be at least 0", o.temperature));
  if (o.max_tokens < 0) throw UsageError(fmt::format("decode: {} tokens at most; give 0 or more", o.max_tokens));
  if (o.beam_size < 1 || o.beam_size > kTextsMax)
    throw UsageError(fmt::format("decode: {} beams; give 1 to {}", o.beam_size, kTextsMax));
  if (o.best_of < 1 || o.best_of > kTextsMax)
    throw UsageError(fmt::format("decode: the best of {} texts; give 1 to {}", o.best_of, kTextsMax));
  if (!(std::nearbyint(o.patience * static_cast<double>(o.beam_size)) >= 1 && o.patience <= kPatienceMax))
    throw UsageError(
        fmt::format("decode: a patience of {} with {} beams; at least one text must be waited for, and the "
                    "patience is at most {}",
                    o.patience, o.beam_size, kPatienceMax));
  if (o.length_penalty && !(*o.length_penalty >= 0 && *o.length_penalty <= 1))
    throw UsageError(fmt::format("decode: a length penalty of {}; it must be in [0, 1]", *o.length_penalty));
}

/// One text: the most probable tokens, or draws.
Hypothesis write_text(detail::WhisperEngine& engine, TextStart start, const DecodeOptions& options) {
  const WhisperTokens& t = engine.tokens();
  Hypothesis text;
  std::vector<float> logits = std::move(start.logits);
  while (static_cast<Extent>(text.tokens.size()) < start.most && !options.cancel.stop_requested()) {
    apply_rules(logits, text.tokens, t, options.timestamps);
    const double uniform =
        options.temperature > 0 ? uniform_draw(options.seed, options.draw + text.tokens.size(), 0) : 0;
    const Choice choice = choose(logits, options.temperature, uniform);
    text.log_probability += choice.log_probability;
    if (choice.token == t.end) {
      text.has_ended = true;
      break;
    }
    text.tokens.push_back(choice.token);
    if (static_cast<Extent>(text.tokens.size()) == start.most) break;
    const Extent last[] = {0};
    logits = engine.pass({&choice.token, 1}, static_cast<Extent>(start.prompt.size() + text.tokens.size()) - 1, last);
  }
  return text;
}

}  // namespace

Decoded Transcriber::decode(std::span<const std::int32_t> prompt, const DecodeOptions& options) const {
  check(options);
  if (moonshine_) return decode_by_moonshine(*moonshine_, prompt, options);
  const WhisperTokens& t = whisper("decode").tokens();
  const auto vocabulary = static_cast<std::size_t>(this->vocabulary());
  const Extent room = positions() - static_cast<Extent>(prompt.size());
  const bool has_beams = options.temperature == 0 && options.beam_size > 1;
  const bool has_draws = options.temperature > 0 && options.best_of > 1;
  if (has_beams || has_draws) engine_->reserve_sequences(has_beams ? options.beam_size : options.best_of);
  // Silence shows in the token after the start, which comes after the text so far.
  const auto start = std::find(prompt.begin(), prompt.end(), t.start);
  const Extent rows[] = {start == prompt.end() ? 0 : start - prompt.begin(), static_cast<Extent>(prompt.size()) - 1};
  std::vector<float> logits = engine_->pass(prompt, 0, rows);
  Decoded result;
  if (t.no_speech >= 0) result.no_speech_probability = probability_of(std::span(logits).first(vocabulary), t.no_speech);
  logits.erase(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(vocabulary));
  TextStart begun{prompt, std::move(logits), options.max_tokens == 0 ? room : std::min(room, options.max_tokens)};
  Hypothesis text = has_beams   ? search_beams(*engine_, std::move(begun), options)
                    : has_draws ? draw_texts(*engine_, std::move(begun), options)
                                : write_text(*engine_, std::move(begun), options);
  result.mean_log_probability = text.log_probability / static_cast<double>(text.tokens.size() + 1);
  result.has_ended = text.has_ended;
  result.tokens = std::move(text.tokens);
  return result;
}

}  // namespace weft::speech
