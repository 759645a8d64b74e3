// Scalar code: types and casts, identities, text, and the meaning of integer ops.
#include "ops/scalar.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/builder.hpp"
#include "ops/parse.hpp"
#include "weft/error.hpp"

namespace weft::scalar {
namespace {

using enum DType;
const std::vector<std::string> kOperands = {"x", "y"};
constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

struct TypeCase {
  const char* text;
  DType x, y;
  DType result;
  const char* typed;  // as text
};

TEST(Typed, PromotesAndCasts) {
  const TypeCase cases[] = {
      {"x + y", f32, f32, f32, "x + y"},
      {"x + y", i32, f32, f32, "f32(x) + y"},
      {"x + y", f32, f64, f64, "f64(x) + y"},
      {"x + y", i32, u32, i64, "i64(x) + i64(y)"},
      {"x + y", f16, f16, f16, "f16(f32(x) + f32(y))"},
      {"exp(x) * 2", bf16, f32, bf16, "bf16(exp(f32(x)) * 2)"},
      {"x + y", f16, bf16, f32, "f32(x) + f32(y)"},
      {"x + y", i8, u8, i16, "i16(i32(x) + i32(y))"},
      {"x + y", u8, u32, u32, "u32(x) + y"},
      {"x < y", u8, u8, boolean, "i32(x) < i32(y)"},
      {"exp(x)", i8, i8, f32, "exp(f32(i32(x)))"},
      {"x - 1", u64, u64, u64, "x - 1"},
      {"x * -1", u64, u64, i64, "i64(x) * -1"},
      {"x + y", boolean, i32, i32, "i32(x) + y"},
      {"x + y", boolean, boolean, i32, "i32(x) + i32(y)"},
      {"-x", boolean, f32, i32, "-i32(x)"},
      {"x + 1", i32, f32, i32, "x + 1"},
      {"x + 1", boolean, f32, i32, "i32(x) + 1"},
      {"x + 1", f64, f32, f64, "x + 1"},
      {"x * 0.5", i32, f32, f32, "f32(x) * 0.5"},
      {"x - 1", u32, u32, u32, "x - 1"},
      {"x * -1", u32, u32, i32, "i32(x) * -1"},
      {"x + 3000000000", i32, i32, f32, "f32(x) + 3000000000"},
      {"x + 3000000000", u32, u32, u32, "x + 3000000000"},
      {"x < inf", i32, i32, boolean, "f32(x) < inf"},
      {"x / y", i32, i32, i32, "x / y"},
      {"sin(x)", i32, f32, f32, "sin(f32(x))"},
      {"sin(x)", boolean, f64, f32, "sin(f32(x))"},
      {"pow(x, y)", i32, i32, f32, "pow(f32(x), f32(y))"},
      {"pow(x, 2)", i32, i32, f32, "var t0 = f32(x); t0 * t0"},
      {"atan2(x, y)", i32, f64, f64, "atan2(f64(x), y)"},
      {"floor(x) + trunc(y)", i32, u32, i64, "i64(x) + i64(y)"},
      {"abs(x)", u32, f32, u32, "x"},
      {"x < y", boolean, boolean, boolean, "i32(x) < i32(y)"},
      {"x == y", i32, f32, boolean, "f32(x) == y"},
      {"x > 0.5", i32, f32, boolean, "f32(x) > 0.5"},
      {"x > 0", i32, f32, boolean, "x > 0"},
      {"x && y", f32, boolean, boolean, "bool(x) && y"},
      {"!x", i32, f32, boolean, "!bool(x)"},
      {"is_nan(x)", i32, f32, boolean, "false"},
      {"is_nan(x)", f64, f32, boolean, "is_nan(x)"},
      {"max(x, y)", boolean, boolean, boolean, "x || y"},
      {"min(x, y)", boolean, boolean, boolean, "x && y"},
      {"max(x, y)", i32, f32, f32, "max(f32(x), y)"},
      {"max(x, 0)", boolean, f32, i32, "max(i32(x), 0)"},
      {"x & y", i32, u32, i64, "i64(x) & i64(y)"},
      {"x & y", boolean, boolean, boolean, "x && y"},
      {"x | y", boolean, boolean, boolean, "x || y"},
      {"x ^ y", boolean, boolean, boolean, "i32(x) != i32(y)"},
      {"~x", boolean, f32, boolean, "!x"},
      {"x & 1", i32, f32, i32, "x & 1"},
      {"x << 2", u32, f32, u32, "x << 2"},
      {"x << y", boolean, i32, i32, "i32(x) << y"},
      {"x ? y : 1", f32, i32, i32, "bool(x) ? y : 1"},
      {"x ? y : 0.5", boolean, i32, f32, "x ? f32(y) : 0.5"},
      {"x > 0 ? 1 : 0", f32, f32, f32, "x > 0 ? 1 : 0"},
      {"x > 0 ? 1 : 0", f64, f64, f64, "x > 0 ? 1 : 0"},
      {"x > 0 ? 1 : 0", i32, i32, i32, "x > 0 ? 1 : 0"},
      {"x > 0 ? 1 : 0.5", i32, i32, f32, "x > 0 ? 1 : 0.5"},
      {"y * (x > 0 ? 1 : 0)", i32, f64, f64, "y * (x > 0 ? 1 : 0)"},
      {"var t = x > 0 ? 1 : 0; t * y + t", f32, i32, i32, "var t0 = x > 0 ? 1 : 0; t0 * y + t0"},
      {"1", i32, f64, f64, "1"},
      {"1", boolean, boolean, i32, "1"},
      {"0.5", i32, i32, f32, "0.5"},
      {"true", f32, f32, boolean, "true"},
      {"i32(x) / 2", f32, f32, i32, "i32(x) / 2"},
      {"f32(x) + y", f64, f64, f64, "f64(f32(x)) + y"},
      {"x + 0", i32, f32, i32, "x"},
      {"x + 0", f32, f32, f32, "x + 0"},
      {"x / 4", f32, f32, f32, "x * 0.25"},
      {"x / 4", i32, f32, i32, "x / 4"},
      {"philox(x, y, 1)", i32, u32, u32, "philox(u32(x), y, 1)"},
  };
  for (const TypeCase& c : cases) {
    const DType types[] = {c.x, c.y};
    const Expression result = typed(parse(c.text, kOperands), types);
    EXPECT_EQ(result.type(), c.result) << c.text << " of " << name_of(c.x) << ", " << name_of(c.y);
    EXPECT_EQ(to_text(result, kOperands), c.typed) << c.text << " of " << name_of(c.x) << ", " << name_of(c.y);
  }
}

TEST(Typed, BitOperationsRefuseFloats) {
  const DType floats[] = {f32, i32}, integers[] = {i32, i32};
  for (const char* text : {"x & y", "~x", "y | 0.5", "1 << x", "y ^ (x > 0 ? 1 : 0.5)"})
    EXPECT_THROW(typed(parse(text, kOperands), floats), DTypeError) << text;
  try {
    typed(parse("x & y", kOperands), floats);
  } catch (const DTypeError& error) {
    EXPECT_STREQ(error.what(), "bit_and takes integers and bool, and was given f32; cast it, as in i32(x)");
  }
  EXPECT_NO_THROW(typed(parse("x & y", kOperands), integers));
}

TEST(Typed, ConstantsRoundToTheirType) {
  const DType single[] = {f32, f32}, doubles[] = {f64, f64};
  const double values[] = {1, 0};
  EXPECT_EQ(evaluate(typed(parse("x * 0.1", kOperands), single), values), static_cast<double>(0.1f));
  EXPECT_EQ(evaluate(typed(parse("x * 0.1", kOperands), doubles), values), 0.1);
}

TEST(Typed, WeakValuesThatAreSharedStayLinear) {
  std::string text = "var t = x > 0 ? 1 : 2;";
  for (int i = 0; i < 60; ++i) text += "t = t + t;";
  const DType types[] = {f32, i32};
  EXPECT_LT(typed(parse(text + "t", kOperands), types).code.size(), 70u);
}

struct IdentityCase {
  const char* text;
  const char* simplified;  // of f32 operands
};

TEST(Simplified, OnlyWhatHoldsForEveryValue) {
  const IdentityCase cases[] = {
      {"x * 1", "x"},
      {"1 * x", "x"},
      {"x / 1", "x"},
      {"x - 0", "x"},
      {"x + -0.0", "x"},
      {"-(-x)", "x"},
      {"x * -1", "-x"},
      {"-x * -y", "x * y"},
      {"-x * y", "-(x * y)"},
      {"x - -y", "x + y"},
      {"x + -y", "x - y"},
      {"-x + y", "y - x"},
      {"x + x", "x + x"},
      {"abs(-x)", "abs(x)"},
      {"abs(abs(x))", "abs(x)"},
      {"pow(x, 1)", "x"},
      {"pow(x, 0)", "1"},
      {"pow(x, 2)", "x * x"},
      {"pow(x, -1)", "1 / x"},
      {"x / 8", "x * 0.125"},
      {"max(x, x)", "x"},
      {"x > 0 ? y : y", "y"},
      {"true ? x : y", "x"},
      {"!(x > y) ? x : y", "x > y ? y : x"},
      {"!(x == y)", "x != y"},
      {"!(x != y)", "x == y"},
      {"x > 0 ? true : false", "x > 0"},
      {"x > 0 ? false : true", "!(x > 0)"},
      {"x > 0 && true", "x > 0"},
      {"x > 0 || true", "true"},
      {"x > 0 && false", "false"},
      {"2 * 3 + 4 + x", "10 + x"},
      {"sqrt(16) * x", "4 * x"},
      {"x * y + y * x", "var t0 = x * y; t0 + t0"},
      {"0 < 1 ? x : y", "x"},
      // These differ for NaN, infinity, a signed zero, or by rounding.
      {"x + 0", "x + 0"},
      {"x * 0", "x * 0"},
      {"x - x", "x - x"},
      {"x / x", "x / x"},
      {"x == x", "x == x"},
      {"0 - x", "0 - x"},
      {"-(x - y)", "-(x - y)"},
      {"!(x < y)", "!(x < y)"},
      {"x / 3", "x / 3"},
      {"pow(x, 0.5)", "pow(x, 0.5)"},
      {"x + y + 1 + 2", "x + y + 1 + 2"},
      {"max(x, y)", "max(x, y)"},
  };
  const DType types[] = {f32, f32};
  for (const IdentityCase& c : cases) {
    const Expression result = typed(parse(c.text, kOperands), types);
    EXPECT_EQ(to_text(result, kOperands), c.simplified) << c.text;
    EXPECT_EQ(simplified(result), result) << c.text;
  }
}

TEST(ToText, FewestParentheses) {
  for (const char* text : {"x + y * x",
                           "(x + y) * x",
                           "x - (y - x)",
                           "x - y - x",
                           "-(x + y)",
                           "x / (y * x)",
                           "x - -2",
                           "x > 0 && y > 0 || x < -1",
                           "(x > 0 || y > 0) && x < 1",
                           "x & y | x",
                           "x & (y | x)",
                           "(x & y) == x",
                           "x << 1 + y",
                           "(x << 1) + y",
                           "(x > y ? x : y) * 2",
                           "x > y ? x : y > 2 ? 1 : 3",
                           "pow(x, y > 0 ? 1 : 2)",
                           "!(x > y)",
                           "~x & y",
                           "f32(x) + i32(y)",
                           "bool(x)",
                           "x == inf",
                           "x > -inf",
                           "x * 1e-05",
                           "x + nan",
                           "true",
                           "-0",
                           "x * -0.5",
                           "-x % y",
                           "-(x % y)",
                           "(x ^ y) & x",
                           "x ^ y & x",
                           "x < y == y < x",
                           "x < (y == y) < x",
                           "exp2(x) - rsqrt(y)",
                           "var t0 = x * y; t0 / (1 + t0)",
                           "philox(x, y, 3)",
                           "(x ? y : 2) ? 1 : y"}) {
    const Expression expression = parse(text, kOperands);
    EXPECT_EQ(to_text(expression, kOperands), text);
    EXPECT_EQ(parse(to_text(expression, kOperands), kOperands), expression) << text;
  }
}

TEST(ToText, NewNamesDoNotMeetOperands) {
  const std::vector<std::string> names = {"t0", "t1"};
  const Expression expression = parse("var s = t0 + t1; s * s", names);
  EXPECT_EQ(to_text(expression, names), "var t2 = t0 + t1; t2 * t2");
  EXPECT_EQ(to_text(expression), "var t0 = x0 + x1; t0 * t0");
}

struct IntegerCase {
  const char* text;
  double x, y;
  double as_i32, as_u32;
};

TEST(Evaluate, IntegersWrapAndDivideAsInWgsl) {
  const double lowest = -2147483648.0;
  const IntegerCase cases[] = {
      {"x + y", 2147483647, 1, lowest, 2147483648.0},
      {"x * y", 65536, 65536, 0, 0},
      {"x * y", 2147483647, 2147483647, 1, 1},
      {"x / y", 7, 2, 3, 3},
      {"x / y", 7, 0, 7, 7},
      {"x % y", 7, 0, 0, 0},
      {"x % y", 7, 4, 3, 3},
      {"x << y", 1, 33, 2, 2},
      {"x << y", 1, 31, lowest, 2147483648.0},
      {"x - y", 0, 1, -1, 4294967295.0},
      {"min(x, y)", 3, 4, 3, 3},
      {"x & y", 6, 3, 2, 2},
      {"x ^ y", 6, 3, 5, 5},
      {"~x", 0, 0, -1, 4294967295.0},
      {"sign(x)", 7, 0, 1, 1},
  };
  for (const IntegerCase& c : cases) {
    const DType signed_types[] = {i32, i32}, unsigned_types[] = {u32, u32};
    const double values[] = {c.x, c.y};
    EXPECT_EQ(evaluate(typed(parse(c.text, kOperands), signed_types), values), c.as_i32) << c.text << " i32";
    EXPECT_EQ(evaluate(typed(parse(c.text, kOperands), unsigned_types), values), c.as_u32) << c.text << " u32";
  }
  const DType types[] = {i32, i32};
  auto at = [&](const char* text, double x, double y) {
    const double values[] = {x, y};
    return evaluate(typed(parse(text, kOperands), types), values);
  };
  EXPECT_EQ(at("x / y", lowest, -1), lowest);
  EXPECT_EQ(at("x % y", lowest, -1), 0);
  EXPECT_EQ(at("x / y", -7, 2), -3);
  EXPECT_EQ(at("x % y", -7, 2), -1);
  EXPECT_EQ(at("x >> y", -8, 1), -4);
  EXPECT_EQ(at("abs(x)", lowest, 0), lowest);
  EXPECT_EQ(at("u32(x) >> 1", -2, 0), 2147483647);
}

TEST(Evaluate, FloatsFollowIeee) {
  auto at = [](const char* text, double x, double y) {
    const double values[] = {x, y};
    return evaluate(parse(text, kOperands), values);
  };
  for (const char* text : {"max(x, y)", "min(x, y)", "max(y, x)", "min(y, x)", "sign(x)", "x + y", "abs(x)", "x % y"})
    EXPECT_TRUE(std::isnan(at(text, kNan, 1))) << text;
  for (const char* text : {"x < y", "x <= y", "x > y", "x >= y", "x == y", "x == x"})
    EXPECT_EQ(at(text, kNan, 1), 0) << text;
  EXPECT_EQ(at("x != x", kNan, 0), 1);
  EXPECT_EQ(at("round(x)", 2.5, 0), 2);
  EXPECT_EQ(at("round(x)", 3.5, 0), 4);
  EXPECT_EQ(at("round(x)", -0.5, 0), 0);
  EXPECT_EQ(at("sign(x)", -0.0, 0), 0);
  EXPECT_EQ(at("x % y", -7.5, 2), -1.5);
  EXPECT_EQ(at("copysign(x, y)", 3, -0.0), -3);
  EXPECT_EQ(at("pow(x, 0)", kNan, 0), 1);
  EXPECT_TRUE(std::isnan(at("pow(x, y)", -8, 1.0 / 3)));
  EXPECT_EQ(at("pow(x, y)", -2, 3), -8);
  EXPECT_EQ(at("1 / x", -0.0, 0), -kInf);
}

TEST(Evaluate, PhiloxMatchesThePublishedVector) {
  // Random123's known answers for philox4x32-10: counter and key zero, and all ones.
  const std::vector<std::string> names = {"seed", "stream", "index"};
  const double zeros[] = {0, 0, 0};
  EXPECT_EQ(evaluate(parse("philox(seed, stream, index)", names), zeros), 0x6627e8d5u);
}

TEST(Builder, EqualValuesAreOne) {
  Builder builder(2);
  const int x = builder.input(0), y = builder.input(1);
  EXPECT_EQ(builder.make(Op::add, x, y), builder.make(Op::add, x, y));
  EXPECT_EQ(builder.make(Op::add, x, y), builder.make(Op::add, y, x));
  EXPECT_NE(builder.make(Op::sub, x, y), builder.make(Op::sub, y, x));
  EXPECT_NE(builder.constant(0), builder.constant(-0.0));
  EXPECT_EQ(builder.constant(kNan), builder.constant(-kNan));
  const Expression expression = builder.finish(builder.make(Op::mul, y, y));
  EXPECT_EQ(expression.inputs, 2);
  EXPECT_EQ(expression.code.size(), 2u);  // what is not needed is gone
}

TEST(Compose, PutsExpressionsIntoOperands) {
  const Expression outer = parse("x * y + x", kOperands);
  const Expression arguments[] = {parse("x + 1", kOperands), parse("x - y", kOperands)};
  EXPECT_EQ(compose(outer, arguments), parse("var a = x + 1; a * (x - y) + a", kOperands));
}

TEST(Hash, FollowsEquality) {
  EXPECT_EQ(hash(parse("x + 1", kOperands)), hash(parse("(x) + 1.0", kOperands)));
  EXPECT_NE(hash(parse("x + 1", kOperands)), hash(parse("x - 1", kOperands)));
  EXPECT_NE(hash(parse("x + 0.0", kOperands)), hash(parse("x + y", kOperands)));
}

TEST(Ops, EveryOpButLeavesHasANameAndOperands) {
  for (int i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_FALSE(name_of(op).empty());
    EXPECT_EQ(arity(op) == 0, op == Op::input || op == Op::constant);
  }
  EXPECT_EQ(name_of(Reduction::argmin), "argmin");
}

}  // namespace
}  // namespace weft::scalar
