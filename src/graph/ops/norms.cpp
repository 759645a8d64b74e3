// Softmaxes and norms. The decompositions here define their meaning; the compiler fuses them.
#include <fmt/format.h>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

// x - max x, where the maximum carries no gradient (it cancels).
Tensor centered(const Tensor& x, int axis, Where where) {
  return x - detach(amax(x, {axis}, {.keepdims = true}, where));
}

struct AlongAxis {
  Extent axis = -1;
};
std::vector<AttributeSpec> along_axis() { return {field("axis", &AlongAxis::axis, "axis", {.aliases = {"dim"}})}; }
std::vector<Result> like_x_along_axis(const Call& c) {
  c.axis(c.attributes<AlongAxis>().axis);
  return {like(c.input(0))};
}

const OpRow& softmax_row() {
  static const OpRow row{
      .name = "softmax",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = along_axis(),
      .doc = "exp(x_i - max x) / sum_j exp(x_j - max x) along an axis.",
      .formula = "y_i = exp(x_i - max x) / sum_j exp(x_j - max x)",
      .torch = "torch.softmax(x, axis)",
      .onnx = "Softmax",
      .infer = like_x_along_axis,
      .decompose =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            if (x.numel() == 0) return Tensors{x};
            const int axis = c.axis(c.attributes<AlongAxis>().axis);
            const Tensor e = elementwise("exp", {centered(x, axis, c.where())}, {}, c.where());
            // One division a row, not one an element.
            return Tensors{e * (1.0 / sum(e, {axis}, {.keepdims = true}, c.where()))};
          },
      .cases = {{"rows", {{{6, 9, 50}, -4, 4}}},
                {"over axis 1", {{{6, 9, 50}, -4, 4}}, {{"axis", Extent{1}}}},
                {"one element", {{{3, 1}, -4, 4}}},
                {"large scores", {{{4, 40}, -80, 80}}}},
      .errors = {{"scalar", {{{}}}, {}, "axis -1 is outside of"},
                 {"axis beyond the rank", {{{2, 3}}}, {{"axis", Extent{2}}}, "axis 2 is outside of [-2, 2)"},
                 {"integers", {{{2, 3}, 0, 5, DType::i32}}, {}, "takes floats"}}};
  return row;
}

const OpRow& log_softmax_row() {
  static const OpRow row{
      .name = "log_softmax",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = along_axis(),
      .doc = "x_i - max x - log sum_j exp(x_j - max x) along an axis.",
      .formula = "y_i = x_i - max x - log sum_j exp(x_j - max x)",
      .torch = "torch.log_softmax(x, axis)",
      .onnx = "LogSoftmax",
      .infer = like_x_along_axis,
      .decompose =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            if (x.numel() == 0) return Tensors{x};
            const int axis = c.axis(c.attributes<AlongAxis>().axis);
            const Tensor centred = centered(x, axis, c.where());
            return Tensors{centred -
                           elementwise("log",
                                       {sum(elementwise("exp", {centred}), {axis}, {.keepdims = true}, c.where())}, {},
                                       c.where())};
          },
      .cases = {{"rows", {{{6, 9, 50}, -4, 4}}},
                {"over axis 0", {{{6, 9, 5}, -4, 4}}, {{"axis", Extent{0}}}},
                {"large scores", {{{4, 40}, -80, 80}}}},
      .errors = {{"axis beyond the rank", {{{2, 3}}}, {{"axis", Extent{-3}}}, "axis -3 is outside of [-2, 2)"},
                 {"bools", {{{2, 3}, 0, 1, DType::boolean}}, {}, "takes floats"}}};
  return row;
}

struct LayerNormAttributes {
  double eps = 1e-5;
};
struct RmsNormAttributes {
  double eps = 1e-6;
};

std::vector<Result> normed_rows(const Call& c) {
  const Tensor& x = c.input(0);
  if (x.rank() == 0) c.shape_error("x is a scalar");
  for (std::size_t i = 1; i < c.inputs().size(); ++i) {
    const Tensor& v = c.input(i);
    if (!v.defined()) continue;
    if (v.rank() != 1 || v.dim(0) != x.dim(-1))
      c.shape_error(fmt::format("{} is not as long as the last axis of x", c.row().inputs[i].name));
    if (promote(v.dtype(), x.dtype()) != x.dtype())
      c.dtype_error(fmt::format("{} has a wider dtype than x; cast one", c.row().inputs[i].name));
  }
  return {like(x)};
}

const OpRow& layer_norm_row() {
  static const OpRow row{
      .name = "layer_norm",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats},
                 {.name = "weight", .dtypes = ops::DTypes::floats, .optional = true},
                 {.name = "bias", .dtypes = ops::DTypes::floats, .optional = true}},
      .attributes = {field("eps", &LayerNormAttributes::eps, "added to the variance", {.aliases = {"epsilon"}})},
      .doc = "(x - mean) / sqrt(var + eps) * weight + bias over the last axis, with the population variance.",
      .formula = "y = (x - mean x) / sqrt(var x + eps) * weight + bias",
      .torch = "F.layer_norm(x, x.shape[-1:], weight, bias, eps)",
      .onnx = "LayerNormalization",
      .infer = normed_rows,
      .decompose =
          [](const Call& call) {
            const Tensor &x = call.input(0), &weight = call.input(1), &bias = call.input(2);
            const Where where = call.where();
            const Tensor c = x - mean(x, {-1}, {.keepdims = true}, where);
            const Tensor variance = mean(elementwise("square", {c}), {-1}, {.keepdims = true}, where);
            Tensor y = c * elementwise("rsqrt", {variance + call.attributes<LayerNormAttributes>().eps});
            if (weight.defined()) y = elementwise("mul", {y, weight}, {}, where);
            if (bias.defined()) y = elementwise("add", {y, bias}, {}, where);
            return Tensors{y};
          },
      .cases = {{"rows", {{{6, 9, 50}, -4, 4}, {{50}}, {{50}}}},
                {"without weight and bias", {{{5, 33}, -4, 4}, {.absent = true}, {.absent = true}}},
                {"bias alone", {{{5, 33}, -4, 4}, {.absent = true}, {{33}}}, {{"eps", 0.1}}}},
      .errors = {{"scalar", {{{}}}, {}, "x is a scalar"},
                 {"short weight", {{{2, 3}}, {{2}}}, {}, "weight is not as long as the last axis of x"},
                 {"integers", {{{2, 3}, 0, 5, DType::i32}}, {}, "takes floats"}}};
  return row;
}

const OpRow& rms_norm_row() {
  static const OpRow row{
      .name = "rms_norm",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}, {.name = "weight", .dtypes = ops::DTypes::floats, .optional = true}},
      .attributes = {field("eps", &RmsNormAttributes::eps, "added to the mean square", {.aliases = {"epsilon"}})},
      .doc = "x / sqrt(mean(x^2) + eps) * weight over the last axis.",
      .formula = "y = x / sqrt(mean(x^2) + eps) * weight",
      .torch = "x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * (1 if weight is None else weight)",
      .infer = normed_rows,
      .decompose =
          [](const Call& call) {
            const Tensor &x = call.input(0), &weight = call.input(1);
            const Where where = call.where();
            const Tensor square = mean(elementwise("square", {x}), {-1}, {.keepdims = true}, where);
            const Tensor y = x * elementwise("rsqrt", {square + call.attributes<RmsNormAttributes>().eps});
            return Tensors{weight.defined() ? elementwise("mul", {y, weight}, {}, where) : y};
          },
      .cases = {{"rows", {{{6, 9, 50}, -4, 4}, {{50}}}}, {"without weight", {{{5, 33}, -4, 4}, {.absent = true}}}},
      .errors = {{"scalar", {{{}}}, {}, "x is a scalar"},
                 {"long weight", {{{2, 3}}, {{4}}}, {}, "weight is not as long as the last axis of x"}}};
  return row;
}

}  // namespace

OpRows norm_rows() { return {&softmax_row(), &log_softmax_row(), &layer_norm_row(), &rms_norm_row()}; }

}  // namespace graph

Tensor softmax(const Tensor& x, int axis, Where where) {
  return graph::call(graph::softmax_row(), {x}, graph::AlongAxis{axis}, where);
}

Tensor log_softmax(const Tensor& x, int axis, Where where) {
  return graph::call(graph::log_softmax_row(), {x}, graph::AlongAxis{axis}, where);
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Where where) {
  return graph::call(graph::layer_norm_row(), {x, weight, bias}, graph::LayerNormAttributes{eps}, where);
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, Where where) {
  return graph::call(graph::rms_norm_row(), {x, weight}, graph::RmsNormAttributes{eps}, where);
}

}  // namespace weft
