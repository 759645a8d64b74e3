// Random numbers: Philox on (seed, number of the draw, element). The generator's state is a Variable, so compiled functions
// draw new numbers in every run.
#include <fmt/format.h>

#include <mutex>
#include <numbers>

#include "graph/describe.hpp"
#include "graph/graph_state.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "runtime/random_key.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace {

// Numbers of one draw. Making a Draw advances the generator, so threads of a session never share a draw.
class Draw {
 public:
  Draw() : lock_(graph::GraphState::current().random_mutex), state_(random_state()), current_(state_.value()) {}
  // 32 random bits for each element; `lane` distinguishes several words of one draw.
  Tensor bits(const Shape& shape, int lane) {
    const Tensor seed = select(current_, 0, 0), draw = select(current_, 0, 1);
    if (lane == 0) advance();
    // The element number over the whole shape, row-major.
    const Tensor element = reshape(Tensor(graph::iota({shape.numel()}, 0, DType::u32, current_.device())), shape);
    scalar::Expression philox{3,
                              {{.op = scalar::Op::input, .slot = 0},
                               {.op = scalar::Op::input, .slot = 1},
                               {.op = scalar::Op::input, .slot = 2},
                               {.op = scalar::Op::philox, .type = DType::u32, .a = 0, .b = 1, .c = 2}}};
    const Tensor stream = draw * 2.0 + static_cast<double>(lane);
    return Tensor(graph::map(philox, {seed.node(), stream.node(), element.node()}, "philox"));
  }
  // Seed and stream, for kernels that number the words themselves.
  Tensor key() {
    advance();
    return elementwise("mul", {current_, pair(1, 2)});
  }

 private:
  Tensor pair(std::uint32_t first, std::uint32_t second) const {
    return Tensor(graph::concat({graph::constant(first, DType::u32, {1}, current_.device()),
                                 graph::constant(second, DType::u32, {1}, current_.device())},
                                0));
  }
  void advance() {
    NoGrad no_grad;
    // Not `assign`, which would treat the second assignment of a step as one of another step.
    graph::set_pending(state_.cell(), (current_ + pair(0, 1)).node());
  }
  std::lock_guard<std::recursive_mutex> lock_;
  Variable state_;
  Tensor current_;
};

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

Variable random_state() {
  graph::GraphState& session = graph::GraphState::current();
  const Device device = default_device();
  std::lock_guard lock(session.random_mutex);
  for (auto& [known, state] : session.generators)
    if (known == device) return state;
  const std::uint32_t initial[] = {0, 0};
  session.generators.emplace_back(device,
                                  Variable(tensor_from_bytes(initial, {2}, DType::u32, device), "random_state", false));
  return session.generators.back().second;
}

void manual_seed(std::uint32_t seed) {
  const std::uint32_t state[] = {seed, 0};
  random_state().assign(tensor_from_bytes(state, {2}, DType::u32));
}

Tensor rand(const Shape& shape, double low, double high, DType type, Where) {
  check("rand", shape, type);
  return unit(Draw().bits(shape, 0), type) * (high - low) + low;
}

Tensor randn(const Shape& shape, double mean, double deviation, DType type, Where) {
  check("randn", shape, type);
  // Both words belong to one draw; the second is read before the state moves on.
  Draw draw;
  const Tensor second = unit(draw.bits(shape, 1), type), first = unit(draw.bits(shape, 0), type);
  // 1 - u is in (0, 1], so the logarithm is finite.
  const Tensor radius = elementwise("sqrt", {elementwise("log", {1.0 - first}) * -2.0});
  return radius * elementwise("cos", {second * (2 * std::numbers::pi)}) * deviation + mean;
}

Tensor runtime::next_random_key() { return Draw().key(); }

Tensor dropout(const Tensor& x, double p, Where where) {
  if (!x.defined()) throw UsageError("dropout: the tensor has no value");
  if (!(p >= 0 && p <= 1)) throw UsageError(fmt::format("dropout: probability {} is outside of [0, 1]", p));
  if (!is_float(x.dtype())) throw DTypeError(graph::describe("dropout", "takes f32 or f64; cast x", {{"x", x}}, where));
  if (p == 0) return x;
  if (p == 1) return x * 0.0;
  const Tensor keep = unit(Draw().bits(x.shape(), 0), x.dtype()) >= scalar_like(p, x);
  return elementwise("where", {keep, x * (1 / (1 - p)), scalar_like(0, x)}, {}, where);
}

}  // namespace weft
