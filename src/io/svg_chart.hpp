// A chart as a standalone SVG picture.
#pragma once

#include <filesystem>
#include <string>

#include "io/chart.hpp"

namespace weft::io {

struct SvgChartOptions {
  int width = 860, height = 480;
};

/// The picture: title, axes with ticks and labels, a line for each series, a legend if there are several. Colours are readable
/// on light and dark pages. At most a few points are drawn per pixel column; text is escaped. UsageError for sizes outside
/// [200, 10000].
std::string svg_chart(const Chart& chart, const SvgChartOptions& options = {});
/// Writes it atomically. Errors as `svg_chart` and AtomicFile.
void write_svg_chart(const std::filesystem::path& path, const Chart& chart, const SvgChartOptions& options = {});

}  // namespace weft::io
