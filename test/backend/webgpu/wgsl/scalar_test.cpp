// Every scalar op on the device against double arithmetic, with infinities, NaN and large arguments.
#include "backend/webgpu/wgsl/scalar.hpp"

#include <algorithm>
#include <cctype>
#include <limits>

#include "backend/webgpu/render_support.hpp"
#include "backend/webgpu/wgsl/functions.hpp"

#if WEFT_HAS_WEBGPU
namespace weft::webgpu::wgsl_scalar_test {
namespace {

using kernel::Level;
using kernel::Step;
using kernel::StepKind;
using reference::Values;
using scalar::Op;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

/// out = op(inputs), element by element.
kernel::LoopKernel map_kernel(Op op, DType type, const std::vector<DType>& inputs, Extent count) {
  kernel::LoopKernel loop;
  loop.name = "map";
  loop.outer = count;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    loop.inputs.push_back({static_cast<int>(i), inputs[i], 0, count});
    Step load{StepKind::load, inputs[i]};
    load.operand = static_cast<int>(i);
    load.view = contiguous({count});
    loop.steps.push_back(load);
  }
  Step map{StepKind::map, type};
  map.op = op;
  map.a = 0;
  map.b = inputs.size() > 1 ? 1 : -1;
  map.c = inputs.size() > 2 ? 2 : -1;
  loop.steps.push_back(map);
  loop.outputs.push_back({static_cast<int>(inputs.size()), type, 0, count});
  loop.stores.push_back({static_cast<int>(inputs.size()), 0, contiguous({count})});
  return loop;
}

Values run_op(Op op, DType type, const std::vector<TestBuffer>& inputs) {
  std::vector<TestBuffer> buffers = inputs;
  std::vector<DType> types;
  for (const TestBuffer& input : inputs) types.push_back(input.type);
  const std::size_t count = inputs[0].values.size();
  buffers.push_back({type, Values(count, 0.0)});
  kernel::Plan plan;
  plan.kernels.emplace_back(map_kernel(op, type, types, static_cast<Extent>(count)));
  return run_on_device(*test_backend(), plan, buffers).back();
}

/// Distance of two floats in units in the last place; results that may be flushed to zero count as equal to zero.
double ulps(double got, double wanted) {
  if (std::isnan(got) && std::isnan(wanted)) return 0;
  if (std::isnan(got) || std::isnan(wanted)) return kInf;
  if (got == wanted) return 0;
  const double tiny = std::numeric_limits<float>::min();
  if (std::abs(wanted) < tiny) return std::abs(got) <= tiny ? 0 : kInf;
  if (std::isinf(wanted) || std::isinf(got)) {
    const double top = std::numeric_limits<float>::max();
    return std::abs(std::isinf(wanted) ? got : wanted) > 0.999999 * top && std::signbit(got) == std::signbit(wanted)
               ? 1
               : kInf;
  }
  return std::abs(got - wanted) / std::ldexp(1.0, std::ilogb(wanted) - 23);
}

struct Range {
  double low, high;
};
struct UnaryCase {
  Op op;
  std::vector<Range> ranges;
  double ulps_max;
};

const UnaryCase kUnary[] = {
    {Op::neg, {{-10, 10}}, 0},
    {Op::abs, {{-10, 10}}, 0},
    {Op::sign, {{-10, 10}}, 0},
    {Op::floor, {{-10, 10}, {-1e9, 1e9}}, 0},
    {Op::ceil, {{-10, 10}, {-1e9, 1e9}}, 0},
    {Op::round, {{-10, 10}, {-1e9, 1e9}}, 0},
    {Op::trunc, {{-10, 10}, {-1e9, 1e9}}, 0},
    {Op::sqrt, {{0, 10}, {0, 1e30}}, 3},
    {Op::rsqrt, {{1e-3, 10}, {1e-30, 1e30}}, 3},
    {Op::exp, {{-1, 1}, {-87, 88.7}, {-120, 100}}, 2},
    {Op::exp2, {{-1, 1}, {-126, 127}, {-170, 140}}, 2},
    {Op::expm1, {{-1e-4, 1e-4}, {-1, 1}, {-30, 88.7}}, 2},
    {Op::log, {{0.9, 1.1}, {0, 10}, {1e-30, 1e30}, {-1, 1}}, 2},
    {Op::log2, {{0.9, 1.1}, {0, 10}, {1e-30, 1e30}}, 2},
    {Op::log10, {{0.9, 1.1}, {0, 10}, {1e-30, 1e30}}, 2},
    {Op::log1p, {{-1e-4, 1e-4}, {-1, 1}, {-1, 100}, {1e-30, 1e30}}, 3},
    {Op::sin, {{-1, 1}, {-10, 10}, {-1e5, 1e5}, {-1e38, 1e38}}, 3},
    {Op::cos, {{-1, 1}, {-10, 10}, {-1e5, 1e5}, {-1e38, 1e38}}, 3},
    {Op::tan, {{-1, 1}, {-10, 10}, {-1e5, 1e5}}, 4},
    {Op::asin, {{-1e-3, 1e-3}, {-1, 1}, {0.99, 1}}, 4},
    {Op::acos, {{-1e-3, 1e-3}, {-1, 1}, {0.99, 1}}, 4},
    {Op::atan, {{-1e-3, 1e-3}, {-1, 1}, {-10, 10}, {-1e20, 1e20}}, 4},
    {Op::sinh, {{-1e-3, 1e-3}, {-2, 2}, {-89.3, 89.3}, {-100, 100}}, 4},
    {Op::cosh, {{-1e-3, 1e-3}, {-2, 2}, {-89.3, 89.3}, {-100, 100}}, 4},
    {Op::tanh, {{-1e-3, 1e-3}, {-1, 1}, {-12, 12}, {-1e9, 1e9}}, 4},
    {Op::asinh, {{-1e-3, 1e-3}, {-2, 2}, {-100, 100}, {-1e30, 1e30}}, 5},
    {Op::acosh, {{1, 1.001}, {1, 3}, {1, 1e30}, {0, 1}}, 5},
    {Op::atanh, {{-1e-3, 1e-3}, {-1, 1}, {0.99, 1}}, 5},
    {Op::erf, {{-1e-3, 1e-3}, {-1.5, 1.5}, {-5, 5}}, 3},
    {Op::is_nan, {{-1, 1}}, 0},
    {Op::logical_not, {{-1, 1}}, 0},
};

using WgslScalarTest = RenderTest;

TEST_F(WgslScalarTest, UnaryFloatOpsAreAccurate) {
  std::mt19937 random(7);
  for (const UnaryCase& c : kUnary) {
    TestBuffer x{DType::f32, {0.0,  -0.0,  1,    -1,    0.5,     -0.5, 2,     1.5,  2.5, -2.5, 3.5,
                              1e10, -1e10, 3e38, -3e38, 1.2e-38, kInf, -kInf, kNan, 8,   1000}};
    for (const Range& range : c.ranges)
      for (int i = 0; i < 1000; ++i)
        x.values.push_back(
            static_cast<float>(range.low + (range.high - range.low) * std::generate_canonical<double, 40>(random)));
    for (double& value : x.values) value = static_cast<float>(value);
    const DType type = c.op == Op::is_nan || c.op == Op::logical_not ? DType::boolean : DType::f32;
    const Values got = run_op(c.op, type, {x});
    double worst = 0, at = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const double wanted = reference::apply(c.op, DType::f64, x.values[i], DType::f64);
      const double distance =
          ulps(got[i], std::abs(wanted) > std::numeric_limits<float>::max() ? std::copysign(kInf, wanted) : wanted);
      if (distance > worst) {
        worst = distance;
        at = x.values[i];
      }
    }
    EXPECT_LE(worst, c.ulps_max) << scalar::name_of(c.op) << " of " << at << " (" << worst << " ulp)";
    if (std::getenv("WEFT_TEST_VERBOSE"))
      printf("%-8s %.2f ulp at %g\n", std::string(scalar::name_of(c.op)).c_str(), worst, at);
  }
}

struct BinaryCase {
  Op op;
  Range a, b;
  double ulps_max;
};
const BinaryCase kBinary[] = {
    {Op::add, {-10, 10}, {-10, 10}, 0.51}, {Op::sub, {-10, 10}, {-10, 10}, 0.51},
    {Op::mul, {-10, 10}, {-10, 10}, 0.51}, {Op::div, {-10, 10}, {-10, 10}, 2.5},
    {Op::rem, {-1e6, 1e6}, {-10, 10}, 0},  {Op::rem, {-1e30, 1e30}, {-1, 1}, 0},
    {Op::pow, {0, 4}, {-4, 4}, 4},         {Op::pow, {0, 1000}, {-12, 12}, 4},
    {Op::pow, {-3, 3}, {-90, 90}, 4},      {Op::pow, {0.999, 1.001}, {-1e4, 1e4}, 4},
    {Op::atan2, {-3, 3}, {-3, 3}, 4},      {Op::atan2, {-1e37, 1e37}, {-3e38, 3e38}, 4},
    {Op::min, {-1, 1}, {-1, 1}, 0},        {Op::max, {-1, 1}, {-1, 1}, 0},
    {Op::copysign, {-1, 1}, {-1, 1}, 0},   {Op::eq, {-1, 1}, {-1, 1}, 0},
    {Op::ne, {-1, 1}, {-1, 1}, 0},         {Op::lt, {-1, 1}, {-1, 1}, 0},
    {Op::le, {-1, 1}, {-1, 1}, 0},         {Op::gt, {-1, 1}, {-1, 1}, 0},
    {Op::ge, {-1, 1}, {-1, 1}, 0},         {Op::logical_and, {-1, 1}, {-1, 1}, 0},
    {Op::logical_or, {-1, 1}, {-1, 1}, 0},
};

bool is_truth(Op op) { return op >= Op::eq && op <= Op::logical_or; }

TEST_F(WgslScalarTest, BinaryFloatOpsAreAccurate) {
  std::mt19937 random(11);
  const double special[] = {0.0,  -0.0, 1,     -1,   2,     -2,   3,        -3,      0.5,
                            -0.5, 1e10, -1e10, kInf, -kInf, kNan, 16777217, 33554432};
  for (const BinaryCase& c : kBinary) {
    TestBuffer a{DType::f32, {}}, b{DType::f32, {}};
    for (double x : special)
      for (double y : special) {
        a.values.push_back(static_cast<float>(x));
        b.values.push_back(static_cast<float>(y));
      }
    const auto draw = [&](const Range& range) {
      return static_cast<float>(range.low + (range.high - range.low) * std::generate_canonical<double, 40>(random));
    };
    for (int i = 0; i < 2000; ++i) {
      a.values.push_back(draw(c.a));
      b.values.push_back(c.op == Op::pow && i % 3 == 0 ? std::round(draw(c.b)) : draw(c.b));
    }
    const DType type = is_truth(c.op) ? DType::boolean : DType::f32;
    const Values got = run_op(c.op, type, {a, b});
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      double wanted = reference::apply(c.op, DType::f64, a.values[i], DType::f64, b.values[i], DType::f64);
      if (std::abs(wanted) > std::numeric_limits<float>::max()) wanted = std::copysign(kInf, wanted);
      const double distance = ulps(got[i], wanted);
      if (distance > worst) {
        worst = distance;
        at = i;
      }
    }
    EXPECT_LE(worst, c.ulps_max) << scalar::name_of(c.op) << " of " << a.values[at] << " and " << b.values[at]
                                 << " gave " << got[at];
    if (std::getenv("WEFT_TEST_VERBOSE"))
      printf("%-8s %.2f ulp at %g, %g\n", std::string(scalar::name_of(c.op)).c_str(), worst, a.values[at],
             b.values[at]);
  }
}

TEST_F(WgslScalarTest, IntegerAndBoolOpsAreExact) {
  const double values[] = {0, 1, 2, 3, 5, 31, 32, 33, 1000, 65535, 65536, 2147483647.0};
  for (DType type : {DType::i32, DType::u32, DType::boolean}) {
    TestBuffer a{type, {}}, b{type, {}};
    std::vector<double> all(std::begin(values), std::end(values));
    if (type == DType::i32)
      for (double v : values) all.push_back(-v);
    if (type == DType::i32) all.push_back(-2147483648.0);
    if (type == DType::u32) all.push_back(4294967295.0);
    if (type == DType::boolean) all = {0, 1};
    for (double x : all)
      for (double y : all) {
        a.values.push_back(x);
        b.values.push_back(y);
      }
    for (Op op : {Op::add, Op::sub,     Op::mul,    Op::div,     Op::rem,     Op::pow,         Op::min,
                  Op::max, Op::bit_and, Op::bit_or, Op::bit_xor, Op::shl,     Op::shr,         Op::eq,
                  Op::ne,  Op::lt,      Op::le,     Op::gt,      Op::ge,      Op::logical_and, Op::logical_or,
                  Op::neg, Op::abs,     Op::sign,   Op::floor,   Op::bit_not, Op::logical_not, Op::is_nan}) {
      const bool is_bool = is_truth(op) || op == Op::logical_not || op == Op::is_nan;
      const DType result = is_bool ? DType::boolean : type;
      const bool unary = scalar::arity(op) == 1;
      const Values got = unary ? run_op(op, result, {a}) : run_op(op, result, {a, b});
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double x = a.values[i], y = b.values[i];
        // In double the product and power of large numbers lose their low bits, which wrap here.
        if (op == Op::div && type == DType::i32 && x == -2147483648.0 && y == -1) continue;
        const double wanted = reference::apply(op, result, x, type, y, type);
        ASSERT_EQ(got[i], wanted) << name_of(type) << " " << scalar::name_of(op) << " of " << x << " and " << y;
      }
    }
  }
}

TEST_F(WgslScalarTest, CastsSaturateAndReadNanAsZero) {
  const TestBuffer floats{DType::f32,
                          {0, -0.0, 0.9, -0.9, 1.5, -1.5, 2147483520, 2147483648.0, 4294967040.0, 4294967296.0,
                           -2147483648.0, -3e9, 1e20, -1e20, kInf, -kInf, kNan}};
  const TestBuffer ints{DType::i32, {0, 1, -1, 2147483647, -2147483648.0}};
  const TestBuffer words{DType::u32, {0, 1, 4294967295.0}};
  const TestBuffer bools{DType::boolean, {0, 1}};
  for (const TestBuffer& from : {floats, ints, words, bools})
    for (DType to : {DType::f32, DType::i32, DType::u32, DType::boolean}) {
      const Values got = run_op(Op::cast, to, {from});
      for (std::size_t i = 0; i < got.size(); ++i) {
        const double wanted = reference::cast(from.values[i], from.type, to);
        if (std::isnan(wanted) && std::isnan(got[i])) continue;
        EXPECT_EQ(got[i], wanted) << name_of(from.type) << " " << from.values[i] << " to " << name_of(to);
      }
    }
}

TEST_F(WgslScalarTest, PhiloxGivesTheSameBitsAsTheReference) {
  TestBuffer seed{DType::u32, {}}, stream{DType::u32, {}}, index{DType::u32, {}};
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    seed.values.push_back(i < 3 ? 0 : random());
    stream.values.push_back(i < 3 ? 0xffffffffu : random());
    index.values.push_back(i < 3 ? i : random());
  }
  const Values got = run_op(Op::philox, DType::u32, {seed, stream, index});
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_EQ(got[i], reference::philox(static_cast<std::uint32_t>(seed.values[i]),
                                        static_cast<std::uint32_t>(stream.values[i]),
                                        static_cast<std::uint32_t>(index.values[i])));
}

TEST_F(WgslScalarTest, SelectTakesEitherSideAndMixesTypes) {
  const TestBuffer condition{DType::boolean, {0, 1, 0, 1}}, a{DType::i32, {1, 2, 3, 4}},
      b{DType::f32, {0.5, kNan, kInf, -1}};
  const Values got = run_op(Op::select, DType::f32, {condition, a, b});
  EXPECT_EQ(got, (Values{0.5, 2, kInf, 4}));
}

TEST(WgslScalarTextTest, ConstantsAreExactAndNeverSpecial) {
  Helpers helpers;
  EXPECT_EQ(render_constant(0.1, DType::f32, helpers), "0.1f");
  EXPECT_EQ(render_constant(-2147483648.0, DType::i32, helpers), "i32(-2147483648)");
  EXPECT_EQ(render_constant(1, DType::boolean, helpers), "true");
  EXPECT_EQ(helpers.text(), "");
  EXPECT_EQ(render_constant(-kInf, DType::f32, helpers), "-inf_f32()");
  EXPECT_NE(helpers.text().find("fn inf_f32()"), std::string::npos);
}

TEST(WgslScalarTextTest, HelpersAreDeclaredOnceWithWhatTheyCall) {
  Helpers helpers;
  helpers.use("erf_f32");
  helpers.use("erf_f32");
  const std::string text = helpers.text();
  EXPECT_EQ(text.find("fn erf_f32("), text.rfind("fn erf_f32("));
  EXPECT_NE(text.find("fn scaled_exp_f32("), std::string::npos);
  EXPECT_EQ(text.find("fn exp_f32("), std::string::npos);  // only called by another name that ends in it
}

// Whether `text` calls `name` (and not a function whose name ends in it).
bool calls(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const bool begins = at == 0 || (std::isalnum(static_cast<unsigned char>(text[at - 1])) == 0 && text[at - 1] != '_');
    if (begins && text.substr(at + name.size()).starts_with('(')) return true;
  }
  return false;
}

TEST(WgslScalarTextTest, TheLibraryTellsWhatEachFunctionCalls) {
  for (const WgslFunction& function : wgsl_functions())
    for (const WgslFunction& other : wgsl_functions()) {
      if (other.name == function.name) continue;
      const bool told = std::find(function.calls.begin(), function.calls.end(), other.name) != function.calls.end();
      EXPECT_EQ(told, calls(function.text, other.name)) << function.name << " calls " << other.name;
    }
}

TEST(WgslScalarTextTest, ErrorsNameTheTypeAndTheCure) {
  Helpers helpers;
  EXPECT_THROW(wgsl_type(DType::f64), DTypeError);
  try {
    render_op(Op::exp, DType::i32, {"x", DType::i32, {}}, {}, {}, helpers);
    FAIL();
  } catch (const DTypeError& error) {
    EXPECT_STREQ(error.what(), "webgpu: exp has no i32 form; cast its operands to f32 first");
  }
}

}  // namespace
}  // namespace weft::webgpu::wgsl_scalar_test
#endif
