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
Tensor centred(const Tensor& x, const Tensor& zero, int axis) {
  if (!zero.defined()) return cast(x, DType::i32);
  const Tensor z = cast(zero, DType::i32);
  if (z.numel() == 1) return cast(x, DType::i32) - reshape(z, Shape());
  return cast(x, DType::i32) - (axis == -2 && z.rank() == 1 ? unsqueeze(z, -1) : z);
}

}  // namespace

// (x - p)(y - q) = x y - p y - x q + p q, so that the product is of eight-bit integers as they are.
Tensor centred_product(const Tensor& x, const Tensor& p, const Tensor& y, const Tensor& q) {
  if (x.rank() < 2 || y.rank() < 2) return matmul(centred(x, p, -2), centred(y, q, -1));
  const auto zero_point = [&](const Tensor& zero, bool of_rows) {
    const Tensor z = cast(zero, DType::i32);
    if (z.numel() == 1) return reshape(z, Shape());
    return of_rows && z.rank() == 1 ? unsqueeze(z, -1) : z;
  };
  Tensor product = int_matmul(x, y);
  if (p.defined()) product = product - zero_point(p, true) * sum(cast(y, DType::i32), {-2}, {.keepdims = true});
  if (q.defined()) product = product - sum(cast(x, DType::i32), {-1}, {.keepdims = true}) * zero_point(q, false);
  if (p.defined() && q.defined()) {
    const Tensor depth = full({}, static_cast<double>(x.dim(-1)), DType::i32, product.device());
    product = product + zero_point(p, true) * zero_point(q, false) * depth;
  }
  return product;
}

namespace {

void integer_product(A& a) { a.give(centred_product(a[0], a.optional(2), a[1], a.optional(3))); }

// Floats that hold every sum exactly: f64 on the CPU; f32 elsewhere, up to 2^24.
DType exact_type(const A& a) { return a.on_cpu() ? DType::f64 : DType::f32; }
bool is_byte(DType type) { return type == DType::u8 || type == DType::i8; }

// The convolution that the node describes of x [N, C, ...] less a zero point and of a weight [O, C, ...] less one, or one for each
// output: in i32. Short sums are exact in f32. Long ones of bytes are products of integers with the windows.
Tensor centred_convolution(const A& a, const Tensor& x, const Tensor& zero, const Tensor& w,
                           const Tensor& weight_zero) {
  const std::vector<Extent> window = window_of(a, x, w);
  const Extent outputs = w.dim(0), terms = outputs ? w.numel() / outputs : 0;
  constexpr double kLargest = 255.0 * 255.0, kExact = 1 << 24;
  const bool bytes = is_byte(x.dtype()) && is_byte(w.dtype());
  const bool is_short = bytes && static_cast<double>(terms) * kLargest < kExact;
  if (is_short || !bytes || !a.on_cpu() || a.integer("group", 1) != 1) {
    const DType type = is_short ? DType::f32 : exact_type(a);
    Tensor weight = cast(w, DType::i32);
    if (weight_zero.defined()) weight = weight - cast(along_axis(a, weight_zero, w, 0), DType::i32);
    return cast(convolved(a, cast(centred(x, zero, -1), type), cast(weight, type), {}), DType::i32);
  }
  const Spatial s = spatial_of(a, x.shape(), window, false);
  Tensor in = padded_space(x, s.before, s.after, 0);
  if (zero.defined() && in.shape() != x.shape()) {  // what is around x is 0, so it has the zero point's number
    Shape space = x.shape();
    space[0] = space[1] = 1;
    const Tensor inside = padded_space(full(space, 1, DType::u8, a.device()), s.before, s.after, 0);
    in = where(ne(inside, 0.0), in, cast(reshape(zero, Shape()), x.dtype()));
  }
  Tensor rows = windows_of(in, s);  // [N, C, windows..., window...]
  Axes order{0};
  Shape shape{x.dim(0)};
  Extent places = 1;
  for (int i = 0; i < s.axes; ++i) {
    order.push_back(2 + i);
    shape.push_back(rows.dim(2 + i));
    places *= rows.dim(2 + i);
  }
  order.push_back(1);
  for (int i = 0; i < s.axes; ++i) order.push_back(2 + s.axes + i);
  shape.push_back(outputs);
  if (terms == 0 || places == 0 || w.dim(1) != x.dim(1)) a.shape_error("the channels of x and of the weight differ");
  // Bytes of x on the left and those of the weight on the right, as the kernels for bytes have them.
  rows = reshape(permute(rows, order), {x.dim(0), places, terms});
  const Tensor product = centred_product(rows, zero, transpose(reshape(w, {outputs, terms})), weight_zero);
  return channels_first(reshape(product, shape));
}
void integer_convolution(A& a) { a.give(centred_convolution(a, a[0], a.optional(2), a[1], a.optional(3))); }

// round(y scale) + zero point, of y in units of the product of both scales.
Tensor requantised(const A& a, const Tensor& y, const Tensor& units, std::size_t scale, std::size_t zero) {
  const Tensor q = round(y * (units / cast(a[scale], y.dtype())));
  return saturated(q + cast(a[zero], y.dtype()), a[zero].dtype());
}
void quantised_product(A& a) {
  const DType type = exact_type(a);
  const Tensor y = cast(centred_product(a[0], a.optional(2), a[3], a.optional(5)), type);
  const auto scale = [&](std::size_t i, bool rows) {
    const Tensor s = cast(a[i], type);
    return s.numel() == 1 ? reshape(s, Shape()) : rows && s.rank() == 1 ? unsqueeze(s, -1) : s;
  };
  a.give(requantised(a, y, scale(1, true) * scale(4, false), 6, 7));
}
void quantised_convolution(A& a) {
  const bool last = a.flag("channels_last", false);  // of com.microsoft
  Tensor y = centred_convolution(a, last ? channels_first(a[0]) : a[0], a.optional(2), a[3], a.optional(5));
  const auto by_channel = [&](const Tensor& v) {
    if (v.numel() == 1) return reshape(v, Shape());
    Shape shape(std::vector<Extent>(static_cast<std::size_t>(y.rank()), 1));
    shape[1] = v.numel();
    return reshape(v, shape);
  };
  if (a.has(8)) y = y + by_channel(a[8]);
  const Tensor units = by_channel(cast(a[4], DType::f32)) * reshape(cast(a[1], DType::f32), Shape());
  const Tensor z = requantised(a, cast(y, DType::f32), units, 6, 7);
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
