// Learning rates over time: data, not closures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::optim {

/// A learning rate as a function of the step: a rise over `warm_up` steps, then one of the kinds below, whose steps count from
/// the end of the rise. Steps count from 0 and may be fractions, so that a schedule can follow time.
struct Schedule {
  enum class Kind : std::uint8_t { constant, linear, cosine, staircase, multi_step };
  Kind kind = Kind::constant;
  double rate = 1e-3;                   // the highest rate
  double final_rate = 0;                // linear, cosine: the rate at `steps` and after
  double steps = 0;                     // linear, cosine: from the first step of the rise to the last step of the fall
  double warm_up = 0;                   // step s < warm_up has rate * (s + 1) / warm_up
  double factor = 1;                    // staircase, multi_step: factor of each fall
  double every = 0;                     // staircase: steps between falls
  std::vector<double> milestones = {};  // multi_step: steps of the falls, ascending

  static Schedule constant(double rate) { return {Kind::constant, rate}; }
  /// A straight line from `rate` to `final_rate`.
  static Schedule linear(double rate, double final_rate, double steps) {
    return {Kind::linear, rate, final_rate, steps};
  }
  /// Half a cosine from `rate` to `final_rate`. Source: Loshchilov and Hutter 2016, arXiv:1608.03983.
  static Schedule cosine(double rate, double final_rate, double steps) {
    return {Kind::cosine, rate, final_rate, steps};
  }
  /// rate * factor^floor(step / every).
  static Schedule staircase(double rate, double factor, double every) {
    return {.kind = Kind::staircase, .rate = rate, .factor = factor, .every = every};
  }
  /// rate * factor^(milestones passed).
  static Schedule multi_step(double rate, double factor, std::vector<double> milestones) {
    return {.kind = Kind::multi_step, .rate = rate, .factor = factor, .milestones = std::move(milestones)};
  }
  /// The same schedule with a rise before it.
  Schedule with_warm_up(double warm_up_steps) const {
    Schedule copy = *this;
    copy.warm_up = warm_up_steps;
    return copy;
  }

  /// The learning rate of that step.
  double at(double step) const;
  /// Errors  UsageError: a negative or infinite number, a fall over zero steps, milestones out of order.
  void check() const;
  bool operator==(const Schedule&) const = default;
};

}  // namespace weft::optim
