#include "io/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace weft::io {
namespace {

// Beyond this, differences of two values overflow a double.
constexpr double kLargest = 1e300;

bool is_drawable(const ChartPoint& p) {
  return std::abs(p.x) <= kLargest && std::abs(p.y) <= kLargest;
}  // false for NaN

void widen(double* low, double* high) {
  if (*high > *low) return;
  const double margin = *low == 0 ? 1 : std::abs(*low) * 0.1;
  *low -= margin;
  *high += margin;
}

}  // namespace

ChartRange range_of(const Chart& chart) {
  bool any = false;
  ChartRange range;
  for (const ChartSeries& series : chart.series)
    for (const ChartPoint& p : series.points) {
      if (!is_drawable(p)) continue;
      if (!any) range = {p.x, p.x, p.y, p.y};
      any = true;
      range = {std::min(range.x_min, p.x), std::max(range.x_max, p.x), std::min(range.y_min, p.y),
               std::max(range.y_max, p.y)};
    }
  widen(&range.x_min, &range.x_max);
  widen(&range.y_min, &range.y_max);
  return range;
}

std::vector<double> nice_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power >= rough * (1 - 1e-9)) step = factor * power;
  std::vector<double> ticks;
  const double first = std::ceil(low / step - 1e-9);
  for (int i = 0; i <= count; ++i) {  // multiplied, because adding steps would add up their errors
    const double tick = (first + i) * step;
    if (!(tick <= high + step * 1e-9)) break;
    ticks.push_back(tick == 0 ? 0.0 : tick);  // no -0
  }
  return ticks;
}

std::string tick_text(double value, double step) {
  if (value != 0 && (std::abs(value) >= 1e6 || std::abs(step) < 1e-5)) return fmt::format("{:.3g}", value);
  const int digits = step >= 1 ? 0 : static_cast<int>(std::ceil(-std::log10(step) - 1e-9));
  return fmt::format("{:.{}f}", value, digits);
}

std::vector<ChartPoint> decimated(const std::vector<ChartPoint>& points, double x_min, double x_max, int columns) {
  std::vector<ChartPoint> sorted;
  std::copy_if(points.begin(), points.end(), std::back_inserter(sorted), is_drawable);
  std::stable_sort(sorted.begin(), sorted.end(), [](const ChartPoint& a, const ChartPoint& b) { return a.x < b.x; });
  const auto column = [&](const ChartPoint& p) { return std::floor((p.x - x_min) / (x_max - x_min) * columns); };
  std::vector<ChartPoint> kept;
  for (std::size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    while (end < sorted.size() && column(sorted[end]) == column(sorted[begin])) ++end;
    const auto [low, high] = std::minmax_element(sorted.begin() + static_cast<std::ptrdiff_t>(begin),
                                                 sorted.begin() + static_cast<std::ptrdiff_t>(end),
                                                 [](const ChartPoint& a, const ChartPoint& b) { return a.y < b.y; });
    std::vector<std::size_t> chosen = {begin, static_cast<std::size_t>(low - sorted.begin()),
                                       static_cast<std::size_t>(high - sorted.begin()), end - 1};
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    for (const std::size_t i : chosen) kept.push_back(sorted[i]);
  }
  return kept;
}

}  // namespace weft::io
