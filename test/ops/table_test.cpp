// The op table, read row by row: texts, types, gradients to second order, names, documentation. A new row is tested here
// without a line of its own.
#include "ops/table.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <thread>

#include "ops/derivative.hpp"
#include "ops/gradient_check.hpp"
#include "ops/parse.hpp"
#include "weft/error.hpp"

namespace weft::ops {
namespace {

using scalar::Expression;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> operands_of(const ElementwiseRow& row) {
  std::vector<std::string> names;
  for (std::string_view name : row.inputs) names.emplace_back(name);
  for (const Attribute& attribute : row.attributes) names.emplace_back(attribute.name);
  return names;
}

/// Points of the tested range, attributes at their tested values, away from the kinks.
class Points {
 public:
  explicit Points(const ElementwiseRow& row) : row_(row), random_(17) {
    for (std::string_view text : row.kinks) kinks_.push_back(scalar::parse(text, operands_of(row)));
  }
  std::vector<double> next() {
    for (int trial = 0; trial < 1000; ++trial) {
      std::vector<double> at;
      for (std::size_t i = 0; i < row_.inputs.size(); ++i)
        at.push_back(std::uniform_real_distribution<>(row_.tested.of(i).lo, row_.tested.of(i).hi)(random_));
      for (const Attribute& attribute : row_.attributes) at.push_back(attribute.tested);
      bool near = false;
      for (const Expression& kink : kinks_) near = near || std::fabs(scalar::evaluate(kink, at)) < 0.02;
      if (!near) return at;
    }
    ADD_FAILURE() << row_.name << ": no point away from the kinks";
    return {};
  }

 private:
  const ElementwiseRow& row_;
  std::mt19937 random_;
  std::vector<Expression> kinks_;
};

double tolerance(double value) { return 2e-6 * std::max(1.0, std::fabs(value)); }

TEST(Table, HoldsEveryOpOfTheReference) {
  const char* unary[] = {"abs",    "acos",    "acosh",   "asin",     "asinh",    "atan",     "ceil",       "cos",
                         "cosh",   "deg2rad", "exp",     "exp2",     "expm1",    "floor",    "frac",       "log",
                         "log10",  "log1p",   "log2",    "neg",      "positive", "rad2deg",  "reciprocal", "relu",
                         "round",  "rsqrt",   "sigmoid", "sign",     "silu",     "sin",      "sinc",       "sinh",
                         "sqrt",   "square",  "tan",     "tanh",     "trunc",    "absolute", "arccos",     "arccosh",
                         "arcsin", "arcsinh", "arctan",  "negative", "fix"};
  for (const char* name : unary) {
    ASSERT_NE(find_elementwise(name), nullptr) << name;
    EXPECT_EQ(find_elementwise(name)->inputs.size(), 1u) << name;
  }
  const char* binary[] = {"add",       "sub",        "mul", "div",   "atan2",    "copysign", "hypot",  "ldexp",
                          "logaddexp", "logaddexp2", "pow", "xlogy", "subtract", "multiply", "divide", "arctan2"};
  for (const char* name : binary) {
    ASSERT_NE(find_elementwise(name), nullptr) << name;
    EXPECT_EQ(find_elementwise(name)->inputs.size(), 2u) << name;
  }
  for (const char* name :
       {"sum", "mean", "prod", "norm", "all", "any", "countNonzero", "amax", "amin", "argmax", "argmin"})
    EXPECT_NE(find_reduce(name), nullptr) << name;
}

TEST(Table, NamesAreUniqueAndRowsAreDocumented) {
  std::set<std::string_view> names;
  auto check = [&](const auto& row) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (std::string_view alias : row.aliases) EXPECT_TRUE(names.insert(alias).second) << alias;
    EXPECT_GT(row.doc.size(), 5u) << row.name;
    EXPECT_EQ(row.doc.back(), '.') << row.name;
    for (const Attribute& attribute : row.attributes) EXPECT_FALSE(attribute.doc.empty()) << row.name;
  };
  for (const ElementwiseRow* row : elementwise_rows()) {
    if (row->name.substr(0, 5) == "test_") continue;  // registered by these tests
    check(*row);
    EXPECT_FALSE(row->inputs.empty()) << row->name;
    EXPECT_TRUE(row->tested.size() == 1 || row->tested.size() == row->inputs.size()) << row->name;
    for (const Range& range : row->tested) EXPECT_LT(range.lo, range.hi) << row->name;
    EXPECT_LE(row->gradients.size(), row->inputs.size()) << row->name;
  }
  for (const ReduceRow& row : reduce_rows()) check(row);
}

// Fewer bits than six would make two lists of types one key.
TEST(Table, EveryListOfTypesHasItsOwnCode) {
  const ElementwiseRow& row = elementwise_row("where");
  for (DType a : kComputeDTypes)
    for (DType b : kComputeDTypes) {
      const DType types[] = {DType::boolean, a, b};
      try {
        EXPECT_EQ(typed_forward(row, types).type(), promote(a, b)) << name_of(a) << ", " << name_of(b);
      } catch (const DTypeError&) {
        EXPECT_THROW(promote(a, b), DTypeError) << name_of(a) << ", " << name_of(b);
      }
    }
}

TEST(Table, TypesFollowTheRowsRule) {
  for (const ElementwiseRow* row : elementwise_rows())
    for (DType first : kAllDTypes)
      for (DType second : kAllDTypes) {
        std::vector<DType> types(row->inputs.size(), second);
        types[0] = first;
        bool allowed = true;
        DType promoted = types[0];
        const bool is_where = row->name == "where";  // what it picks is not promoted by its condition
        try {
          for (DType type : types) {
            allowed = allowed && allows(row->dtypes, type);
            promoted = is_where ? second : promote(promoted, type);
          }
        } catch (const DTypeError&) {
          // Integers without a common type are floats first; for logic, each is a bool.
          if (row->result == Result::floating || row->name.substr(0, 8) == "logical_") continue;
          allowed = false;
        }
        if (!allowed) {
          EXPECT_THROW(typed_forward(*row, types), DTypeError) << row->name << name_of(first) << name_of(second);
          continue;
        }
        SCOPED_TRACE(fmt::format("{} of {}, {}", std::string_view(row->name), name_of(first), name_of(second)));
        DType type;
        ASSERT_NO_THROW(type = typed_forward(*row, types).type());
        switch (row->result) {
          case Result::same:
            EXPECT_TRUE(type == promoted || (promoted == DType::boolean && type == DType::i32))
                << row->name << " of " << name_of(first) << ", " << name_of(second) << " is " << name_of(type);
            break;
          case Result::floating:
            EXPECT_EQ(type, is_float(promoted) ? promoted : DType::f32) << row->name;
            EXPECT_EQ(attribute_type(*row, types), compute_type(type)) << row->name;
            break;
          case Result::boolean: EXPECT_EQ(type, DType::boolean) << row->name; break;
          case Result::integer: EXPECT_TRUE(is_integer(type)) << row->name; break;
        }
        EXPECT_EQ(&typed_forward(*row, types), &typed_forward(*row, types)) << row->name;
      }
}

TEST(Table, TextsReadBackAndKeepTheirMeaningWithTypes) {
  for (const ElementwiseRow* row : elementwise_rows()) {
    const std::vector<std::string> names = operands_of(*row);
    EXPECT_EQ(scalar::parse(scalar::to_text(forward(*row), names), names), forward(*row)) << row->name;
    if (!allows(row->dtypes, DType::f64)) continue;
    const Expression& typed = typed_forward(*row, std::vector<DType>(row->inputs.size(), DType::f64));
    Points points(*row);
    for (int i = 0; i < 20; ++i) {
      const std::vector<double> at = points.next();
      const double expected = scalar::evaluate(forward(*row), at);
      EXPECT_DOUBLE_EQ(scalar::evaluate(typed, at), expected) << row->name;
      EXPECT_FALSE(std::isnan(expected)) << row->name << ": NaN within the tested range";
    }
  }
}

TEST(Table, GradientsAgreeWithDifferences) {
  for (const ElementwiseRow* row : elementwise_rows()) {
    const Expression& function = forward(*row);
    ASSERT_EQ(gradients(*row).size(), row->inputs.size() + row->attributes.size()) << row->name;
    for (const Expression& gradient : gradients(*row)) {
      EXPECT_EQ(gradient.inputs, function.inputs + 2) << row->name;
      EXPECT_TRUE(row->differentiable || scalar::is_zero(gradient)) << row->name;
    }
    if (!row->differentiable) continue;
    Points points(*row);
    for (int i = 0; i < 20; ++i) {
      const std::vector<double> at = points.next();
      for (std::size_t operand = 0; operand < gradients(*row).size(); ++operand) {
        if (std::isinf(at[operand])) continue;
        const double expected = 1.5 * scalar::test::difference(function, operand, at);
        EXPECT_NEAR(scalar::test::value_of(gradients(*row)[operand], function, at, 1.5), expected, tolerance(expected))
            << row->name << " by " << operands_of(*row)[operand] << " at " << fmt::format("{}", fmt::join(at, ", "));
      }
    }
  }
}

TEST(Table, GivenGradientsAgreeWithDerivedOnes) {
  for (const ElementwiseRow* row : elementwise_rows()) {
    if (!row->differentiable) continue;
    const Expression& function = forward(*row);
    const std::vector<Expression> derived = scalar::gradient(function);
    Points points(*row);
    for (int i = 0; i < 20; ++i) {
      const std::vector<double> at = points.next();
      for (std::size_t operand = 0; operand < row->gradients.size(); ++operand) {
        const double given = scalar::test::value_of(gradients(*row)[operand], function, at);
        EXPECT_NEAR(given, scalar::test::value_of(derived[operand], function, at),
                    1e-9 * std::max(1.0, std::fabs(given)))
            << row->name << " at " << fmt::format("{}", fmt::join(at, ", "));
      }
    }
  }
}

TEST(Table, GradientsOfCallsAreTheGradients) {
  int calls = 0;
  for (const ElementwiseRow* row : elementwise_rows()) {
    const std::vector<GradientOfCalls>& split = gradients_of_calls(*row);
    ASSERT_EQ(split.size(), row->gradient_ops.empty() ? 0 : gradients(*row).size()) << row->name;
    Points points(*row);
    for (std::size_t operand = 0; operand < split.size(); ++operand) {
      std::vector<double> all = points.next();
      all.push_back(scalar::evaluate(forward(*row), all));
      all.push_back(1.5);
      const double whole = scalar::evaluate(gradients(*row)[operand], all);
      for (const scalar::OpCall& call : split[operand].calls) {
        const ElementwiseRow& called = elementwise_row(call.function);
        ASSERT_EQ(call.arguments.size(), called.inputs.size() + called.attributes.size()) << row->name;
        std::vector<double> arguments;
        for (const Expression& argument : call.arguments) {
          ASSERT_EQ(argument.inputs, static_cast<int>(all.size())) << row->name;
          arguments.push_back(scalar::evaluate(argument, all));
        }
        all.push_back(scalar::evaluate(forward(called), arguments));
        ++calls;
      }
      ASSERT_EQ(split[operand].gradient.inputs, static_cast<int>(all.size())) << row->name;
      EXPECT_DOUBLE_EQ(scalar::evaluate(split[operand].gradient, all), whole) << row->name << " by " << operand;
    }
  }
  EXPECT_GE(calls, 4);
}

TEST(Table, SecondDerivativesAgreeWithDifferencesOfFirst) {
  for (const ElementwiseRow* row : elementwise_rows()) {
    if (!row->differentiable || !row->second_order) continue;
    const Expression& function = forward(*row);
    const auto count = row->inputs.size();
    const auto output = static_cast<std::size_t>(function.inputs);
    for (std::size_t i = 0; i < count; ++i) {
      const Expression& first = gradients(*row)[i];
      const std::vector<Expression> second = scalar::gradient(first);
      Points points(*row);
      for (int trial = 0; trial < 10; ++trial) {
        const std::vector<double> at = points.next();
        std::vector<double> all = at;
        all.push_back(scalar::evaluate(function, at));
        all.push_back(1);
        for (std::size_t j = 0; j < count; ++j) {
          const double expected = scalar::test::difference_of(
              [&](const std::vector<double>& x) { return scalar::test::value_of(first, function, x); }, j, at);
          // Directly, and through the output.
          const double value =
              scalar::test::slope(first, j, all) + scalar::test::value_of(second[output], first, all) *
                                                       scalar::test::value_of(gradients(*row)[j], function, at);
          EXPECT_NEAR(value, expected, 10 * tolerance(expected))
              << row->name << " by " << i << ", " << j << " at " << fmt::format("{}", fmt::join(at, ", "));
        }
      }
    }
  }
}

struct ValueCase {
  const char* op;
  std::vector<double> inputs;
  double value;
};

TEST(Table, TrapsOfTheField) {
  const double ln2 = std::log(2.0);
  const ValueCase cases[] = {
      {"logaddexp", {1000, 1000}, 1000 + ln2},
      {"logaddexp", {-1000, -1000}, -1000 + ln2},
      {"logaddexp", {1000, -1000}, 1000},
      {"logaddexp", {-kInf, -kInf}, -kInf},
      {"logaddexp", {-kInf, 3}, 3},
      {"logaddexp", {kInf, kInf}, kInf},
      {"logaddexp2", {2000, 2000}, 2001},
      {"logaddexp2", {-kInf, -kInf}, -kInf},
      {"expm1", {1e-12}, 1e-12 + 0.5e-24},
      {"log1p", {1e-12}, 1e-12 - 0.5e-24},
      {"hypot", {3e200, 4e200}, 5e200},
      {"hypot", {3e-200, 4e-200}, 5e-200},
      {"hypot", {kInf, kNan}, kInf},
      {"hypot", {0, 0}, 0},
      {"copysign", {3, -0.0}, -3},
      {"copysign", {-3, 0.0}, 3},
      {"round", {0.5}, 0},
      {"round", {1.5}, 2},
      {"round", {2.5}, 2},
      {"round", {-2.5}, -2},
      {"pow", {-2, 3}, -8},
      {"pow", {-2, 2}, 4},
      {"pow", {-2, 0.5}, kNan},
      {"pow", {kNan, 0}, 1},
      {"pow", {0, -1}, kInf},
      {"xlogy", {0, 0}, 0},
      {"xlogy", {0, kNan}, kNan},
      {"xlogy", {0, -1}, 0},
      {"sinc", {0}, 1},
      {"sinc", {1e-9}, 1},
      {"relu", {kNan}, kNan},
      {"relu", {-kInf}, 0},
      {"clamp", {kNan}, kNan},
      {"maximum", {1, kNan}, kNan},
      {"minimum", {kNan, 1}, kNan},
      {"fmax", {1, kNan}, 1},
      {"fmin", {kNan, 1}, 1},
      {"fmax", {kNan, kNan}, kNan},
      {"fmod", {-7, 3}, -1},
      {"remainder", {-7, 3}, 2},
      {"remainder", {7, -3}, -2},
      {"remainder", {6, -3}, 0},
      {"floor_divide", {-7, 2}, -4},
      {"floor_divide", {7, -2}, -4},
      {"floor_divide", {6, 3}, 2},
      {"floor_divide", {1, 0}, kInf},
      {"sigmoid", {-1000}, 0},
      {"sigmoid", {1000}, 1},
      {"sigmoid", {-700}, std::exp(-700.0)},
      {"softplus", {1000}, 1000},
      {"softplus", {-50}, std::exp(-50.0)},
      {"log_sigmoid", {-1000}, -1000},
      {"log_sigmoid", {1000}, 0},
      {"silu", {-1000}, 0},
      {"mish", {-1000}, 0},
      {"gelu", {10}, 10},
      {"gelu_tanh", {-50}, 0},
      {"ldexp", {1e-300, 1100}, std::ldexp(1e-300, 1100)},
      {"ldexp", {1, kInf}, kInf},
      {"ldexp", {2, -kInf}, 0},
      {"ldexp", {kInf, kInf}, kInf},
      {"erfc", {-kInf}, 2},
      {"erfc", {kInf}, 0},
      {"erfinv", {1}, kInf},
      {"erfinv", {-1}, -kInf},
      {"erfinv", {1.5}, kNan},
      {"ndtri", {0}, -kInf},
      {"ndtri", {0.5}, 0},
      {"ndtri", {1}, kInf},
      {"log_ndtr", {kInf}, 0},
      {"log_ndtr", {-kInf}, -kInf},
      {"entr", {0}, 0},
      {"entr", {-1}, -kInf},
      {"xlog1py", {0, -1}, 0},
      {"xlog1py", {0, kNan}, kNan},
      {"lgamma", {0}, kInf},
      {"lgamma", {-3}, kInf},
      {"lgamma", {-kInf}, kInf},
      {"digamma", {0}, -kInf},
      {"digamma", {-2}, kNan},
      {"polygamma", {-1}, kInf},
      {"polygamma", {0}, kInf},
      {"erfcx", {kInf}, 0},
      {"erfcx", {-kInf}, kInf},
      {"zeta", {1, 2}, kInf},
      {"zeta", {0.5, 2}, kNan},
      {"zeta", {2, 0}, kInf},
      {"zeta", {3, -2}, kInf},
      {"zeta", {2.5, -0.5}, kNan},
      {"zeta", {2, kInf}, 0},
      {"zeta", {kInf, 2}, 0},
      {"zeta", {kInf, 1}, 1},
      {"zeta", {kInf, 0.5}, kInf},
      {"igamma", {0, 0}, kNan},
      {"igamma", {0, 1}, 1},
      {"igamma", {1, 0}, 0},
      {"igamma", {-1, 1}, kNan},
      {"igamma", {1, -1}, kNan},
      {"igamma", {kInf, 1}, 0},
      {"igamma", {2, kInf}, 1},
      {"igamma", {kInf, kInf}, kNan},
      {"igamma", {2, kNan}, kNan},
      {"igammac", {0, 0}, kNan},
      {"igammac", {0, 1}, 0},
      {"igammac", {1, 0}, 1},
      {"igammac", {1, -1}, kNan},
      {"igammac", {kInf, 1}, 1},
      {"igammac", {2, kInf}, 0},
      {"bessel_j0", {0}, 1},
      {"bessel_j0", {-kInf}, 0},
      {"bessel_j1", {0}, 0},
      {"bessel_j1", {kInf}, 0},
      {"bessel_y0", {0}, -kInf},
      {"bessel_y0", {-1}, kNan},
      {"bessel_y0", {-20}, kNan},
      {"bessel_y0", {kInf}, 0},
      {"bessel_y1", {0}, -kInf},
      {"bessel_y1", {-20}, kNan},
      {"bessel_y1", {kInf}, 0},
      {"modified_bessel_k0", {0}, kInf},
      {"modified_bessel_k0", {-1}, kNan},
      {"modified_bessel_k0", {kInf}, 0},
      {"modified_bessel_k0", {kNan}, kNan},
      {"modified_bessel_k1", {0}, kInf},
      {"modified_bessel_k1", {-3}, kNan},
      {"modified_bessel_k1", {kInf}, 0},
      {"scaled_modified_bessel_k0", {0}, kInf},
      {"scaled_modified_bessel_k1", {0}, kInf},
      {"scaled_modified_bessel_k1", {kInf}, 0},
      {"spherical_bessel_j0", {0}, 1},
      {"spherical_bessel_j0", {-kInf}, 0},
      {"airy_ai", {kInf}, 0},
      {"airy_ai", {-kInf}, 0},
      {"airy_ai", {kNan}, kNan},
      {"i0", {0}, 1},
      {"i0", {kInf}, kInf},
      {"i1", {-kInf}, -kInf},
      {"i0e", {kInf}, 0},
      {"cbrt", {-8}, -2},
      {"cbrt", {0}, 0},
      {"cbrt", {-kInf}, -kInf},
      {"softshrink", {kNan}, kNan},
      {"threshold", {kNan}, kNan},
      {"isclose", {kInf, kInf}, 1},
      {"isclose", {kInf, -kInf}, 0},
      {"isclose", {1, kInf}, 0},
      {"isclose", {kNan, kNan}, 0},
      {"sign", {kNan}, kNan},
      {"sign", {-0.0}, 0},
      {"signbit", {-0.0}, 1},
      {"isnan", {kNan}, 1},
      {"isinf", {-kInf}, 1},
      {"isfinite", {kNan}, 0},
      {"isfinite", {3}, 1},
      {"eq", {kNan, kNan}, 0},
      {"ne", {kNan, kNan}, 1},
      {"lt", {kNan, 1}, 0},
      {"heaviside", {0, 0.5}, 0.5},
      {"where", {0, 1, kNan}, kNan},
      {"where", {1, 1, kNan}, 1},
      {"lerp", {1e300, -1e300, 1}, -1e300},
      {"reciprocal", {-0.0}, -kInf},
      {"rsqrt", {0}, kInf},
      {"frac", {-1.75}, -0.75},
      {"atan2", {0, -1}, std::acos(-1.0)},
  };
  for (const ValueCase& c : cases) {
    const ElementwiseRow& row = elementwise_row(c.op);
    std::vector<double> at = c.inputs;
    for (const Attribute& attribute : row.attributes) at.push_back(attribute.default_value);
    const Expression& typed = typed_forward(row, std::vector<DType>(row.inputs.size(), DType::f64));
    for (const Expression* expression : {&forward(row), &typed}) {
      const double value = scalar::evaluate(*expression, at);
      if (std::isnan(c.value))
        EXPECT_TRUE(std::isnan(value)) << c.op << ": " << value;
      else
        EXPECT_DOUBLE_EQ(value, c.value) << c.op << " of " << fmt::format("{}", fmt::join(c.inputs, ", "));
    }
  }
}

// Values computed in 40 digits, far out and where one approximation hands over to the next.
TEST(Table, SpecialFunctionsFarOut) {
  const ValueCase cases[] = {
      {"erfc", {0.49}, 0.48833173881147691},
      {"erfc", {0.51}, 0.47075638015882956},
      {"erfc", {3.0}, 2.2090496998585441e-5},
      {"erfc", {10.0}, 2.0884875837625448e-45},
      {"erfc", {25.0}, 8.3001725711965228e-274},
      {"erfinv", {1e-10}, 8.8622692545275805e-11},
      {"erfinv", {0.9965}, 2.0647715607126023},
      {"erfinv", {0.997}, 2.0985076117936707},
      {"erfinv", {0.99999999999}, 4.8129240589448325},
      {"erfinv", {0.9999999999999999}, 5.8635847487551679},
      {"ndtri", {0.001}, -3.0902323061678135},
      {"ndtri", {1e-12}, -7.0344838253011319},
      {"ndtri", {1e-100}, -21.273453560965324},
      {"ndtri", {1e-300}, -37.047096299361199},
      {"log_ndtr", {-1.5}, -2.7059444008238898},
      {"log_ndtr", {-40.0}, -804.60844201375379},
      {"log_ndtr", {5.0}, -2.8665161296376359e-7},
      {"lgamma", {0.01}, 4.5994798780420217},
      {"lgamma", {7.9}, 8.3242658680088096},
      {"lgamma", {8.1}, 8.7273882634320398},
      {"lgamma", {100.0}, 359.1342053695754},
      {"lgamma", {10000000000.0}, 220258509288.81058},
      {"lgamma", {-0.5}, 1.2655121234846454},
      {"lgamma", {-2.25}, 0.55550154502064747},
      {"digamma", {0.01}, -100.56088545786867},
      {"digamma", {7.9}, 2.002238487563571},
      {"digamma", {8.1}, 2.0288674570805814},
      {"digamma", {1000000.0}, 13.815510057964191},
      {"digamma", {-0.5}, 0.036489973978576521},
      {"digamma", {-2.25}, 4.1585835646579723},
      {"polygamma", {0.01}, 10001.621213528313},
      {"polygamma", {1.0}, 1.6449340668482264},
      {"polygamma", {30.0}, 0.033895060357739944},
      {"i0", {11.9}, 17219.240276268027},
      {"i1", {11.9}, 16479.060192397504},
      {"i0", {12.1}, 20853.117403880697},
      {"i1", {12.1}, 19971.911047960127},
      {"i0", {100.0}, 1.0737517071310738e+42},
      {"i1", {100.0}, 1.0683693903381625e+42},
      {"i0", {600.0}, 6.1463054039368448e+258},
      {"i1", {600.0}, 6.1411813450668919e+258},
      {"i1e", {1e-08}, 4.9999999500000004e-9},
      {"i1e", {1000.0}, 0.012610930256928629},
      {"polygamma", {-0.5}, 8.9348022005446793},
      {"erfcx", {-5.0}, 144009798674.66104},
      {"erfcx", {0.3}, 0.73459933456765515},
      {"erfcx", {40.0}, 0.014100335983377814},
      {"bessel_j0", {1e-05}, 0.999999999975},
      {"bessel_j0", {7.9}, 0.19436184484127824},
      {"bessel_j0", {8.1}, 0.14751745404437767},
      {"bessel_j0", {100.0}, 0.019985850304223122},
      {"bessel_j1", {1e-05}, 4.9999999999375004e-6},
      {"bessel_j1", {7.9}, 0.2191793999217512},
      {"bessel_j1", {8.1}, 0.24760776698159288},
      {"bessel_j1", {100.0}, -0.077145352014112158},
      {"bessel_y0", {1e-05}, -7.4031602837019701},
      {"bessel_y0", {7.9}, 0.20652094814437577},
      {"bessel_y0", {8.1}, 0.23809132870223481},
      {"bessel_y0", {100.0}, -0.077244313365083152},
      {"bessel_y1", {1e-05}, -63661.97727536548},
      {"bessel_y1", {7.9}, -0.18172107728057313},
      {"bessel_y1", {8.1}, -0.13314879595249593},
      {"bessel_y1", {100.0}, -0.020372312002759793},
      {"modified_bessel_k0", {1e-05}, 11.628856980944362},
      {"modified_bessel_k0", {1.9}, 0.12884597927604749},
      {"modified_bessel_k0", {2.1}, 0.10078374088996693},
      {"modified_bessel_k0", {100.0}, 4.656628229175902e-45},
      {"modified_bessel_k1", {1e-05}, 99999.999939355707},
      {"modified_bessel_k1", {1.9}, 0.15966015303266763},
      {"modified_bessel_k1", {2.1}, 0.1227464115335079},
      {"modified_bessel_k1", {100.0}, 4.6798537356369093e-45},
      {"scaled_modified_bessel_k0", {1.9}, 0.86145061675175579},
      {"scaled_modified_bessel_k0", {1000.0}, 0.039628321600754217},
      {"scaled_modified_bessel_k1", {1.9}, 1.06747092981457},
      {"scaled_modified_bessel_k1", {1000.0}, 0.03964813081296021},
      {"airy_ai", {-30.0}, -0.087968188456842163},
      {"airy_ai", {-5.1}, 0.30952599628731769},
      {"airy_ai", {-4.9}, 0.37453635470583875},
      {"airy_ai", {-1.6}, 0.42986297676913515},
      {"airy_ai", {-1.4}, 0.49170018106129075},
      {"airy_ai", {1.9}, 0.040594420031529502},
      {"airy_ai", {2.1}, 0.029952602115866522},
      {"airy_ai", {30.0}, 3.2082175915504956e-49},
      {"zeta", {1.01, 0.5}, 101.97709317748227},
      {"zeta", {2.5, 0.001}, 31622777.940358822},
      {"zeta", {20.0, 40.0}, 2.4071877617931632e-32},
      {"zeta", {3.0, -2.25}, -61.948474887030083},
      {"zeta", {4.0, -0.5}, 32.234848505667073},
      {"igamma", {0.01, 1.4}, 0.99882293065906831},
      {"igammac", {0.01, 1.4}, 0.0011770693409316868},
      {"igamma", {0.01, 1.6}, 0.99912495609528348},
      {"igammac", {0.01, 1.6}, 0.00087504390471652097},
      {"igamma", {3.0, 2.9}, 0.55403680144281939},
      {"igammac", {3.0, 2.9}, 0.44596319855718061},
      {"igamma", {3.0, 3.1}, 0.59883685268536776},
      {"igammac", {3.0, 3.1}, 0.40116314731463224},
      {"igamma", {19.9, 20.0}, 0.53869999753294121},
      {"igammac", {19.9, 20.0}, 0.46130000246705879},
      {"igamma", {20.1, 20.0}, 0.52078565493202256},
      {"igammac", {20.1, 20.0}, 0.47921434506797744},
      {"igamma", {30.0, 10.0}, 2.5099512015279078e-7},
      {"igammac", {30.0, 10.0}, 0.99999974900487985},
      {"igamma", {30.0, 55.0}, 0.99991145216952932},
      {"igammac", {30.0, 55.0}, 8.8547830470678411e-5},
      {"igamma", {250.0, 300.0}, 0.9986225281224718},
      {"igammac", {250.0, 300.0}, 0.001377471877528202},
      {"igamma", {100000.0, 100100.0}, 0.6244451307044055},
      {"igammac", {100000.0, 100100.0}, 0.3755548692955945},
      {"cbrt", {1e-300}, 1.0e-100},
  };
  for (const ValueCase& c : cases) {
    const ElementwiseRow& row = elementwise_row(c.op);
    std::vector<double> at = c.inputs;
    for (const Attribute& attribute : row.attributes) at.push_back(attribute.default_value);
    EXPECT_NEAR(scalar::evaluate(forward(row), at), c.value, 2e-13 * std::fabs(c.value))
        << c.op << " of " << fmt::format("{}", fmt::join(c.inputs, ", "));
  }
}

// A choice that gives 0 at a point must not hide how the derivative changes there.
TEST(Table, SecondDerivativesWhereTheFirstIsZero) {
  const auto second = [](const char* name, std::size_t of, std::size_t by, const std::vector<double>& at) {
    const Expression& first = gradients(elementwise_row(name))[of];
    std::vector<double> all = at;
    all.push_back(scalar::evaluate(forward(elementwise_row(name)), at));
    all.push_back(1);
    return scalar::test::slope(first, by, all);
  };
  EXPECT_DOUBLE_EQ(second("xlogy", 1, 0, {0, 2}), 0.5);
  EXPECT_DOUBLE_EQ(second("xlogy", 0, 1, {0, 2}), 0.5);
  EXPECT_DOUBLE_EQ(second("pow", 0, 1, {2, 0}), 0.5);
  EXPECT_DOUBLE_EQ(second("pow", 0, 0, {0, 2}), 2);
}

TEST(Table, RemaindersNearMultiplesKnowTheirQuotient) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const double y = std::uniform_real_distribution<>(0.5, 1)(random), x = y * (1 + i % 300);
    for (const char* name : {"remainder", "fmod"}) {
      const Expression& function = forward(elementwise_row(name));
      const double value = scalar::evaluate(function, std::vector<double>{x, y});
      const double slope = scalar::test::value_of(gradients(elementwise_row(name))[1], function, {x, y});
      EXPECT_NEAR(value - slope * y, x, 1e-9) << name << " of " << x << ", " << y;
    }
  }
}

struct GradientCase {
  const char* op;
  std::vector<double> operands;  // attributes too
  std::size_t input;
  double value;
};

TEST(Table, GradientsAtKinksAndExtremes) {
  const GradientCase cases[] = {
      {"add", {2, 3, 1.5}, 1, 1.5},
      {"sub", {2, 3, 1.5}, 1, -1.5},
      {"sub", {2, 3, 1.5}, 0, 1},
      {"abs", {0}, 0, 0},
      {"relu", {0}, 0, 0},
      {"leaky_relu", {0, 0.1}, 0, 0.1},
      {"maximum", {2, 2}, 0, 0.5},
      {"minimum", {2, 2}, 1, 0.5},
      {"clamp", {1, 1, 2}, 0, 1},
      {"clamp", {0.5, 1, 2}, 0, 0},
      {"relu6", {6}, 0, 0},
      {"hardsigmoid", {3}, 0, 0},
      {"hardsigmoid", {-3}, 0, 0},
      {"hardswish", {-3}, 0, 0},
      {"hardswish", {3}, 0, 1},
      {"hypot", {0, 0}, 0, 0},
      {"hypot", {3e200, 4e200}, 0, 0.6},
      {"sinc", {0}, 0, 0},
      {"copysign", {0, -1}, 0, 0},
      {"pow", {0, 0}, 0, 0},
      {"pow", {0, 0}, 1, 0},
      {"pow", {-2, 0}, 0, 0},
      {"pow", {-2, 3}, 0, 12},
      {"pow", {0, 2}, 0, 0},
      {"pow", {0, 2}, 1, 0},
      {"xlogy", {0, 0}, 0, 0},
      {"xlogy", {0, 0}, 1, 0},
      {"xlogy", {0, 2}, 0, std::log(2.0)},
      {"xlogy", {0, -2}, 0, 0},
      {"logaddexp", {1000, 1000}, 0, 0.5},
      {"logaddexp", {1000, -1000}, 1, 0},
      {"logaddexp", {-kInf, -kInf}, 0, 0.5},
      {"logaddexp2", {3000, 3000}, 1, 0.5},
      {"sigmoid", {-1000}, 0, 0},
      {"silu", {-1000}, 0, 0},
      {"silu", {1000}, 0, 1},
      {"mish", {-1000}, 0, 0},
      {"mish", {1000}, 0, 1},
      {"softplus", {1000, 1, 20}, 0, 1},
      {"softplus", {3, 1, 2}, 0, 1},
      {"softplus", {-1000, 1, 20}, 0, 0},
      {"log_sigmoid", {-1000}, 0, 1},
      {"gelu", {-40}, 0, 0},
      {"gelu", {40}, 0, 1},
      {"elu", {1000, 1}, 0, 1},
      {"where", {1, 2, kNan}, 1, 1},
      {"where", {1, 2, kNan}, 2, 0},
      {"nan_to_num", {kNan, 0, 0, 0}, 0, 0},
  };
  for (const GradientCase& c : cases) {
    const ElementwiseRow& row = elementwise_row(c.op);
    EXPECT_DOUBLE_EQ(scalar::test::value_of(gradients(row)[c.input], forward(row), c.operands), c.value)
        << c.op << " by " << row.inputs[c.input] << " at " << fmt::format("{}", fmt::join(c.operands, ", "));
  }
}

// Beyond the threshold it is x, whatever the attributes.
TEST(Table, SoftplusIsLinearBeyondItsThreshold) {
  const scalar::Expression softplus = forward(elementwise_row("softplus"));
  const auto at = [&](double x, double beta, double threshold) {
    return scalar::evaluate(softplus, std::vector<double>{x, beta, threshold});
  };
  EXPECT_EQ(at(3, 1, 2), 3);
  EXPECT_EQ(at(1.5, 2, 2.5), 1.5);
  EXPECT_DOUBLE_EQ(at(1.5, 1, 2), std::log1p(std::exp(1.5)));
}

// ---- Reductions ----

/// A reduction as its row says, slowly.
double reduced(const ReduceRow& row, const std::vector<double>& values, const std::vector<double>& attributes) {
  double center = 0;
  if (!row.center.empty()) center = reduced(reduce_row(row.center), values, {});
  double result = 0;
  bool any = false;
  double position = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::vector<double> at = {values[i]};
    if (!row.center.empty()) at.push_back(center);
    at.insert(at.end(), attributes.begin(), attributes.end());
    const double x =
        scalar::evaluate(scalar::typed(expressions(row).pre, std::vector<DType>(at.size(), DType::f64)), at);
    const bool less = any && (x < result), more = any && (x > result);
    using enum scalar::Reduction;
    switch (row.reduction) {
      case sum: result = any ? result + x : x; break;
      case prod: result = any ? result * x : x; break;
      case max: result = !any || more ? x : result; break;
      case min: result = !any || less ? x : result; break;
      case argmax:
        if (!any || more) result = x, position = static_cast<double>(i);
        break;
      case argmin:
        if (!any || less) result = x, position = static_cast<double>(i);
        break;
    }
    any = true;
  }
  const bool finds = row.reduction == scalar::Reduction::argmax || row.reduction == scalar::Reduction::argmin;
  std::vector<double> at = {finds ? position : result, static_cast<double>(values.size())};
  if (!row.center.empty()) at.push_back(center);
  at.insert(at.end(), attributes.begin(), attributes.end());
  return scalar::evaluate(expressions(row).post, at);
}

TEST(ReduceTable, RowsMeanWhatTheySay) {
  const std::vector<double> x = {3, -1, 0, 4, -1, 2};
  struct Case {
    const char* op;
    std::vector<double> attributes;
    double value;
  };
  double mean = 7.0 / 6, squares = 0, exponentials = 0;
  for (double v : x) squares += (v - mean) * (v - mean), exponentials += std::exp(v);
  const Case cases[] = {{"sum", {}, 7},
                        {"mean", {}, mean},
                        {"prod", {}, 0},
                        {"norm", {}, std::sqrt(31.0)},
                        {"all", {}, 0},
                        {"any", {}, 1},
                        {"count_nonzero", {}, 5},
                        {"amax", {}, 4},
                        {"max", {}, 4},
                        {"amin", {}, -1},
                        {"argmax", {}, 3},
                        {"argmin", {}, 1},
                        {"logsumexp", {}, std::log(exponentials)},
                        {"var", {1}, squares / 5},
                        {"var", {0}, squares / 6},
                        {"std", {1}, std::sqrt(squares / 5)}};
  for (const Case& c : cases) EXPECT_NEAR(reduced(reduce_row(c.op), x, c.attributes), c.value, 1e-12) << c.op;
  EXPECT_EQ(reduced(reduce_row("logsumexp"), {1000, 1000}, {}), 1000 + std::log(2.0));
  EXPECT_EQ(reduced(reduce_row("logsumexp"), {-kInf, -kInf}, {}), -kInf);
  EXPECT_EQ(reduced(reduce_row("logsumexp"), {1, kInf}, {}), kInf);
  EXPECT_EQ(reduced(reduce_row("norm"), {0, 0}, {}), 0);
  EXPECT_TRUE(std::isnan(reduced(reduce_row("var"), {3}, {1})));
  EXPECT_TRUE(std::isnan(reduced(reduce_row("std"), {3}, {1})));
  EXPECT_EQ(reduced(reduce_row("std"), {3, 3}, {1}), 0);
}

TEST(ReduceTable, TypesFollowTheRowsRule) {
  for (const ReduceRow& row : reduce_rows())
    for (DType x : kAllDTypes) {
      if (!allows(row.dtypes, x)) {
        EXPECT_THROW(reduce_types(row, x), DTypeError) << row.name;
        continue;
      }
      const ReduceTypes types = reduce_types(row, x);
      EXPECT_FALSE(is_narrow(types.computed)) << row.name;
      if (!is_narrow(x)) {
        EXPECT_EQ(types.computed, x);
      }
      const bool adds = row.reduction == scalar::Reduction::sum || row.reduction == scalar::Reduction::prod;
      const DType counted = x == DType::boolean             ? DType::i32
                            : is_integer(x) && is_narrow(x) ? (element(x).is_signed ? DType::i32 : DType::u32)
                                                            : x;
      switch (row.result) {
        case Result::same: EXPECT_EQ(types.result, adds ? counted : x) << row.name << " of " << name_of(x); break;
        case Result::floating: EXPECT_EQ(types.result, is_float(x) ? x : DType::f32) << row.name; break;
        case Result::boolean: EXPECT_EQ(types.result, DType::boolean) << row.name; break;
        case Result::integer: EXPECT_EQ(types.result, DType::i32) << row.name; break;
      }
    }
}

TEST(ReduceTable, SlopesAtZeroAreZero) {
  for (const char* op : {"norm", "std"}) {
    const Expression& post = expressions(reduce_row(op)).post;
    std::vector<double> at(static_cast<std::size_t>(post.inputs), 0);
    at[1] = 4;  // n
    EXPECT_EQ(scalar::test::slope(post, 0, at), 0) << op;
  }
}

// ---- The registry ----

TEST(Registry, NamesWhatIsNotThere) {
  try {
    elementwise_row("sigmod");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "no elementwise op is called 'sigmod'; did you mean 'sigmoid'?");
  }
  try {
    elementwise_row("qqqqqqqq");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "no elementwise op is called 'qqqqqqqq'; `weft ops list` shows them all");
  }
  EXPECT_THROW(reduce_row("summ"), UsageError);
  EXPECT_EQ(find_elementwise("nothing"), nullptr);
  EXPECT_EQ(find_elementwise("absolute"), find_elementwise("abs"));
}

TEST(Registry, WrongInputsAndAttributesAreNamed) {
  const DType one[] = {DType::f32}, integers[] = {DType::i32}, bools[] = {DType::boolean};
  EXPECT_THROW(typed_forward(elementwise_row("add"), one), UsageError);
  try {
    typed_forward(elementwise_row("relu"), bools);
    FAIL();
  } catch (const DTypeError& error) {
    EXPECT_STREQ(error.what(), "takes floats and integers, and x is bool; cast it");
  }
  const ElementwiseRow& clamp = elementwise_row("clamp");
  EXPECT_EQ(checked_attributes(clamp, {}, DType::f32), (std::vector<double>{-kInf, kInf}));
  EXPECT_EQ(checked_attributes(clamp, {}, DType::i32), (std::vector<double>{-2147483648.0, 2147483647.0}));
  EXPECT_EQ(checked_attributes(clamp, {}, DType::u32), (std::vector<double>{0, 4294967295.0}));
  const double half[] = {0.5}, three[] = {1, 2, 3}, two[] = {-3};
  EXPECT_EQ(checked_attributes(clamp, two, DType::i32), (std::vector<double>{-3, 2147483647.0}));
  EXPECT_THROW(checked_attributes(clamp, three, DType::f32), UsageError);
  EXPECT_THROW(checked_attributes(clamp, two, DType::u32), UsageError);
  try {
    checked_attributes(clamp, half, DType::i32);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "clamp: min = 0.5 is not a number of type i32, in which these inputs compute; cast them to f32");
  }
  EXPECT_EQ(attribute_type(clamp, integers), DType::i32);
  EXPECT_EQ(attribute_type(elementwise_row("addcdiv"), std::vector<DType>(3, DType::i32)), DType::f32);
}

TEST(Registry, UsersAddOps) {
  const ElementwiseRow& row = register_elementwise({.name = "test_mish",
                                                    .inputs = {"x"},
                                                    .forward = "x * tanh(log(1 + exp(x)))",
                                                    .aliases = {"test_mish_too"},
                                                    .doc = "A test's own."});
  EXPECT_EQ(find_elementwise("test_mish"), &row);
  EXPECT_EQ(find_elementwise("test_mish_too"), &row);
  const std::vector<double> at = {0.7};
  EXPECT_NEAR(scalar::test::value_of(gradients(row)[0], forward(row), at),
              scalar::test::difference(forward(row), 0, at), 1e-8);
  const ElementwiseRow& mish = elementwise_row("mish");
  EXPECT_NEAR(scalar::evaluate(forward(row), at), scalar::evaluate(forward(mish), at), 1e-12);
  // The same definition is the same op; another of that name is refused.
  EXPECT_EQ(
      &register_elementwise(
          {.name = "test_mish", .inputs = {"x"}, .forward = "x * tanh(log(1 + exp(x)))", .aliases = {"test_mish_too"}}),
      &row);
  EXPECT_THROW(register_elementwise({.name = "test_mish", .inputs = {"x"}, .forward = "x"}), UsageError);

  // Texts in the words of the reference, with a gradient of its own.
  const ElementwiseRow& scaled =
      register_elementwise({.name = "test_scaled",
                            .inputs = {"a", "b"},
                            .forward = "output = input + alpha * other",
                            .attributes = {{"alpha", 2}},
                            .gradients = {"inputGrad = outputGrad", "otherGrad = alpha * outputGrad"}});
  const std::vector<double> three = {1, 10, 3};
  EXPECT_EQ(scalar::evaluate(forward(scaled), three), 31);
  EXPECT_EQ(scalar::test::value_of(gradients(scaled)[1], forward(scaled), three), 3);
  EXPECT_EQ(scaled.result.value, Result::same);
  EXPECT_EQ(register_elementwise({.name = "test_positive", .inputs = {"x"}, .forward = "x > 0"}).result.value,
            Result::boolean);
  EXPECT_EQ(register_elementwise({.name = "test_masked", .inputs = {"x"}, .forward = "x & 7"}).result.value,
            Result::integer);
  const DType floats[] = {DType::f32};
  EXPECT_THROW(typed_forward(elementwise_row("test_masked"), floats), DTypeError);
}

TEST(Registry, RefusesWhatCannotWork) {
  struct Case {
    CustomOp op;
    const char* message;
  };
  const Case cases[] = {
      {{.name = "relu", .inputs = {"x"}, .forward = "x"}, "there is an op 'relu' already"},
      {{.name = "sum", .inputs = {"x"}, .forward = "x"}, "there is a reduction 'sum' already"},
      {{.name = "", .inputs = {"x"}, .forward = "x"}, "is not a name"},
      {{.name = "a b", .inputs = {"x"}, .forward = "x"}, "'a b' is not a name"},
      {{.name = std::string(100, 'a'), .inputs = {"x"}, .forward = "x"}, "is not a name"},
      {{.name = "bad_1", .inputs = {}, .forward = "1"}, "0 inputs and 0 attributes"},
      {{.name = "bad_2", .inputs = {"x", "x"}, .forward = "x"}, "the operand name 'x' is taken"},
      {{.name = "bad_3", .inputs = {"g"}, .forward = "g"}, "the operand name 'g' is taken"},
      {{.name = "bad_4", .inputs = {"x", "1y"}, .forward = "x"}, "'1y' is not a name"},
      {{.name = "bad_5", .inputs = {"x"}, .forward = "x +"},
       "found the end of the text\n  x +\n     ^\n  while reading the texts of op 'bad_5'"},
      {{.name = "bad_6", .inputs = {"x"}, .forward = "x", .gradients = {"q"}}, "unknown name 'q'"},
      {{.name = "bad_7", .inputs = {"x"}, .forward = "x", .gradients = {"g", "g"}}, "at most one gradient an input"},
      {{.name = "bad_8", .inputs = {"x"}, .forward = "x", .aliases = {"exp"}}, "the alias 'exp' is taken"},
      {{.name = "bad_9", .inputs = {"a", "b", "c", "d", "e", "f", "h", "i", "j"}, .forward = "a"}, "9 inputs"},
      {{.name = "bad_10", .inputs = {"x"}, .forward = "sin(x) & 1"}, "bit_and takes integers and bool"},
  };
  for (const Case& c : cases) {
    try {
      register_elementwise(c.op);
      ADD_FAILURE() << c.message;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what();
    }
    EXPECT_TRUE(c.op.name == "relu" || find_elementwise(c.op.name) == nullptr) << c.op.name;
  }
}

TEST(Registry, ThreadsMayReadAndRegister) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 20; ++i) {
        register_elementwise({.name = fmt::format("test_thread_{}", i), .inputs = {"x"}, .forward = "x * x"});
        register_elementwise({.name = fmt::format("test_thread_{}_{}", t, i), .inputs = {"x"}, .forward = "sin(x)"});
        for (const ElementwiseRow* row : elementwise_rows()) {
          forward(*row);
          gradients(*row);
          if (allows(row->dtypes, DType::f32))
            typed_forward(*row,
                          std::vector<DType>(row->inputs.size(), row->name == "test_masked" ? DType::i32 : DType::f32));
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(find_elementwise("test_thread_3_19"), nullptr);
}

// A row without a field that it must give does not compile.
template <class T>
concept WithoutDoc = requires {
  T{.name = "a",
    .inputs = {"x"},
    .forward = "x",
    .dtypes = DTypes::all,
    .result = Result::same,
    .tested = {{0, 1}},
    .max_ulp = 0};
};
template <class T>
concept WithoutForward = requires {
  T{.name = "a",
    .inputs = {"x"},
    .dtypes = DTypes::all,
    .result = Result::same,
    .tested = {{0, 1}},
    .max_ulp = 0,
    .doc = "d"};
};
template <class T>
concept WithoutResult = requires {
  T{.name = "a", .inputs = {"x"}, .forward = "x", .dtypes = DTypes::all, .tested = {{0, 1}}, .max_ulp = 0, .doc = "d"};
};
template <class T>
concept WithoutRange = requires {
  T{.name = "a",
    .inputs = {"x"},
    .forward = "x",
    .dtypes = DTypes::all,
    .result = Result::same,
    .max_ulp = 0,
    .doc = "d"};
};
template <class T>
concept WithoutInputs = requires {
  T{.name = "a",
    .forward = "x",
    .dtypes = DTypes::all,
    .result = Result::same,
    .tested = {{0, 1}},
    .max_ulp = 0,
    .doc = "d"};
};
template <class T>
concept WithoutUlp = requires {
  T{.name = "a",
    .inputs = {"x"},
    .forward = "x",
    .dtypes = DTypes::all,
    .result = Result::same,
    .tested = {{0, 1}},
    .doc = "d"};
};
template <class T>
concept Complete = requires {
  T{.name = "a",
    .inputs = {"x"},
    .forward = "x",
    .dtypes = DTypes::all,
    .result = Result::same,
    .tested = {{0, 1}},
    .max_ulp = 0,
    .doc = "d"};
};
static_assert(Complete<ElementwiseRow>);
static_assert(!WithoutDoc<ElementwiseRow> && !WithoutForward<ElementwiseRow> && !WithoutResult<ElementwiseRow> &&
              !WithoutRange<ElementwiseRow> && !WithoutInputs<ElementwiseRow> && !WithoutUlp<ElementwiseRow>);

}  // namespace
}  // namespace weft::ops
