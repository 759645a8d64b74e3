#include "io/text_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/utf8.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr std::string_view kMarks = "*ox+#@";
constexpr int kDotColumns = 2, kDotRows = 4;
// Bits of U+2800 for the dot at row y, column x of a cell.
constexpr unsigned kDot[kDotRows][kDotColumns] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};

/// Printable characters of `text`, at most `columns` (each is assumed to take one column); ASCII only if requested.
std::u32string printable(std::string_view text, std::size_t columns, bool unicode) {
  std::u32string out;
  while (!text.empty() && out.size() < columns) {
    const std::size_t length = utf8_sequence_length(text);
    const std::string_view piece = text.substr(0, length == 0 ? 1 : length);
    const char32_t c = length == 0 ? U'?' : decode_utf8(piece)[0];
    out += c < 0x20 || (c >= 0x7F && (c < 0xA0 || !unicode)) ? U'?' : c;
    text.remove_prefix(piece.size());
  }
  return out;
}

/// The plot area: characters and, below them, Braille dots.
class Canvas {
 public:
  Canvas(int columns, int rows) : columns_(columns), rows_(rows), dots_(cells()), marks_(cells(), 0) {}

  void mark(int column, int row, char32_t c) { marks_[index(column, row)] = c; }
  /// A straight line of dots.
  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i)
      dot(x0 + static_cast<int>(std::lround(double(x1 - x0) * i / steps)),
          y0 + static_cast<int>(std::lround(double(y1 - y0) * i / steps)));
  }
  std::u32string row(int r) const {
    std::u32string out;
    for (int c = 0; c < columns_; ++c) {
      const std::size_t i = index(c, r);
      out += marks_[i] ? marks_[i] : dots_[i] ? char32_t{0x2800} + dots_[i] : U' ';
    }
    return out;
  }

 private:
  std::size_t cells() const { return static_cast<std::size_t>(columns_) * static_cast<std::size_t>(rows_); }
  std::size_t index(int column, int row) const {
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(columns_) + static_cast<std::size_t>(column);
  }
  void dot(int x, int y) { dots_[index(x / kDotColumns, y / kDotRows)] |= kDot[y % kDotRows][x % kDotColumns]; }

  int columns_, rows_;
  std::vector<unsigned> dots_;
  std::vector<char32_t> marks_;
};

/// Position of `value` among `count`: 0 for `low` and count - 1 for `high`.
int place(double value, double low, double high, int count) {
  return std::clamp(static_cast<int>(std::lround((value - low) / (high - low) * (count - 1))), 0, count - 1);
}

}  // namespace

std::string text_chart(const Chart& chart, const TextChartOptions& options) {
  if (options.width < 24 || options.width > 400 || options.height < 6 || options.height > 200)
    throw UsageError(fmt::format(
        "text_chart: {} columns and {} lines are asked for; give a width in [24, 400] and a height in [6, 200]",
        options.width, options.height));
  const bool unicode = options.unicode;
  const auto width = static_cast<std::size_t>(options.width);
  const int rows = options.height - 4;  // title, x axis, x ticks, x label
  const ChartRange range = range_of(chart);
  const auto step_of = [](const std::vector<double>& ticks) { return ticks.size() > 1 ? ticks[1] - ticks[0] : 1.0; };

  const std::vector<double> y_ticks = nice_ticks(range.y_min, range.y_max, std::max(2, rows / 3));
  std::vector<std::string> y_texts(static_cast<std::size_t>(rows));
  std::size_t margin = 1;
  for (const double tick : y_ticks) {
    const std::string text = tick_text(tick, step_of(y_ticks));
    y_texts[static_cast<std::size_t>(rows - 1 - place(tick, range.y_min, range.y_max, rows))] = text;
    margin = std::max(margin, text.size());
  }
  const int columns = options.width - static_cast<int>(margin) - 2;

  Canvas canvas(columns, rows);
  for (std::size_t s = 0; s < chart.series.size(); ++s) {
    const bool curve = unicode && s == 0;
    const int across = curve ? columns * kDotColumns : columns, down = curve ? rows * kDotRows : rows;
    const auto points = decimated(chart.series[s].points, range.x_min, range.x_max, across);
    int last_x = -1, last_y = -1;
    for (const ChartPoint& p : points) {
      const int x = place(p.x, range.x_min, range.x_max, across),
                y = down - 1 - place(p.y, range.y_min, range.y_max, down);
      if (!curve)
        canvas.mark(x, y, static_cast<char32_t>(kMarks[s % kMarks.size()]));
      else
        canvas.line(last_x < 0 ? x : last_x, last_x < 0 ? y : last_y, x, y);
      last_x = x, last_y = y;
    }
  }

  std::string heading = chart.title;
  if (chart.series.size() > 1) {
    heading += "  ";
    for (std::size_t s = 0; s < chart.series.size(); ++s)
      heading += fmt::format(" {} {}", unicode && s == 0 ? "\u2842" : std::string(1, kMarks[s % kMarks.size()]),
                             chart.series[s].name);
  }
  std::u32string text = printable(heading, width, unicode) + U"\n";
  const auto ascii = [](std::string_view s) { return std::u32string(s.begin(), s.end()); };
  for (int r = 0; r < rows; ++r) {
    const std::string& tick = y_texts[static_cast<std::size_t>(r)];
    text += ascii(fmt::format("{:>{}} ", tick, margin));
    text += tick.empty() ? (unicode ? U"│" : U"|") : (unicode ? U"┤" : U"+");
    std::u32string row = canvas.row(r);
    while (!row.empty() && row.back() == U' ') row.pop_back();
    text += row + U"\n";
  }

  std::u32string axis(static_cast<std::size_t>(columns), unicode ? U'─' : U'-');
  std::string ticks(width, ' ');
  std::size_t free_from = 0;
  const std::vector<double> x_ticks = nice_ticks(range.x_min, range.x_max, std::max(2, columns / 12));
  for (const double tick : x_ticks) {
    const std::string label = tick_text(tick, step_of(x_ticks));
    const auto column = static_cast<std::size_t>(place(tick, range.x_min, range.x_max, columns));
    axis[column] = unicode ? U'┬' : U'+';
    const std::size_t middle = margin + 2 + column, half = label.size() / 2;
    const std::size_t begin = std::min(middle > half ? middle - half : 0, width - std::min(width, label.size()));
    if (begin < free_from || begin + label.size() > width) continue;
    ticks.replace(begin, label.size(), label);
    free_from = begin + label.size() + 1;
  }
  ticks.erase(ticks.find_last_not_of(' ') + 1);
  text += ascii(std::string(margin + 1, ' ')) + (unicode ? U"└" : U"+") + axis + U"\n" + ascii(ticks) + U"\n";
  const std::u32string label =
      printable(chart.x_label + (chart.y_label.empty() ? "" : "  (y: " + chart.y_label + ")"), width, unicode);
  text += std::u32string((width - label.size()) / 2, U' ') + label + U"\n";
  return encode_utf8(text);
}

}  // namespace weft::io
