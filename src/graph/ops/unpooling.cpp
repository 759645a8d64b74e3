// What undoes a pool of greatest elements: they go back to their positions, zeros elsewhere.
#include <fmt/format.h>

#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/windows.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/pooling.hpp"

namespace weft {

using graph::describe;

namespace {

Tensor unpooled(int axes, const Tensor& x, const Tensor& positions, const PerAxis& kernel, const UnpoolOptions& o,
                Where where) {
  const std::string op = "max_unpool" + graph::space_name(axes);
  if (!x.defined() || !positions.defined()) throw UsageError(op + ": an operand has no value");
  const auto fail = [&](const std::string& fact) {
    return ShapeError(describe(op, fact, {{"x", x}, {"positions", positions}}, where));
  };
  if (x.rank() != axes + 2)
    throw fail(fmt::format("x is not [images, channels] followed by {}",
                           axes == 1 ? "one axis" : fmt::format("{} axes", axes)));
  if (positions.shape() != x.shape()) throw fail("the shapes of x and positions differ");
  const auto each = [&](std::string_view name, const PerAxis& given, Extent least) {
    std::vector<Extent> all = given;
    if (all.size() == 1) all.resize(static_cast<std::size_t>(axes), given[0]);
    if (all.size() != static_cast<std::size_t>(axes))
      throw fail(fmt::format("{} has {} extents for {} axes", name, given.size(), axes));
    for (const Extent extent : all)
      if (extent < least) throw fail(fmt::format("{} is {}; it must be at least {}", name, extent, least));
    return all;
  };
  std::vector<Extent> size;
  if (!o.size.empty()) {
    size = each("size", o.size, 0);
  } else {
    const std::vector<Extent> window = each("kernel", kernel, 1), padding = each("padding", o.padding, 0),
                              stride = o.stride.empty() ? window : each("stride", o.stride, 1);
    for (int i = 0; i < axes; ++i) {
      const auto k = static_cast<std::size_t>(i);
      size.push_back((x.dim(2 + i) - 1) * stride[k] - 2 * padding[k] + window[k]);
      if (size.back() < 0) throw fail(fmt::format("axis {} of the result would have {} elements", 2 + i, size.back()));
    }
  }
  Shape shape{x.dim(0), x.dim(1)};
  for (const Extent extent : size) shape.push_back(extent);
  const Extent places = Shape(size).numel();
  const Tensor nothing = full({x.dim(0), x.dim(1), places}, 0, x.dtype(), x.device());
  return reshape(scatter(nothing, 2, flatten(positions, 2, -1, where), flatten(x, 2, -1, where), where), shape, where);
}

}  // namespace

Tensor max_unpool1d(const Tensor& x, const Tensor& positions, const PerAxis& kernel, const UnpoolOptions& options,
                    Where where) {
  return unpooled(1, x, positions, kernel, options, where);
}
Tensor max_unpool2d(const Tensor& x, const Tensor& positions, const PerAxis& kernel, const UnpoolOptions& options,
                    Where where) {
  return unpooled(2, x, positions, kernel, options, where);
}
Tensor max_unpool3d(const Tensor& x, const Tensor& positions, const PerAxis& kernel, const UnpoolOptions& options,
                    Where where) {
  return unpooled(3, x, positions, kernel, options, where);
}

namespace graph {
namespace {

AttributeSpec extents_attribute(std::string name, std::string doc, std::optional<std::vector<Extent>> fallback,
                                std::vector<std::string> aliases) {
  AttributeSpec spec{
      .name = std::move(name), .type = AttributeType::integers, .doc = std::move(doc), .aliases = std::move(aliases)};
  if (fallback) spec.default_value = *fallback;
  return spec;
}

/// Two elements for each axis of two images, each in another window of two.
std::vector<CaseInput> pooled_pairs(int axes) {
  Shape shape{2, 1};
  Extent inner = 1;
  for (int i = 0; i < axes; ++i) shape.push_back(2), inner *= 4;
  CaseInput positions{.shape = shape, .type = DType::i32};
  const Extent count = shape.numel();
  for (Extent i = 0; i < count; ++i)
    positions.values.push_back(static_cast<double>(i % (count / 2) * (inner / (count / 2)) + i % 2));
  return {{shape}, positions};
}

OpRow make_unpool_row(int axes) {
  using Ints = std::vector<Extent>;
  return {
      .name = "max_unpool" + space_name(axes),
      .family = "pooling",
      .inputs = {{"x", ops::DTypes::all}, {"positions", ops::DTypes::integers}},
      .attributes = {extents_attribute("kernel", "extents of a window", {}, {"kernel_size", "kernel_shape"}),
                     extents_attribute("stride", "distance from one window to the next; none: the extents of a window",
                                       Ints{}, {"strides"}),
                     extents_attribute("padding", "at both ends of each axis", Ints{0}, {"pads"}),
                     extents_attribute("size", "extents of space of the result; none: those that the windows cover",
                                       Ints{}, {"output_size"})},
      .result = "that of x",
      .doc = "The elements of a pool at their positions, zeros elsewhere.",
      .torch = fmt::format("F.max_unpool{}(x, positions.long(), kernel[0], None, padding[0], size or None)",
                           space_name(axes)),
      .onnx = "MaxUnpool",
      .cases = {{"side by side", pooled_pairs(axes), {{"kernel", Ints{2}}}},
                {"another size",
                 pooled_pairs(axes),
                 {{"kernel", Ints{2}}, {"size", Ints(static_cast<std::size_t>(axes), 5)}}}},
      .errors = {{"an axis too few",
                  {{{4, 5}}, {{4, 5}, 0, 4, DType::i32}},
                  {{"kernel", Ints{2}}},
                  "x is not [images, channels]"},
                 {"positions of another shape",
                  {{pooled_pairs(axes)[0].shape}, {{2, 3}, 0, 4, DType::i32}},
                  {{"kernel", Ints{2}}},
                  "the shapes of x and positions differ"},
                 {"floats",
                  {pooled_pairs(axes)[0], pooled_pairs(axes)[0]},
                  {{"kernel", Ints{2}}},
                  "indices are not integers"},
                 {"no kernel", pooled_pairs(axes), {{"kernel", Ints{0}}}, "kernel is 0; it must be at least 1"}},
      .apply = [axes](const Arguments& a) {
        const UnpoolOptions options{PerAxis(a.integers("stride")), PerAxis(a.integers("padding")),
                                    PerAxis(a.integers("size"))};
        return Tensors{
            unpooled(axes, a.input(0), a.input(1), PerAxis(a.integers("kernel")), options, Where::current())};
      }};
}

}  // namespace

OpRows unpooling_rows() {
  static const std::vector<OpRow> rows = {make_unpool_row(1), make_unpool_row(2), make_unpool_row(3)};
  OpRows list;
  for (const OpRow& row : rows) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
