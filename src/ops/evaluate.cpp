#include "ops/evaluate.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tensor/element.hpp"
#include "weft/error.hpp"

namespace weft::scalar {
namespace {

/// Not all 64-bit integers fit a double, and the reference computes in doubles. Values beyond 2^53 are rounded here, and the
/// builder does not fold them.
double wrapped(std::uint64_t bits, DType type) {
  switch (type) {
    case DType::i8: return static_cast<std::int8_t>(bits);
    case DType::u8: return static_cast<std::uint8_t>(bits);
    case DType::i16: return static_cast<std::int16_t>(bits);
    case DType::u16: return static_cast<std::uint16_t>(bits);
    case DType::u32: return static_cast<std::uint32_t>(bits);
    case DType::i64: return static_cast<double>(static_cast<std::int64_t>(bits));
    case DType::u64: return static_cast<double>(bits);
    default: return static_cast<std::int32_t>(bits);
  }
}

/// The bits of an integer value. Untyped values are truncated.
std::uint64_t whole(double x) {
  if (std::isnan(x)) return 0;
  if (x >= 0) return x < 0x1p64 ? static_cast<std::uint64_t>(x) : ~std::uint64_t{0};
  return static_cast<std::uint64_t>(x > -0x1p63 ? static_cast<std::int64_t>(x)
                                                : std::numeric_limits<std::int64_t>::min());
}

double cast(double x, DType type, DType from) {
  if (type == DType::f32) return x;  // the reference rounds only to narrower types
  if (is_integer(type) && (is_integer(from) || from == DType::boolean)) return wrapped(whole(x), type);
  return rounded_to(type, x);
}

double apply_integer(Op op, DType type, double x, double y) {
  const std::uint64_t ua = whole(x), ub = whole(y);
  const auto a = static_cast<std::int64_t>(ua), b = static_cast<std::int64_t>(ub);
  const bool wide = type == DType::u64;  // everything else fits a signed number of 64 bits
  const std::uint64_t places = element(type).bits == 64 ? 63 : 31;
  switch (op) {
    case Op::neg: return wrapped(0 - ua, type);
    case Op::abs: return wrapped(a < 0 && !wide ? 0 - ua : ua, type);
    case Op::sign: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case Op::add: return wrapped(ua + ub, type);
    case Op::sub: return wrapped(ua - ub, type);
    case Op::mul: return wrapped(ua * ub, type);
    case Op::div:
      if (b == 0) return x;
      if (!wide && b == -1) return wrapped(0 - ua, type);
      return wrapped(wide ? ua / ub : static_cast<std::uint64_t>(a / b), type);
    case Op::rem:
      if (b == 0 || (!wide && b == -1)) return 0;
      return wide ? static_cast<double>(ua % ub) : static_cast<double>(a % b);
    case Op::bit_not: return wrapped(~ua, type);
    case Op::bit_and: return wrapped(ua & ub, type);
    case Op::bit_or: return wrapped(ua | ub, type);
    case Op::bit_xor: return wrapped(ua ^ ub, type);
    case Op::shl: return wrapped(ua << (ub & places), type);
    case Op::shr: return wrapped(wide ? ua >> (ub & places) : static_cast<std::uint64_t>(a >> (ub & places)), type);
    case Op::min: return x < y ? x : y;
    case Op::max: return x > y ? x : y;
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
