// The expression language: what texts mean, and what is said about those that mean nothing.
#include "ops/parse.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/sanitized.hpp"
#include "weft/error.hpp"

namespace weft::scalar::parse_test {
namespace {

const std::vector<std::string> kOperands = {"x", "y", "z"};

double value_of(std::string_view text, std::vector<double> values = {2, 3, 5}) {
  return evaluate(parse(text, kOperands), values);
}

std::string error_of(std::string_view text) {
  try {
    parse(text, kOperands);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

struct ValueCase {
  const char* text;
  double value;  // at x = 2, y = 3, z = 5
};

TEST(Parse, PrecedenceAndAssociation) {
  const ValueCase cases[] = {
      {"x + y * z", 17},
      {"(x + y) * z", 25},
      {"x - y - z", -6},
      {"x - (y - z)", 4},
      {"z / x / y", 5.0 / 6},
      {"x * y % z", 1},
      {"-x * y", -6},
      {"- -x", 2},
      {"+x", 2},
      {"!x + 1", 1},
      {"~x", -3},
      {"x < y == y > x", 1},
      {"x + 1 == y && z != 4", 1},
      {"x || y && 0", 1},
      {"(x || y) && 0", 0},
      {"x | y & z", 3},
      {"(x | y) & z", 1},
      {"x ^ y | z", 5},
      {"x | y ^ z", 6},
      {"x & y == y", 0},  // as in C: x & (y == y)
      {"1 << x + 1", 8},
      {"1 << x < z", 1},
      {"z >> 1", 2},
      {"x > y ? 1 : z > y ? 2 : 3", 2},
      {"x < y ? x > y ? 1 : 2 : 3", 2},
      {"x < y ? 10 : 20 + 1", 10},
      {"x <= 2 && x >= 2", 1},
      {"select(x, y, z > 4)", 3},
      {"select(x, y, z > 6)", 2},
  };
  for (const ValueCase& c : cases) EXPECT_DOUBLE_EQ(value_of(c.text), c.value) << c.text;
}

TEST(Parse, NumbersAndConstants) {
  const ValueCase cases[] = {
      {"1", 1},
      {"1.5", 1.5},
      {".5", 0.5},
      {"2.", 2},
      {"1e3", 1000},
      {"1.5e-3", 0.0015},
      {"1E+2", 100},
      {"2f", 2},
      {"2.5f", 2.5},
      {"1 / 2", 0.5},
      {"pi", std::numbers::pi},
      {"e", std::numbers::e},
      {"-inf", -std::numeric_limits<double>::infinity()},
      {"true + true", 2},
      {"false", 0},
      {"is_nan(nan)", 1},
      {"4294967295", 4294967295.0},
  };
  for (const ValueCase& c : cases) EXPECT_DOUBLE_EQ(value_of(c.text), c.value) << c.text;
  EXPECT_TRUE(std::isnan(value_of("nan")));
  EXPECT_TRUE(std::signbit(value_of("-0")));
}

TEST(Parse, Statements) {
  const ValueCase cases[] = {
      {"var a = x + 1; a * a", 9},
      {"var a = x; a = a + y; a", 5},
      {"if (x < y) { 1 } else { 2 }", 1},
      {"if (x > y) 1; else 2;", 2},
      {"var a = 1; if (x < y) a = 7; a", 7},
      {"var a = 1; if (x > y) { a = 7; } a", 1},
      {"var a = 1; if (x < y) { var b = 5; a = b * 2; } a", 10},
      {"var a = 1; { var a = 2; } a", 1},
      {"if (x < y) { return 1; } return 2", 1},
      {"if (x > y) { return 1; } 2", 2},
      {"if (x > y) return 1; else if (x > 1) return 4; 3", 4},
      {"if (x < 0) { return 1 } else { if (y > 0) { return 6 } } 3", 6},
      {"return x; y", 2},
      {"return x; return y", 2},
      {";;x;", 2},
      {"{ { x } }", 2},
      {"1; 2; x + y", 5},
      {"var e = 3; e", 3},  // a name of one's own goes before a constant
  };
  for (const ValueCase& c : cases) EXPECT_DOUBLE_EQ(value_of(c.text), c.value) << c.text;
}

TEST(Parse, Functions) {
  const ValueCase cases[] = {
      {"max(x, y)", 3},
      {"add(x, mul(y, z))", 17},
      {"pow(x, y)", 8},
      {"atan2(x, y)", std::atan2(2.0, 3.0)},
      {"fract(2.75)", 0.75},
      {"fract(-0.25)", 0.75},
      {"clamp(z, x, y)", 3},
      {"mix(x, y, 0.25)", 2.25},
      {"mix(x, y, 1)", 3},
      {"square(y)", 9},
      {"reciprocal(x)", 0.5},
      {"hypot(3, 4)", 5},
      {"hypot(0, 0)", 0},
      {"sigmoid(0)", 0.5},
      {"step(y, x)", 0},
      {"step(x, y)", 1},
      {"saturate(x)", 1},
      {"fma(x, y, z)", 11},
      {"ldexp(y, x)", 12},
      {"degrees(pi)", 180},
      {"radians(180)", std::numbers::pi},
      {"isinf(-inf)", 1},
      {"is_finite(nan)", 0},
      {"is_finite(x)", 1},
      {"round(2.5)", 2},
      {"round(-3.5)", -4},
      {"i32(-2.7)", -2},
      {"u32(-2.7)", 0},
      {"i32(nan)", 0},
      {"i32(1e20)", 2147483647},
      {"u32(i32(-1))", 4294967295.0},
      {"bool(z)", 1},
      {"f32(x) / 4", 0.5},
      {"rem(-7, x)", -1},
      {"-7 % x", -1},
  };
  for (const ValueCase& c : cases) EXPECT_DOUBLE_EQ(value_of(c.text), c.value) << c.text;
}

TEST(Parse, HypotNeitherOverflowsNorVanishes) {
  EXPECT_DOUBLE_EQ(value_of("hypot(x, y)", {3e300, 4e300, 0}), 5e300);
  EXPECT_DOUBLE_EQ(value_of("hypot(x, y)", {3e-300, -4e-300, 0}), 5e-300);
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(value_of("hypot(x, y)", {-inf, nan, 0}), inf);
  EXPECT_TRUE(std::isnan(value_of("hypot(x, y)", {1, nan, 0})));
}

TEST(Parse, NamesOfTheReference) {
  const Names names{.operands = {"x", "y", "alpha", "output", "g"},
                    .aliases = {{"input", 0}, {"other", 1}, {"outputGrad", 4}},
                    .results = {"inputGrad", "otherGrad"}};
  const std::string text = "inputGrad = outputGrad * other; otherGrad = alpha * outputGrad * input";
  const std::vector<Expression> both = parse_results(text, names);
  ASSERT_EQ(both.size(), 2u);
  const double values[] = {2, 3, 10, 0, 7};
  EXPECT_EQ(evaluate(both[0], values), 21);
  EXPECT_EQ(evaluate(both[1], values), 140);
  EXPECT_EQ(parse(text, names), both[0]);
  EXPECT_EQ(parse("if (x == 0) { inputGrad = 0 } else { inputGrad = g }", names),
            parse("x == 0 ? 0 : g", names.operands));
  EXPECT_THROW(parse_results("inputGrad = g", names), UsageError);
  EXPECT_THROW(parse_results("otherGrad = g; if (x > 0) inputGrad = g", names), UsageError);
}

struct ErrorCase {
  const char* text;
  const char* message;
};

TEST(Parse, ErrorsShowThePlaceAndTheCure) {
  const ErrorCase cases[] = {
      {"x + * y", "expression: expected a number, a name, a call or '(', found '*'\n  x + * y\n      ^"},
      {"(x + y", "expression: expected ')', found the end of the text\n  (x + y\n        ^"},
      {"x y", "expression: expected an operator, ';' or the end of the text, found 'y'\n  x y\n    ^"},
      {"var a = 1;\nx + bb", "expression: unknown name 'bb'; the operands are x, y, z\n  x + bb\n      ^"},
      {"var scale = 1; x * scales", "unknown name 'scales'; did you mean 'scale'?\n"},
      {"x * Pi", "unknown name 'Pi'; did you mean 'pi'?\n"},
      {"sqr(x)", "expression: unknown function 'sqr'; did you mean 'sqrt'?\n  sqr(x)\n  ^"},
      {"tahn(x)", "did you mean 'tanh'?"},
      {"pow(x)", "expression: pow takes 2 arguments, and was given 1\n  pow(x)\n  ^"},
      {"exp(x, y)", "exp takes 1 argument, and was given 2"},
      {"f32()", "f32 takes 1 argument, and was given 0"},
      {"clamp(x, y)", "clamp takes 3 arguments, and was given 2"},
      {"", "the text is empty; expected an expression"},
      {"  ", "the text is empty"},
      {"var a = 1;", "the text gives no value; expected an expression at the end"},
      {"a = 1; x", "'a' is not declared; write 'var a = ...'"},
      {"x = 1; x", "'x' is an operand and cannot be assigned"},
      {"var x = 1; x", "'x' is an operand already; choose another name"},
      {"var if = 1; x", "'if' is a word of the language"},
      {"var 3 = 1; x", "expected a name, found '3'"},
      {"x ? y", "expected ':', found the end of the text"},
      {"{ x", "expected '}', found the end of the text"},
      {"else x", "this 'else' has no 'if' before it"},
      {"if x > 0 { y }", "expected '(', found 'x'"},
      {"x # y", "this character is not allowed here\n  x # y\n    ^"},
      {"x.y", "this character is not allowed here"},
      {"1.2.3", "this is not a number\n  1.2.3\n  ^"},
      {"12ab", "this is not a number"},
      {"1e999", "this number is beyond what f64 holds"},
      {"exp", "unknown name 'exp'"},
      {"x }", "this '}' closes nothing\n  x }\n    ^"},
      {"(x ])", "this character is not allowed here"},
      {"\xff\xfe", "this character is not allowed here\n  ??\n  ^"},
      {"max(x, y, z, x, y, z, x, y, z)", "a call takes at most 8 arguments"},
  };
  for (const ErrorCase& c : cases)
    EXPECT_NE(error_of(c.text).find(c.message), std::string::npos) << c.text << "\n" << error_of(c.text);
}

TEST(Parse, LongLinesAreCutAroundTheCaret) {
  const std::string text = std::string(300, ' ') + "x + ?" + std::string(300, ' ') + "y";
  const std::string message = error_of(text);
  EXPECT_NE(message.find("found '?'"), std::string::npos);
  EXPECT_LT(message.size(), 300u);
}

TEST(Parse, HostileTextsFailFast) {
  auto repeat = [](std::string_view part, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += part;
    return out;
  };
  std::string chain = "var a0 = x + y;";
  for (int i = 1; i < 250; ++i)
    chain +=
        "var a" + std::to_string(i) + " = hypot(a" + std::to_string(i - 1) + ", sin(a" + std::to_string(i - 1) + "));";
  std::string names;
  for (int i = 0; i < 300; ++i) names += "var n" + std::to_string(i) + " = x;";
  const std::pair<std::string, const char*> cases[] = {
      {std::string(1 << 20, '('), "at most 65536 are read"},
      {std::string(60000, '('), "nested more than 128 levels deep"},
      {std::string(60000, '-') + "x", "nested more than 128 levels deep"},
      {repeat("sin(", 10000) + "x", "nested more than 128 levels deep"},
      {repeat("x?", 20000) + "x", "nested more than 128 levels deep"},
      {repeat("if(x){", 5000), "nested more than 128 levels deep"},
      {repeat("if(x)x;else ", 5000), "nested more than 128 levels deep"},
      {repeat("{", 60000), "nested more than 128 levels deep"},
      {repeat("x+", 30000) + "x", "more than 4096 instructions"},
      {chain + "a249" + repeat("+hypot(a249,a248*x)*x", 2000), "instructions"},
      {names + "x", "more than 256 variables"},
      {repeat("x;", 30000) + "?", "expected a number"},
      {repeat("1", 60000), "beyond what f64 holds"},
      {repeat("q", 60000), "unknown name"},
      {repeat("q", 60000) + "(x)", "unknown function"},
  };
  for (const auto& [text, message] : cases) {
    const auto start = std::chrono::steady_clock::now();
    const std::string error = error_of(text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    EXPECT_NE(error.find(message), std::string::npos) << text.substr(0, 20) << "\n" << error.substr(0, 300);
    EXPECT_LT(error.size(), 400u) << text.substr(0, 20);
    EXPECT_LT(seconds.count(), 1.0 * weft::test::kSlowdown) << text.substr(0, 20);
  }
}

TEST(Parse, EveryByteIsSafe) {
  // Any two bytes around an expression either parse or are refused.
  for (int first = 0; first < 256; ++first)
    for (int second = 0; second < 256; second += 7) {
      std::string text = "x+";
      text += static_cast<char>(first);
      text += static_cast<char>(second);
      text += "y";
      try {
        EXPECT_EQ(parse(text, kOperands).inputs, 3);
      } catch (const UsageError& error) {
        EXPECT_EQ(std::string(error.what()).rfind("expression: ", 0), 0u);
      }
    }
}

}  // namespace
}  // namespace weft::scalar::parse_test
