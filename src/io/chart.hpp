// A line chart as data, and the arithmetic that its pictures share.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weft::io {

struct ChartPoint {
  double x = 0, y = 0;
  bool operator==(const ChartPoint&) const = default;
};
/// A named line. Points that are not finite are left out of every picture.
struct ChartSeries {
  std::string name;
  std::vector<ChartPoint> points;
};
struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartSeries> series;
};

/// The ranges that contain every finite point. They are wider than 0, even for no points or one.
struct ChartRange {
  double x_min = 0, x_max = 1, y_min = 0, y_max = 1;
};
ChartRange range_of(const Chart& chart);

/// Multiples of 1, 2 or 5 times a power of ten within [low, high], at most `count` + 1 of them.
std::vector<double> nice_ticks(double low, double high, int count);
/// A tick as short text: "0.25", "1500", "2e+06".
std::string tick_text(double value, double step);

/// The finite points in order of x. If more than two fall into one of `columns`, only the first, lowest, highest and last of
/// them are kept, so no spike is lost.
std::vector<ChartPoint> decimated(const std::vector<ChartPoint>& points, double x_min, double x_max, int columns);

}  // namespace weft::io
