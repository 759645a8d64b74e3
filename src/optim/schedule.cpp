#include "weft/optim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/error.hpp"

namespace weft::optim {

namespace {

// From `first` to `last` along a line or half a cosine.
double between(double first, double last, double share, bool straight) {
  const double rest = straight ? 1 - share : 0.5 * (1 + std::cos(std::numbers::pi * share));
  return last + (first - last) * rest;
}

}  // namespace

double Schedule::at(double step) const {
  for (auto later = next.rbegin(); later != next.rend(); ++later)
    if (step >= later->begins) return later->at(step - later->begins);
  if (step < warm_up) return rate * std::min(1.0, (step + 1) / warm_up);
  const double since = step - warm_up;
  switch (kind) {
    case Kind::constant: return rate;
    case Kind::staircase: return rate * std::pow(factor, std::floor(since / every));
    case Kind::exponential: return rate * std::pow(factor, since);
    case Kind::multi_step: {
      const auto passed = std::upper_bound(milestones.begin(), milestones.end(), since) - milestones.begin();
      return rate * std::pow(factor, static_cast<double>(passed));
    }
    case Kind::restarts: {
      if (factor == 1) return between(rate, final_rate, std::fmod(since, every) / every, false);
      // The periods before are every * (factor^n - 1) / (factor - 1) steps. Rounding may give a start one period late.
      double n = std::floor(std::log1p(since / every * (factor - 1)) / std::log(factor) + 1e-9);
      const auto start = [&](double count) { return every * (std::pow(factor, count) - 1) / (factor - 1); };
      if (n > 0 && start(n) > since) n -= 1;
      return between(rate, final_rate, std::min(1.0, (since - start(n)) / (every * std::pow(factor, n))), false);
    }
    case Kind::one_cycle: {
      const double top = rise - 1, end = steps - warm_up - 1;
      if (since < top) return between(first_rate, rate, since / top, straight);
      return between(rate, final_rate, end > top ? std::min(1.0, (since - top) / (end - top)) : 1, straight);
    }
    case Kind::cyclic: {
      const double cycle = std::floor(since / every), within = since - cycle * every;
      const double height = within <= rise ? within / rise : (every - within) / (every - rise);
      return final_rate + (rate - final_rate) * height * std::pow(factor, cycle);
    }
    case Kind::linear:
    case Kind::cosine:
    case Kind::polynomial: break;
  }
  const double length = steps - warm_up;
  const double progress = length > 0 ? std::clamp(since / length, 0.0, 1.0) : 1.0;
  if (kind == Kind::polynomial) return final_rate + (rate - final_rate) * std::pow(1 - progress, power);
  if (kind == Kind::linear) return rate + (final_rate - rate) * progress;
  return between(rate, final_rate, progress, false);
}

void Schedule::check() const {
  const std::pair<const char*, double> numbers[] = {{"rate", rate},       {"final_rate", final_rate}, {"steps", steps},
                                                    {"warm_up", warm_up}, {"factor", factor},         {"every", every},
                                                    {"power", power},     {"first_rate", first_rate}, {"rise", rise},
                                                    {"begins", begins}};
  for (const auto& [name, value] : numbers)
    if (!(value >= 0) || std::isinf(value))
      throw UsageError(fmt::format("schedule: {} is {}; it must be a number of at least 0", name, value));
  const bool falls_once =
      kind == Kind::linear || kind == Kind::cosine || kind == Kind::polynomial || kind == Kind::one_cycle;
  if (falls_once && steps <= 0) throw UsageError("schedule: a fall needs at least one step");
  if (kind == Kind::staircase && every <= 0) throw UsageError("schedule: the steps from fall to fall must be above 0");
  if (kind == Kind::restarts && !(every > 0 && factor >= 1))
    throw UsageError("schedule: restarts need a period above 0 that grows by a factor of at least 1");
  if (kind == Kind::cyclic && !(rise > 0 && every > rise))
    throw UsageError("schedule: the steps of a cycle's rise and fall must be above 0");
  if (!std::is_sorted(milestones.begin(), milestones.end())) throw UsageError("schedule: milestones must ascend");
  double last = 0;
  for (const Schedule& later : next) {
    if (later.begins <= last) throw UsageError("schedule: each schedule must begin after the one before it");
    last = later.begins;
    later.check();
  }
}

Plateau::Plateau(PlateauOptions options) : options_(options) {
  for (const auto& [name, value] : {std::pair{"rate", options.rate},
                                    {"threshold", options.threshold},
                                    {"least_rate", options.least_rate},
                                    {"least_change", options.least_change}})
    if (!(value >= 0) || std::isinf(value))
      throw UsageError(fmt::format("plateau: {} is {}; it must be a number of at least 0", name, value));
  if (!(options.factor > 0 && options.factor < 1))
    throw UsageError(fmt::format("plateau: factor is {}; it must be in (0, 1)", options.factor));
  if (options.patience < 0 || options.cooldown < 0)
    throw UsageError("plateau: patience and cooldown must be at least 0");
  state_.rate = options.rate;
}

double Plateau::update(double measure) {
  const double value = options_.maximize ? -measure : measure;
  const double least = options_.absolute ? options_.threshold : options_.threshold * std::abs(state_.best);
  // The first measure is compared with infinity, which has no relative threshold.
  if (std::isinf(state_.best) ? value < state_.best : value < state_.best - least) {
    state_.best = value;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.bad = 0;
  }
  if (state_.bad > options_.patience) {
    const double next = std::max(state_.rate * options_.factor, options_.least_rate);
    if (state_.rate - next > options_.least_change) state_.rate = next;
    state_.cooldown = options_.cooldown;
    state_.bad = 0;
  }
  return state_.rate;
}

}  // namespace weft::optim
