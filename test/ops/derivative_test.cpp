// Derivatives: every scalar op against differences, the conventions at kinks, and what must not reach a gradient.
#include "ops/derivative.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/gradient_check.hpp"
#include "ops/parse.hpp"

namespace weft::scalar::derivative_test {
namespace {

const std::vector<std::string> kOperands = {"x", "y"};
constexpr double kInf = std::numeric_limits<double>::infinity();

double slope(std::string_view text, std::size_t operand, double x, double y) {
  return test::slope(parse(text, kOperands), operand, std::vector<double>{x, y});
}

TEST(Derivative, EveryOpAgreesWithDifferences) {
  struct Case {
    const char* text;
    double x, y;
  };
  const Case cases[] = {
      {"-x", 0.7, 0},
      {"abs(x)", -0.7, 0},
      {"sign(x)", 0.7, 0},
      {"floor(x)", 0.7, 0},
      {"ceil(x)", 0.7, 0},
      {"round(x)", 0.7, 0},
      {"trunc(x)", 1.7, 0},
      {"sqrt(x)", 0.7, 0},
      {"rsqrt(x)", 0.7, 0},
      {"exp(x)", 0.7, 0},
      {"exp2(x)", 0.7, 0},
      {"expm1(x)", -3, 0},
      {"log(x)", 0.7, 0},
      {"log2(x)", 0.7, 0},
      {"log10(x)", 0.7, 0},
      {"log1p(x)", 0.7, 0},
      {"sin(x)", 0.7, 0},
      {"cos(x)", 0.7, 0},
      {"tan(x)", 0.7, 0},
      {"asin(x)", 0.7, 0},
      {"acos(x)", 0.7, 0},
      {"atan(x)", 0.7, 0},
      {"sinh(x)", 0.7, 0},
      {"cosh(x)", 0.7, 0},
      {"tanh(x)", 0.7, 0},
      {"asinh(x)", 0.7, 0},
      {"acosh(x)", 1.7, 0},
      {"atanh(x)", 0.7, 0},
      {"erf(x)", 0.7, 0},
      {"x + y", 0.7, 1.3},
      {"x - y", 0.7, 1.3},
      {"x * y", 0.7, 1.3},
      {"x * x", 0.7, 1.3},
      {"x / y", 0.7, 1.3},
      {"x % y", 3.7, 1.3},
      {"pow(x, y)", 0.7, 1.3},
      {"pow(x, 3)", -0.7, 0},
      {"pow(2, x)", 0.7, 0},
      {"atan2(x, y)", 0.7, -1.3},
      {"min(x, y)", 0.7, 1.3},
      {"max(x, y)", 0.7, 1.3},
      {"copysign(x, y)", 0.7, -1.3},
      {"x < y", 0.7, 1.3},
      {"x > 0 ? x * y : y", 0.7, 1.3},
      {"bool(x) + y", 0.7, 1.3},
      {"i32(x) * y", 0.7, 1.3},
      {"f32(x) * y", 0.7, 1.3},
      {"x / x", 0.7, 1.3},
      {"sin(x * y) * exp(-x * x) / (1 + y * y)", 0.7, 1.3},
      {"sqrt(abs(sin(x) - y))", 0.7, 1.3},
      {"max(x, 0.2) * min(x, y) + hypot(x, y)", 0.7, 1.3},
      {"mix(x, y, sigmoid(x))", 0.7, 1.3},
      {"var s = x; if (y > 0) { s = s * s } else { s = exp(s) } s", 0.7, 1.3},
      {"1 / (x - y)", 0.7, 1.3},
      {"-(-x / -y)", 0.7, 1.3},
  };
  for (const Case& c : cases) {
    const Expression forward = parse(c.text, kOperands);
    const std::vector<double> at = {c.x, c.y};
    for (std::size_t operand = 0; operand < 2; ++operand)
      EXPECT_NEAR(test::slope(forward, operand, at), test::difference(forward, operand, at), 1e-6)
          << c.text << " by " << kOperands[operand] << ": " << to_text(gradient(forward)[operand]);
  }
}

TEST(Derivative, ConventionsAtKinks) {
  EXPECT_EQ(slope("abs(x)", 0, 0, 0), 0);
  EXPECT_EQ(slope("max(x, y)", 0, 2, 2), 0.5);
  EXPECT_EQ(slope("max(x, y)", 1, 2, 2), 0.5);
  EXPECT_EQ(slope("min(x, y)", 0, 2, 2), 0.5);
  EXPECT_EQ(slope("min(x, y)", 1, 2, 2), 0.5);
  EXPECT_EQ(slope("copysign(x, y)", 0, 0, 1), 0);
  EXPECT_EQ(slope("copysign(x, y)", 0, 3, -0.0), -1);
  EXPECT_EQ(slope("relu(x)", 0, 0, 0), 0);
  EXPECT_EQ(slope("round(x)", 0, 0.5, 0), 0);
  EXPECT_EQ(slope("hypot(x, y)", 0, 0, 0), 0);
}

TEST(Derivative, PowerAtAndBelowZero) {
  EXPECT_EQ(slope("pow(x, y)", 0, 0, 0), 0);
  EXPECT_EQ(slope("pow(x, y)", 0, -2, 0), 0);
  EXPECT_EQ(slope("pow(x, y)", 0, 5, 0), 0);
  EXPECT_EQ(slope("pow(x, y)", 0, 0, 1), 1);
  EXPECT_EQ(slope("pow(x, y)", 0, 0, 2), 0);
  EXPECT_EQ(slope("pow(x, y)", 0, -2, 3), 12);
  EXPECT_EQ(slope("pow(x, y)", 0, -2, 2), -4);
  EXPECT_EQ(slope("pow(x, y)", 0, 0, 0.5), kInf);
  EXPECT_EQ(slope("pow(x, y)", 1, 0, 0), 0);
  EXPECT_EQ(slope("pow(x, y)", 1, 0, 2), 0);
  EXPECT_EQ(slope("pow(x, y)", 1, 0, -1), -kInf);
  EXPECT_TRUE(std::isnan(slope("pow(x, y)", 1, -2, 3)));
}

TEST(Derivative, TheSideNotTakenDoesNotReachTheGradient) {
  EXPECT_EQ(slope("x == 0 ? 1 : sin(x) / x", 0, 0, 0), 0);
  EXPECT_EQ(slope("x > 0 ? sqrt(x) : 0", 0, 0, 0), 0);
  EXPECT_EQ(slope("x > 0 ? log(x) : x", 0, -1, 0), 1);
  EXPECT_EQ(slope("if (x < 0) { return 0 } return pow(x, 1.5)", 0, -3, 0), 0);
  EXPECT_EQ(slope("y == 0 ? x : x / y", 0, 2, 0), 1);
  EXPECT_EQ(slope("x > 0 ? x : exp(-x * 1e6) * x", 0, 3, 0), 1);
}

TEST(Derivative, NothingFlowsThroughSteps) {
  for (const char* text : {"floor(x)", "x > y", "x == y", "!x", "i32(x)", "u32(x) & 1", "is_nan(x)", "bool(x)",
                           "sign(x)", "round(x) + ceil(x)", "philox(x, y, 1)", "3", "x > 0 ? 1 : 2", "i32(x) << 2"})
    for (const Expression& each : gradient(parse(text, kOperands)))
      EXPECT_TRUE(is_zero(each)) << text << ": " << to_text(each);
  const std::vector<Expression> of_x = gradient(parse("sin(x)", kOperands));
  EXPECT_FALSE(is_zero(of_x[0]));
  EXPECT_TRUE(is_zero(of_x[1]));
}

TEST(Derivative, ReadsLikeTheTextbook) {
  struct Case {
    const char* text;
    const char* by_x;
  };
  const Case cases[] = {
      {"exp(x)", "g * output"},
      {"tanh(x)", "g * (1 - output) * (1 + output)"},
      {"sqrt(x)", "g / (2 * output)"},
      {"log(x)", "g / x"},
      {"x", "g"},
      {"-x", "-g"},
      {"x * y", "g * y"},
      {"x + y", "g"},
      {"y - x", "-g"},
      {"x / y", "g / y"},
      {"x > 0 ? x : 0", "x > 0 ? g : 0"},
      {"x > 0 ? x : -x", "x > 0 ? g : -g"},
      {"x > 0 ? x : 0.1 * x", "x > 0 ? g : g * 0.1"},
      {"max(x, y)", "x < y ? 0 : x == y ? g * 0.5 : g"},
      {"x * x", "g * 2 * x"},
      {"pow(x, 3)", "g * 3 * pow(x, 2)"},
  };
  const std::vector<std::string> names = {"x", "y", "output", "g"};
  for (const Case& c : cases) EXPECT_EQ(to_text(gradient(parse(c.text, kOperands))[0], names), c.by_x) << c.text;
}

TEST(Derivative, ExtremesStayFinite) {
  for (const double x : {-1000.0, -100.0, 100.0, 1000.0})
    for (const char* text :
         {"sigmoid(x)", "softplus(x)", "x * sigmoid(x)", "tanh(x)", "x * tanh(softplus(x))", "relu(x)"}) {
      const double value = slope(text, 0, x, 0);
      EXPECT_TRUE(std::isfinite(value)) << text << " at " << x;
      EXPECT_NEAR(value,
                  x < 0                                                  ? 0
                  : (text[0] == 's' && text[1] == 'i') || text[0] == 't' ? 0
                                                                         : 1,
                  1e-9)
          << text << " at " << x;
    }
}

}  // namespace
}  // namespace weft::scalar::derivative_test
