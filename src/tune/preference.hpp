// Losses of preferences: which of two texts the model finds more likely, beside a reference.
#pragma once

#include <vector>

#include "weft/tune.hpp"

namespace weft::tune {

/// Of the texts of rows, f32 [rows, Rows::kTextsMax]; 0 where there is no text.
struct TextScores {
  Tensor log_probabilities;  ///< the sum over tokens that count
  Tensor counts;             ///< how many tokens those are
};
/// logits f32 [rows * T, vocabulary], targets and numbers of texts i32 [rows * T].
TextScores text_scores(const Tensor& logits, const Tensor& targets, const Tensor& texts, Extent rows);

/// The mean loss, the share of preferences whose chosen text has the larger reward, and the mean difference of rewards, all f32 of
/// rank 0. `reference` is [rows, Rows::kTextsMax], `pairs` i32 [rows / 2, Rows::kTextsMax], negative where there is none.
/// Gradient: of the loss, to the log-probabilities.
std::vector<Tensor> preference_loss(const TextScores& scores, const Tensor& reference, const Tensor& pairs,
                                    const PreferenceOptions& options);

}  // namespace weft::tune
