// The rules of Whisper's texts, on the logits of one token: what may come next, and the choice.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "speech/whisper_config.hpp"

namespace weft::speech {

/// Sets the logits of tokens that may not come next to minus infinity. `written` are the tokens after the prompt.
///
/// Some tokens are never written, and some not at first. Without times, only the rule of suppressed tokens applies. With times: a text
/// begins with a time, at most `latest_first_time`. Times come in pairs, the end of a segment and the beginning of the next one, or
/// before the end of the text. They never go back, and a segment is not empty. If all times together are more probable than the most
/// probable token of text, a time comes next.
void apply_rules(std::span<float> logits, std::span<const std::int32_t> written, const WhisperTokens& tokens,
                 bool timestamps);

struct Choice {
  std::int32_t token = -1;
  double log_probability = 0;  ///< at temperature 1
};
/// The most probable token (the first of equal ones), or a draw at a temperature; `uniform` is in [0, 1).
/// FileError if a logit is NaN, or if no token may come.
Choice choose(std::span<const float> logits, double temperature, double uniform);

/// The most probable tokens, at most `count` and the most probable one first; tokens that may not come are left out. Errors as `choose`.
std::vector<Choice> best_choices(std::span<const float> logits, std::size_t count);

/// The share of a token in the softmax of a row of logits.
double probability_of(std::span<const float> logits, std::int32_t token);

/// Bytes of a text by bytes of the text packed by zlib; 0 for no text.
double compression_ratio(const std::string& text);

}  // namespace weft::speech
