// Norms of images: over the batch, over groups of channels, over neighbouring channels.
#include "weft/ops/normalization.hpp"

#include <fmt/format.h>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct NormAttributes {
  double eps = 1e-5;
};
struct GroupNormAttributes {
  Extent groups = 1;
  double eps = 1e-5;
};
struct LocalResponseAttributes {
  Extent size = 1;
  double alpha = 1e-4, beta = 0.75, k = 1;
};

// Checks the vectors with one number for each channel, from input 1 on.
void check_channels(const Call& c) {
  const Tensor& x = c.input(0);
  if (x.rank() < 2) c.shape_error("x is not [images, channels, ...]");
  for (std::size_t i = 1; i < c.inputs().size(); ++i) {
    const Tensor& v = c.input(i);
    if (!v.defined()) continue;
    if (v.rank() != 1 || v.dim(0) != x.dim(1))
      c.shape_error(fmt::format("{} is not [{}], a number for each channel of x", c.row().inputs[i].name, x.dim(1)));
    if (promote(v.dtype(), x.dtype()) != x.dtype())
      c.dtype_error(fmt::format("{} has a wider dtype than x; cast one", c.row().inputs[i].name));
  }
}

Tensor by_channel(const Tensor& v, const Tensor& x) {
  Shape shape{1, v.dim(0)};
  for (int i = 2; i < x.rank(); ++i) shape.push_back(1);
  return weft::reshape(v, shape);
}

Tensor scaled(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Tensor y = x;
  if (weight.defined()) y = elementwise("mul", {y, by_channel(weight, x)});
  if (bias.defined()) y = elementwise("add", {y, by_channel(bias, x)});
  return y;
}

Tensor normalized(const Tensor& x, const Axes& axes, double eps) {
  const Tensor centred = x - weft::mean(x, axes, {.keepdims = true});
  const Tensor variance = weft::mean(elementwise("square", {centred}), axes, {.keepdims = true});
  return centred * elementwise("rsqrt", {variance + eps});
}

InputSpec vector(const char* name) { return {.name = name, .dtypes = ops::DTypes::floats, .optional = true}; }

const OpRow& batch_norm_row() {
  static const OpRow row{
      .name = "batch_norm",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}, vector("weight"), vector("bias"), vector("mean"), vector("variance")},
      .attributes = {field("eps", &NormAttributes::eps, "added to the variance", {.aliases = {"epsilon"}})},
      .doc =
          "(x - mean) / sqrt(variance + eps) * weight + bias for each channel of x [N, C, ...]; mean and variance as "
          "given, else of the batch.",
      .formula = "y = (x - mean) / sqrt(variance + eps) * weight + bias",
      .torch =
          "(lambda b: F.batch_norm(x, None, None, weight, bias, True, 0.0, eps) if mean is None else "
          "(x - b(mean, 0)) * (b(variance, 1) + eps).rsqrt() * b(weight, 1) + b(bias, 0))"
          "(lambda v, d: d if v is None else v.reshape([1, -1] + [1] * (x.dim() - 2)))",
      .onnx = "BatchNormalization",
      .infer =
          [](const Call& c) {
            check_channels(c);
            if (c.input(3).defined() != c.input(4).defined())
              c.usage_error("mean and variance are given together or not at all");
            return std::vector<Result>{like(c.input(0))};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            const double eps = c.attributes<NormAttributes>().eps;
            if (!c.input(3).defined()) {
              Axes axes{0};
              for (int i = 2; i < x.rank(); ++i) axes.push_back(i);
              return Tensors{scaled(normalized(x, axes, eps), c.input(1), c.input(2))};
            }
            const Tensor y = (x - by_channel(c.input(3), x)) * by_channel(elementwise("rsqrt", {c.input(4) + eps}), x);
            return Tensors{scaled(y, c.input(1), c.input(2))};
          },
      .cases = {{"of the batch", {{{4, 3, 5, 6}}, {{3}}, {{3}}, {.absent = true}, {.absent = true}}},
                {"given", {{{4, 3, 5, 6}}, {{3}}, {{3}}, {{3}}, {{3}, 0.5, 2}}},
                {"rows",
                 {{{7, 3}}, {.absent = true}, {.absent = true}, {.absent = true}, {.absent = true}},
                 {{"eps", 0.1}}},
                {"bias alone", {{{4, 3, 5}}, {.absent = true}, {{3}}, {{3}}, {{3}, 0.5, 2}}}},
      .errors =
          {{"a long weight", {{{4, 3, 5}}, {{4}}}, {}, "weight is not [3]"},
           {"one axis", {{{4}}}, {}, "x is not [images, channels, ...]"},
           {"mean alone", {{{4, 3}}, {.absent = true}, {.absent = true}, {{3}}}, {}, "given together or not at all"}}};
  return row;
}

Tensor group_normalized(const Tensor& x, Extent groups, double eps) {
  if (x.numel() == 0) return x;
  const Tensor y = weft::reshape(x, {x.dim(0), groups, x.numel() / x.dim(0) / groups});
  return weft::reshape(normalized(y, {2}, eps), x.shape());
}

const OpRow& group_norm_row() {
  static const OpRow row{
      .name = "group_norm",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}, vector("weight"), vector("bias")},
      .attributes = {field("groups", &GroupNormAttributes::groups, "groups of neighbouring channels",
                           {.required = true, .aliases = {"num_groups"}, .least = 1}),
                     field("eps", &GroupNormAttributes::eps, "added to the variance", {.aliases = {"epsilon"}})},
      .doc = "(x - mean) / sqrt(variance + eps) * weight + bias over groups of channels of each image.",
      .torch = "F.group_norm(x, groups, weight, bias, eps)",
      .onnx = "GroupNormalization",
      .infer =
          [](const Call& c) {
            check_channels(c);
            const Extent groups = c.attributes<GroupNormAttributes>().groups;
            if (c.input(0).dim(1) % groups != 0)
              c.shape_error(fmt::format("{} groups do not divide {} channels", groups, c.input(0).dim(1)));
            return std::vector<Result>{like(c.input(0))};
          },
      .decompose =
          [](const Call& c) {
            const auto [groups, eps] = c.attributes<GroupNormAttributes>();
            return Tensors{scaled(group_normalized(c.input(0), groups, eps), c.input(1), c.input(2))};
          },
      .cases = {{"two groups", {{{3, 6, 4, 5}}, {{6}}, {{6}}}, {{"groups", Extent{2}}}},
                {"all channels",
                 {{{3, 6}}, {.absent = true}, {.absent = true}},
                 {{"groups", Extent{1}}, {"eps", 0.01}}}},
      .errors =
          {{"groups that do not divide", {{{3, 6, 4}}}, {{"groups", Extent{4}}}, "4 groups do not divide 6 channels"}}};
  return row;
}

const OpRow& instance_norm_row() {
  static const OpRow row{
      .name = "instance_norm",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}, vector("weight"), vector("bias")},
      .attributes = {field("eps", &NormAttributes::eps, "added to the variance", {.aliases = {"epsilon"}})},
      .doc = "(x - mean) / sqrt(variance + eps) * weight + bias for each channel of each image.",
      .torch = "F.instance_norm(x, weight=weight, bias=bias, eps=eps)",
      .onnx = "InstanceNormalization",
      .infer =
          [](const Call& c) {
            check_channels(c);
            if (c.input(0).rank() < 3) c.shape_error("x has no spatial axis");
            return std::vector<Result>{like(c.input(0))};
          },
      .decompose =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            return Tensors{
                scaled(group_normalized(x, x.dim(1), c.attributes<NormAttributes>().eps), c.input(1), c.input(2))};
          },
      .cases = {{"images", {{{3, 4, 5, 6}}, {{4}}, {{4}}}},
                {"bare", {{{2, 3, 9}}, {.absent = true}, {.absent = true}}, {{"eps", 0.01}}}},
      .errors = {{"no space", {{{3, 4}}}, {}, "x has no spatial axis"}}};
  return row;
}

const OpRow& local_response_norm_row() {
  static const OpRow row{
      .name = "local_response_norm",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("size", &LocalResponseAttributes::size, "number of neighbouring channels",
                           {.required = true}),
                     field("alpha", &LocalResponseAttributes::alpha, "factor of the mean square"),
                     field("beta", &LocalResponseAttributes::beta, "the power"),
                     field("k", &LocalResponseAttributes::k, "added to it")},
      .doc = "x / (k + alpha mean of x^2 over the channels around)^beta.",
      .torch = "F.local_response_norm(x if x.dim() > 2 else x[..., None], size, alpha, beta, k).reshape(x.shape)",
      .onnx = "LRN",
      .infer =
          [](const Call& c) {
            if (c.input(0).rank() < 2) c.shape_error("x is not [images, channels, ...]");
            if (const Extent size = c.attributes<LocalResponseAttributes>().size; size < 1)
              c.shape_error(fmt::format("size is {}; it must be at least 1", size));
            return std::vector<Result>{like(c.input(0))};
          },
      .decompose =
          [](const Call& c) {
            const auto [size, alpha, beta, k] = c.attributes<LocalResponseAttributes>();
            const Tensor& x = c.input(0);
            Pairs padding(static_cast<std::size_t>(x.rank()), {0, 0});
            padding[1] = {size / 2, (size - 1) / 2};
            const Tensor windows = weft::unfold(weft::pad(elementwise("square", {x}), padding), 1, size);
            const Tensor divisor = weft::mean(windows, {-1}) * alpha + k;
            return Tensors{x * elementwise("pow", {divisor, scalar_like(-beta, x)})};
          },
      .cases = {{"five channels", {{{2, 7, 3, 4}}}, {{"size", Extent{5}}, {"alpha", 0.5}}},
                {"two channels", {{{2, 6, 3}}}, {{"size", Extent{2}}, {"alpha", 2.0}, {"beta", 0.5}, {"k", 2.0}}}},
      .errors = {{"no channels", {{{2, 7}}}, {{"size", Extent{0}}}, "size is 0"},
                 {"one axis", {{{7}}}, {{"size", Extent{3}}}, "x is not [images"}}};
  return row;
}

}  // namespace

OpRows image_norm_rows() {
  return {&batch_norm_row(), &group_norm_row(), &instance_norm_row(), &local_response_norm_row()};
}

}  // namespace graph

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& mean, const Tensor& variance,
                  double eps, Where where) {
  return graph::call(graph::batch_norm_row(), {x, weight, bias, mean, variance}, graph::NormAttributes{eps}, where);
}
Tensor group_norm(const Tensor& x, Extent groups, const Tensor& weight, const Tensor& bias, double eps, Where where) {
  return graph::call(graph::group_norm_row(), {x, weight, bias}, graph::GroupNormAttributes{groups, eps}, where);
}
Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps, Where where) {
  return graph::call(graph::instance_norm_row(), {x, weight, bias}, graph::NormAttributes{eps}, where);
}
Tensor local_response_norm(const Tensor& x, Extent size, double alpha, double beta, double k, Where where) {
  return graph::call(graph::local_response_norm_row(), {x}, graph::LocalResponseAttributes{size, alpha, beta, k},
                     where);
}

}  // namespace weft
