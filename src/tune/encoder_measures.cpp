// Accuracy, F1 and correlations of text encoders.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <string_view>
#include <tuple>

#include "tune/encoder_losses.hpp"

namespace weft::tune {
namespace {

constexpr std::int32_t kUncounted = -100;

/// Ranks from 0; equal values share the mean of theirs.
std::vector<double> ranks_of(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (std::size_t begin = 0; begin < order.size();) {
    std::size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    for (std::size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return ranks;
}

double correlation(std::span<const double> x, std::span<const double> y) {
  const auto n = static_cast<double>(x.size());
  const double mean_x = std::accumulate(x.begin(), x.end(), 0.0) / n,
               mean_y = std::accumulate(y.begin(), y.end(), 0.0) / n;
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

std::int32_t place_of_largest(std::span<const float> scores) {
  return static_cast<std::int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
}

/// Spans of words with one class: B- begins one, I- goes on, and so does another class while it stays the same.
using Spans = std::set<std::tuple<std::size_t, std::size_t, std::string_view>>;
Spans spans_of(std::span<const std::int32_t> words, const std::vector<std::string>& classes) {
  Spans spans;
  std::size_t begin = 0;
  std::string_view kind;  // of the span that is open; empty: none
  for (std::size_t i = 0; i <= words.size(); ++i) {
    const std::string_view name = i < words.size() && words[i] != kUncounted
                                      ? std::string_view(classes[static_cast<std::size_t>(words[i])])
                                      : "O";
    const bool begins = name.starts_with("B-"), goes_on = name.starts_with("I-");
    const std::string_view own = name == "O" ? "" : begins || goes_on ? name.substr(2) : name;
    if (own == kind && !begins) continue;
    if (!kind.empty()) spans.emplace(begin, i, kind);
    begin = i;
    kind = own;
  }
  return spans;
}

}  // namespace

double spearman(std::span<const double> x, std::span<const double> y) {
  const std::vector<double> a = ranks_of(x), b = ranks_of(y);
  return correlation(a, b);
}

void Measures::count_class(std::int32_t made, std::int32_t wanted) {
  counts_.resize(classes_.size());
  right_ += made == wanted ? 1 : 0;
  ++count_;
  counts_[static_cast<std::size_t>(made)].made += 1;
  counts_[static_cast<std::size_t>(wanted)].wanted += 1;
  if (made == wanted) counts_[static_cast<std::size_t>(made)].right += 1;
}

void Measures::add_words(const EncoderExample& example, const std::vector<std::int32_t>& made) {
  counts_.resize(1);
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (made[i] == kUncounted) continue;
    right_ += made[i] == example.classes[i] ? 1 : 0;
    ++count_;
  }
  std::vector<std::int32_t> wanted = example.classes;
  for (std::size_t i = 0; i < made.size(); ++i)
    if (made[i] == kUncounted) wanted[i] = kUncounted;
  const Spans of_model = spans_of(made, classes_), of_data = spans_of(wanted, classes_);
  counts_[0].made += static_cast<double>(of_model.size());
  counts_[0].wanted += static_cast<double>(of_data.size());
  for (const auto& span : of_model) counts_[0].right += of_data.contains(span) ? 1 : 0;
}

void Measures::add(std::span<const EncoderExample> examples, double loss, const std::vector<float>& scores,
                   const std::vector<std::vector<std::int32_t>>& firsts, Extent length) {
  const std::size_t columns = objective_ == Objective::tokens ? classes_.size() : scores.size() / examples.size();
  double weight = static_cast<double>(examples.size());
  if (objective_ == Objective::tokens) weight = 0;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const EncoderExample& example = examples[i];
    const std::span<const float> row =
        std::span(scores).subspan(objective_ == Objective::tokens ? 0 : i * columns, columns);
    switch (objective_) {
      case Objective::single_label: count_class(place_of_largest(row), example.classes[0]); break;
      case Objective::multi_label: {
        counts_.resize(1);
        bool is_right = true;
        for (std::size_t c = 0; c < columns; ++c) {
          const bool wanted = std::find(example.classes.begin(), example.classes.end(), static_cast<std::int32_t>(c)) !=
                              example.classes.end();
          const bool made = row[c] > 0;
          is_right = is_right && made == wanted;
          counts_[0].made += made ? 1 : 0;
          counts_[0].wanted += wanted ? 1 : 0;
          counts_[0].right += made && wanted ? 1 : 0;
        }
        right_ += is_right ? 1 : 0;
        ++count_;
        break;
      }
      case Objective::tokens: {
        std::vector<std::int32_t> made(example.texts.size(), kUncounted);
        for (std::size_t w = 0; w < made.size(); ++w) {
          if (firsts[i][w] < 0 || example.classes[w] == kUncounted) continue;
          const std::size_t at = i * static_cast<std::size_t>(length) + static_cast<std::size_t>(firsts[i][w]);
          made[w] = place_of_largest(std::span(scores).subspan(at * columns, columns));
          weight += 1;
        }
        add_words(example, made);
        break;
      }
      case Objective::ranking:
        right_ += place_of_largest(row) == static_cast<std::int32_t>(i) ? 1 : 0;
        ++count_;
        break;
      case Objective::cross_encoder:
        right_ += (row[0] > 0) == (example.value > 0.5) ? 1 : 0;
        ++count_;
        [[fallthrough]];
      case Objective::regression:
      case Objective::cosine:
      case Objective::cosent:
        values_.push_back(row[0]);
        wanted_.push_back(example.value);
        break;
    }
  }
  loss_ += loss * weight;
  weight_ += weight;
}

Measured Measures::result() const {
  Measured made{.loss = loss_ / std::max(weight_, 1.0)};
  if (count_ > 0) made.accuracy = right_ / count_;
  if (!values_.empty()) made.spearman = spearman(values_, wanted_);
  double sum = 0, classes = 0;
  for (const Counts& counts : counts_) {
    if (counts.made + counts.wanted == 0) continue;  // a class that neither has
    sum += 2 * counts.right / (counts.made + counts.wanted);
    ++classes;
  }
  if (!counts_.empty()) made.f1 = classes > 0 ? sum / classes : 0;
  return made;
}

}  // namespace weft::tune
