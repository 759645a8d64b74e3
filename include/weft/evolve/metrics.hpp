// How far predictions are from what was expected, which of two methods did better, and how fast a network adapts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/grid/network.hpp"

namespace weft::evolve {

/// The deviation of a prediction in percent: |actual - expected| / |expected| * 100, or |actual - expected| * 100 where |expected| is
/// below 1e-10; 100 where it is NaN or infinite.
double deviation(double actual, double expected);

/// The upper ends of the ranges that deviations are counted in; the last range has none.
inline constexpr std::array kDeviationLimits = {10.0, 20.0, 30.0, 40.0, 50.0, 100.0};

/// Deviations of many predictions.
class DeviationMetrics {
 public:
  void add(double actual, double expected);
  /// One example whose answer is a vector: a class is expected, and actual scores were given. Compares the position of the largest
  /// score (the first of equals; NaN is never largest) with that class. Errors: UsageError for no scores.
  void add_scores(std::span<const float> scores, std::int64_t expected);

  std::int64_t count() const { return count_; }
  /// Predictions with deviations in [0, 10], (10, 20], (20, 30], (30, 40], (40, 50], (50, 100] and above.
  const std::array<std::int64_t, kDeviationLimits.size() + 1>& counts() const { return counts_; }
  /// The mean of max(0, 100 - deviation); 0 without predictions.
  double score() const;
  /// Predictions above 100 percent.
  std::int64_t failures() const { return counts_.back(); }
  /// The share that was exact.
  double accuracy() const;
  double mean_deviation() const;

 private:
  std::int64_t count_ = 0, exact_ = 0;
  std::array<std::int64_t, kDeviationLimits.size() + 1> counts_{};
  double score_ = 0, total_ = 0;
};

/// The deviations of a network's output from targets of its shape; or of i32 targets [batch], the classes of scores [batch, n].
/// Errors  ShapeError: targets of another shape. Others as a pass
DeviationMetrics evaluate(const grid::Network& network, const Tensor& x, const Tensor& targets);

/// A method that was tried: what it reached.
struct MethodResult {
  std::string name;
  double accuracy = 0;  ///< in percent
  double loss = 0;
  double seconds = 0;
};
/// The index of the best: an accuracy that is more than one point above that of another wins, otherwise the lower loss. Methods are
/// compared in their order, each with the best so far. Errors: UsageError for none.
std::size_t best_method(std::span<const MethodResult> results);

/// Accuracy over time, in windows, while tasks change.
class AdaptationTracker {
 public:
  /// Windows of so many seconds, the first from `start` on. Errors: UsageError unless window > 0.
  explicit AdaptationTracker(double window, double start = 0);

  /// Another task begins. Errors: UsageError for a time before that of an earlier call, here and below.
  void change_task(std::string name, double time);
  void record(bool correct, double time);

  struct Window {
    double start = 0;
    std::int64_t outputs = 0;
    double accuracy = 0;  ///< share of correct outputs; 0 without outputs
    double rate = 0;      ///< outputs per second
    std::string task;     ///< at the end of the window
  };
  struct Change {
    std::string task;
    double time = 0;
    /// Seconds until a window that began after the change was as accurate as the last whole one before; negative if none was.
    double recovery = -1;
  };
  /// All windows up to the one with the last output, empty ones included.
  std::vector<Window> windows() const;
  std::vector<Change> changes() const;

 private:
  struct Output {
    double time;
    bool correct;
  };
  void check_time(double time);

  double window_, start_, last_;
  std::vector<Output> outputs_;
  std::vector<std::pair<std::string, double>> tasks_;
};

}  // namespace weft::evolve
