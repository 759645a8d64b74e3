#include "tune/preference.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "weft/error.hpp"
#include "weft/nn/losses.hpp"
#include "weft/ops.hpp"

namespace weft::tune {
namespace {

/// What chosen texts have more than rejected ones: [rows, n] -> [rows / 2, n].
Tensor chosen_less_rejected(const Tensor& x) {
  const Tensor sides = reshape(x, {x.dim(0) / 2, 2, x.dim(1)});
  return select(sides, 1, 0) - select(sides, 1, 1);
}

Tensor kept(const Tensor& is_there, const Tensor& x) { return elementwise("where", {is_there, x, scalar_like(0, x)}); }

/// The loss of each preference; `h` and `per_token` are differences of log-ratios.
Tensor each_loss(const Tensor& h, const Tensor& per_token, const PreferenceOptions& o) {
  if (o.loss == PreferenceLoss::ipo) {
    const Tensor apart = per_token - 1 / (2 * o.beta);
    return apart * apart;
  }
  const Tensor right = elementwise("log_sigmoid", {h * o.beta}) * -(1 - o.label_smoothing);
  return o.label_smoothing == 0 ? right : right - elementwise("log_sigmoid", {h * -o.beta}) * o.label_smoothing;
}

}  // namespace

PreferenceLoss preference_loss_named(std::string_view name) {
  if (name == "sigmoid") return PreferenceLoss::sigmoid;
  if (name == "ipo") return PreferenceLoss::ipo;
  throw UsageError(
      fmt::format("tune: no loss of preferences is called {}; there are sigmoid and ipo", quote(name, 40)));
}

TextScores text_scores(const Tensor& logits, const Tensor& targets, const Tensor& texts, Extent rows) {
  const Extent tokens = targets.dim(0) / rows;
  const auto by_row = [&](const Tensor& x) { return reshape(x, {rows, 1, tokens}); };
  const Tensor losses =
      nn::cross_entropy(logits, targets, {.ignore_index = Rows::kIgnored, .reduction = nn::Reduction::none});
  const Tensor is_of_text = elementwise(
      "eq", {by_row(texts), reshape(arange(Rows::kTextsMax, DType::i32, texts.device()), {1, Rows::kTextsMax, 1})});
  const Tensor counts = cast(elementwise("ne", {targets, scalar_like(Rows::kIgnored, targets)}), DType::f32);
  return {sum(kept(is_of_text, by_row(losses)), {2}) * -1.0, sum(kept(is_of_text, by_row(counts)), {2})};
}

std::vector<Tensor> preference_loss(const TextScores& scores, const Tensor& reference, const Tensor& pairs,
                                    const PreferenceOptions& options) {
  const Tensor ratios = scores.log_probabilities - reference, is_there = pairs >= 0.0;
  const Tensor h = chosen_less_rejected(ratios),
               per_token =
                   chosen_less_rejected(ratios / elementwise("maximum", {scores.counts, scalar_like(1, ratios)}));
  const Tensor number = sum(cast(is_there, DType::f32));
  const auto mean_of = [&](const Tensor& each) { return sum(kept(is_there, each)) / number; };
  return {mean_of(each_loss(h, per_token, options)), mean_of(cast(h > 0.0, DType::f32)), mean_of(h * options.beta)};
}

}  // namespace weft::tune
