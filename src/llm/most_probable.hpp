// Probabilities of tokens, from logits on the host.
#pragma once

#include <span>
#include <vector>

#include "weft/llm.hpp"

namespace weft::llm {

/// log sum exp(l) over a row of logits; the log-probability of token i is l[i] less that.
double log_total(std::span<const float> logits);
/// The `count` most probable tokens, or all if there are fewer, the most probable first; ties by id. `total` is log_total.
std::vector<TokenProbability> most_probable(std::span<const float> logits, Extent count, double total);

}  // namespace weft::llm
