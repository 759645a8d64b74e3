#include "llm/most_probable.hpp"

#include <algorithm>
#include <cmath>

namespace weft::llm {

double log_total(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (const float l : logits) total += std::exp(l - top);
  return std::log(total) + top;
}

std::vector<TokenProbability> most_probable(std::span<const float> logits, Extent count, double total) {
  std::vector<TokenProbability> best;  // with logits at first, in order
  const auto most = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (best.size() == most && !(most > 0 && logits[i] > best.back().log_probability)) continue;
    if (best.size() == most) best.pop_back();
    const auto after = std::upper_bound(best.begin(), best.end(), logits[i],
                                        [](float l, const TokenProbability& t) { return l > t.log_probability; });
    best.insert(after, {static_cast<std::int32_t>(i), logits[i]});
  }
  for (TokenProbability& token : best) token.log_probability = static_cast<float>(token.log_probability - total);
  return best;
}

}  // namespace weft::llm
