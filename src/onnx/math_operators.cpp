// Operators element by element, reductions and products.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "onnx/apply.hpp"
#include "weft/ops/contraction.hpp"
#include "weft/ops/linear_algebra.hpp"
#include "weft/ops/scans.hpp"

namespace weft::onnx {
namespace {

using A = Application;

// ---- Element by element -------------------------------------------------------------------------------------------------

template <Tensor (*F)(const Tensor&, Where)>
void unary(A& a) {
  a.give(F(a[0], Where::current()));
}
// Before opset 7 the axes of y begin at an axis of x.
Tensor placed(A& a, const Tensor& x, const Tensor& y, std::optional<Extent> at) {
  if (a.opset() >= 7 || !at || y.rank() == 0) return y;
  const int first = a.axis(*at, x.rank());
  if (first + y.rank() > x.rank()) a.shape_error(fmt::format("y does not fit at axis {}", first));
  Shape shape(std::vector<Extent>(static_cast<std::size_t>(x.rank()), 1));
  for (int i = 0; i < y.rank(); ++i) shape[first + i] = y.dim(i);
  return reshape(y, shape);
}
Tensor right(A& a) {
  if (a.opset() >= 7 || !a.attribute("axis")) return a[1];
  return placed(a, a[0], a[1], a.integer("axis"));
}
template <Tensor (*F)(const Tensor&, const Tensor&, Where)>
void binary(A& a) {
  a.give(F(a[0], right(a), Where::current()));
}
template <Tensor (*F)(const Tensor&, const Tensor&, Where)>
void variadic(A& a) {
  Tensor result = a[0];
  for (std::size_t i = 1; i < a.input_count(); ++i) result = F(result, a[i], Where::current());
  a.give(result);
}
Tensor sum_of(const Tensor& x, const Tensor& y, Where) { return x + y; }
Tensor difference_of(const Tensor& x, const Tensor& y, Where) { return x - y; }

// Integers of 8 and 16 bits keep their type; a quotient of integers truncates.
void divide(A& a) {
  const Tensor x = a[0], y = right(a);
  if (is_float(x.dtype())) return a.give(x / y);
  const Tensor quotient = floor_divide(x, y);
  if (!element(x.dtype()).is_signed) return a.give(quotient);
  const Tensor inexact = ne(quotient * y, x);
  const Tensor negative = ne(lt(x, 0.0), lt(y, 0.0));
  a.give(where(inexact & negative, quotient + 1.0, quotient));
}
// A power of an integer is computed in f64 where there is f64, since f32 does not hold all integers.
void power(A& a) {
  // A constant exponent, as in norms that are written out, needs no general power.
  const Value& exponent = a.value(1);
  if (is_float(a[0].dtype()) && exponent.known.defined() && !exponent.trains && a[1].numel() == 1 && a[1].rank() == 0) {
    const double n = a.number_of(1);
    if (n == 2) return a.give(square(a[0]));
    if (n == 0.5) return a.give(sqrt(a[0]));
    if (n == 1) return a.give(a[0]);
  }
  if (is_float(a[0].dtype())) return a.give(cast(pow(a[0], right(a)), a[0].dtype()));
  const DType wide = a.on_cpu() ? DType::f64 : DType::f32;
  const Tensor y = pow(cast(a[0], wide), cast(a[1], wide));
  a.give(cast(is_integer(a[1].dtype()) ? round(y) : y, a[0].dtype()));
}
void modulo(A& a) { a.give(a.flag("fmod", false) ? fmod(a[0], a[1]) : remainder(a[0], a[1])); }
void shift(A& a) {
  const std::string_view direction = a.word("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") a.usage_error("direction is neither LEFT nor RIGHT");
  const Tensor y = direction == "LEFT" ? bitwise_left_shift(a[0], a[1]) : bitwise_right_shift(a[0], a[1]);
  if (a.opset() < 28) return a.give(y);
  // A shift by more than the bits that there are, or by less than none, leaves only the sign.
  const Tensor out = lt(a[1], 0.0) | ge(a[1], static_cast<double>(8 * size_bytes(a[0].dtype())));
  const Tensor rest =
      direction == "LEFT" ? zeros_like(a[0]) : where(lt(a[0], 0.0), zeros_like(a[0]) - 1.0, zeros_like(a[0]));
  a.give(where(out, rest, y));
}
void mean_of(A& a) {
  variadic<sum_of>(a);
  a.give(a.results()[0].tensor / static_cast<double>(a.input_count()));
}
void choose(A& a) { a.give(where(a[0], a[1], a[2])); }
void clip_between(A& a) {
  Tensor x = a[0];
  if (a.opset() < 11) {
    constexpr double huge = std::numeric_limits<float>::max();
    return a.give(clamp(x, a.number("min", -huge), a.number("max", huge)));
  }
  if (a.has(1)) x = maximum(x, a[1]);
  if (a.has(2)) x = minimum(x, a[2]);
  a.give(x);
}
void elu_of(A& a) { a.give(elu(a[0], a.number("alpha", 1))); }
void celu_of(A& a) { a.give(celu(a[0], a.number("alpha", 1))); }
void leaky(A& a) { a.give(leaky_relu(a[0], a.number("alpha", 0.01f))); }
void scaled_elu(A& a) {
  const double alpha = a.number("alpha", 1.6732632423543772), gamma = a.number("gamma", 1.0507009873554805);
  a.give(elu(a[0], alpha) * gamma);
}
void hard_sigmoid(A& a) { a.give(clamp(a[0] * a.number("alpha", 0.2f) + a.number("beta", 0.5), 0, 1)); }
void thresholded(A& a) { a.give(where(gt(a[0], a.number("alpha", 1)), a[0], zeros_like(a[0]))); }
void shrink(A& a) {
  const double lambd = a.number("lambd", 0.5), bias = a.number("bias", 0);
  const Tensor& x = a[0];
  a.give(where(lt(x, -lambd), x + bias, where(gt(x, lambd), x - bias, zeros_like(x))));
}
void gelu_of(A& a) { a.give(a.word("approximate", "none") == "tanh" ? gelu_tanh(a[0]) : gelu(a[0])); }
void softplus_of(A& a) { a.give(logaddexp(a[0], zeros_like(a[0]))); }
void infinite(A& a) {
  const bool positive = a.flag("detect_positive", true), negative = a.flag("detect_negative", true);
  const Tensor is = isinf(a[0]);
  if (positive && negative) return a.give(is);
  if (!positive && !negative) return a.give(is & !is);
  a.give(is & (positive ? gt(a[0], 0.0) : lt(a[0], 0.0)));
}
void prelu_of(A& a) {
  // Before opset 7 slopes are by channel.
  const Tensor slope = a[1].rank() == 1 && a[1].numel() > 1 ? placed(a, a[0], a[1], Extent{1}) : a[1];
  a.give(where(lt(a[0], 0.0), a[0] * slope, a[0]));
}
void cast_to(A& a) { a.give(cast(a[0], a.type_here(dtype_of_element(a.integer("to"))))); }
void cast_like(A& a) { a.give(cast(a[0], a[1].dtype())); }
void same_value(A& a) { a.give_value(0, a.value(0)); }

// ---- Reductions ---------------------------------------------------------------------------------------------------------

// Axes are an attribute, or from some opset on an input.
bool axes_of(A& a, std::vector<int>& axes) {
  const std::vector<Extent> given = a.integers("axes", 1);
  axes = a.axes(given, a[0].rank());
  return !given.empty() || !a.flag("noop_with_empty_axes", false);
}

template <class F>
void reduced(A& a, F f) {
  std::vector<int> axes;
  const bool keep = a.flag("keepdims", true);
  if (!axes_of(a, axes)) return a.give(f(a[0], Axes(), ReduceOptions{}, true));
  const DType type = a[0].dtype();
  const Tensor result = f(a[0], Axes(axes), ReduceOptions{.keepdims = keep}, false);
  a.give(result.dtype() == type ? result : cast(result, type));
}
void reduce_sum(A& a) {
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) { return none ? x : sum(x, axes, o); });
}
void reduce_mean(A& a) {
  // The standard leaves the mean of nothing open; ONNX Runtime gives 0.
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) {
    return none ? x : x.numel() == 0 ? sum(x, axes, o) : mean(x, axes, o);
  });
}
void reduce_prod(A& a) {
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) { return none ? x : prod(x, axes, o); });
}
// x, or where the result would be the extreme of nothing the one element that is: the least or the greatest of the type.
Tensor with_element(const Tensor& x, const Axes& axes, double value) {
  if (x.numel() > 0) return x;
  Shape shape = x.shape();
  for (int i = 0; i < x.rank(); ++i)
    if (axes.empty() || std::find(axes.begin(), axes.end(), i) != axes.end()) shape[i] = 1;
  return full(shape, x.dtype() == DType::boolean && value < 0 ? 0 : value, x.dtype(), x.device());
}
void reduce_max(A& a) {
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) {
    return none ? x : amax(with_element(x, axes, -kInfinity), axes, o);
  });
}
void reduce_min(A& a) {
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) {
    return none ? x : amin(with_element(x, axes, kInfinity), axes, o);
  });
}
void reduce_l1(A& a) {
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) {
    return none ? abs(x) : sum(abs(x), axes, o);
  });
}
void reduce_l2(A& a) {
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) {
    return none ? abs(x) : norm(x, axes, o);
  });
}
void reduce_square(A& a) {
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) {
    return none ? square(x) : sum(square(x), axes, o);
  });
}
void reduce_log_sum(A& a) {
  reduced(
      a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) { return log(none ? x : sum(x, axes, o)); });
}
void reduce_log_sum_exp(A& a) {
  reduced(a, [](const Tensor& x, const Axes& axes, ReduceOptions o, bool none) {
    return none ? x : logsumexp(with_element(is_float(x.dtype()) ? x : cast(x, DType::f32), axes, -kInfinity), axes, o);
  });
}

template <Tensor (*F)(const Tensor&, int, ReduceOptions, Where)>
void extreme_position(A& a) {
  const int axis = a.axis(a.integer("axis", 0), a[0].rank());
  const bool last = a.flag("select_last_index", false);
  const Tensor x = last ? flip(a[0], axis) : a[0];
  const Tensor found = F(x, axis, {.keepdims = a.flag("keepdims", true)}, Where::current());
  a.give_positions(0, last ? static_cast<double>(x.dim(axis) - 1) - found : found);
}

// ---- Products -----------------------------------------------------------------------------------------------------------

void product(A& a) { a.give(matmul(a[0], a[1])); }
}  // namespace

Tensor general_product(const A& a) {
  const auto turned = [&](std::size_t i, std::string_view name) {
    return a.flag(name, false) ? transpose(a[i]) : a[i];
  };
  const double alpha = a.number("alpha", 1), beta = a.number("beta", 1);
  Tensor y = matmul(turned(0, "transA"), turned(1, "transB"));
  if (alpha != 1) y = y * alpha;
  if (a.has(2) && beta != 0) y = y + (beta == 1 ? a[2] : a[2] * beta);
  return y;
}

namespace {

void gemm(A& a) { a.give(general_product(a)); }
void einsum_of(A& a) {
  std::string subscripts(a.word("equation", ""));
  std::erase(subscripts, ' ');
  a.give(einsum(subscripts, a.all()));
}
void determinant(A& a) { a.give(det(a[0])); }

void cumulative_sum(A& a) {
  a.give(cast(cumsum(a[0], a.axis(a.integer_of(1), a[0].rank()), a.flag("exclusive", false), a.flag("reverse", false)),
              a[0].dtype()));
}

void cumulative_product(A& a) {
  const int axis = a.axis(a.integer_of(1), a[0].rank());
  a.give(cast(cumprod(a[0], axis, a.flag("exclusive", false), a.flag("reverse", false)), a[0].dtype()));
}

constexpr Operator kMathOperators[] = {
    {"Abs", unary<abs>},
    {"Acos", unary<acos>},
    {"Acosh", unary<acosh>},
    {"Asin", unary<asin>},
    {"Asinh", unary<asinh>},
    {"Atan", unary<atan>},
    {"Atanh", unary<atanh>},
    {"Ceil", unary<ceil>},
    {"Cos", unary<cos>},
    {"Cosh", unary<cosh>},
    {"Erf", unary<erf>},
    {"Exp", unary<exp>},
    {"Floor", unary<floor>},
    {"Log", unary<log>},
    {"Neg", unary<neg>},
    {"Not", unary<logical_not>},
    {"Reciprocal", unary<reciprocal>},
    {"Relu", unary<relu>},
    {"Round", unary<round>},
    {"Sigmoid", unary<sigmoid>},
    {"Sign", unary<sign>},
    {"Sin", unary<sin>},
    {"Sinh", unary<sinh>},
    {"Softsign", unary<softsign>},
    {"Sqrt", unary<sqrt>},
    {"Tan", unary<tan>},
    {"Tanh", unary<tanh>},
    {"HardSwish", unary<hardswish>},
    {"Mish", unary<mish>},
    {"IsNaN", unary<isnan>},
    {"BitwiseNot", unary<bitwise_not>},
    {"Add", binary<sum_of>},
    {"Sub", binary<difference_of>},
    {"Mul", binary<mul>},
    {"Div", divide},
    {"Pow", power},
    {"Mod", modulo},
    {"And", binary<logical_and>},
    {"Or", binary<logical_or>},
    {"Xor", binary<logical_xor>},
    {"Equal", binary<eq>},
    {"Greater", binary<gt>},
    {"GreaterOrEqual", binary<ge>},
    {"Less", binary<lt>},
    {"LessOrEqual", binary<le>},
    {"BitShift", shift},
    {"BitwiseAnd", binary<bitwise_and>},
    {"BitwiseOr", binary<bitwise_or>},
    {"BitwiseXor", binary<bitwise_xor>},
    {"Max", variadic<maximum>},
    {"Min", variadic<minimum>},
    {"Sum", variadic<sum_of>},
    {"Mean", mean_of},
    {"Where", choose},
    {"Clip", clip_between},
    {"Elu", elu_of},
    {"Celu", celu_of},
    {"LeakyRelu", leaky},
    {"Selu", scaled_elu},
    {"HardSigmoid", hard_sigmoid},
    {"ThresholdedRelu", thresholded},
    {"Shrink", shrink},
    {"Gelu", gelu_of},
    {"Softplus", softplus_of},
    {"IsInf", infinite},
    {"PRelu", prelu_of},
    {"Cast", cast_to},
    {"CastLike", cast_like},
    {"Identity", same_value, Operator::Mode::values},
    {"ReduceSum", reduce_sum},
    {"ReduceMean", reduce_mean},
    {"ReduceProd", reduce_prod},
    {"ReduceMax", reduce_max},
    {"ReduceMin", reduce_min},
    {"ReduceL1", reduce_l1},
    {"ReduceL2", reduce_l2},
    {"ReduceSumSquare", reduce_square},
    {"ReduceLogSum", reduce_log_sum},
    {"ReduceLogSumExp", reduce_log_sum_exp},
    {"ArgMax", extreme_position<argmax>},
    {"ArgMin", extreme_position<argmin>},
    {"MatMul", product},
    {"Gemm", gemm},
    {"Einsum", einsum_of},
    {"Det", determinant},
    {"CumSum", cumulative_sum},
    {"CumProd", cumulative_product},
};

}  // namespace

std::span<const Operator> math_operators() { return kMathOperators; }

}  // namespace weft::onnx
