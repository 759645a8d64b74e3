#include "ops/evaluate.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "weft/error.hpp"

namespace weft::scalar {
namespace {

double saturated(double x, double lo, double hi) {
  if (std::isnan(x)) return 0;
  return std::trunc(x < lo ? lo : x > hi ? hi : x);
}

/// The low 32 bits, read as `type` (anything but u32 reads as i32).
double wrapped(std::uint64_t bits, DType type) {
  const auto low = static_cast<std::uint32_t>(bits);
  return type == DType::u32 ? static_cast<double>(low) : static_cast<double>(static_cast<std::int32_t>(low));
}

/// An integer value as 64 bits. Values come from i32 or u32, so they are whole; untyped ones are cut.
std::int64_t whole(double x) { return static_cast<std::int64_t>(saturated(x, -2147483648.0, 4294967295.0)); }

double cast(double x, DType type, DType from) {
  switch (type) {
    case DType::boolean: return x != 0;
    case DType::i32:
      return from == DType::u32 ? wrapped(static_cast<std::uint64_t>(x), type)
                                : saturated(x, -2147483648.0, 2147483647.0);
    case DType::u32:
      return from == DType::i32 ? wrapped(static_cast<std::uint64_t>(static_cast<std::int64_t>(x)), type)
                                : saturated(x, 0, 4294967295.0);
    default: return x;
  }
}

double apply_integer(Op op, DType type, double x, double y) {
  const std::int64_t a = whole(x), b = whole(y);
  const auto ua = static_cast<std::uint64_t>(a), ub = static_cast<std::uint64_t>(b);
  switch (op) {
    case Op::neg: return wrapped(0 - ua, type);
    case Op::abs: return wrapped(a < 0 ? 0 - ua : ua, type);
    case Op::sign: return static_cast<double>((a > 0) - (a < 0));
    case Op::add: return wrapped(ua + ub, type);
    case Op::sub: return wrapped(ua - ub, type);
    case Op::mul: return wrapped(ua * ub, type);
    case Op::div: return b == 0 ? x : wrapped(static_cast<std::uint64_t>(a / b), type);
    case Op::rem: return b == 0 ? 0 : static_cast<double>(a % b);
    case Op::bit_not: return wrapped(~ua, type);
    case Op::bit_and: return wrapped(ua & ub, type);
    case Op::bit_or: return wrapped(ua | ub, type);
    case Op::bit_xor: return wrapped(ua ^ ub, type);
    case Op::shl: return wrapped(ua << (ub & 31), type);
    case Op::shr: return wrapped(static_cast<std::uint64_t>(a >> (ub & 31)), type);
    case Op::min: return a < b ? x : y;
    case Op::max: return a > b ? x : y;
    default: return x;  // floor, ceil, round, trunc
  }
}

bool is_bit_op(Op op) { return op == Op::bit_not || (op >= Op::bit_and && op <= Op::shr); }

double philox(std::uint32_t seed, std::uint32_t stream, std::uint32_t index) {
  std::uint32_t counter[4] = {index, 0, 0, 0}, key[2] = {seed, stream};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * counter[0], p1 = std::uint64_t{0xCD9E8D57u} * counter[2];
    const std::uint32_t next[4] = {
        static_cast<std::uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    for (int i = 0; i < 4; ++i) counter[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter[0];
}

}  // namespace

double apply(Op op, DType type, DType from, double a, double b, double c) {
  if (op == Op::cast) return cast(a, type, from);
  if (op == Op::select) return a != 0 ? b : c;
  if (op == Op::philox) {
    auto word = [](double x) { return static_cast<std::uint32_t>(whole(x)); };
    return philox(word(a), word(b), word(c));
  }
  if (!gives_bool(op) && (is_integer(type) || is_bit_op(op))) return apply_integer(op, type, a, b);
  switch (op) {
    case Op::neg: return -a;
    case Op::abs: return std::fabs(a);
    case Op::sign: return std::isnan(a) ? a : static_cast<double>((a > 0) - (a < 0));
    case Op::floor: return std::floor(a);
    case Op::ceil: return std::ceil(a);
    case Op::round: return std::nearbyint(a);
    case Op::trunc: return std::trunc(a);
    case Op::sqrt: return std::sqrt(a);
    case Op::rsqrt: return 1 / std::sqrt(a);
    case Op::exp: return std::exp(a);
    case Op::exp2: return std::exp2(a);
    case Op::expm1: return std::expm1(a);
    case Op::log: return std::log(a);
    case Op::log2: return std::log2(a);
    case Op::log10: return std::log10(a);
    case Op::log1p: return std::log1p(a);
    case Op::sin: return std::sin(a);
    case Op::cos: return std::cos(a);
    case Op::tan: return std::tan(a);
    case Op::asin: return std::asin(a);
    case Op::acos: return std::acos(a);
    case Op::atan: return std::atan(a);
    case Op::sinh: return std::sinh(a);
    case Op::cosh: return std::cosh(a);
    case Op::tanh: return std::tanh(a);
    case Op::asinh: return std::asinh(a);
    case Op::acosh: return std::acosh(a);
    case Op::atanh: return std::atanh(a);
    case Op::erf: return std::erf(a);
    case Op::is_nan: return std::isnan(a);
    case Op::logical_not: return !(a != 0);
    case Op::add: return a + b;
    case Op::sub: return a - b;
    case Op::mul: return a * b;
    case Op::div: return a / b;
    case Op::rem: return std::fmod(a, b);
    case Op::pow: return std::pow(a, b);
    case Op::atan2: return std::atan2(a, b);
    case Op::min: return std::isnan(a) ? a : std::isnan(b) ? b : b < a ? b : a;
    case Op::max: return std::isnan(a) ? a : std::isnan(b) ? b : b > a ? b : a;
    case Op::copysign: return std::copysign(a, b);
    case Op::eq: return a == b;
    case Op::ne: return a != b;
    case Op::lt: return a < b;
    case Op::le: return a <= b;
    case Op::gt: return a > b;
    case Op::ge: return a >= b;
    case Op::logical_and: return a != 0 && b != 0;
    case Op::logical_or: return a != 0 || b != 0;
    default: throw InternalError(fmt::format("{} is not an op on values", name_of(op)));
  }
}

double evaluate(const Expression& expression, std::span<const double> inputs) {
  if (inputs.size() != static_cast<std::size_t>(expression.inputs))
    throw InternalError(fmt::format("evaluate: {} values for {} operands", inputs.size(), expression.inputs));
  std::vector<double> values(expression.code.size());
  auto at = [&](int index) { return index < 0 ? 0 : values[static_cast<std::size_t>(index)]; };
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Instruction& in = expression.code[i];
    if (in.op == Op::input)
      values[i] = inputs[static_cast<std::size_t>(in.slot)];
    else if (in.op == Op::constant)
      values[i] = in.value;
    else
      values[i] =
          apply(in.op, in.type, expression.code[static_cast<std::size_t>(in.a)].type, at(in.a), at(in.b), at(in.c));
  }
  return values.back();
}

}  // namespace weft::scalar
