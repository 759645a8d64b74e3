// Parts of a transformer beside attention: rotary positions, and the gated unit.
#include <cmath>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct RopeAttributes {
  double base = 10000;
  Extent offset = 0;
};

const OpRow& rope_row() {
  static const OpRow row{
      .name = "rope",
      .family = "attention",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("base", &RopeAttributes::base, "of the angles"),
                     field("offset", &RopeAttributes::offset, "position of the first row")},
      .doc =
          "Rotary positions, rotate-half form, x [..., T, D]: the pair (x[d], x[d + D/2]) at position p turns by p "
          "base^(-2d/D).",
      .formula = "y[d] = x[d] cos a - x[d+D/2] sin a, y[d+D/2] = x[d+D/2] cos a + x[d] sin a, a = p base^(-2d/D)",
      .infer =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            if (x.rank() < 2 || x.dim(-1) % 2 != 0)
              c.shape_error("x is not [..., positions, channels] with an even number of channels");
            return std::vector<Result>{like(x)};
          },
      .decompose =
          [](const Call& call) {
            const Tensor& x = call.input(0);
            const auto [base, offset] = call.attributes<RopeAttributes>();
            const Extent positions = x.dim(-2), half = x.dim(-1) / 2;
            const Tensor position = cast(Tensor(iota({positions, half}, 0, DType::i32, x.device())), x.dtype()) +
                                    static_cast<double>(offset);
            const Tensor pair = cast(Tensor(iota({positions, half}, 1, DType::i32, x.device())), x.dtype());
            const Tensor angle = position * elementwise("exp", {pair * (-std::log(base) / static_cast<double>(half))});
            const Tensor c = elementwise("cos", {angle}), s = elementwise("sin", {angle});
            const Tensor low = weft::slice(x, -1, 0, half), high = weft::slice(x, -1, half);
            const Tensor parts[] = {low * c - high * s, high * c + low * s};
            return Tensors{weft::concat(parts, -1, call.where())};
          },
      .cases = {{"from position 3", {{{6, 9, 50}, -4, 4}}, {{"offset", Extent{3}}}},
                {"another base", {{{2, 5, 8}, -4, 4}}, {{"base", 500.0}}}},
      .errors = {{"odd channels", {{{2, 3}}}, {}, "an even number of channels"},
                 {"one axis", {{{4}}}, {}, "x is not"}}};
  return row;
}

const OpRow& swiglu_row() {
  static const OpRow row{
      .name = "swiglu",
      .family = "attention",
      .inputs = {{"gate", ops::DTypes::floats}, {"up", ops::DTypes::floats}},
      .result = "that of the inputs",
      .doc = "silu(gate) up.",
      .formula = "y = gate / (1 + exp(-gate)) * up",
      .torch = "F.silu(gate) * up",
      .infer =
          [](const Call& c) {
            Shape shape;
            if (!broadcast_shapes(c.input(0).shape(), c.input(1).shape(), shape))
              c.shape_error("gate and up do not broadcast");
            return std::vector<Result>{{promote(c.input(0).dtype(), c.input(1).dtype()), shape}};
          },
      .decompose =
          [](const Call& c) {
            return Tensors{
                elementwise("mul", {elementwise("silu", {c.input(0)}, {}, c.where()), c.input(1)}, {}, c.where())};
          },
      .cases = {{"rows", {{{6, 9, 50}, -4, 4}, {{6, 9, 50}}}}},
      .errors = {{"shapes that differ", {{{2, 3}}, {{2, 4}}}, {}, "gate and up do not broadcast"}}};
  return row;
}

}  // namespace

OpRows transformer_part_rows() { return {&rope_row(), &swiglu_row()}; }

}  // namespace graph

Tensor rope(const Tensor& x, double base, Extent offset, Where where) {
  return graph::call(graph::rope_row(), {x}, graph::RopeAttributes{base, offset}, where);
}

Tensor swiglu(const Tensor& gate, const Tensor& up, Where where) {
  return graph::call(graph::swiglu_row(), {gate, up}, graph::Words{}, where);
}

}  // namespace weft
