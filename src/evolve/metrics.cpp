#include "weft/evolve/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::evolve {

namespace {
constexpr double kWindowsMax = 1'000'000;
}  // namespace

double deviation(double actual, double expected) {
  const double difference = std::fabs(actual - expected);
  const double percent = std::fabs(expected) < 1e-10 ? difference * 100 : difference / std::fabs(expected) * 100;
  return std::isfinite(percent) ? percent : 100;
}

void DeviationMetrics::add(double actual, double expected) {
  const double d = deviation(actual, expected);
  ++count_;
  exact_ += actual == expected;
  ++counts_[static_cast<std::size_t>(std::lower_bound(kDeviationLimits.begin(), kDeviationLimits.end(), d) -
                                     kDeviationLimits.begin())];
  score_ += std::max(0.0, 100 - d);
  total_ += d;
}

void DeviationMetrics::add_scores(std::span<const float> scores, std::int64_t expected) {
  if (scores.empty()) throw UsageError("deviation: there are no scores");
  std::size_t largest = 0;
  for (std::size_t i = 1; i < scores.size(); ++i)
    if (scores[i] > scores[largest] || (std::isnan(scores[largest]) && !std::isnan(scores[i]))) largest = i;
  add(static_cast<double>(largest), static_cast<double>(expected));
}

double DeviationMetrics::score() const { return count_ > 0 ? score_ / static_cast<double>(count_) : 0; }
double DeviationMetrics::accuracy() const {
  return count_ > 0 ? static_cast<double>(exact_) / static_cast<double>(count_) : 0;
}
double DeviationMetrics::mean_deviation() const { return count_ > 0 ? total_ / static_cast<double>(count_) : 0; }

DeviationMetrics evaluate(const grid::Network& network, const Tensor& x, const Tensor& targets) {
  const Tensor y = network(x);
  const bool are_classes = targets.dtype() == DType::i32 && y.rank() == 2 && targets.shape() == Shape{y.dim(0)};
  if (!are_classes && targets.shape() != y.shape())
    throw ShapeError(
        fmt::format("evaluate: the output is {} and the targets are {} {}; give targets of its shape, or classes i32 "
                    "[batch]",
                    y.shape().to_string(), weft::name_of(targets.dtype()), targets.shape().to_string()));
  DeviationMetrics metrics;
  const std::vector<float> actual = y.to_vector<float>();
  if (are_classes) {
    const std::vector<std::int32_t> expected = targets.to_vector<std::int32_t>();
    const auto width = static_cast<std::size_t>(y.dim(1));
    for (std::size_t i = 0; i < expected.size(); ++i)
      metrics.add_scores(std::span(actual).subspan(i * width, width), expected[i]);
    return metrics;
  }
  const std::vector<float> expected = targets.to_vector<float>();
  for (std::size_t i = 0; i < actual.size(); ++i)
    metrics.add(static_cast<double>(actual[i]), static_cast<double>(expected[i]));
  return metrics;
}

std::size_t best_method(std::span<const MethodResult> results) {
  if (results.empty()) throw UsageError("best method: there are none");
  std::size_t best = 0;
  for (std::size_t i = 1; i < results.size(); ++i) {
    const MethodResult &a = results[i], &b = results[best];
    if (a.accuracy > b.accuracy + 1 || (a.accuracy >= b.accuracy - 1 && a.loss < b.loss)) best = i;
  }
  return best;
}

AdaptationTracker::AdaptationTracker(double window, double start) : window_(window), start_(start), last_(start) {
  if (!(window > 0) || !std::isfinite(start))
    throw UsageError(fmt::format("adaptation tracker: windows of {} seconds from {} on", window, start));
}

void AdaptationTracker::check_time(double time) {
  if (!(time >= last_)) throw UsageError(fmt::format("adaptation tracker: time {} is before {}", time, last_));
  last_ = time;
}

void AdaptationTracker::change_task(std::string name, double time) {
  check_time(time);
  tasks_.emplace_back(std::move(name), time);
}

void AdaptationTracker::record(bool correct, double time) {
  if (!((time - start_) / window_ < kWindowsMax))
    throw UsageError(
        fmt::format("adaptation tracker: time {} is more than {} windows after the start", time, kWindowsMax));
  check_time(time);
  outputs_.push_back({time, correct});
}

std::vector<AdaptationTracker::Window> AdaptationTracker::windows() const {
  std::vector<Window> windows;
  if (outputs_.empty()) return windows;
  const auto index = [&](double time) { return static_cast<std::size_t>((time - start_) / window_); };
  windows.resize(index(outputs_.back().time) + 1);
  for (const Output& output : outputs_) {
    Window& w = windows[index(output.time)];
    ++w.outputs;
    w.accuracy += output.correct;
  }
  for (std::size_t i = 0; i < windows.size(); ++i) {
    Window& w = windows[i];
    w.start = start_ + static_cast<double>(i) * window_;
    if (w.outputs > 0) w.accuracy /= static_cast<double>(w.outputs);
    w.rate = static_cast<double>(w.outputs) / window_;
    for (const auto& [name, time] : tasks_)
      if (time < w.start + window_) w.task = name;
  }
  return windows;
}

std::vector<AdaptationTracker::Change> AdaptationTracker::changes() const {
  const std::vector<Window> all = windows();
  std::vector<Change> changes;
  for (const auto& [name, time] : tasks_) {
    Change change{name, time, -1};
    const Window* before = nullptr;
    for (const Window& w : all)
      if (w.start + window_ <= time && w.outputs > 0) before = &w;
    for (const Window& w : all)
      if (before && w.start >= time && w.outputs > 0 && w.accuracy >= before->accuracy) {
        change.recovery = w.start + window_ - time;
        break;
      }
    changes.push_back(std::move(change));
  }
  return changes;
}

}  // namespace weft::evolve
