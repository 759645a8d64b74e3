// Operators of ONNX Runtime's own domain on quantised integers: what its quantiser writes with QuantFormat.QOperator, and dynamic
// quantisation. Most compute in reals between integers, which is their definition.
#include <fmt/format.h>

#include <algorithm>

#include "onnx/quantised.hpp"
#include "onnx/spatial.hpp"
#include "weft/ops/layout.hpp"

namespace weft::onnx {
namespace {

using A = Application;

template <Tensor (*F)(const Tensor&, const Tensor&, Where)>
void quantised_binary(A& a) {
  a.give(integer_values(a, F(real_values(a, 0, 1, 2), real_values(a, 3, 4, 5), Where::current()), 6, 7));
}
Tensor real_sum(const Tensor& x, const Tensor& y, Where) { return x + y; }
void quantised_concat(A& a) {
  std::vector<Tensor> parts;
  for (std::size_t i = 2; i + 2 < a.input_count(); i += 3) parts.push_back(real_values(a, i, i + 1, i + 2));
  if (parts.empty()) a.usage_error("it has no parts");
  a.give(integer_values(a, concat(parts, a.axis(a.integer("axis"), parts[0].rank())), 0, 1));
}
void quantised_choice(A& a) {
  a.give(integer_values(a, where(a[0], real_values(a, 1, 2, 3), real_values(a, 4, 5, 6)), 7, 8));
}
void quantised_sigmoid(A& a) { a.give(integer_values(a, sigmoid(real_values(a, 0, 1, 2)), 3, 4)); }
void quantised_leaky(A& a) {
  a.give(integer_values(a, leaky_relu(real_values(a, 0, 1, 2), a.number("alpha", 0.01f)), 3, 4));
}
void quantised_softmax(A& a) {
  const Tensor x = real_values(a, 0, 1, 2);
  const int axis = a.axis(a.integer("axis", a.integer("opset") < 13 ? 1 : -1), x.rank());
  // As in ONNX before opset 13: over all axes from `axis` on.
  const Tensor y = a.integer("opset") < 13 ? reshape(softmax(flatten(x, axis, -1), axis), x.shape()) : softmax(x, axis);
  a.give(integer_values(a, y, 3, 4));
}
// Images with the channels first; those of a node with `channels_last` are turned before and after.
template <class F>
void quantised_pool(A& a, F pool) {
  const bool last = a.flag("channels_last", false);
  const Tensor x = real_values(a, 0, 1, 2);
  if (x.rank() < 3) a.shape_error("there is no axis of space");
  const Tensor y = pool(last ? channels_first(x) : x);
  a.give(integer_values(a, last ? channels_last(y) : y, 3, 4));
}
void quantised_average(A& a) {
  quantised_pool(a, [&](const Tensor& x) { return averaged(a, x); });
}
void quantised_global_average(A& a) {
  quantised_pool(a, [](const Tensor& x) {
    Axes axes;
    for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
    return mean(x, axes, {.keepdims = true});
  });
}

// A scale of each column, or one.
Tensor column_scale(const A& a, std::size_t i) { return a[i].numel() == 1 ? reshape(a[i], Shape()) : a[i]; }
void quantised_gemm(A& a) {
  const DType type = a[1].dtype();
  const auto turned = [&](std::size_t i, std::string_view name) {
    return a.flag(name, false) ? transpose(a[i]) : a[i];
  };
  Tensor y = centred_product(turned(0, "transA"), a.optional(2), turned(3, "transB"), a.optional(5));
  if (a.has(6)) y = y + a[6];  // integers in units of the product
  Tensor real = cast(y, type) * (reshape(a[1], Shape()) * column_scale(a, 4));
  if (const double alpha = a.number("alpha", 1); alpha != 1) real = real * alpha;
  a.give(a.has(7) ? integer_values(a, real, 7, 8) : real);
}
void integer_product_to_float(A& a) {
  const Tensor product = centred_product(a[0], a.optional(4), a[1], a.optional(5));
  const Tensor y = cast(product, a[2].dtype()) * (column_scale(a, 2) * column_scale(a, 3));
  a.give(a.has(6) ? y + a[6] : y);
}
void dynamic_product(A& a) {
  const DynamicIntegers x = dynamic_integers(a[0]);
  const Tensor product = centred_product(x.values, x.zero, a[1], a.optional(3));
  const Tensor y = cast(product, a[0].dtype()) * (x.scale * column_scale(a, 2));
  a.give(a.has(4) ? y + a[4] : y);
}

constexpr Operator kContribQuantised[] = {
    {"QLinearAdd", quantised_binary<real_sum>},
    {"QLinearMul", quantised_binary<mul>},
    {"QLinearConcat", quantised_concat},
    {"QLinearWhere", quantised_choice},
    {"QLinearSigmoid", quantised_sigmoid},
    {"QLinearLeakyRelu", quantised_leaky},
    {"QLinearSoftmax", quantised_softmax},
    {"QLinearAveragePool", quantised_average},
    {"QLinearGlobalAveragePool", quantised_global_average},
    {"QGemm", quantised_gemm},
    {"MatMulIntegerToFloat", integer_product_to_float},
    {"DynamicQuantizeMatMul", dynamic_product},
    {"DynamicQuantizeLSTM", lstm_of_integers},
};

}  // namespace

std::span<const Operator> contrib_quantised_operators() { return kContribQuantised; }

}  // namespace weft::onnx
