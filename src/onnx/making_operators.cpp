// Operators that make tensors: constants, ranges, windows, random numbers.
#include <fmt/format.h>

#include <cmath>

#include "base/checked.hpp"
#include "onnx/apply.hpp"
#include "weft/ops/making.hpp"
#include "weft/ops/random.hpp"

namespace weft::onnx {
namespace {

using A = Application;

Tensor tensor_attribute(A& a, std::string_view name) {
  const AttributeProto* value = a.attribute(name);
  if (!value || !value->tensor) a.usage_error(fmt::format("attribute {} is not a tensor", name));
  const io::Array array = elements_of(*value->tensor, a.node().title(), {});
  return moved(tensor_from_bytes(array.data.data(), array.shape, array.dtype, kCpu), a.device());
}

void constant_value(A& a) {
  if (a.attribute("value")) return a.give(tensor_attribute(a, "value"));
  if (a.attribute("value_float"))
    return a.give(a.make(std::vector<double>{a.number("value_float", 0)}, {}, DType::f32));
  if (a.attribute("value_int")) return a.give(a.make(std::vector<Extent>{a.integer("value_int")}, {}));
  if (a.attribute("value_floats")) {
    const std::vector<double> values = a.numbers("value_floats");
    return a.give(a.make(values, {static_cast<Extent>(values.size())}, DType::f32));
  }
  if (a.attribute("value_ints")) {
    const std::vector<Extent> values = a.integers("value_ints");
    return a.give(a.make(values, {static_cast<Extent>(values.size())}));
  }
  a.usage_error("a constant that is neither a dense tensor nor numbers");
}

Shape shape_within(A& a, std::vector<Extent> extents) {
  const Shape shape(std::move(extents));
  if (checked_numel<ShapeError>(shape, a.node().title()) > static_cast<std::uint64_t>(kMaxMadeElements))
    a.shape_error(fmt::format("a tensor of shape {} is too large", shape.to_string()));
  return shape;
}
void constant_of_shape(A& a) {
  const Shape shape = shape_within(a, a.integers_of(0));
  if (!a.attribute("value")) return a.give(zeros(shape, DType::f32, a.device()));
  const Tensor value = tensor_attribute(a, "value");
  if (value.numel() != 1) a.usage_error("the value has more than one element");
  a.give(expand(reshape(value, Shape()), shape));
}
void range(A& a) {
  const DType type = a[0].dtype();
  if (is_float(type)) {
    const double start = a.number_of(0), limit = a.number_of(1), delta = a.number_of(2);
    const double count = std::max(std::ceil((limit - start) / delta), 0.0);
    if (!(count <= static_cast<double>(kMaxMadeElements))) a.usage_error("the range is too long");
    return a.give(arange(static_cast<Extent>(count), type, a.device()) * delta + start);
  }
  const Extent start = a.integer_of(0), limit = a.integer_of(1), delta = a.integer_of(2);
  if (delta == 0) a.usage_error("a step of 0");
  const double length =
      std::ceil((static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta));
  if (length > static_cast<double>(kMaxMadeElements)) a.usage_error("the range is too long");
  a.give(arange(static_cast<Extent>(std::max(length, 0.0)), type, a.device()) * delta + start);
}
void eye_like(A& a) {
  if (a[0].rank() != 2) a.shape_error("it takes a matrix");
  DType type = a[0].dtype();
  if (const Extent given = a.integer("dtype", 0)) type = a.type_here(dtype_of_element(given));
  const Extent rows = a[0].dim(0), columns = a[0].dim(1), k = a.integer("k", 0);
  const Tensor i = reshape(arange(rows, DType::i32, a.device()), {rows, 1}),
               j = arange(columns, DType::i32, a.device());
  a.give(cast(eq(j - i, static_cast<double>(k)), type));
}

template <Tensor (*F)(Extent, bool, DType, Device)>
void window(A& a) {
  const Extent n = a.integer_of(0);
  if (n < 0 || n > kMaxMadeElements) a.usage_error(fmt::format("a size of {} is out of range", n));
  a.give(F(n, a.flag("periodic", true), dtype_of_element(a.integer("output_datatype", kFloat)), a.device()));
}
// ONNX's cosines: 25/46 and 21/46.
Tensor hamming(Extent n, bool periodic, DType type, Device device) {
  const double period = static_cast<double>(periodic ? n : n - 1);
  return 25.0 / 46 - cos(arange(n, type, device) * (2 * M_PI / period)) * (21.0 / 46);
}

DType drawn_type(A& a, DType fallback) {
  const Extent type = a.integer("dtype", 0);
  return type ? a.type_here(dtype_of_element(type)) : fallback;
}
Tensor drawn(A& a, const Shape& shape, DType type, bool normal) {
  const DType real = is_float(type) ? type : DType::f32;
  const Tensor x = normal ? randn(shape, a.number("mean", 0), a.number("scale", 1), real)
                          : rand(shape, a.number("low", 0), a.number("high", 1), real);
  return cast(x.to(a.device()), type);
}
template <bool kNormal>
void random_of_shape(A& a) {
  a.give(drawn(a, shape_within(a, a.integers("shape")), drawn_type(a, DType::f32), kNormal));
}
template <bool kNormal>
void random_like(A& a) {
  a.give(drawn(a, a[0].shape(), drawn_type(a, a[0].dtype()), kNormal));
}
void draw_bernoulli(A& a) { a.give(cast(bernoulli(a[0]), drawn_type(a, a[0].dtype()))); }
void draw_multinomial(A& a) {
  const Extent n = a.integer("sample_size", 1);
  if (n < 0 || n > kMaxMadeElements) a.usage_error("sample_size is out of range");
  const DType type = drawn_type(a, DType::i32);
  a.give(cast(multinomial(softmax(cast(a[0], DType::f32), -1), n, true), type));
}

void drop_out(A& a) {
  const bool trains = a.has(2) && a.integer_of(2) != 0;
  const double p = trains ? (a.has(1) ? a.number_of(1) : 0.5) : 0;
  if (!(p >= 0 && p < 1)) a.usage_error(fmt::format("a ratio of {} is out of range", p));
  const DType mask_type = a.opset() < 10 ? a[0].dtype() : DType::boolean;
  if (p == 0) {
    a.give(0, a[0]);
    if (a.wants(1)) a.give(1, full(a[0].shape(), 1, mask_type, a.device()));
    return;
  }
  const Tensor kept = ge(rand(a[0].shape()).to(a.device()), p);
  a.give(0, where(kept, a[0] * (1 / (1 - p)), zeros_like(a[0])));
  a.give(1, cast(kept, mask_type));
}

constexpr auto kDraws = Operator::Mode::draws;
constexpr Operator kMakingOperators[] = {
    {"Constant", constant_value},
    {"ConstantOfShape", constant_of_shape},
    {"Range", range},
    {"EyeLike", eye_like},
    {"HannWindow", window<hann_window>},
    {"HammingWindow", window<hamming>},
    {"BlackmanWindow", window<blackman_window>},
    {"RandomUniform", random_of_shape<false>, kDraws},
    {"RandomNormal", random_of_shape<true>, kDraws},
    {"RandomUniformLike", random_like<false>, kDraws},
    {"RandomNormalLike", random_like<true>, kDraws},
    {"Bernoulli", draw_bernoulli, kDraws},
    {"Multinomial", draw_multinomial, kDraws},
    {"Dropout", drop_out, kDraws},
};

}  // namespace

std::span<const Operator> making_operators() { return kMakingOperators; }

}  // namespace weft::onnx
