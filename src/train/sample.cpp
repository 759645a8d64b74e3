// Drawing a token from logits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/error.hpp"
#include "weft/train/generate.hpp"

namespace weft::train {

void SampleOptions::check() const {
  if (!(temperature >= 0) || std::isinf(temperature))
    throw UsageError(
        fmt::format("temperature {}: it must be a number of at least 0 (0: always the likeliest)", temperature));
  if (top_k < 0) throw UsageError(fmt::format("top-k {}: it must be at least 0 (0: all)", top_k));
  if (!(top_p > 0 && top_p <= 1)) throw UsageError(fmt::format("top-p {}: it must be in (0, 1]", top_p));
}

Token draw_token(std::span<const float> logits, const SampleOptions& options, double uniform) {
  options.check();
  if (logits.empty()) throw UsageError("sampling: no logits");
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (std::isnan(logits[i]))
      throw UsageError(fmt::format(
          "sampling: the logit of token {} is NaN; the model's weights are broken, use an earlier checkpoint", i));

  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  auto likelier = [&](Token a, Token b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  };
  const auto top = *std::min_element(order.begin(), order.end(), likelier);
  if (options.temperature == 0) return top;
  std::stable_sort(order.begin(), order.end(), likelier);
  if (options.top_k > 0) order.resize(std::min<std::size_t>(order.size(), static_cast<std::size_t>(options.top_k)));

  const double largest = static_cast<double>(logits[static_cast<std::size_t>(top)]);
  std::vector<double> weights;
  for (const Token t : order) {
    // Infinite logits share all the probability.
    const double logit = static_cast<double>(logits[static_cast<std::size_t>(t)]);
    weights.push_back(logit == largest ? 1.0 : std::exp((logit - largest) / options.temperature));
  }
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (options.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && sum < options.top_p * total) sum += weights[kept++];
    weights.resize(kept);
    total = sum;
  }
  double left = uniform * total;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[weights.size() - 1];
}

}  // namespace weft::train
