// Charts: ticks, decimation, and both pictures for ordinary, empty, odd and hostile data.
#include "io/chart.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/temporary_folder.hpp"
#include "base/utf8.hpp"
#include "io/svg_chart.hpp"
#include "io/text_chart.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

Chart loss_chart(int points = 200) {
  Chart chart{"Loss", "step", "nats per character", {{"training", {}}, {"validation", {}}}};
  for (int i = 0; i < points; ++i) chart.series[0].points.push_back({double(i), 1.2 + 3 * std::exp(-i * 8.0 / points)});
  for (int i = 0; i < points; i += std::max(1, points / 8))
    chart.series[1].points.push_back({double(i), 1.6 + 3 * std::exp(-i * 8.0 / points)});
  return chart;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Chart, TicksAreRound) {
  EXPECT_EQ(nice_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(nice_ticks(1.1, 4.3, 4), (std::vector<double>{2, 3, 4}));
  EXPECT_EQ(nice_ticks(-1, 1, 4), (std::vector<double>{-1, -0.5, 0, 0.5, 1}));
  for (const double scale : {1e-12, 3e-3, 1.0, 7e4, 1e15, 1e250})
    for (const int wanted : {1, 3, 8}) {
      const auto ticks = nice_ticks(-0.3 * scale, 2.1 * scale, wanted);
      EXPECT_FALSE(ticks.empty());
      EXPECT_LE(ticks.size(), static_cast<std::size_t>(wanted) + 1);
      for (const double t : ticks) EXPECT_TRUE(t >= -0.3001 * scale && t <= 2.1001 * scale);
    }
  EXPECT_EQ(tick_text(0.25, 0.05), "0.25");
  EXPECT_EQ(tick_text(1500, 500), "1500");
  EXPECT_EQ(tick_text(2e6, 1e6), "2e+06");
}

TEST(Chart, DecimationKeepsSpikesAndEnds) {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 100'000; ++i) points.push_back({double(i), 1});
  points[54'321].y = 99;
  points[777].y = -99;
  points[10].y = NAN;
  const auto kept = decimated(points, 0, 99'999, 500);
  EXPECT_LT(kept.size(), 2100u);
  for (const ChartPoint& p : {points.front(), points.back(), points[54'321], points[777]})
    EXPECT_NE(std::find(kept.begin(), kept.end(), p), kept.end());
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [](auto& a, auto& b) { return a.x < b.x; }));
  EXPECT_TRUE(std::none_of(kept.begin(), kept.end(), [](auto& p) { return std::isnan(p.y); }));
}

TEST(SvgChart, HoldsTitleLabelsLegendAndLines) {
  const std::string svg = svg_chart(loss_chart());
  for (const char* part :
       {"<svg xmlns=", ">Loss</text>", ">step</text>", ">nats per character</text>", ">training</text>",
        ">validation</text>", ">100</text>", ">4.0</text>", "prefers-color-scheme: dark", "</svg>\n"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_LT(svg_chart(loss_chart(300'000)).size(), 100'000u);
}

TEST(SvgChart, TextIsEscaped) {
  Chart chart = loss_chart();
  chart.title = "<script>alert(\"&\")</script>\x01\xff";
  const std::string svg = svg_chart(chart);
  EXPECT_EQ(svg.find("<script"), std::string::npos);
  EXPECT_NE(svg.find("&lt;script&gt;alert(&quot;&amp;&quot;)&lt;/script&gt;\uFFFD\uFFFD"), std::string::npos);
}

const Chart kOddCharts[] = {
    {"no series", "x", "y", {}},
    {"no points", "x", "y", {{"a", {}}}},
    {"one point", "x", "y", {{"a", {{3, 4}}}}},
    {"one value", "x", "y", {{"a", {{0, 5}, {1, 5}, {2, 5}}}}},
    {"not finite", "x", "y", {{"a", {{0, NAN}, {1, INFINITY}, {NAN, 1}, {2, -INFINITY}}}}},
    {"huge", "x", "y", {{"a", {{0, -1e300}, {1, 1e300}, {2, 1.7e308}}}}},
    {"tiny", "x", "y", {{"a", {{0, 1e-310}, {1, 2e-310}}}}},
    {"close", "x", "y", {{"a", {{0, 1e9}, {1, std::nextafter(1e9, 2e9)}}}}},
    {"unsorted", "x", "y", {{"a", {{2, 1}, {0, 3}, {1, 2}}}}},
    {"many series", "x", "y", std::vector<ChartSeries>(20, {"s", {{0, 1}, {1, 0}}})},
    {std::string(500, 't'), "\x1b[2J\n", "\xff", {{"a\nb", {{0, 0}, {1, 1}}}, {"b", {}}}},
};

TEST(SvgChart, OddDataGivesNumbersOnly) {
  for (const Chart& chart : kOddCharts) {
    const std::string svg = svg_chart(chart);
    EXPECT_EQ(svg.find("nan"), std::string::npos) << chart.title;
    EXPECT_EQ(svg.find("inf"), std::string::npos) << chart.title;
  }
}

TEST(TextChart, FillsItsSizeWhateverTheData) {
  std::vector<Chart> charts(std::begin(kOddCharts), std::end(kOddCharts));
  charts.push_back(loss_chart());
  for (const Chart& chart : charts)
    for (const bool unicode : {true, false})
      for (const auto& [width, height] : {std::pair{24, 6}, std::pair{72, 18}, std::pair{200, 50}}) {
        const std::string text = text_chart(chart, {width, height, unicode});
        SCOPED_TRACE(chart.title + "\n" + text);
        EXPECT_EQ(count(text, "\n"), static_cast<std::size_t>(height));
        EXPECT_EQ(text.find('\x1b'), std::string::npos);
        std::u32string characters = decode_utf8(text);
        std::size_t column = 0;
        for (const char32_t c : characters) {
          column = c == U'\n' ? 0 : column + 1;
          ASSERT_LE(column, static_cast<std::size_t>(width));
          if (!unicode) {
            ASSERT_TRUE(c == U'\n' || (c >= 0x20 && c < 0x7F));
          }
        }
      }
}

TEST(TextChart, ASmallCurve) {
  const Chart chart{"Loss", "step", "", {{"a", {{0, 4}, {1, 3}, {2, 2}, {3, 1}, {4, 0}}}}};
  EXPECT_EQ(text_chart(chart, {24, 9, false}),
            "Loss\n"
            "4 +*\n"
            "  |     *\n"
            "2 +          *\n"
            "  |               *\n"
            "0 +                    *\n"
            "  ++---------+---------+\n"
            "   0         2         4\n"
            "          step\n");
}

TEST(Charts, SizesOutOfRangeAreRefused) {
  for (const TextChartOptions& options :
       {TextChartOptions{23, 10}, TextChartOptions{401, 10}, TextChartOptions{40, 5}, TextChartOptions{40, 201}})
    EXPECT_NE(test::message_of<UsageError>([&] { text_chart({}, options); }).find("give a width in [24, 400]"),
              std::string::npos);
  for (const SvgChartOptions& options : {SvgChartOptions{199, 400}, SvgChartOptions{400, 10001}})
    EXPECT_NE(test::message_of<UsageError>([&] { svg_chart({}, options); }).find("give sides in [200, 10000]"),
              std::string::npos);
}

}  // namespace
}  // namespace weft::io
