// Operators on integers that stand for real numbers: x = (q - zero point) scale.
#include <fmt/format.h>

#include <algorithm>

#include "onnx/quantised.hpp"
#include "onnx/spatial.hpp"
#include "weft/ops/layout.hpp"

namespace weft::onnx {
namespace {

using A = Application;

// Scales or zero points against x: one, one for each slice along an axis, or one for each block along it.
Tensor along_axis(const A& a, const Tensor& v, const Tensor& x, int axis) {
  if (v.numel() == 1) return reshape(v, Shape());
  if (v.rank() == x.rank() && !(x.rank() == 1 && v.dim(0) == x.dim(0))) {
    const Extent block = a.integer("block_size", 0);
    if (block < 1) a.shape_error("scales for blocks need a block_size");
    const Tensor each = repeat_interleave(v, block, axis);
    return each.dim(axis) > x.dim(axis) ? narrow(each, axis, 0, x.dim(axis)) : each;
  }
  if (v.rank() != 1 || v.dim(0) != x.dim(axis)) a.shape_error(fmt::format("scales do not fit axis {}", axis));
  Shape shape(std::vector<Extent>(static_cast<std::size_t>(x.rank()), 1));
  shape[axis] = v.dim(0);
  return reshape(v, shape);
}
int axis_of(const A& a, const Tensor& x) {
  const Extent axis = a.integer("axis", 1);
  return x.rank() < 2 && axis == 1 ? 0 : a.axis(axis, x.rank());
}

}  // namespace

std::int64_t narrow_type(const A& a, std::size_t i) {
  if (!a.has(i)) return 0;
  for (const TensorProto& tensor : a.run().model.graph.initialisers)
    if (is_narrow(tensor.type) && tensor.name == a.node().inputs[i]) return tensor.type;
  return 0;
}
Tensor saturated(const Tensor& x, DType type) {
  return cast(clamp(x, element(type).lowest, element(type).highest), type);
}
Tensor real_values(const A& a, std::size_t i, std::size_t scale, std::size_t zero, int axis) {
  Tensor x = cast(a[i], DType::i32);
  if (a.has(zero)) x = x - cast(along_axis(a, a[zero], a[i], axis), DType::i32);
  return cast(x, a[scale].dtype()) * along_axis(a, a[scale], a[i], axis);
}
Tensor integer_values(const A& a, const Tensor& x, std::size_t scale, std::size_t zero) {
  const Tensor y = round(x / reshape(a[scale], Shape()));
  if (!a.has(zero)) return saturated(y, DType::u8);
  return saturated(y + cast(reshape(a[zero], Shape()), y.dtype()), a[zero].dtype());
}
DynamicIntegers dynamic_integers(const Tensor& x) {
  const Tensor high = maximum(amax(x), 0.0), low = minimum(amin(x), 0.0);
  const Tensor scale = (high - low) / 255.0;
  const Tensor zero = clamp(round((0.0 - low) / scale), 0, 255);
  return {saturated(round(x / scale) + zero, DType::u8), scale, cast(zero, DType::u8)};
}

namespace {

void quantise(A& a) {
  DType type = a.has(2) ? a[2].dtype() : DType::u8;
  if (const Extent wanted = a.integer("output_dtype", 0)) type = dtype_of_element(wanted);
  // A zero point of 4 bits is read as one of 8, which has other limits.
  if (const std::int64_t narrow = narrow_type(a, 2))
    throw DTypeError(fmt::format("{}: it makes elements of {}, which Weft does not compute with", a.node().title(),
                                 element_type_name(narrow)));
  const int axis = axis_of(a, a[0]);
  const Tensor x = is_float(a[0].dtype()) ? a[0] : cast(a[0], DType::f32);
  Tensor y = round(x / along_axis(a, a[1], x, axis));
  if (a.has(2)) y = y + cast(along_axis(a, a[2], x, axis), y.dtype());
  a.give(saturated(y, type));
}
void dequantise(A& a) {
  const Tensor x = real_values(a, 0, 1, 2, axis_of(a, a[0]));
  const Extent wanted = a.integer("output_dtype", 0);
  a.give(wanted ? cast(x, dtype_of_element(wanted)) : x);
}
void quantise_dynamically(A& a) {
  const DynamicIntegers q = dynamic_integers(a[0]);
  a.give(0, q.values);
  a.give(1, q.scale);
  a.give(2, q.zero);
}

// x - zero point in i32; zero points of rows or columns follow an axis from the end.
Tensor centred(const A& a, std::size_t i, std::size_t zero, int axis) {
  const Tensor x = cast(a[i], DType::i32);
  if (!a.has(zero)) return x;
  const Tensor z = cast(a[zero], DType::i32);
  if (z.numel() == 1) return x - reshape(z, Shape());
  return x - (axis == -2 && z.rank() == 1 ? unsqueeze(z, -1) : z);
}
}  // namespace

// The product of two matrices of integers less their zero points: (x - p)(y - q) = x y - p y - x q + p q, so that the product is
// of eight-bit integers as they are.
Tensor centred_product(const A& a, std::size_t left, std::size_t left_zero, std::size_t right, std::size_t right_zero) {
  const Tensor &x = a[left], &y = a[right];
  if (x.rank() < 2 || y.rank() < 2) return matmul(centred(a, left, left_zero, -2), centred(a, right, right_zero, -1));
  const auto zero_point = [&](std::size_t i, bool of_rows) {
    const Tensor z = cast(a[i], DType::i32);
    if (z.numel() == 1) return reshape(z, Shape());
    return of_rows && z.rank() == 1 ? unsqueeze(z, -1) : z;
  };
  Tensor product = int_matmul(x, y);
  if (a.has(left_zero))
    product = product - zero_point(left_zero, true) * sum(cast(y, DType::i32), {-2}, {.keepdims = true});
  if (a.has(right_zero))
    product = product - sum(cast(x, DType::i32), {-1}, {.keepdims = true}) * zero_point(right_zero, false);
  if (a.has(left_zero) && a.has(right_zero)) {
    const Tensor depth = full({}, static_cast<double>(x.dim(-1)), DType::i32, product.device());
    product = product + zero_point(left_zero, true) * zero_point(right_zero, false) * depth;
  }
  return product;
}

namespace {

void integer_product(A& a) { a.give(centred_product(a, 0, 2, 1, 3)); }

// In floats that hold every sum exactly: f64 on the CPU; f32 elsewhere, up to 2^24.
DType exact_type(const A& a) { return a.on_cpu() ? DType::f64 : DType::f32; }
Tensor weight_centred(const A& a, std::size_t i, std::size_t zero) {
  const Tensor w = cast(a[i], DType::i32);
  if (!a.has(zero)) return w;
  return w - cast(along_axis(a, a[zero], w, 0), DType::i32);
}
void integer_convolution(A& a) {
  const DType type = exact_type(a);
  a.give(cast(convolved(a, cast(centred(a, 0, 2, -1), type), cast(weight_centred(a, 1, 3), type), {}), DType::i32));
}

// round(y scale) + zero point, of y in units of the product of both scales.
Tensor requantised(const A& a, const Tensor& y, const Tensor& units, std::size_t scale, std::size_t zero) {
  const Tensor q = round(y * (units / cast(a[scale], y.dtype())));
  return saturated(q + cast(a[zero], y.dtype()), a[zero].dtype());
}
void quantised_product(A& a) {
  const DType type = exact_type(a);
  const Tensor y = cast(centred_product(a, 0, 2, 3, 5), type);
  const auto scale = [&](std::size_t i, bool rows) {
    const Tensor s = cast(a[i], type);
    return s.numel() == 1 ? reshape(s, Shape()) : rows && s.rank() == 1 ? unsqueeze(s, -1) : s;
  };
  a.give(requantised(a, y, scale(1, true) * scale(4, false), 6, 7));
}
void quantised_convolution(A& a) {
  const DType type = exact_type(a);
  const Tensor w = cast(weight_centred(a, 3, 5), type);
  const Tensor bias = a.has(8) ? cast(a[8], type) : Tensor();
  const bool last = a.flag("channels_last", false);  // of com.microsoft
  const Tensor x = cast(centred(a, 0, 2, -1), type);
  const Tensor y = convolved(a, last ? channels_first(x) : x, w, bias);
  Tensor scale = cast(a[4], type);
  Shape shape(std::vector<Extent>(static_cast<std::size_t>(y.rank()), 1));
  if (scale.numel() > 1) shape[1] = scale.numel();
  scale = reshape(scale, scale.numel() > 1 ? shape : Shape());
  const Tensor z = requantised(a, y, scale * reshape(cast(a[1], type), Shape()), 6, 7);
  a.give(last ? channels_last(z) : z);
}

constexpr Operator kQuantisedOperators[] = {
    {"QuantizeLinear", quantise},
    {"DequantizeLinear", dequantise},
    {"DynamicQuantizeLinear", quantise_dynamically},
    {"MatMulInteger", integer_product},
    {"ConvInteger", integer_convolution},
    {"QLinearMatMul", quantised_product},
    {"QLinearConv", quantised_convolution},
};

}  // namespace

std::span<const Operator> quantised_operators() { return kQuantisedOperators; }

}  // namespace weft::onnx
