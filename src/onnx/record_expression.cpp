#include "onnx/record_expression.hpp"

#include <cmath>

#include "weft/error.hpp"

namespace weft::onnx {
namespace {

using Attributes = Record::Attributes;
using Names = std::vector<std::string>;

// a / b and a % b of integers. Where b is 0 they are a and 0 here, and nothing in ONNX; the same holds for the least number by -1.
std::string whole_division(Record& record, const scalar::Instruction& i, const scalar::Instruction& divisor,
                           const Names& values, DType type) {
  const std::string &a = values[static_cast<std::size_t>(i.a)], &b = values[static_cast<std::size_t>(i.b)];
  const auto number = [&](double value) { return record.number(value, type); };
  const bool is_rem = i.op == scalar::Op::rem;
  const auto divided = [&](const std::string& by) {
    return is_rem ? record.node("Mod", {a, by}, Attributes().integer("fmod", 1)) : record.node("Div", {a, by});
  };
  if (divisor.op == scalar::Op::constant && divisor.value != 0 && divisor.value != -1) return divided(b);
  std::string odd = record.node("Equal", {b, number(0)});
  if (!element(type).is_signed) return divided(record_select(record, odd, number(1), b, type));
  const std::string negates = record.node("Equal", {b, number(-1)});
  odd = record.node("Or", {odd, negates});
  const std::string result = divided(record_select(record, odd, number(1), b, type));
  return is_rem ? result : record_select(record, negates, record.node("Sub", {number(0), a}), result, type);
}

// atan2(y, x), by quadrants. The sign of zeros is not kept.
std::string angle(Record& record, const std::string& y, const std::string& x, DType type) {
  const auto number = [&](double value) { return record.number(value, type); };
  const std::string zero = number(0), slope = record.node("Atan", {record.node("Div", {y, x})});
  const std::string below = record.node("Less", {y, zero});
  const std::string turned = record.node("Where", {below, number(-M_PI), number(M_PI)});
  const std::string left = record.node("Add", {slope, turned});
  const std::string upright = record.node("Mul", {record.node("Sign", {y}), number(M_PI / 2)});
  const std::string sides = record.node("Where", {record.node("Less", {x, zero}), left, slope});
  return record.node("Where", {record.node("Equal", {x, zero}), upright, sides});
}

std::string instruction(Record& record, const scalar::Instruction& i, const Names& values,
                        const std::vector<DType>& types) {
  using scalar::Op;
  const auto operand = [&](int at) { return values[static_cast<std::size_t>(at)]; };
  const std::string a = i.a >= 0 ? operand(i.a) : "", b = i.b >= 0 ? operand(i.b) : "",
                    c = i.c >= 0 ? operand(i.c) : "";
  const DType of = i.a >= 0 ? types[static_cast<std::size_t>(i.a)] : i.type;
  const auto number = [&](double value) { return record.number(value, of); };
  const auto one = [&](std::string_view type) { return record.node(type, {a}); };
  const auto two = [&](std::string_view type) { return record.node(type, {a, b}); };
  const bool real = is_float(of), is_bool = of == DType::boolean;
  switch (i.op) {
    case Op::input: break;
    case Op::constant: return record.number(i.value, i.type);
    case Op::neg: return element(of).is_signed ? one("Neg") : record.node("Sub", {number(0), a});
    case Op::abs: return one("Abs");
    case Op::sign: return one("Sign");
    case Op::floor: return real ? one("Floor") : a;
    case Op::ceil: return real ? one("Ceil") : a;
    case Op::round: return real ? one("Round") : a;
    case Op::trunc: return real ? record.node("Mul", {one("Sign"), record.node("Floor", {one("Abs")})}) : a;
    case Op::sqrt: return one("Sqrt");
    case Op::rsqrt: return record.node("Reciprocal", {one("Sqrt")});
    case Op::exp: return one("Exp");
    case Op::exp2: return record.node("Exp", {record.node("Mul", {a, number(M_LN2)})});
    case Op::expm1: {  // 2 tanh(x / 2) / (1 - tanh(x / 2)), which keeps the digits of small numbers
      const std::string t = record.node("Tanh", {record.node("Mul", {a, number(0.5)})});
      const std::string small =
          record.node("Div", {record.node("Mul", {t, number(2)}), record.node("Sub", {number(1), t})});
      const std::string large = record.node("Sub", {one("Exp"), number(1)});
      return record.node("Where", {record.node("Less", {one("Abs"), number(0.5)}), small, large});
    }
    case Op::log: return one("Log");
    case Op::log2: return record.node("Mul", {one("Log"), number(M_LOG2E)});
    case Op::log10: return record.node("Mul", {one("Log"), number(M_LOG10E)});
    case Op::log1p: {  // 2 atanh(x / (2 + x)) for small x
      const std::string ratio = record.node("Div", {a, record.node("Add", {a, number(2)})});
      const std::string small = record.node("Mul", {record.node("Atanh", {ratio}), number(2)});
      const std::string large = record.node("Log", {record.node("Add", {a, number(1)})});
      return record.node("Where", {record.node("Less", {one("Abs"), number(0.5)}), small, large});
    }
    case Op::sin: return one("Sin");
    case Op::cos: return one("Cos");
    case Op::tan: return one("Tan");
    case Op::asin: return one("Asin");
    case Op::acos: return one("Acos");
    case Op::atan: return one("Atan");
    case Op::sinh: return one("Sinh");
    case Op::cosh: return one("Cosh");
    case Op::tanh: return one("Tanh");
    case Op::asinh: return one("Asinh");
    case Op::acosh: return one("Acosh");
    case Op::atanh: return one("Atanh");
    case Op::erf: return one("Erf");
    case Op::is_nan: return real ? one("IsNaN") : record.node("Not", {record.node("Equal", {a, a})});
    case Op::logical_not: return is_bool ? one("Not") : record.node("Equal", {a, number(0)});
    case Op::bit_not: return is_bool ? one("Not") : one("BitwiseNot");
    case Op::cast: return of == i.type ? a : record.cast(a, i.type);
    case Op::add: return two("Add");
    case Op::sub: return two("Sub");
    case Op::mul: return two("Mul");
    case Op::div: return two("Div");
    case Op::rem: return record.node("Mod", {a, b}, Attributes().integer("fmod", 1));
    case Op::pow: return two("Pow");
    case Op::atan2: return angle(record, a, b, of);
    case Op::min: return is_bool ? two("And") : two("Min");
    case Op::max: return is_bool ? two("Or") : two("Max");
    case Op::copysign: {
      const std::string size = one("Abs");
      // The reciprocal tells -0 from 0.
      const std::string negative = record.node(
          "Or",
          {record.node("Less", {b, number(0)}), record.node("Less", {record.node("Reciprocal", {b}), number(0)})});
      return record.node("Where", {negative, record.node("Neg", {size}), size});
    }
    case Op::eq: return two("Equal");
    case Op::ne: return record.node("Not", {two("Equal")});
    case Op::lt: return two("Less");
    case Op::le: return two("LessOrEqual");
    case Op::gt: return two("Greater");
    case Op::ge: return two("GreaterOrEqual");
    case Op::logical_and: return two("And");
    case Op::logical_or: return two("Or");
    case Op::bit_and: return is_bool ? two("And") : two("BitwiseAnd");
    case Op::bit_or: return is_bool ? two("Or") : two("BitwiseOr");
    case Op::bit_xor: return is_bool ? two("Xor") : two("BitwiseXor");
    case Op::select: return record_select(record, a, b, c, i.type);
    case Op::shl:
    case Op::shr: throw UsageError("onnx::save: ONNX has no shifts of signed numbers");
    case Op::philox:
      throw UsageError("onnx::save: random draws cannot be written; call eval() of modules with dropout");
  }
  throw InternalError("onnx::save: an unknown instruction");
}

}  // namespace

std::string record_expression(Record& record, const scalar::Expression& expression, std::span<const Operand> operands) {
  Names values;
  std::vector<DType> types;
  for (const scalar::Instruction& i : expression.code) {
    if (i.op == scalar::Op::input) {
      const Operand& operand = operands[static_cast<std::size_t>(i.slot)];
      values.push_back(operand.name);
      types.push_back(operand.type);
      continue;
    }
    const bool divides = i.op == scalar::Op::div || i.op == scalar::Op::rem;
    const DType of = i.a >= 0 ? types[static_cast<std::size_t>(i.a)] : i.type;
    values.push_back(divides && !is_float(of)
                         ? whole_division(record, i, expression.code[static_cast<std::size_t>(i.b)], values, of)
                         : instruction(record, i, values, types));
    types.push_back(i.type);
  }
  return values.back();
}

// Runtimes lack Where for some types.
std::string record_select(Record& record, const std::string& c, const std::string& a, const std::string& b,
                          DType type) {
  if (type == DType::boolean)
    return record.node("Or", {record.node("And", {c, a}), record.node("And", {record.node("Not", {c}), b})});
  const bool narrow = type == DType::i8 || type == DType::i16 || type == DType::u16 || type == DType::u32;
  if (!narrow) return record.node("Where", {c, a, b});
  const std::string wide = record.node("Where", {c, record.cast(a, DType::i64), record.cast(b, DType::i64)});
  return record.cast(wide, type);
}

}  // namespace weft::onnx
