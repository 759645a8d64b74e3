// Random numbers: Philox on (seed, number of the draw, element). The generator's state is a Variable, so that compiled
// functions draw anew at every run.
#include <fmt/format.h>

#include <numbers>

#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

// 32 random bits an element; `lane` tells apart several words of one draw.
Tensor random_bits(const Shape& shape, int lane) {
  Variable& state = random_state();
  const Tensor current = state.value();
  const Tensor seed = select(current, 0, 0), draw = select(current, 0, 1);
  if (lane == 0) {
    const std::uint32_t step[] = {0, 1};
    NoGrad no_grad;
    state.assign(current + Tensor(graph::concat({graph::constant(step[0], DType::u32, {1}, current.device()),
                                                 graph::constant(step[1], DType::u32, {1}, current.device())},
                                                0)));
  }
  // The element number over the whole shape, row-major.
  const Tensor element = reshape(Tensor(graph::iota({shape.numel()}, 0, DType::u32, current.device())), shape);
  scalar::Expression philox{3,
                            {{.op = scalar::Op::input, .slot = 0},
                             {.op = scalar::Op::input, .slot = 1},
                             {.op = scalar::Op::input, .slot = 2},
                             {.op = scalar::Op::philox, .type = DType::u32, .a = 0, .b = 1, .c = 2}}};
  const Tensor stream = draw * 2.0 + static_cast<double>(lane);
  return Tensor(graph::map(philox, {seed.node(), stream.node(), element.node()}, "philox"));
}

// [0, 1): the upper 24 bits, exact in f32.
Tensor unit(const Tensor& bits, DType type) {
  const Tensor top = elementwise("bitwise_right_shift", {bits, full({}, 8, DType::u32, bits.device())});
  return cast(top, type) * 0x1p-24;
}

void check(std::string_view op, const Shape& shape, DType type) {
  for (Extent e : shape)
    if (e < 0) throw ShapeError(fmt::format("{}: negative extent in {}", op, shape.to_string()));
  if (!is_float(type))
    throw DTypeError(fmt::format("{}: makes f32 or f64, not {}; cast the result", op, name_of(type)));
}

}  // namespace

Variable& random_state() {
  static auto* states = new std::vector<std::pair<Device, Variable>>;
  for (auto& [device, state] : *states)
    if (device == default_device()) return state;
  const std::uint32_t initial[] = {0, 0};
  states->emplace_back(default_device(), Variable(tensor_from_bytes(initial, {2}, DType::u32), "random_state", false));
  return states->back().second;
}

void manual_seed(std::uint32_t seed) {
  const std::uint32_t state[] = {seed, 0};
  random_state().assign(tensor_from_bytes(state, {2}, DType::u32));
}

Tensor rand(const Shape& shape, double low, double high, DType type, Where) {
  check("rand", shape, type);
  return unit(random_bits(shape, 0), type) * (high - low) + low;
}

Tensor randn(const Shape& shape, double mean, double deviation, DType type, Where) {
  check("randn", shape, type);
  // Both words belong to one draw; the second is read before the state moves on.
  const Tensor second = unit(random_bits(shape, 1), type), first = unit(random_bits(shape, 0), type);
  // 1 - u lies in (0, 1], so the logarithm is finite.
  const Tensor radius = elementwise("sqrt", {elementwise("log", {1.0 - first}) * -2.0});
  return radius * elementwise("cos", {second * (2 * std::numbers::pi)}) * deviation + mean;
}

Tensor dropout(const Tensor& x, double p, Where where) {
  if (!x.defined()) throw UsageError("dropout: the tensor has no value");
  if (!(p >= 0 && p <= 1)) throw UsageError(fmt::format("dropout: probability {} is outside of [0, 1]", p));
  if (!is_float(x.dtype())) throw DTypeError(graph::describe("dropout", "takes f32 or f64; cast x", {{"x", x}}, where));
  if (p == 0) return x;
  if (p == 1) return x * 0.0;
  const Tensor keep = unit(random_bits(x.shape(), 0), x.dtype()) >= scalar_like(p, x);
  return elementwise("where", {keep, x * (1 / (1 - p)), scalar_like(0, x)}, {}, where);
}

}  // namespace weft
