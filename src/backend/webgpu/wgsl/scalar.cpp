#include "backend/webgpu/wgsl/scalar.hpp"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <limits>

#include "backend/webgpu/wgsl/functions.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

using scalar::Op;
using scalar::Reduction;

std::string call(Helpers& helpers, std::string_view name, std::string_view a) {
  return fmt::format("{}({})", helpers.use(name), a);
}
std::string call(Helpers& helpers, std::string_view name, std::string_view a, std::string_view b) {
  return fmt::format("{}({}, {})", helpers.use(name), a, b);
}

[[noreturn]] void no_form(Op op, DType type) {
  throw DTypeError(fmt::format("webgpu: {} has no {} form; cast its operands to f32 first", scalar::name_of(op),
                               weft::name_of(type)));
}

bool can_be_nan(const Scalar& value) {
  return value.type == DType::f32 && !(value.constant && !std::isnan(*value.constant));
}

std::string is_nan(const Scalar& value, Helpers& helpers) { return call(helpers, "is_nan_f32", value.text); }

/// Condition that both are numbers, or empty if that is known.
std::string numbers(const Scalar& a, const Scalar& b, Helpers& helpers) {
  std::string text;
  if (can_be_nan(a)) text += " && !" + is_nan(a, helpers);
  if (can_be_nan(b) && a.text != b.text) text += " && !" + is_nan(b, helpers);
  return text;
}

std::string compare(Op op, const Scalar& a, const Scalar& b, Helpers& helpers) {
  if (a.type == DType::boolean) switch (op) {
      case Op::eq: return fmt::format("({} == {})", a.text, b.text);
      case Op::ne: return fmt::format("({} != {})", a.text, b.text);
      case Op::lt: return fmt::format("(!{} && {})", a.text, b.text);
      case Op::le: return fmt::format("(!{} || {})", a.text, b.text);
      case Op::gt: return fmt::format("({} && !{})", a.text, b.text);
      default: return fmt::format("({} || !{})", a.text, b.text);
    }
  const std::string_view sign = op == Op::lt   ? "<"
                                : op == Op::le ? "<="
                                : op == Op::gt ? ">"
                                : op == Op::ge ? ">="
                                               : "==";
  const std::string holds = fmt::format("({} {} {}{})", a.text, sign, b.text, numbers(a, b, helpers));
  return op == Op::ne ? "!" + holds : holds;
}

std::string extreme(bool largest, DType type, const Scalar& a, const Scalar& b, Helpers& helpers) {
  if (type == DType::boolean) return fmt::format("({} {} {})", a.text, largest ? "||" : "&&", b.text);
  const std::string plain = fmt::format("{}({}, {})", largest ? "max" : "min", a.text, b.text);
  if (type != DType::f32 || (!can_be_nan(a) && !can_be_nan(b))) return plain;
  if (can_be_nan(a) && can_be_nan(b)) return call(helpers, largest ? "max_f32" : "min_f32", a.text, b.text);
  const Scalar& unsure = can_be_nan(a) ? a : b;
  return fmt::format("select({}, {}, {})", plain, unsure.text, is_nan(unsure, helpers));
}

std::string render_bool(Op op, const std::string& a, const std::string& b) {
  switch (op) {
    case Op::add:
    case Op::logical_or:
    case Op::bit_or: return fmt::format("({} || {})", a, b);
    case Op::mul:
    case Op::logical_and:
    case Op::bit_and: return fmt::format("({} && {})", a, b);
    case Op::sub:
    case Op::bit_xor: return fmt::format("({} != {})", a, b);
    case Op::shr: return fmt::format("({} && !{})", a, b);
    case Op::pow: return fmt::format("({} || !{})", a, b);
    case Op::rem: return "false";
    case Op::logical_not:
    case Op::bit_not: return "!" + a;
    case Op::neg:
    case Op::abs:
    case Op::sign:
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc:
    case Op::div:
    case Op::shl:
    case Op::copysign: return a;
    default: no_form(op, DType::boolean);
  }
}

std::string render_integer(Op op, DType type, const Scalar& a, const Scalar& b, Helpers& helpers) {
  const bool is_signed = type == DType::i32;
  const std::string &x = a.text, &y = b.text;
  switch (op) {
    case Op::neg: return is_signed ? "(-" + x + ")" : "(0u - " + x + ")";
    case Op::abs: return is_signed ? "abs(" + x + ")" : x;
    case Op::sign: return is_signed ? "sign(" + x + ")" : "min(" + x + ", 1u)";
    case Op::floor:
    case Op::ceil:
    case Op::round:
    case Op::trunc: return x;
    case Op::bit_not: return "(~" + x + ")";
    case Op::add: return fmt::format("({} + {})", x, y);
    case Op::sub: return fmt::format("({} - {})", x, y);
    case Op::mul: return fmt::format("({} * {})", x, y);
    case Op::div: return fmt::format("({} / {})", x, y);
    case Op::rem: return fmt::format("({} % {})", x, y);
    case Op::pow: return call(helpers, is_signed ? "pow_i32" : "pow_u32", x, y);
    case Op::copysign: return is_signed ? fmt::format("select(abs({0}), -abs({0}), {1} < 0i)", x, y) : x;
    case Op::bit_and: return fmt::format("({} & {})", x, y);
    case Op::bit_or: return fmt::format("({} | {})", x, y);
    case Op::bit_xor: return fmt::format("({} ^ {})", x, y);
    case Op::shl: return fmt::format("({} << (bitcast<u32>({}) & 31u))", x, y);
    case Op::shr: return fmt::format("({} >> (bitcast<u32>({}) & 31u))", x, y);
    default: no_form(op, type);
  }
}

std::string render_float(Op op, const Scalar& a, const Scalar& b, Helpers& helpers) {
  const std::string &x = a.text, &y = b.text;
  switch (op) {
    case Op::neg: return "(-" + x + ")";
    case Op::abs: return "abs(" + x + ")";
    case Op::floor: return "floor(" + x + ")";
    case Op::ceil: return "ceil(" + x + ")";
    case Op::round: return "round(" + x + ")";
    case Op::trunc: return "trunc(" + x + ")";
    case Op::sqrt: return "sqrt(" + x + ")";
    case Op::rsqrt: return "inverseSqrt(" + x + ")";
    case Op::add: return fmt::format("({} + {})", x, y);
    case Op::sub: return fmt::format("({} - {})", x, y);
    case Op::mul:
      if (b.constant == 0.0) return call(helpers, "times_zero_f32", x, y);
      if (a.constant == 0.0) return call(helpers, "times_zero_f32", y, x);
      return fmt::format("({} * {})", x, y);
    case Op::div:
      if (b.constant == 0.0) return call(helpers, "over_zero_f32", x, y);
      if (!a.constant && !b.constant) return call(helpers, "div_f32", x, y);
      return fmt::format("({} / {})", x, y);
    case Op::copysign: return call(helpers, "with_sign_f32", x, y);
    case Op::pow:
      if (b.constant == 2.0) return fmt::format("({0} * {0})", x);
      return call(helpers, "pow_f32", x, y);
    case Op::rem: return call(helpers, "rem_f32", x, y);
    case Op::atan2: return call(helpers, "atan2_f32", x, y);
    case Op::sign: return call(helpers, "sign_f32", x);
    default: break;
  }
  if (scalar::arity(op) == 1 && scalar::cost_of(op) == scalar::Cost::function)
    return call(helpers, fmt::format("{}_f32", scalar::name_of(op)), x);
  no_form(op, DType::f32);
}

}  // namespace

std::string_view Helpers::use(std::string_view name) {
  if (used_.contains(name)) return name;
  for (const WgslFunction& function : wgsl_functions()) {
    if (function.name != name) continue;
    used_.insert(std::string(name));
    for (const std::string_view called : function.calls)
      if (!called.empty()) use(called);
    return function.name;
  }
  throw InternalError(fmt::format("webgpu: there is no helper function {}", name));
}

void Helpers::use(const Helpers& others) {
  used_.insert(others.used_.begin(), others.used_.end());
  exact_halves_ = exact_halves_ || others.exact_halves_;
  rounded_halves_ = rounded_halves_ || others.rounded_halves_;
}

std::string Helpers::text() const {
  std::string text;
  for (const WgslFunction& function : wgsl_functions())
    if (used_.contains(function.name))
      text += exact_halves_ && !function.with_exact_halves.empty()       ? function.with_exact_halves
              : rounded_halves_ && !function.with_rounded_halves.empty() ? function.with_rounded_halves
                                                                         : function.text;
  return text;
}

std::string_view wgsl_type(DType type) {
  if (element(type).wgsl.empty())
    throw DTypeError(
        fmt::format("webgpu: {} does not exist on GPUs; cast to a type of 32 bits, or compute on the device cpu",
                    weft::name_of(type)));
  return element(type).wgsl;
}

std::string_view wgsl_storage_type(DType type) {
  return type == DType::boolean || element(type).bits < 32 ? "u32" : wgsl_type(type);
}

std::string render_unpacked(DType type, const std::string& bits, Helpers& helpers) {
  switch (type) {
    case DType::fp8_e4m3: return call(helpers, "f32_from_fp8_e4m3", bits);
    case DType::fp8_e5m2: return call(helpers, "f32_from_fp8_e5m2", bits);
    case DType::fp4_e2m1: return call(helpers, "f32_from_fp4_e2m1", bits);
    case DType::int4: return fmt::format("f32(bitcast<i32>({} << 28u) >> 28u)", bits);
    case DType::int2:
    case DType::ternary: return fmt::format("f32(bitcast<i32>({} << 30u) >> 30u)", bits);
    case DType::uint4:
    case DType::uint2: return fmt::format("f32({})", bits);
    case DType::binary: return fmt::format("(f32({}) * 2f - 1f)", bits);
    case DType::f16: return call(helpers, "f32_from_f16", bits);
    case DType::bf16: return fmt::format("bitcast<f32>({} << 16u)", bits);
    case DType::i16: return fmt::format("(bitcast<i32>({} << 16u) >> 16u)", bits);
    case DType::i8: return fmt::format("(bitcast<i32>({} << 24u) >> 24u)", bits);
    case DType::u16:
    case DType::u8: return fmt::format("bitcast<i32>({})", bits);
    default: return bits;
  }
}

std::string render_packed(DType type, const std::string& value, Helpers& helpers) {
  switch (type) {
    case DType::fp8_e4m3: return call(helpers, "fp8_e4m3_from_f32", value);
    case DType::fp8_e5m2: return call(helpers, "fp8_e5m2_from_f32", value);
    case DType::fp4_e2m1: return call(helpers, "fp4_e2m1_from_f32", value);
    case DType::int4:
    case DType::uint4: return fmt::format("(bitcast<u32>(i32({})) & 15u)", value);
    case DType::int2:
    case DType::uint2:
    case DType::ternary: return fmt::format("(bitcast<u32>(i32({})) & 3u)", value);
    case DType::binary: return fmt::format("u32({} > 0f)", value);
    case DType::f16: return call(helpers, "f16_from_f32", value);
    case DType::bf16: return call(helpers, "bf16_from_f32", value);
    case DType::i16:
    case DType::u16: return fmt::format("(bitcast<u32>({}) & 0xffffu)", value);
    case DType::i8:
    case DType::u8: return fmt::format("(bitcast<u32>({}) & 0xffu)", value);
    default: return value;
  }
}

namespace {

/// A value of the type that `to` computes in, truncated or rounded to a value of `to`.
std::string narrowed(const std::string& value, DType to, Helpers& helpers) {
  switch (to) {
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::fp4_e2m1: return render_unpacked(to, render_packed(to, value, helpers), helpers);
    case DType::binary: return fmt::format("select(-1f, 1f, {} > 0f)", value);
    case DType::int4:
    case DType::uint4:
    case DType::int2:
    case DType::uint2:
    case DType::ternary:
      return fmt::format("{}({}, {:.0f}f, {:.0f}f)", helpers.use("small_integer_f32"), value, element(to).lowest,
                         element(to).highest);
    case DType::f16: return call(helpers, "rounded_f16", value);
    case DType::bf16: return call(helpers, "rounded_bf16", value);
    case DType::i16: return fmt::format("(({} << 16u) >> 16u)", value);
    case DType::i8: return fmt::format("(({} << 24u) >> 24u)", value);
    case DType::u16: return fmt::format("({} & 0xffffi)", value);
    default: return fmt::format("({} & 0xffi)", value);
  }
}

}  // namespace

std::string render_constant(double value, DType type, Helpers& helpers) {
  if (compute_type(type) != type) return render_constant(value, compute_type(type), helpers);
  switch (type) {
    case DType::f32: {
      const float x = static_cast<float>(value);
      if (std::isnan(x)) return fmt::format("{}()", helpers.use("nan_f32"));
      if (std::isinf(x)) return fmt::format("{}{}()", x < 0 ? "-" : "", helpers.use("inf_f32"));
      if (x == 0 && std::signbit(x)) return "bitcast<f32>(0x80000000u)";
      // Its shortest decimal form is above the largest f32, and WGSL refuses that.
      if (std::abs(x) == std::numeric_limits<float>::max()) return x < 0 ? "-0x1.fffffep+127f" : "0x1.fffffep+127f";
      return fmt::format("{}f", x);
    }
    case DType::i32: return fmt::format("i32({})", static_cast<std::int32_t>(static_cast<std::int64_t>(value)));
    case DType::u32: return fmt::format("{}u", static_cast<std::uint32_t>(static_cast<std::int64_t>(value)));
    case DType::boolean: return value != 0 ? "true" : "false";
    default: break;
  }
  return std::string(wgsl_type(type));
}

std::string render_cast(const Scalar& value, DType to, Helpers& helpers) {
  if (value.type == to) return value.text;
  wgsl_type(value.type);
  if (compute_type(value.type) != value.type)
    return render_cast({value.text, compute_type(value.type), {}}, to, helpers);
  if (compute_type(to) != to) {
    const std::string wide = render_cast(value, compute_type(to), helpers);
    if (is_integer(to) && value.type == DType::f32)  // large values saturate
      return fmt::format("clamp({}, {:.0f}i, {:.0f}i)", wide, element(to).lowest, element(to).highest);
    return narrowed(wide, to, helpers);
  }
  const bool from_float = value.type == DType::f32;
  switch (to) {
    case DType::boolean:
      if (from_float) return fmt::format("((bitcast<u32>({}) & 0x7fffffffu) != 0u)", value.text);
      return fmt::format("({} != {})", value.text, value.type == DType::i32 ? "0i" : "0u");
    case DType::f32:
      return value.type == DType::u32 ? call(helpers, "f32_from_u32", value.text) : fmt::format("f32({})", value.text);
    case DType::i32: return from_float ? call(helpers, "i32_from_f32", value.text) : fmt::format("i32({})", value.text);
    case DType::u32: return from_float ? call(helpers, "u32_from_f32", value.text) : fmt::format("u32({})", value.text);
    default: break;
  }
  return std::string(wgsl_type(to));
}

std::string render_op(Op op, DType type, const Scalar& a, const Scalar& b, const Scalar& c, Helpers& helpers) {
  wgsl_type(type);
  const auto as = [&](const Scalar& value, DType to) {
    return Scalar{render_cast(value, to, helpers), to, value.constant};
  };
  const auto result = [&](std::string text) {
    return render_cast({std::move(text), DType::boolean, {}}, type, helpers);
  };
  switch (op) {
    case Op::input:
    case Op::constant: throw InternalError("webgpu: a leaf of scalar code is not an operation");
    case Op::cast: return render_cast(a, type, helpers);
    case Op::is_nan: return result(a.type == DType::f32 ? is_nan(a, helpers) : "false");
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge: {
      const DType meet = promote(a.type, b.type);
      return result(compare(op, as(a, meet), as(b, meet), helpers));
    }
    case Op::logical_not: return result("!" + as(a, DType::boolean).text);
    case Op::logical_and:
    case Op::logical_or: return result(render_bool(op, as(a, DType::boolean).text, as(b, DType::boolean).text));
    case Op::select:
      return fmt::format("select({}, {}, {})", as(c, type).text, as(b, type).text, as(a, DType::boolean).text);
    case Op::philox:
      return render_cast({fmt::format("{}({}, {}, {})", helpers.use("philox"), as(a, DType::u32).text,
                                      as(b, DType::u32).text, as(c, DType::u32).text),
                          DType::u32,
                          {}},
                         type, helpers);
    case Op::max:
    case Op::min: return extreme(op == Op::max, type, as(a, type), as(b, type), helpers);
    default: break;
  }
  const Scalar x = as(a, type), y = scalar::arity(op) > 1 ? as(b, type) : Scalar{};
  if (type == DType::boolean) return render_bool(op, x.text, y.text);
  return type == DType::f32 ? render_float(op, x, y, helpers) : render_integer(op, type, x, y, helpers);
}

std::string render_identity(Reduction reduction, DType type, Helpers& helpers) {
  const double inf = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Reduction::sum: return render_constant(0, type, helpers);
    case Reduction::prod: return render_constant(1, type, helpers);
    case Reduction::max:
      return render_constant(type == DType::f32 ? -inf : type == DType::i32 ? -2147483648.0 : 0, type, helpers);
    case Reduction::min:
      return render_constant(type == DType::f32   ? inf
                             : type == DType::i32 ? 2147483647.0
                             : type == DType::u32 ? 4294967295.0
                                                  : 1,
                             type, helpers);
    default: return "0u";
  }
}

std::string render_combine(Reduction reduction, DType type, const std::string& a, const std::string& b,
                           Helpers& helpers) {
  const Op op = reduction == Reduction::sum    ? Op::add
                : reduction == Reduction::prod ? Op::mul
                : reduction == Reduction::max  ? Op::max
                                               : Op::min;
  return render_op(op, type, {a, type, {}}, {b, type, {}}, {}, helpers);
}

std::string render_key(Reduction reduction, const Scalar& value, Helpers& helpers) {
  const std::string& x = value.text;
  std::string key;
  switch (value.type) {
    case DType::f32: key = call(helpers, "order_key_f32", x); break;
    case DType::i32: key = fmt::format("(bitcast<u32>({}) ^ 0x80000000u)", x); break;
    default: key = render_cast(value, DType::u32, helpers); break;
  }
  if (reduction == Reduction::argmin) key = "(~" + key + ")";
  return value.type == DType::f32 ? fmt::format("select({}, 0xffffffffu, {})", key, is_nan(value, helpers)) : key;
}

}  // namespace weft::webgpu
