#include "speech/decoding.hpp"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "weft/error.hpp"

namespace weft::speech {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// log sum exp, minus infinity for nothing.
double log_sum(std::span<const float> logits) {
  const float largest = logits.empty() ? kNever : *std::max_element(logits.begin(), logits.end());
  if (!std::isfinite(largest)) return largest;
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l) - largest);
  return largest + std::log(sum);
}

std::span<const float>::iterator largest_of(std::span<const float> logits) {
  const auto best = std::max_element(logits.begin(), logits.end());
  const bool has_nan = std::any_of(logits.begin(), logits.end(), [](float l) { return std::isnan(l); });
  if (has_nan || best == logits.end() || !std::isfinite(*best))
    throw FileError("speech: the model gives logits that are not numbers; are its weights whole?");
  return best;
}

void forbid(std::span<float> logits, std::int64_t begin, std::int64_t end) {
  const auto size = static_cast<std::int64_t>(logits.size());
  begin = std::clamp<std::int64_t>(begin, 0, size), end = std::clamp<std::int64_t>(end, begin, size);
  std::fill(logits.begin() + begin, logits.begin() + end, kNever);
}

void apply_time_rules(std::span<float> logits, std::span<const std::int32_t> written, const WhisperTokens& t) {
  const auto size = static_cast<std::int64_t>(logits.size());
  forbid(logits, t.no_timestamps, t.no_timestamps + 1);
  const std::size_t n = written.size();
  const bool last = n > 0 && t.is_time(written[n - 1]), before_last = n < 2 || t.is_time(written[n - 2]);
  if (last) {
    if (before_last)
      forbid(logits, t.first_time, size);  // a pair is complete, or the text has begun
    else
      forbid(logits, 0, t.end);  // a segment has ended: the next one begins, or the text ends
  }
  for (std::size_t i = n; i-- > 0;)
    if (t.is_time(written[i])) {
      // The next segment may begin where this one ended; any other time lies behind the last one.
      forbid(logits, t.first_time, last && !before_last ? written[i] : written[i] + 1);
      break;
    }
  if (n == 0) {
    forbid(logits, 0, t.first_time);
    if (t.latest_first_time >= 0) forbid(logits, t.first_time + t.latest_first_time + 1, size);
  }
  const auto first = static_cast<std::size_t>(t.first_time);
  const std::span<const float> text = logits.first(first), times = logits.subspan(first);
  if (log_sum(times) > *std::max_element(text.begin(), text.end())) forbid(logits, 0, t.first_time);
}

}  // namespace

void apply_rules(std::span<float> logits, std::span<const std::int32_t> written, const WhisperTokens& tokens,
                 bool timestamps) {
  for (const std::int32_t token : tokens.suppressed) logits[static_cast<std::size_t>(token)] = kNever;
  if (written.empty())
    for (const std::int32_t token : tokens.suppressed_at_first) logits[static_cast<std::size_t>(token)] = kNever;
  if (timestamps && tokens.first_time > 0) apply_time_rules(logits, written, tokens);
}

Choice choose(std::span<const float> logits, double temperature, double uniform) {
  const auto best = largest_of(logits);
  auto token = static_cast<std::size_t>(best - logits.begin());
  if (temperature > 0) {
    const auto weight = [&](float l) { return std::exp((static_cast<double>(l) - *best) / temperature); };
    double total = 0;
    for (const float l : logits) total += weight(l);
    double left = uniform * total;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double w = weight(logits[i]);
      if (w > 0) token = i;  // rounding may leave a rest behind the last one
      if ((left -= w) < 0) break;
    }
  }
  return {static_cast<std::int32_t>(token), static_cast<double>(logits[token]) - log_sum(logits)};
}

std::vector<Choice> best_choices(std::span<const float> logits, std::size_t count) {
  largest_of(logits);
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto logit = [&](std::int32_t token) { return logits[static_cast<std::size_t>(token)]; };
  const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(std::min(count, tokens.size()));
  std::partial_sort(tokens.begin(), end, tokens.end(),
                    [&](std::int32_t a, std::int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; });
  const double sum = log_sum(logits);
  std::vector<Choice> choices;
  for (auto token = tokens.begin(); token != end && std::isfinite(logit(*token)); ++token)
    choices.push_back({*token, static_cast<double>(logit(*token)) - sum});
  return choices;
}

double probability_of(std::span<const float> logits, std::int32_t token) {
  return std::exp(static_cast<double>(logits[static_cast<std::size_t>(token)]) - log_sum(logits));
}

double compression_ratio(const std::string& text) {
  if (text.empty()) return 0;
  uLongf size = compressBound(static_cast<uLong>(text.size()));
  std::vector<Bytef> packed(size);
  if (compress(packed.data(), &size, reinterpret_cast<const Bytef*>(text.data()), static_cast<uLong>(text.size())) !=
      Z_OK)
    throw InternalError("speech: zlib cannot pack a text");
  return static_cast<double>(text.size()) / static_cast<double>(size);
}

}  // namespace weft::speech
