// Conformance of elementwise ops: every row over sizes, dtypes and special values, and casts.
#include <cmath>
#include <limits>
#include <random>

#include "conformance/device_run.hpp"
#include "ops/parse.hpp"
#include "ops/table.hpp"
#include "weft/ops.hpp"

namespace weft::test {
namespace {

std::vector<double> attributes_of(const ops::ElementwiseRow& row, DType type = DType::f32) {
  std::vector<double> attributes;  // whole numbers beside integers
  const bool whole = !is_float(type) && row.result != ops::Result::floating;
  for (const auto& attribute : row.attributes)
    attributes.push_back(whole ? std::fabs(std::trunc(attribute.tested)) : attribute.tested);
  return attributes;
}

class Elementwise : public Conformance {
 protected:
  // The row on random inputs of its tested range, against its text evaluated in f64.
  void check_row(const ops::ElementwiseRow& row, DType type, const Shape& shape) {
    SCOPED_TRACE(fmt::format("{} {} {}", std::string_view(row.name), name_of(type), shape.to_string()));
    std::mt19937_64 random(17);
    Arguments arguments;
    std::vector<Tensor> inputs;
    std::vector<DType> types(row.inputs.size(), type);
    for (std::size_t i = 0; i < row.inputs.size(); ++i) {
      const ops::Range range = row.tested.of(i);
      std::vector<double> values;
      for (Extent e = 0; e < shape.numel(); ++e) {
        double v = std::uniform_real_distribution<double>(range.lo, range.hi)(random);
        if (is_integer(type)) v = std::round(v) + 0.0;  // no -0
        if (is_integer(type) && !element(type).is_signed) v = std::fabs(v);
        if (type == DType::boolean) v = v > 0;
        values.push_back(is_narrow(type) ? reference::to_type(v, type) : v);
      }
      inputs.push_back(arguments.make(shape, std::move(values), type));
    }
    const std::vector<double> attributes = attributes_of(row, type);
    const Tensor y = elementwise(row.name, inputs, attributes);
    const std::vector<double> actual = run({y}, arguments)[0];
    const scalar::Expression& typed = ops::typed_forward(row, types);
    const std::vector<double> checked = row.attributes.empty()
                                            ? std::vector<double>()
                                            : ops::checked_attributes(row, attributes, ops::attribute_type(row, types));
    ASSERT_EQ(static_cast<Extent>(actual.size()), shape.numel());
    int shown = 0;
    for (std::size_t e = 0; e < actual.size() && shown < 3; ++e) {
      std::vector<double> at;
      for (const Tensor& input : inputs) at.push_back(arguments.of(input.node().get())[e]);
      for (double a : checked) at.push_back(y.dtype() == DType::f32 || type == DType::f32 ? static_cast<float>(a) : a);
      const double expected = scalar::evaluate(typed, at);
      // Narrow floats are rounded once at the end; there the last bit may differ.
      const bool is_rounded = is_narrow(y.dtype());
      const double epsilon = std::ldexp(1.0, 1 - (is_float(y.dtype()) ? element(y.dtype()).digits : 24));
      // Results that jump (comparisons, rounding) are held to equality; others to the row's bound, twice that on GPUs,
      // whose built-in functions are allowed a little more.
      const double ulps = is_rounded           ? 1.0
                          : type == DType::f64 ? std::max(16.0, 4 * double(row.max_ulp))
                                               : double(row.max_ulp) * (is_cpu() ? 1 : 2) + 0.5;
      const double tolerance =
          is_float(y.dtype()) ? ulps * epsilon * std::max(std::fabs(expected), double(row.ulp_floor)) : 0;
      const bool same = actual[e] == expected || (std::isnan(actual[e]) && std::isnan(expected));
      const double unit = is_rounded ? std::ldexp(epsilon, y.dtype() == DType::f16 ? -14 : -126) : 0;  // of denormals
      if (same || std::fabs(actual[e] - expected) <= std::max(tolerance, unit)) continue;
      ++shown;
      ADD_FAILURE() << "element " << e << " at (" << fmt::format("{}", fmt::join(at, ", ")) << "): " << actual[e]
                    << ", expected " << expected << ", "
                    << std::fabs(actual[e] - expected) /
                           (epsilon * std::max(std::fabs(expected), double(row.ulp_floor)))
                    << " ulp";
    }
  }
};

TEST_F(Elementwise, EveryRowOnEveryDType) {
  for (const ops::ElementwiseRow* row : ops::elementwise_rows())
    for (DType type : kComputeDTypes) {
      // Of u64 a negative difference is beyond what the reference, in doubles, can square.
      if (type == DType::u64 && row->name == "squared_difference") continue;
      // A row of a narrow type is that of f32 or i32 between casts: on a GPU a few represent all, because compiling takes long.
      if (ops::allows(row->dtypes, type) && computes(type) &&
          (is_cpu() || !is_narrow(type) || row->name == "add" || row->name == "gelu" || row->name == "lt"))
        check_row(*row, type, {3, 67});
    }
}

TEST_F(Elementwise, OddSizesRankZeroAndNothing) {
  const Shape shapes[] = {{},    {0},         {1},   {2},   {3},    {5, 3}, {63},      {64},    {65},
                          {127}, {1, 129, 1}, {255}, {257}, {1023}, {1025}, {4, 0, 3}, {33, 31}};
  for (const char* name : {"exp", "add", "where", "tanh", "lt"})
    for (const Shape& shape : shapes) check_row(ops::elementwise_row(name), DType::f32, shape);
}

TEST_F(Elementwise, FewRowsOnAStrictAdapter) {
  for (const char* name : {"exp", "log", "sin", "erf", "gelu", "add", "pow", "where", "clamp"})
    check_row(ops::elementwise_row(name), DType::f32, {5, 13});
}

// NaN, infinities and signed zeros must come out as the row's text says; GPU compilers may not assume them away.
TEST_F(Elementwise, SpecialValues) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> specials = {nan, inf, -inf, 0.0, -0.0, 1, -1, 0.5, -2, 3.5, 1e18, -1e18};
  const Extent n = static_cast<Extent>(specials.size());
  for (const ops::ElementwiseRow* row : ops::elementwise_rows()) {
    if (!ops::allows(row->dtypes, DType::f32)) continue;
    SCOPED_TRACE(std::string(row->name));
    Arguments arguments;
    std::vector<Tensor> inputs;
    const std::size_t count = row->inputs.size();
    for (std::size_t i = 0; i < count; ++i) {  // every pairing of the first two, the third beside them
      std::vector<double> values;
      for (Extent e = 0; e < n * n; ++e)
        values.push_back(reference::to_type(specials[static_cast<std::size_t>(i == 0   ? e / n
                                                                              : i == 1 ? e % n
                                                                                       : (e / n + 2 * e) % n)],
                                            DType::f32));
      inputs.push_back(arguments.make({n, n}, std::move(values)));
    }
    const Tensor y = elementwise(row->name, inputs, attributes_of(*row));
    const auto actual = run({y}, arguments)[0], expected = evaluate({y}, arguments)[0];
    int shown = 0;
    for (std::size_t e = 0; e < actual.size() && shown < 3; ++e) {
      const double a = actual[e], x = expected[e];
      bool right = a == x || (std::isnan(a) && std::isnan(x));
      if (std::isfinite(a) && std::isfinite(x)) right = std::fabs(a - x) <= 1e-4 * std::max(1.0, std::fabs(x));
      // The greatest floats may round to infinity either way.
      if (std::fabs(a) > 1e37 && std::fabs(x) > 1e37 && std::signbit(a) == std::signbit(x)) right = true;
      if (right) continue;
      ++shown;
      std::string at;
      for (const Tensor& input : inputs) at += fmt::format(" {}", arguments.of(input.node().get())[e]);
      ADD_FAILURE() << "at" << at << ": " << a << ", expected " << x;
    }
  }
}

TEST_F(Elementwise, CastsTruncateAndSaturate) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> floats = {0,          -0.0,         0.9,           -0.9, 1.5,          -1.5,
                                      2147483520, 2147483648.0, -2147483648.0, -3e9, 4294967040.0, 4294967296.0,
                                      1e20,       -1e20,        inf,           -inf, nan};
  const std::vector<double> integers = {0, 1, -1, 2147483647, -2147483648.0, 7, 16777217};
  for (DType from : kComputeDTypes)
    for (DType to : kComputeDTypes) {
      if (!computes(from) || !computes(to) || from == to) continue;
      SCOPED_TRACE(fmt::format("{} to {}", name_of(from), name_of(to)));
      std::vector<double> values;
      for (double v : is_float(from) ? floats : integers)
        values.push_back(reference::to_type(is_integer(from) && !element(from).is_signed ? std::fabs(v) : v, from));
      Arguments arguments;
      const Tensor x = arguments.make({static_cast<Extent>(values.size())}, values, from);
      const auto actual = run({cast(x, to)}, arguments)[0];
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double expected = reference::cast(values[i], from, to);
        EXPECT_TRUE(actual[i] == expected || (std::isnan(actual[i]) && std::isnan(expected)))
            << values[i] << " gives " << actual[i] << ", expected " << expected;
      }
    }
}

TEST_F(Elementwise, IntegersWrapAndDivideAsWritten) {
  const std::vector<double> a = {2147483647, -2147483648.0, -7, 7, 0, 5, -1, 123456789};
  const Extent n = static_cast<Extent>(a.size());
  for (DType type : {DType::i32, DType::u32}) {
    std::vector<double> x, y;
    for (double u : a)
      for (double v : a) {
        x.push_back(reference::to_type(u, type));
        y.push_back(reference::to_type(v, type));
      }
    Arguments arguments;
    const Tensor left = arguments.make({n, n}, x, type), right = arguments.make({n, n}, y, type);
    for (const char* name : {"add", "sub", "mul", "maximum", "minimum", "bitwise_and", "bitwise_or", "bitwise_xor",
                             "bitwise_left_shift", "bitwise_right_shift", "lt", "eq"}) {
      SCOPED_TRACE(fmt::format("{} {}", name, name_of(type)));
      expect_like_reference({elementwise(name, {left, right})}, arguments, 0, 0);
    }
  }
}

// One more element than 65,535 workgroups of 256 cover.
TEST_F(Elementwise, MoreElementsThanOneRowOfWorkgroups) {
  const Extent n = 65536 * 256 + 3;
  std::vector<double> values(static_cast<std::size_t>(n));
  for (Extent i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = static_cast<double>(i % 1000);
  Arguments arguments;
  const Tensor x = arguments.make({n}, std::move(values));
  const auto actual = run({x * 2.0 + 1.0}, arguments)[0];
  Extent wrong = 0;
  for (Extent i = 0; i < n; ++i) wrong += actual[static_cast<std::size_t>(i)] != static_cast<double>(i % 1000 * 2 + 1);
  EXPECT_EQ(wrong, 0);
}

TEST_F(Elementwise, UnknownDTypesAreRefusedByName) {
  if (computes(DType::f64)) GTEST_SKIP() << "the device computes every dtype";
  Arguments arguments;
  try {
    run({arguments.make({2}, {1, 2}, DType::f64) + 1.0}, arguments);
    FAIL() << "f64 was accepted";
  } catch (const DTypeError& error) {
    EXPECT_NE(std::string(error.what()).find("does not compute f64"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft::test
