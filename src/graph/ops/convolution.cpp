// The rows of convolutions. A convolution and its transpose are each other's gradient to the input.
#include "weft/ops/convolution.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/convolution.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/convolution_products.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

Tensor with_bias(const Tensor& y, const Tensor& bias, Where where) {
  if (!bias.defined()) return y;
  Shape shape{1, bias.dim(0)};
  for (int i = 2; i < y.rank(); ++i) shape.push_back(1);
  return elementwise("add", {y, weft::reshape(bias, shape)}, {}, where);
}

Tensor bias_gradient(const Tensor& g, const Tensor& bias) {
  if (!bias.defined()) return {};
  Axes axes{0};
  for (int i = 2; i < g.rank(); ++i) axes.push_back(i);
  return weft::cast(weft::sum(g, axes), bias.dtype());
}

// ---- Rows ----------------------------------------------------------------------------------------------------------------

struct ConvolutionAttributes {
  Extents stride{1}, padding{0}, dilation{1};
  Extent groups = 1;
  bool same = false;
};
struct TransposedAttributes {
  Extents stride{1}, padding{0}, output_padding{0}, dilation{1};
  Extent groups = 1;
};

void check_operands(const Call& c, int axes, Extent groups, bool transposed) {
  const Tensor &x = c.input(0), &weight = c.input(1), &bias = c.input(2);
  if (x.dtype() != weight.dtype()) c.dtype_error("the dtypes of x and weight differ; cast one");
  if (x.rank() != axes + 2) c.shape_error(fmt::format("x is not [images, channels] followed by {} spatial axes", axes));
  const Extent channels = x.dim(1);
  if (groups < 1) c.shape_error(fmt::format("groups is {}; it must be at least 1", groups));
  if (weight.rank() != axes + 2)
    c.shape_error(fmt::format("weight is not [{}] followed by {} spatial axes",
                              transposed ? "in, out / groups" : "out, in / groups", axes));
  if (transposed) {
    if (weight.dim(0) != channels || channels % groups != 0)
      c.shape_error(
          fmt::format("weight is not [{}, ...], which the channels of x in {} groups need", channels, groups));
  } else if (channels % groups != 0 || weight.dim(0) % groups != 0 || weight.dim(1) != channels / groups) {
    if (groups == 1)
      c.shape_error(fmt::format("x has {} channels, and weight, [out, in, ...], is for {}", channels, weight.dim(1)));
    c.shape_error(
        fmt::format("weight is not [out, {} / {}, ...], with numbers of channels that are multiples of the groups",
                    channels, groups));
  }
  for (int i = 2; i < weight.rank(); ++i)
    if (weight.shape()[i] < 1) c.shape_error("weight has an empty spatial axis");
  const Extent out = transposed ? weight.dim(1) * groups : weight.dim(0);
  if (bias.defined() && (bias.rank() != 1 || bias.dim(0) != out)) c.shape_error(fmt::format("bias is not [{}]", out));
  if (bias.defined() && promote(bias.dtype(), x.dtype()) != x.dtype())
    c.dtype_error("bias has a wider dtype than x; cast one");
}

Extents space_of(const Tensor& x) { return {x.shape().begin() + 2, x.shape().end()}; }

ConvolutionGeometry geometry_of(const Call& c, const ConvolutionAttributes& a) {
  const Extents size = space_of(c.input(1));
  const int axes = static_cast<int>(size.size());
  ConvolutionGeometry geometry{{.size = size,
                                .stride = per_axis(c, "stride", a.stride, axes, 1, 1),
                                .dilation = per_axis(c, "dilation", a.dilation, axes, 1, 1)},
                               a.groups};
  WindowGrid& grid = geometry.grid;
  grid.before = grid.after = per_axis(c, "padding", a.padding, axes, 0, 0);
  if (a.same)
    for (int i = 0; i < axes; ++i) {
      const auto k = static_cast<std::size_t>(i);
      if (grid.stride[k] != 1) c.shape_error("the result can have the extents of x only with stride 1");
      grid.before[k] = (grid.span(i) - 1) / 2;
      grid.after[k] = grid.span(i) - 1 - grid.before[k];
    }
  return geometry;
}

ConvolutionGeometry geometry_of(const Call& c, const TransposedAttributes& a) {
  const Extents size = space_of(c.input(1));
  const int axes = static_cast<int>(size.size());
  ConvolutionGeometry geometry{{.size = size,
                                .stride = per_axis(c, "stride", a.stride, axes, 1, 1),
                                .dilation = per_axis(c, "dilation", a.dilation, axes, 1, 1)},
                               a.groups};
  geometry.grid.before = geometry.grid.after = per_axis(c, "padding", a.padding, axes, 0, 0);
  return geometry;
}

// Extents of the result of a transposed convolution.
Extents transposed_extents(const Call& c, const TransposedAttributes& a, const ConvolutionGeometry& geometry) {
  const WindowGrid& grid = geometry.grid;
  const Extents more = per_axis(c, "output_padding", a.output_padding, grid.axes(), 0, 0);
  Extents extents;
  for (int i = 0; i < grid.axes(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (more[k] >= std::max(grid.stride[k], grid.dilation[k]))
      c.shape_error(fmt::format("output_padding {} is not smaller than stride {} or dilation {}", more[k],
                                grid.stride[k], grid.dilation[k]));
    extents.push_back(grid.stride[k] * (c.input(0).shape()[2 + i] - 1) + grid.span(i) - 2 * grid.before[k] + more[k]);
    if (extents.back() < 1) c.shape_error(fmt::format("padding {} leaves nothing of axis {}", grid.before[k], 2 + i));
  }
  return extents;
}

const OpRow& transposed_row(int axes);

OpRow make_convolution_row(int axes) {
  const Shape image = axes == 1 ? Shape{2, 4, 11} : axes == 2 ? Shape{2, 4, 9, 8} : Shape{1, 4, 5, 6, 4};
  const auto kernel = [&](Extent out, Extent in, Extent size) {
    Shape shape{out, in};
    for (int i = 0; i < axes; ++i) shape.push_back(size);
    return shape;
  };
  const auto ints = [](Extent value) { return std::vector<Extent>{value}; };
  Shape flat = image;
  flat.push_back(3);
  OpRow row{
      .name = "conv" + space_name(axes),
      .family = "convolution",
      .inputs = {{"x", ops::DTypes::floats},
                 {"weight", ops::DTypes::floats},
                 {.name = "bias", .dtypes = ops::DTypes::floats, .optional = true}},
      .attributes = {field("stride", &ConvolutionAttributes::stride, "distance from one window to the next",
                           {.aliases = {"strides"}}),
                     field("padding", &ConvolutionAttributes::padding, "zeros at both ends of each axis",
                           {.aliases = {"pads"}}),
                     field("dilation", &ConvolutionAttributes::dilation, "distance between elements of a window",
                           {.aliases = {"dilations"}}),
                     field("groups", &ConvolutionAttributes::groups,
                           "number of groups of channels; outputs of a group read its inputs only",
                           {.aliases = {"group"}}),
                     field("same", &ConvolutionAttributes::same, "pads so that the result has the extents of x")},
      .doc = fmt::format("Convolution over {} spatial axes: x [N, C, ...], weight [O, C / groups, ...].",
                         axes == 1   ? "one axis"
                         : axes == 2 ? "two axes"
                                     : "three axes"),
      .formula = "y[n, o, p] = bias[o] + sum_{c, k} weight[o, c, k] x[n, c, stride p + dilation k - padding]",
      .torch = fmt::format("F.conv{}(x, weight, bias, stride, 'same' if same else padding, dilation, groups)",
                           space_name(axes)),
      .onnx = "Conv",
      .infer =
          [axes](const Call& c) {
            const auto a = c.attributes<ConvolutionAttributes>();
            check_operands(c, axes, a.groups, false);
            const WindowGrid grid = geometry_of(c, a).grid;
            Shape shape{c.input(0).dim(0), c.input(1).dim(0)};
            for (int i = 0; i < axes; ++i) {
              shape.push_back(grid.count(i, c.input(0).shape()[2 + i]));
              if (shape.back() < 1)
                c.shape_error(fmt::format("a window of {} elements is longer than axis {} of x with its padding",
                                          grid.span(i), 2 + i));
            }
            return std::vector<Result>{{c.input(0).dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const ConvolutionGeometry geometry = geometry_of(c, c.attributes<ConvolutionAttributes>());
            return Tensors{with_bias(convolve(c.input(0), c.input(1), geometry, c.where()), c.input(2), c.where())};
          },
      .gradient =
          [axes](const GradientCall& call) {
            const Call& c = call.call;
            const auto a = c.attributes<ConvolutionAttributes>();
            const ConvolutionGeometry geometry = geometry_of(c, a);
            const Tensor &x = c.input(0), &weight = c.input(1), &g = call.gradients[0];
            // Uses the row if its attributes can express this, for gradients of gradients.
            TransposedAttributes back{geometry.grid.stride, geometry.grid.before, {}, geometry.grid.dilation, a.groups};
            bool fits = true;
            for (int i = 0; i < axes; ++i) {
              const auto k = static_cast<std::size_t>(i);
              const WindowGrid& grid = geometry.grid;
              back.output_padding.push_back(x.shape()[2 + i] + 2 * grid.before[k] - grid.span(i) -
                                            grid.stride[k] * (g.shape()[2 + i] - 1));
              fits = fits && back.output_padding.back() >= 0 &&
                     back.output_padding.back() < std::max(grid.stride[k], grid.dilation[k]);
            }
            const Tensor d_x = fits ? graph::call(transposed_row(axes), {g, weight, {}}, back, c.where())
                                    : convolve_back(g, weight, geometry, space_of(x), c.where());
            return Tensors{d_x, kernel_gradient(x, g, weight.shape(), geometry, c.where()),
                           bias_gradient(g, c.input(2))};
          },
      .cases =
          {{"padded", {{image}, {kernel(6, 4, 3)}, {{6}}}, {{"padding", ints(1)}}},
           {"plain", {{image}, {kernel(3, 4, 2)}, {.absent = true}}},
           {"with steps", {{image}, {kernel(6, 4, 3)}, {{6}}}, {{"stride", ints(2)}, {"padding", ints(1)}}},
           {"dilated", {{image}, {kernel(2, 4, 2)}, {{2}}}, {{"dilation", ints(2)}, {"padding", ints(2)}}},
           {"groups", {{image}, {kernel(6, 2, 3)}, {{6}}}, {{"groups", Extent{2}}, {"padding", ints(1)}}},
           {"groups with steps", {{image}, {kernel(6, 2, 2)}, {{6}}}, {{"groups", Extent{2}}, {"stride", ints(2)}}},
           {"each channel alone", {{image}, {kernel(8, 1, 3)}, {{8}}}, {{"groups", Extent{4}}, {"padding", ints(1)}}},
           {"each channel alone, with steps",
            {{image}, {kernel(4, 1, 3)}, {.absent = true}},
            {{"groups", Extent{4}}, {"stride", ints(2)}, {"padding", ints(1)}}},
           {"the extents of x", {{image}, {kernel(3, 4, 2)}, {{3}}}, {{"same", true}}},
           {"one element", {{image}, {kernel(5, 4, 1)}, {{5}}}}},
      .errors = {{"channels that differ",
                  {{image}, {kernel(6, 3, 3)}, {.absent = true}},
                  {},
                  "x has 4 channels, and weight, [out, in, ...], is for 3"},
                 {"a long window", {{image}, {kernel(2, 4, 12)}, {.absent = true}}, {}, "is longer than axis"},
                 {"a long bias", {{image}, {kernel(2, 4, 3)}, {{3}}}, {}, "bias is not [2]"},
                 {"an axis too many", {{flat}, {kernel(2, 4, 3)}, {.absent = true}}, {}, "x is not [images, channels]"},
                 {"no step",
                  {{image}, {kernel(2, 4, 3)}, {.absent = true}},
                  {{"stride", ints(0)}},
                  "stride is 0; it must be at least 1"},
                 {"groups that do not divide",
                  {{image}, {kernel(4, 1, 3)}, {.absent = true}},
                  {{"groups", Extent{3}}},
                  "multiples of the groups"},
                 {"too many strides",
                  {{image}, {kernel(2, 4, 3)}, {.absent = true}},
                  {{"stride", std::vector<Extent>{1, 1, 1, 1}}},
                  "stride has 4 numbers"},
                 {"the extents of x with steps",
                  {{image}, {kernel(2, 4, 3)}, {.absent = true}},
                  {{"same", true}, {"stride", ints(2)}},
                  "only with stride 1"}}};
  row.flops = [](const Call& c) {
    const double positions = static_cast<double>(c.row().infer(c)[0].shape.numel());
    return 2 * positions * terms_of(c.input(1));
  };
  return row;
}

OpRow make_transposed_row(int axes) {
  const Shape image = axes == 1 ? Shape{2, 4, 7} : axes == 2 ? Shape{2, 4, 5, 6} : Shape{1, 4, 3, 4, 3};
  const auto kernel = [&](Extent in, Extent out, Extent size) {
    Shape shape{in, out};
    for (int i = 0; i < axes; ++i) shape.push_back(size);
    return shape;
  };
  const auto ints = [](Extent value) { return std::vector<Extent>{value}; };
  OpRow row{
      .name = "conv_transpose" + space_name(axes),
      .family = "convolution",
      .inputs = {{"x", ops::DTypes::floats},
                 {"weight", ops::DTypes::floats},
                 {.name = "bias", .dtypes = ops::DTypes::floats, .optional = true}},
      .attributes =
          {field("stride", &TransposedAttributes::stride, "distance from one kernel to the next in the result",
                 {.aliases = {"strides"}}),
           field("padding", &TransposedAttributes::padding, "cut off at both ends of each axis", {.aliases = {"pads"}}),
           field("output_padding", &TransposedAttributes::output_padding, "extra elements at the end of each axis"),
           field("dilation", &TransposedAttributes::dilation, "distance between elements of a kernel",
                 {.aliases = {"dilations"}}),
           field("groups", &TransposedAttributes::groups,
                 "number of groups of channels; outputs of a group read its inputs only", {.aliases = {"group"}})},
      .doc = fmt::format("The adjoint of conv{}: x [N, C, ...], weight [C, O / groups, ...].", space_name(axes)),
      .formula = "y[n, o, stride p + dilation k - padding] += weight[c, o, k] x[n, c, p]",
      .torch = fmt::format("F.conv_transpose{}(x, weight, bias, stride, padding, output_padding, groups, dilation)",
                           space_name(axes)),
      .onnx = "ConvTranspose",
      .infer =
          [axes](const Call& c) {
            const auto a = c.attributes<TransposedAttributes>();
            check_operands(c, axes, a.groups, true);
            Shape shape{c.input(0).dim(0), c.input(1).dim(1) * a.groups};
            for (Extent extent : transposed_extents(c, a, geometry_of(c, a))) shape.push_back(extent);
            return std::vector<Result>{{c.input(0).dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const auto a = c.attributes<TransposedAttributes>();
            const ConvolutionGeometry geometry = geometry_of(c, a);
            const Extents extents = transposed_extents(c, a, geometry);
            return Tensors{
                with_bias(convolve_back(c.input(0), c.input(1), geometry, extents, c.where()), c.input(2), c.where())};
          },
      .gradient =
          [](const GradientCall& call) {
            const Call& c = call.call;
            Tensors list =
                gradients_of_back(c.input(0), c.input(1), geometry_of(c, c.attributes<TransposedAttributes>()),
                                  call.gradients[0], c.where());
            list.push_back(bias_gradient(call.gradients[0], c.input(2)));
            return list;
          },
      .cases = {{"with steps",
                 {{image}, {kernel(4, 6, 3)}, {{6}}},
                 {{"stride", ints(2)}, {"padding", ints(1)}, {"output_padding", ints(1)}}},
                {"plain", {{image}, {kernel(4, 3, 3)}, {.absent = true}}},
                {"cut off", {{image}, {kernel(4, 3, 3)}, {{3}}}, {{"padding", ints(1)}}},
                {"dilated", {{image}, {kernel(4, 2, 2)}, {{2}}}, {{"dilation", ints(2)}, {"output_padding", ints(1)}}},
                {"groups", {{image}, {kernel(4, 3, 3)}, {{6}}}, {{"groups", Extent{2}}, {"stride", ints(2)}}},
                {"groups without steps", {{image}, {kernel(4, 3, 2)}, {{6}}}, {{"groups", Extent{2}}}},
                {"each channel alone",
                 {{image}, {kernel(4, 1, 3)}, {.absent = true}},
                 {{"groups", Extent{4}}, {"stride", ints(3)}}},
                {"side by side", {{image}, {kernel(4, 3, 2)}, {{3}}}, {{"stride", ints(2)}}}},
      .errors = {{"channels that differ", {{image}, {kernel(3, 4, 3)}, {.absent = true}}, {}, "weight is not [4, ...]"},
                 {"much output padding",
                  {{image}, {kernel(4, 2, 3)}, {.absent = true}},
                  {{"stride", ints(2)}, {"output_padding", ints(2)}},
                  "output_padding 2 is not smaller"},
                 {"nothing left",
                  {{image}, {kernel(4, 2, 1)}, {.absent = true}},
                  {{"padding", ints(4)}},
                  "leaves nothing of axis"},
                 {"a long bias", {{image}, {kernel(4, 2, 3)}, {{3}}}, {}, "bias is not [2]"}}};
  row.flops = [](const Call& c) { return 2 * static_cast<double>(c.input(0).numel()) * terms_of(c.input(1)); };
  return row;
}

const OpRow& convolution_row(int axes) {
  static const OpRow rows[] = {make_convolution_row(1), make_convolution_row(2), make_convolution_row(3)};
  return rows[axes - 1];
}
const OpRow& transposed_row(int axes) {
  static const OpRow rows[] = {make_transposed_row(1), make_transposed_row(2), make_transposed_row(3)};
  return rows[axes - 1];
}

Tensor convolution(int axes, const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& o,
                   Where where) {
  return call(convolution_row(axes), {x, weight, bias},
              ConvolutionAttributes{o.stride, o.padding, o.dilation, o.groups, o.same}, where);
}
Tensor transposed_convolution(int axes, const Tensor& x, const Tensor& weight, const Tensor& bias,
                              const TransposedConvolutionOptions& o, Where where) {
  return call(transposed_row(axes), {x, weight, bias},
              TransposedAttributes{o.stride, o.padding, o.output_padding, o.dilation, o.groups}, where);
}

}  // namespace

OpRows convolution_rows() {
  return {&convolution_row(1), &convolution_row(2), &convolution_row(3), &transposed_row(1),
          &transposed_row(2),  &transposed_row(3),  &conv_adjoint_row()};
}

}  // namespace graph

#define WEFT_CONVOLUTION(axes)                                                                                       \
  Tensor conv##axes##d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options, \
                       Where where) {                                                                                \
    return graph::convolution(axes, x, weight, bias, options, where);                                                \
  }                                                                                                                  \
  Tensor conv_transpose##axes##d(const Tensor& x, const Tensor& weight, const Tensor& bias,                          \
                                 const TransposedConvolutionOptions& options, Where where) {                         \
    return graph::transposed_convolution(axes, x, weight, bias, options, where);                                     \
  }
WEFT_CONVOLUTION(1)
WEFT_CONVOLUTION(2)
WEFT_CONVOLUTION(3)
#undef WEFT_CONVOLUTION

}  // namespace weft
