// Scalar code as WGSL text: one expression for each op, by type, and the helper functions that WGSL lacks.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "ops/scalar.hpp"
#include "weft/dtype.hpp"

namespace weft::webgpu {

/// The helper functions that a shader uses; only these are written, each once.
///
/// Accuracy in f32, worst case in units in the last place where the device rounds + - * correctly and divides and takes
/// roots within 2.5 (WGSL promises that much): exp, exp2, expm1, log, log2, log10 2; log1p, sin, cos, erf 3; tan, asin,
/// acos, atan, atan2, pow, sinh, cosh, tanh 4; asinh, acosh, atanh 5; rem is exact. Division, sqrt and rsqrt are the
/// device's. Devices may flush denormals to zero. NaN and infinities follow IEEE: tests for NaN read bits, because WGSL
/// compilers may assume that there is no NaN.
class Helpers {
 public:
  /// Names the function `name` (and what it calls) for the shader; returns the name.
  std::string_view use(std::string_view name);
  /// Names the functions that another shader uses.
  void use(const Helpers& others);
  /// Whether the device's conversions from f16, which are then exact for every number, may be used.
  void take_exact_halves(bool exact) { exact_halves_ = exact; }
  /// Whether its conversions to f16, which then round to nearest, may be used.
  void take_rounded_halves(bool rounded) { rounded_halves_ = rounded; }
  /// Declarations of all used functions.
  std::string text() const;

 private:
  std::set<std::string, std::less<>> used_;
  bool exact_halves_ = false, rounded_halves_ = false;
};

/// A scalar value in shader text: an expression without side effects, normally a name.
struct Scalar {
  std::string text;
  DType type = DType::f32;
  std::optional<double> constant;  // the value, if it is known
};

/// "f32", "i32", "u32", "bool": the type of values of `type` in a shader. Narrow and storage types have the type that they
/// compute in, but contain only their own numbers. Throws DTypeError for f64 and integers of 64 bits, which no shader has.
std::string_view wgsl_type(DType type);
/// The type of an element in a storage buffer: a bool is a u32, 0 or 1.
std::string_view wgsl_storage_type(DType type);

/// Converts the bits of an element below 32 bits to a value, and back; other types are unchanged.
std::string render_unpacked(DType type, const std::string& bits, Helpers& helpers);
std::string render_packed(DType type, const std::string& value, Helpers& helpers);

/// Text of a constant; infinities and NaN through a helper, because WGSL has no constant of them.
std::string render_constant(double value, DType type, Helpers& helpers);
/// A value as another type, by the rules of scalar::Op::cast.
std::string render_cast(const Scalar& value, DType to, Helpers& helpers);
/// One op with result `type`. Operands are first cast to their common type. Throws DTypeError for a float op on
/// integers.
std::string render_op(scalar::Op op, DType type, const Scalar& a, const Scalar& b, const Scalar& c, Helpers& helpers);

/// The start and the combination of two values of a reduction in `type` (sum, prod, max, min).
std::string render_identity(scalar::Reduction reduction, DType type, Helpers& helpers);
std::string render_combine(scalar::Reduction reduction, DType type, const std::string& a, const std::string& b,
                           Helpers& helpers);
constexpr bool gives_position(scalar::Reduction reduction) {
  return reduction == scalar::Reduction::argmax || reduction == scalar::Reduction::argmin;
}
/// For argmax and argmin: a u32 that is largest for the extreme value; equal values have equal keys, NaN the largest.
std::string render_key(scalar::Reduction reduction, const Scalar& value, Helpers& helpers);

}  // namespace weft::webgpu
