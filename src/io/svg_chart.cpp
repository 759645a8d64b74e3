#include "io/svg_chart.hpp"

#include <fmt/format.h>

#include <iterator>

#include "base/file.hpp"
#include "base/utf8.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

// Middle tones: contrast of at least 3 on both white and #16181d.
constexpr std::string_view kColours[] = {"#3b82c4", "#d9742b", "#3a9a5c", "#b35fb0", "#8a8d3a", "#c9505a"};
constexpr double kLeft = 72, kRight = 20, kTop = 52, kBottom = 56;

/// XML text. Characters that XML forbids even as references, and bytes that are not UTF-8, become U+FFFD.
std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_sequence_length(text);
    const char c = text[0];
    const std::string_view piece = text.substr(0, length == 0 ? 1 : length);
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (length == 0 || (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n') ||
             piece == "\xEF\xBF\xBE" || piece == "\xEF\xBF\xBF")
      out += "\xEF\xBF\xBD";
    else
      out += piece;
    text.remove_prefix(piece.size());
  }
  return out;
}

constexpr std::string_view kStyle = R"(<style>
text { font: 13px system-ui, sans-serif; fill: #5a6070; }
.title { font-size: 16px; font-weight: 600; fill: #2b2f38; }
.grid { stroke: #8a8f9c; stroke-opacity: 0.25; }
.axis { stroke: #8a8f9c; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
.back { fill: #ffffff; }
@media (prefers-color-scheme: dark) {
text { fill: #a9b0be; }
.title { fill: #e6e8ec; }
.back { fill: #16181d; }
}
</style>
)";

}  // namespace

std::string svg_chart(const Chart& chart, const SvgChartOptions& options) {
  const double width = options.width, height = options.height;
  if (width < 200 || height < 200 || width > 10000 || height > 10000)
    throw UsageError(fmt::format("svg_chart: a picture of {} x {} is asked for; give sides in [200, 10000]",
                                 options.width, options.height));
  const ChartRange range = range_of(chart);
  const double right = width - kRight, bottom = height - kBottom;
  const auto x_of = [&](double x) { return kLeft + (x - range.x_min) / (range.x_max - range.x_min) * (right - kLeft); };
  const auto y_of = [&](double y) {
    return bottom - (y - range.y_min) / (range.y_max - range.y_min) * (bottom - kTop);
  };
  const auto step_of = [](const std::vector<double>& ticks) { return ticks.size() > 1 ? ticks[1] - ticks[0] : 1.0; };

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n",
      options.width, options.height);
  svg += fmt::format("<title>{}</title>\n", escaped(chart.title)) + std::string(kStyle);
  svg += fmt::format("<rect class=\"back\" width=\"{}\" height=\"{}\"/>\n", options.width, options.height);
  svg += fmt::format("<text class=\"title\" x=\"{}\" y=\"26\">{}</text>\n", kLeft, escaped(chart.title));

  const std::vector<double> x_ticks = nice_ticks(range.x_min, range.x_max, options.width / 100);
  const std::vector<double> y_ticks = nice_ticks(range.y_min, range.y_max, options.height / 60);
  for (const double tick : y_ticks)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" y1=\"{2:.1f}\" x2=\"{1}\" y2=\"{2:.1f}\"/>\n<text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5}</text>\n",
        kLeft, right, y_of(tick), kLeft - 8, y_of(tick) + 4, tick_text(tick, step_of(y_ticks)));
  for (const double tick : x_ticks)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\"/>\n<text x=\"{0:.1f}\" y=\"{3}\" "
        "text-anchor=\"middle\">{4}</text>\n",
        x_of(tick), kTop, bottom, bottom + 18, tick_text(tick, step_of(x_ticks)));
  svg += fmt::format("<path class=\"axis\" fill=\"none\" d=\"M{0} {1}V{2}H{3}\"/>\n", kLeft, kTop, bottom, right);
  svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", (kLeft + right) / 2, height - 14,
                     escaped(chart.x_label));
  svg += fmt::format("<text transform=\"translate(18 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                     (kTop + bottom) / 2, escaped(chart.y_label));

  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const std::string_view colour = kColours[i % std::size(kColours)];
    const auto points = decimated(chart.series[i].points, range.x_min, range.x_max, static_cast<int>(right - kLeft));
    if (points.size() == 1)
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x_of(points[0].x),
                         y_of(points[0].y), colour);
    if (points.size() > 1) {
      svg += fmt::format("<polyline class=\"line\" stroke=\"{}\" points=\"", colour);
      for (const ChartPoint& p : points) svg += fmt::format("{:.1f},{:.1f} ", x_of(p.x), y_of(p.y));
      svg.back() = '"';
      svg += "/>\n";
    }
    if (chart.series.size() > 1)
      svg += fmt::format(
          "<rect x=\"{0}\" y=\"{1}\" width=\"14\" height=\"3\" fill=\"{2}\"/>\n<text x=\"{3}\" y=\"{4}\" "
          "text-anchor=\"end\">{5}</text>\n",
          right - 14, kTop + 8 + 18 * static_cast<double>(i), colour, right - 20,
          kTop + 14 + 18 * static_cast<double>(i), escaped(chart.series[i].name));
  }
  return svg + "</svg>\n";
}

void write_svg_chart(const std::filesystem::path& path, const Chart& chart, const SvgChartOptions& options) {
  write_file_atomically(path, svg_chart(chart, options));
}

}  // namespace weft::io
