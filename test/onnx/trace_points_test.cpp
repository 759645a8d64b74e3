// Polynomials of extents and quotients, found from their values at the points of traces.
#include "onnx/trace_points.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace weft::onnx::trace_points_test {
namespace {

using Point = TracePoints::Point;
const std::vector<std::string> kNames{"s", "t", "q", "r"};

std::string found(const TracePoints& points, const std::function<Extent(const Point&)>& function) {
  std::vector<std::int64_t> values;
  for (const Point& point : points.at()) values.push_back(function(point));
  const auto p = points.polynomial(values);
  return p ? p->to_string(kNames) : "none";
}

void add_candidates(TracePoints& points) {
  for (const Point& point : points.candidates())
    if (points.tells_more(point)) points.add(point);
}

TEST(TracePoints, PolynomialsOfExtents) {
  const TracePoints points({4, 7}, 1);
  EXPECT_EQ(found(points, [](const Point&) { return -5; }), "-5");
  EXPECT_EQ(found(points, [](const Point& p) { return p[0] == 4 ? INT64_MIN : 1; }), "none");
  EXPECT_EQ(found(points, [](const Point& p) { return 3 * p[0] - 1; }), "3*s - 1");
  EXPECT_EQ(found(points, [](const Point& p) { return p[0] * p[1] + p[1] * p[1] - 2 * p[0]; }), "s*t + t*t - 2*s");
  EXPECT_EQ(found(points, [](const Point& p) { return p[0] / 2; }), "none");
  EXPECT_EQ(found(points, [](const Point& p) { return p[0] * (p[0] + 1) / 2; }), "none");  // halves
}

TEST(TracePoints, QuotientsAreToldApart) {
  TracePoints points({40, 50}, 1);
  ASSERT_TRUE(points.add(Quotient{{.constant = 1, .terms = {{0}}}, 4}));
  EXPECT_FALSE(points.add(Quotient{{.constant = 1, .terms = {{0}}}, 4}));
  ASSERT_TRUE(points.add(Quotient{{.constant = 3, .terms = {{2}}}, 8}));
  EXPECT_EQ(points.quotients()[1].to_string(kNames), "floor((q + 3)/8)");
  add_candidates(points);
  const auto q = [](const Point& p) { return (p[0] + 1) / 4; };
  const auto r = [&](const Point& p) { return (q(p) + 3) / 8; };
  EXPECT_EQ(found(points, r), "r");
  EXPECT_EQ(found(points, [&](const Point& p) { return 2 * q(p) - 5; }), "2*q - 5");
  EXPECT_EQ(found(points, [&](const Point& p) { return p[1] * r(p) + p[0]; }), "t*r + s");
  EXPECT_EQ(found(points, [&](const Point& p) { return p[0] - 4 * q(p); }), "s - 4*q");
  EXPECT_EQ(found(points, [](const Point& p) { return p[0] / 4; }), "none");
  EXPECT_EQ(found(points, [](const Point& p) { return (p[0] + 1) / 8; }), "none");
}

TEST(TracePoints, DependentProductsKeepWholeCoefficients) {
  TracePoints points({8}, -1);  // shorter extents come first
  ASSERT_TRUE(points.add(Quotient{{.constant = 0, .terms = {{0}}}, 2}));
  add_candidates(points);
  const std::vector<std::string> names{"s", "q"};
  std::vector<std::int64_t> squares, sums;
  for (const Point& point : points.at()) squares.push_back(point[0] / 2 * (point[0] / 2) + point[0]);
  for (const Point& point : points.at()) sums.push_back((point[0] + 1) / 2);
  EXPECT_EQ(points.polynomial(squares)->to_string(names), "q*q + s");
  EXPECT_EQ(points.polynomial(sums)->to_string(names), "s - q");
}

TEST(TracePoints, WholeMultiplesAreNoQuotients) {
  const Quotient q{{.constant = -3, .terms = {{0, -1, 4}, {1, -1, 3}, {0, 1, -1}}}, 2};
  const std::vector<std::string> names{"s", "t"};
  EXPECT_EQ(q.remainder().to_string(names), "floor((s*t + t + 1)/2)");
  EXPECT_EQ(q.at(std::vector<std::int64_t>{0, 0}), -2);
  EXPECT_TRUE((Quotient{{.constant = 1, .terms = {{0, -1, 6}}}, 3}.remainder().numerator.is_constant()));
}

}  // namespace
}  // namespace weft::onnx::trace_points_test
