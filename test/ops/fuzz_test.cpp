// Random scalar code: typed, simplified, printed and read back, it means what its raw instructions mean.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "ops/derivative.hpp"
#include "ops/gradient_check.hpp"
#include "ops/parse.hpp"

namespace weft::scalar::fuzz_test {
namespace {

const std::vector<std::string> kOperands = {"x", "y"};

unsigned seed_of_run() {
  const char* given = std::getenv("WEFT_TEST_SEED");
  return given ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : 20240229u;
}

/// Writes instructions as they come, past the builder.
class Generator {
 public:
  Generator(unsigned seed, std::vector<Op> unary, std::vector<Op> binary, std::vector<double> constants)
      : random_(seed), unary_(std::move(unary)), binary_(std::move(binary)), constants_(std::move(constants)) {}

  Expression make(int depth) {
    out_ = {.inputs = 2};
    number(depth);
    return out_;
  }
  double value() { return std::uniform_real_distribution<>(-3, 3)(random_); }
  int pick(int count) { return std::uniform_int_distribution<>(0, count - 1)(random_); }

 private:
  int add(Instruction in) {
    out_.code.push_back(in);
    return static_cast<int>(out_.code.size()) - 1;
  }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[static_cast<std::size_t>(pick(static_cast<int>(values.size())))];
  }

  int leaf() { return add({.op = Op::input, .slot = pick(2)}); }
  /// A value that depends on an operand: constants are combined with one, so that no part is constant.
  int number(int depth) {
    const int choice = depth <= 0 ? 0 : pick(10);
    if (choice == 0) return leaf();
    if (choice <= 2) return add({.op = one_of(unary_), .a = number(depth - 1)});
    if (choice == 3) {
      const int c = truth(depth - 1), a = number(depth - 1), b = pick(3) == 0 ? constant() : number(depth - 1);
      return add({.op = Op::select, .a = c, .b = a, .c = b});
    }
    const Op op = one_of(binary_);
    if (pick(4) == 0) {
      const int a = number(depth - 1), b = constant();
      if (op == Op::copysign) return add({.op = op, .a = a, .b = b});
      return op == Op::pow || pick(2) == 0 || op == Op::div || op == Op::rem
                 ? add({.op = op == Op::pow ? Op::mul : op, .a = a, .b = b})
                 : add({.op = op, .a = b, .b = a});
    }
    const int a = number(depth - 1);
    if (op == Op::copysign) return add({.op = op, .a = a, .b = leaf()});  // the sign of a computed NaN means nothing
    const int b = pick(5) == 0 ? a : number(depth - 1);
    return add({.op = op, .a = a, .b = b});
  }
  int constant() { return add({.op = Op::constant, .value = one_of(constants_)}); }
  int truth(int depth) {
    static const std::vector<Op> comparisons = {Op::eq, Op::ne, Op::lt, Op::le, Op::gt, Op::ge};
    static const std::vector<Op> logic = {Op::logical_and, Op::logical_or};
    const int choice = depth <= 0 ? 0 : pick(4);
    if (choice == 1) return add({.op = Op::logical_not, .a = truth(depth - 1)});
    if (choice == 2) {
      const int a = truth(depth - 1), b = truth(depth - 1);
      return add({.op = one_of(logic), .a = a, .b = b});
    }
    const int a = number(depth - 1), b = pick(3) == 0 ? constant() : number(depth - 1);
    return add({.op = one_of(comparisons), .a = a, .b = b});
  }

  std::mt19937 random_;
  std::vector<Op> unary_, binary_;
  std::vector<double> constants_;
  Expression out_;
};

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}

TEST(Fuzz, FloatsKeepTheirBits) {
  const unsigned seed = seed_of_run();
  Generator generator(seed,
                      {Op::neg, Op::abs, Op::sign, Op::floor, Op::ceil, Op::round, Op::trunc, Op::sqrt, Op::exp,
                       Op::log, Op::sin, Op::tanh, Op::atan, Op::erf, Op::expm1, Op::rsqrt},
                      {Op::add, Op::sub, Op::mul, Op::div, Op::rem, Op::pow, Op::atan2, Op::min, Op::max, Op::copysign,
                       Op::add, Op::mul},
                      {0, -0.0, 1, -1, 2, 0.5, 3, -7.25, 1e30, INFINITY, -INFINITY, NAN});
  const double special[] = {0, -0.0, 1, -1, 0.5, 2, INFINITY, -INFINITY, NAN, 1e300};
  const DType types[] = {DType::f64, DType::f64};
  for (int i = 0; i < 3000; ++i) {
    const Expression raw = generator.make(1 + i % 6);
    const Expression simple = simplified(raw), with_types = typed(raw, types);
    const std::string text = to_text(raw, kOperands);
    const Expression read = parse(text, kOperands);
    EXPECT_EQ(parse(to_text(simple, kOperands), kOperands), simple)
        << "seed " << seed << ", case " << i << ": " << text;
    EXPECT_EQ(simplified(with_types), with_types) << "seed " << seed << ", case " << i << ": " << text;
    for (int j = 0; j < 12; ++j) {
      const double at[] = {j < 6 ? special[generator.pick(10)] : generator.value(),
                           j < 4 ? special[generator.pick(10)] : generator.value()};
      const double expected = evaluate(raw, at);
      for (const Expression* other : {&simple, &with_types, &read})
        ASSERT_TRUE(same(evaluate(*other, at), expected))
            << "seed " << seed << ", case " << i << ": " << text << "\nas " << to_text(*other, kOperands) << "\nat "
            << at[0] << ", " << at[1] << ": " << evaluate(*other, at) << ", expected " << expected;
    }
  }
}

/// i32 code, with C++'s own integers.
std::int32_t integer_value(const Expression& raw, std::int32_t x, std::int32_t y) {
  std::vector<std::int32_t> v;
  for (const Instruction& in : raw.code) {
    const std::int32_t a = in.a < 0 ? 0 : v[static_cast<std::size_t>(in.a)],
                       b = in.b < 0 ? 0 : v[static_cast<std::size_t>(in.b)];
    const std::int32_t c = in.c < 0 ? 0 : v[static_cast<std::size_t>(in.c)];
    const auto ua = static_cast<std::uint32_t>(a), ub = static_cast<std::uint32_t>(b);
    auto result = [&]() -> std::int32_t {
      switch (in.op) {
        case Op::input: return in.slot == 0 ? x : y;
        case Op::constant: return static_cast<std::int32_t>(in.value);
        case Op::neg: return static_cast<std::int32_t>(0u - ua);
        case Op::abs: return a < 0 ? static_cast<std::int32_t>(0u - ua) : a;
        case Op::sign: return (a > 0) - (a < 0);
        case Op::floor:
        case Op::trunc: return a;
        case Op::bit_not: return ~a;
        case Op::add: return static_cast<std::int32_t>(ua + ub);
        case Op::sub: return static_cast<std::int32_t>(ua - ub);
        case Op::mul: return static_cast<std::int32_t>(ua * ub);
        case Op::div: return b == 0 ? a : b == -1 ? static_cast<std::int32_t>(0u - ua) : a / b;
        case Op::rem: return b == 0 || b == -1 ? 0 : a % b;
        case Op::min: return std::min(a, b);
        case Op::max: return std::max(a, b);
        case Op::bit_and: return a & b;
        case Op::bit_or: return a | b;
        case Op::bit_xor: return a ^ b;
        case Op::shl: return static_cast<std::int32_t>(ua << (ub & 31));
        case Op::shr: return a >> (ub & 31);
        case Op::eq: return a == b;
        case Op::ne: return a != b;
        case Op::lt: return a < b;
        case Op::le: return a <= b;
        case Op::gt: return a > b;
        case Op::ge: return a >= b;
        case Op::logical_and: return a && b;
        case Op::logical_or: return a || b;
        case Op::logical_not: return !a;
        case Op::select: return a ? b : c;
        default: ADD_FAILURE() << "unexpected op"; return 0;
      }
    };
    v.push_back(result());
  }
  return v.back();
}

TEST(Fuzz, IntegersKeepTheirBits) {
  const unsigned seed = seed_of_run() + 1;
  Generator generator(seed, {Op::neg, Op::abs, Op::sign, Op::floor, Op::trunc, Op::bit_not},
                      {Op::add, Op::sub, Op::mul, Op::div, Op::rem, Op::min, Op::max, Op::bit_and, Op::bit_or,
                       Op::bit_xor, Op::shl, Op::shr},
                      {0, 1, -1, 2, 7, 31, 255, -2147483648.0, 2147483647});
  const std::int32_t special[] = {0, 1, -1, 2, -2, 31, 32, INT32_MIN, INT32_MAX, 65537};
  const DType types[] = {DType::i32, DType::i32};
  for (int i = 0; i < 3000; ++i) {
    const Expression raw = generator.make(1 + i % 6);
    const std::string text = to_text(raw, kOperands);
    const Expression with_types = typed(raw, types), read = typed(parse(text, kOperands), types);
    EXPECT_EQ(with_types.type(), DType::i32);
    for (int j = 0; j < 12; ++j) {
      const std::int32_t x = special[generator.pick(10)], y = special[generator.pick(10)];
      const double at[] = {static_cast<double>(x), static_cast<double>(y)};
      const double expected = integer_value(raw, x, y);
      for (const Expression* other : {&with_types, &read})
        ASSERT_EQ(evaluate(*other, at), expected) << "seed " << seed << ", case " << i << ": " << text << "\nas "
                                                  << to_text(*other, kOperands) << "\nat " << x << ", " << y;
    }
  }
}

TEST(Fuzz, DerivativesOfSmoothCodeAgreeWithDifferences) {
  const unsigned seed = seed_of_run() + 2;
  Generator generator(seed, {Op::neg, Op::sin, Op::cos, Op::tanh, Op::atan, Op::erf, Op::asinh},
                      {Op::add, Op::sub, Op::mul, Op::add}, {1, -1, 0.5, 2, 0.25});
  int checked = 0;
  for (int i = 0; i < 1000; ++i) {
    const Expression forward = simplified(generator.make(1 + i % 4));
    const std::vector<double> at = {generator.value() / 2, generator.value() / 2};
    for (std::size_t operand = 0; operand < 2; ++operand) {
      const double expected = test::difference(forward, operand, at), value = test::slope(forward, operand, at);
      // Where a select turns within the step, differences say nothing: they disagree among themselves.
      if (std::fabs(test::difference(forward, operand, at, 2e-4) - expected) >
          1e-7 * std::max(1.0, std::fabs(expected)))
        continue;
      ++checked;
      EXPECT_NEAR(value, expected, 1e-5 * std::max(1.0, std::fabs(expected)))
          << "seed " << seed << ", case " << i << ": " << to_text(forward, kOperands) << "\nat " << at[0] << ", "
          << at[1];
    }
  }
  EXPECT_GT(checked, 1500);
}

}  // namespace
}  // namespace weft::scalar::fuzz_test
