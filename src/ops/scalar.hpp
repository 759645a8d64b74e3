// Scalar code: what one element of an elementwise op computes, as a list of instructions in static single assignment. The text
// of a row is parsed into scalar code, gradients are derived from it, and kernels are made from it.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.hpp"

namespace weft::scalar {

/// Instructions. Semantics are IEEE: NaN propagates through every arithmetic op and through min and max; comparisons
/// with NaN are false (ne is true); round goes half to even; rem has the sign of the dividend (fmod); integer division
/// truncates (x / 0 = x, x rem 0 = 0, INT_MIN / -1 = INT_MIN, as in WGSL); integers wrap around; shifts take the low
/// five bits of the count (six for 64 bits), and shr of a signed number keeps its sign; sign(0) = 0, sign(NaN) = NaN; copysign looks at the sign
/// bit, so -0 counts as negative (of a NaN it may be either); pow is that of C (pow(x, 0) = 1, pow(1, y) = 1, NaN for x < 0 and y not whole).
enum class Op : std::uint8_t {
  input,     // slot: which operand
  constant,  // value
  // one operand
  neg,
  abs,
  sign,
  floor,
  ceil,
  round,
  trunc,
  sqrt,
  rsqrt,
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  is_nan,
  logical_not,
  bit_not,
  cast,  // to `type`; float to integer truncates and saturates, NaN gives 0; of integers the low bits stay; to a narrower
         // float it rounds to the nearest, ties to even; to bool: x != 0
  // two operands
  add,
  sub,
  mul,
  div,
  rem,
  pow,
  atan2,
  min,
  max,
  copysign,
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  logical_and,
  logical_or,
  bit_and,
  bit_or,
  bit_xor,
  shl,
  shr,
  // three operands
  select,  // a ? b : c; both sides are evaluated
  philox,  // u32 bits: Philox 4x32-10, key (seed a, stream b), counter (index c, 0, 0, 0), first word; all u32
};

inline constexpr int kOpCount = static_cast<int>(Op::philox) + 1;

/// Number of operands (0 for leaves), and the op's name as a function of the expression language ("add"; `to_text`
/// prints it as +).
int arity(Op op);
std::string_view name_of(Op op);
/// The cost of an op: nothing (operands, constants), about one instruction, or many for a function such as exp. Fusion computes
/// a value again in each reader only if it takes few plain ops.
enum class Cost : std::uint8_t { none, plain, function };
Cost cost_of(Op op);
/// True for comparisons, logic and is_nan: the result is a bool whatever the operands are.
bool gives_bool(Op op);

/// One value. Operands a, b, c are indices of earlier instructions (-1: none).
struct Instruction {
  Op op;
  DType type = DType::f32;  // result type; set by `typed`, and by the writer for cast
  int a = -1, b = -1, c = -1;
  int slot = -1;     // input only
  double value = 0;  // constant only
  /// Bit by bit: -0 and 0 differ, a NaN equals itself.
  bool operator==(const Instruction& other) const {
    return op == other.op && type == other.type && a == other.a && b == other.b && c == other.c && slot == other.slot &&
           std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(other.value);
  }
};

/// A function of `inputs` operands; the last instruction is its result. After parsing it is untyped: constants take the type of
/// the other operand.
struct Expression {
  int inputs = 0;
  std::vector<Instruction> code;
  bool operator==(const Expression&) const = default;
  /// Type of the result; meaningful after `typed`.
  DType type() const { return code.back().type; }
};

std::uint64_t hash(const Expression& expression);

/// Sets the types of an expression over operands of these types, and inserts the casts they need:
/// - Arithmetic, comparison and select promote their operands (see `promote`). A bool in arithmetic or a comparison
///   becomes the other's type, or i32; min, max, & | ^ ~ of bools stay bool.
/// - Constants, and selects between constants, take the type of what they meet, so scalars do not promote; one that the
///   type cannot hold (0.5 beside an i32) makes it f32. Left alone they take the operands' promoted type.
/// - sqrt, exp, sin, pow, atan2, ... compute in floats: i32, u32 and bool are cast to f32 first.
/// - floor, ceil, round, trunc of integers are the integers; `/` of integers truncates.
/// - Operands of narrow types (f16, bf16, integers of 8 and 16 bits) are cast to the type that these compute in. The result
///   is cast back to `meet`, by default its `result_type`.
/// The result has every type set, constants rounded to theirs, and is simplified. `inputs` has one type an operand.
/// Throws DTypeError for bit operations and shifts on floats, and for storage types.
Expression typed(const Expression& expression, std::span<const DType> inputs, std::optional<DType> meet = {});
/// The type of the result over operands of these types. Throws as `typed`.
DType result_type(const Expression& expression, std::span<const DType> inputs);

/// The same function with equal values shared, constants folded, dead code dropped, and identities applied that hold for every
/// IEEE value (x * 1, -(-x), x - 0; never x + 0 or x * 0). Instructions are in the order of first use.
Expression simplified(const Expression& expression);

/// `outer` with argument i in place of operand i; all arguments are over the same operands. For untyped
/// code; simplified.
Expression compose(const Expression& outer, std::span<const Expression> arguments);

/// The expression as text that `parse` reads: infix with the fewest parentheses, a `var` for each value used twice. What was
/// simplified and has no types reads back as an equal expression. Operands without a name are called x0, x1, ...
std::string to_text(const Expression& expression, std::span<const std::string> names = {});

/// Reference value in f64; floats are not rounded to f32. i32, u32 and bool instructions compute as such, as do bit
/// operations and philox in untyped code; a bool is 0 or 1. `inputs` has one value an operand.
double evaluate(const Expression& expression, std::span<const double> inputs);

/// Reduction of many values to one. argmax and argmin give the i32 position of the first extreme (a NaN is extreme).
/// sum, prod, max, min keep the type, bools count as or (max) and and (min). Empty: 0, 1, -infinity/lowest, +infinity/highest.
enum class Reduction : std::uint8_t { sum, prod, max, min, argmax, argmin };
std::string_view name_of(Reduction reduction);

}  // namespace weft::scalar
