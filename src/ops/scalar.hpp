// Scalar code: what one element of an elementwise op computes, as a list of instructions in static single assignment.
// The text of a row is parsed into it, gradients are derived on it, and kernels are made of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.hpp"

namespace weft::scalar {

/// Instructions. Semantics are IEEE: NaN propagates through every arithmetic op and through min and max; comparisons
/// with NaN are false (ne is true); round goes half to even; rem has the sign of the dividend (fmod); integer division
/// truncates; shifts take the low five bits of the count; sign(0) = 0, sign(NaN) = NaN.
enum class Op : std::uint8_t {
  input,     // slot: which operand
  constant,  // value
  // one operand
  neg, abs, sign, floor, ceil, round, trunc, sqrt, rsqrt, exp, exp2, expm1, log, log2, log10, log1p,
  sin, cos, tan, asin, acos, atan, sinh, cosh, tanh, asinh, acosh, atanh, erf, is_nan, logical_not, bit_not,
  cast,      // to `type`; float to integer truncates and saturates, NaN gives 0; anything to bool is x != 0
  // two operands
  add, sub, mul, div, rem, pow, atan2, min, max, copysign, eq, ne, lt, le, gt, ge, logical_and, logical_or,
  bit_and, bit_or, bit_xor, shl, shr,
  // three operands
  select,    // a ? b : c; both sides are evaluated
  philox,    // u32 bits: Philox 4x32-10, key (seed a, stream b), counter (index c, 0, 0, 0), first word; all u32
};

/// Number of operands (0 for leaves) and the name used in expression text and printing ("add" prints as +, and so on).
int arity(Op op);
std::string_view name_of(Op op);

/// One value. Operands a, b, c are indices of earlier instructions (-1: none).
struct Instruction {
  Op op;
  DType type = DType::f32;  // result type; set by `typed`, and by the writer for cast
  int a = -1, b = -1, c = -1;
  int slot = -1;            // input only
  double value = 0;         // constant only
  bool operator==(const Instruction&) const = default;
};

/// A function of `inputs` operands; the last instruction is its result. Untyped as parsed: constants take the type of
/// what they meet.
struct Expression {
  int inputs = 0;
  std::vector<Instruction> code;
  bool operator==(const Expression&) const = default;
};

/// Reduction of many values to one. argmax and argmin give the i32 position of the first extreme (a NaN is extreme).
/// sum, prod, max, min keep the type, bools count as or (max) and and (min). Empty: 0, 1, -infinity/lowest, +infinity/highest.
enum class Reduction : std::uint8_t { sum, prod, max, min, argmax, argmin };
std::string_view name_of(Reduction reduction);

}  // namespace weft::scalar
