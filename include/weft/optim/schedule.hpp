// Learning rates over time: data, not closures.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace weft::optim {

/// A learning rate as a function of the step: a rise over `warm_up` steps, then one of the kinds below, whose steps count from
/// the end of the rise. Steps count from 0 and may be fractions, so that a schedule can follow time.
struct Schedule {
  enum class Kind : std::uint8_t {
    constant,
    linear,
    cosine,
    staircase,
    multi_step,
    exponential,
    polynomial,
    restarts,
    one_cycle,
    cyclic
  };
  Kind kind = Kind::constant;
  double rate = 1e-3;     // the highest rate
  double final_rate = 0;  // linear, cosine, polynomial, restarts, one_cycle: the last rate; cyclic: the lowest one
  double steps = 0;       // linear, cosine, polynomial, one_cycle: from the first step of the rise to the last
  double warm_up = 0;     // step s < warm_up has rate * (s + 1) / warm_up
  double factor = 1;      // staircase, multi_step, exponential: of each fall; restarts: of periods; cyclic: of heights
  double every = 0;       // staircase: steps between falls; restarts: of the first period; cyclic: of a cycle
  std::vector<double> milestones = {};  // multi_step: steps of the falls, ascending
  double power = 1;                     // polynomial
  double first_rate = 0;                // one_cycle
  double rise = 0;                      // one_cycle, cyclic: steps of the rise
  bool straight = false;                // one_cycle: lines in place of half cosines
  std::vector<Schedule> next = {};      // what follows
  double begins = 0;                    // the step at which this one begins, of schedules in `next`

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
  /// rate * factor^step.
  static Schedule exponential(double rate, double factor) {
    return {.kind = Kind::exponential, .rate = rate, .factor = factor};
  }
  /// final_rate + (rate - final_rate) * (1 - step / steps)^power.
  static Schedule polynomial(double rate, double final_rate, double steps, double power) {
    return {.kind = Kind::polynomial, .rate = rate, .final_rate = final_rate, .steps = steps, .power = power};
  }
  /// Half cosines from `rate` to `final_rate`, one after another; the first takes `period` steps, and each `growth` times as many as
  /// the one before it (growth >= 1). Source: Loshchilov and Hutter 2016, arXiv:1608.03983.
  static Schedule restarts(double rate, double final_rate, double period, double growth = 1) {
    return {.kind = Kind::restarts, .rate = rate, .final_rate = final_rate, .factor = growth, .every = period};
  }
  /// Half a cosine from first_rate up to `rate`, whose last step is rise - 1, and one down to final_rate at step steps - 1;
  /// lines if `straight`. Source: Smith and Topin 2017, arXiv:1708.07120.
  static Schedule one_cycle(double rate, double steps, double rise, double first_rate, double final_rate,
                            bool straight = false) {
    return {.kind = Kind::one_cycle,
            .rate = rate,
            .final_rate = final_rate,
            .steps = steps,
            .first_rate = first_rate,
            .rise = rise,
            .straight = straight};
  }
  /// Lines from `low` up to `rate` over `rise` steps and down again over `fall` steps, again and again. The height of each cycle is
  /// `factor` times that of the one before. Source: Smith 2015, arXiv:1506.01186.
  static Schedule cyclic(double low, double rate, double rise, double fall, double factor = 1) {
    return {
        .kind = Kind::cyclic, .rate = rate, .final_rate = low, .factor = factor, .every = rise + fall, .rise = rise};
  }
  /// The same schedule with a rise before it.
  Schedule with_warm_up(double warm_up_steps) const {
    Schedule copy = *this;
    copy.warm_up = warm_up_steps;
    return copy;
  }
  /// This schedule until `step`, and then another, which counts its steps from there.
  Schedule then(double step, Schedule other) const {
    Schedule copy = *this;
    other.begins = step;
    copy.next.push_back(std::move(other));
    return copy;
  }

  /// The learning rate of that step.
  double at(double step) const;
  /// Errors  UsageError: a negative or infinite number, a fall over zero steps, milestones or schedules out of order.
  void check() const;
  bool operator==(const Schedule&) const = default;
};

struct PlateauOptions {
  double rate = 1e-3;  // the first one
  bool maximize = false;
  double factor = 0.1;         // in (0, 1)
  std::int64_t patience = 10;  // measures without progress that are waited for
  double threshold = 1e-4;     // least progress, as a share of the best measure
  bool absolute = false;       // the threshold is a difference, not a share
  std::int64_t cooldown = 0;   // measures after a fall that are not looked at
  double least_rate = 0;
  double least_change = 1e-8;  // smaller falls are left out
};
/// A learning rate that falls by `factor` when a measure, such as the loss of validation, makes no progress.
class Plateau {
 public:
  /// Errors  UsageError: a number out of its range.
  explicit Plateau(PlateauOptions options = {});
  /// Takes the measure of an epoch, and gives the rate of the next one. A NaN counts as no progress.
  double update(double measure);

  struct State {
    double rate = 0;
    double best = std::numeric_limits<double>::infinity();  // of maximize: times -1
    std::int64_t bad = 0, cooldown = 0;  // measures without progress in a row; measures left to leave out
    bool operator==(const State&) const = default;
  };
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }
  double rate() const { return state_.rate; }

 private:
  PlateauOptions options_;
  State state_;
};

}  // namespace weft::optim
