#include "weft/optim/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "weft/error.hpp"

namespace weft::optim {

double Schedule::at(double step) const {
  if (step < warm_up) return rate * std::min(1.0, (step + 1) / warm_up);
  const double since = step - warm_up;
  switch (kind) {
    case Kind::constant: return rate;
    case Kind::staircase: return rate * std::pow(factor, std::floor(since / every));
    case Kind::multi_step: {
      const auto passed = std::upper_bound(milestones.begin(), milestones.end(), since) - milestones.begin();
      return rate * std::pow(factor, static_cast<double>(passed));
    }
    case Kind::linear:
    case Kind::cosine: break;
  }
  const double length = steps - warm_up;
  const double progress = length > 0 ? std::clamp(since / length, 0.0, 1.0) : 1.0;
  if (kind == Kind::linear) return rate + (final_rate - rate) * progress;
  return final_rate + (rate - final_rate) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

void Schedule::check() const {
  const std::pair<const char*, double> numbers[] = {{"rate", rate},       {"final_rate", final_rate}, {"steps", steps},
                                                    {"warm_up", warm_up}, {"factor", factor},         {"every", every}};
  for (const auto& [name, value] : numbers)
    if (!(value >= 0) || std::isinf(value))
      throw UsageError(fmt::format("schedule: {} is {}; it must be a number of at least 0", name, value));
  if ((kind == Kind::linear || kind == Kind::cosine) && steps <= 0)
    throw UsageError("schedule: a fall needs at least one step");
  if (kind == Kind::staircase && every <= 0) throw UsageError("schedule: the steps from fall to fall must be above 0");
  if (!std::is_sorted(milestones.begin(), milestones.end())) throw UsageError("schedule: milestones must ascend");
}

}  // namespace weft::optim
