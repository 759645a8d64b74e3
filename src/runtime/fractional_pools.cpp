// Pools whose windows are at random distances.
#include <fmt/format.h>

#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "runtime/random_attributes.hpp"
#include "runtime/runtime_families.hpp"
#include "weft/ops/pooling.hpp"

namespace weft {

using graph::describe;

namespace {

/// One number for each axis of space.
std::vector<Extent> extents_of_space(const std::string& op, std::string_view name, const PerAxis& given, int axes,
                                     const Tensor& x, Where where) {
  std::vector<Extent> all = given;
  if (all.size() == 1) all.resize(static_cast<std::size_t>(axes), given[0]);
  if (all.size() != static_cast<std::size_t>(axes))
    throw ShapeError(
        describe(op, fmt::format("{} has {} extents for {} axes", name, given.size(), axes), {{"x", x}}, where));
  return all;
}

std::vector<Extent> fractional_sizes(const std::string& op, int axes, const Tensor& x, const FractionalPoolOptions& o,
                                     Where where) {
  if (o.size.empty() == o.ratio.empty())
    throw UsageError(describe(op, "takes a size or a ratio, and not both", {{"x", x}}, where));
  if (!o.size.empty()) return extents_of_space(op, "size", o.size, axes, x, where);
  if (o.ratio.size() != 1 && o.ratio.size() != static_cast<std::size_t>(axes))
    throw ShapeError(describe(op, fmt::format("{} ratios for {} axes", o.ratio.size(), axes), {{"x", x}}, where));
  std::vector<Extent> sizes;
  for (int i = 0; i < axes; ++i) {
    const double ratio = o.ratio[o.ratio.size() == 1 ? 0 : static_cast<std::size_t>(i)];
    if (!(ratio > 0 && ratio < 1))
      throw UsageError(describe(op, fmt::format("ratio {} is outside of (0, 1)", ratio), {{"x", x}}, where));
    sizes.push_back(static_cast<Extent>(static_cast<double>(x.dim(2 + i)) * ratio));
  }
  return sizes;
}

/// Where the windows along one axis begin: sample [N, C] -> [N, C, count], i32.
Tensor begins_of_windows(const Tensor& sample, Extent extent, Extent kernel, Extent count, Where where) {
  const Extent room = extent - kernel;
  const Tensor last = expand(full({}, static_cast<double>(room), DType::i32, sample.device()),
                             {sample.dim(0), sample.dim(1), 1}, where);
  if (count == 1) return last;
  const double distance = static_cast<double>(room) / static_cast<double>(count - 1);
  const Tensor number = cast(arange(count - 1, DType::i32, sample.device()), sample.dtype(), where);
  const Tensor u = unsqueeze(sample, -1, where);
  return concat({cast(floor((number + u) * distance) - floor(u * distance), DType::i32, where), last}, 2, where);
}

ValuesAndPositions fractional_pool(int axes, const Tensor& x, const PerAxis& kernel, const FractionalPoolOptions& o,
                                   Where where) {
  const std::string op = fmt::format("fractional_max_pool{}d", axes);
  if (!x.defined()) throw UsageError(op + ": x has no value");
  const auto fail = [&](const std::string& fact) { return ShapeError(describe(op, fact, {{"x", x}}, where)); };
  if (!is_float(x.dtype())) throw DTypeError(describe(op, "takes floats; cast x", {{"x", x}}, where));
  if (x.rank() != axes + 2) throw fail(fmt::format("x is not [images, channels] followed by {} axes", axes));
  const std::vector<Extent> size = fractional_sizes(op, axes, x, o, where),
                            window = extents_of_space(op, "kernel", kernel, axes, x, where);
  for (int i = 0; i < axes; ++i) {
    const auto k = static_cast<std::size_t>(i);
    if (window[k] < 1 || size[k] < 1 || size[k] + window[k] - 1 > x.dim(2 + i))
      throw fail(fmt::format("{} windows of {} elements do not fit axis {} with extent {}", size[k], window[k], 2 + i,
                             x.dim(2 + i)));
  }
  const DType type = compute_type(x.dtype());
  const Shape one_each{x.dim(0), x.dim(1), axes};
  const Tensor samples = o.samples.defined() ? cast(o.samples, type, where) : rand(one_each, 0, 1, type, where);
  if (samples.shape() != one_each)
    throw ShapeError(
        describe(op, fmt::format("samples are not {}", one_each.to_string()), {{"x", x}, {"samples", samples}}, where));

  // The windows side by side along each axis, and the position of each of their elements.
  Tensor windows = x, position;
  Extent below = 1;
  for (int i = axes; i-- > 0;) {
    const auto k = static_cast<std::size_t>(i);
    const Extent extent = x.dim(2 + i), covered = size[k] * window[k];
    const Tensor sample = select(samples, 2, axes == 2 ? 1 - i : i, where);
    const Tensor begin = begins_of_windows(sample, extent, window[k], size[k], where);
    const Tensor each = unsqueeze(begin, -1, where) + arange(window[k], DType::i32, x.device());
    Shape along{x.dim(0), x.dim(1)};
    for (int j = 0; j < axes; ++j) along.push_back(j == i ? covered : 1);
    const Tensor place = reshape(each, along, where);
    Shape wide = windows.shape();
    wide[2 + i] = covered;
    windows = take_along_axis(windows, expand(place, wide, where), 2 + i, where);
    const Tensor part = place * static_cast<double>(below);
    position = position.defined() ? position + part : part;
    below *= extent;
  }
  position = expand(position, windows.shape(), where);
  // [N, C, size, window, size, window, ..] -> [N, C, size.., window..]
  const auto by_window = [&](const Tensor& t) {
    Shape split{x.dim(0), x.dim(1)};
    Axes order{0, 1};
    for (int i = 0; i < axes; ++i) {
      split.push_back(size[static_cast<std::size_t>(i)]);
      split.push_back(window[static_cast<std::size_t>(i)]);
      order.push_back(2 + 2 * i);
    }
    for (int i = 0; i < axes; ++i) order.push_back(3 + 2 * i);
    return flatten(permute(reshape(t, split, where), order, where), 2 + axes, -1, where);
  };
  const Tensor all = by_window(windows), winner = argmax(all, -1, {.keepdims = true}, where);
  return {squeeze(take_along_axis(all, winner, -1, where), -1, where),
          squeeze(take_along_axis(by_window(position), winner, -1, where), -1, where)};
}

}  // namespace

ValuesAndPositions fractional_max_pool2d(const Tensor& x, const PerAxis& kernel, const FractionalPoolOptions& options,
                                         Where where) {
  return fractional_pool(2, x, kernel, options, where);
}
ValuesAndPositions fractional_max_pool3d(const Tensor& x, const PerAxis& kernel, const FractionalPoolOptions& options,
                                         Where where) {
  return fractional_pool(3, x, kernel, options, where);
}

namespace runtime {
namespace {

using graph::Arguments;
using graph::CaseInput;
using graph::OpRow;
using graph::Tensors;

graph::AttributeSpec space_extents(std::string name, std::string doc, bool is_required, std::string alias) {
  graph::AttributeSpec spec{.name = std::move(name),
                            .type = graph::AttributeType::integers,
                            .doc = std::move(doc),
                            .aliases = {std::move(alias)}};
  if (!is_required) spec.default_value = std::vector<Extent>{};
  return spec;
}

OpRow make_fractional_row(int axes) {
  using Ints = std::vector<Extent>;
  const std::string name = fmt::format("fractional_max_pool{}d", axes);
  const Shape image = axes == 2 ? Shape{2, 3, 9, 8} : Shape{1, 2, 6, 7, 6};
  const CaseInput samples{{image[0], image[1], axes}, 0.03, 0.97};
  const graph::Numbers each_axis = axes == 2 ? graph::Numbers{0.35, 0.65} : graph::Numbers{0.35, 0.45, 0.7};
  return {
      .name = name,
      .family = "random",
      .inputs = {{"x", ops::DTypes::floats}, {.name = "samples", .dtypes = ops::DTypes::floats, .optional = true}},
      .attributes = {space_extents("kernel", "extents of a window", true, "kernel_size"),
                     space_extents("size", "extents of space of the result", false, "output_size"),
                     {.name = "ratio",
                      .type = graph::AttributeType::numbers,
                      .default_value = graph::Numbers{},
                      .doc = "share of the extents of x, one or one for each axis, instead of a size",
                      .aliases = {"output_ratio"}},
                     random_seed()},
      .result = "that of x; positions i32",
      .several_outputs = true,
      .doc = "The greatest element of windows at random distances, and its position in the axes of space.",
      .torch = fmt::format("F.{}(x, kernel[0], size or None, (ratio * (x.ndim - 2) if len(ratio) == 1 else ratio) or "
                           "None, return_indices=True, _random_samples=samples)",
                           name),
      .cases = {{"given samples",
                 {{image}, samples},
                 {{"kernel", Ints{2}}, {"size", Ints(static_cast<std::size_t>(axes), 4)}},
                 false},
                {"one window",
                 {{image}, samples},
                 {{"kernel", Ints{3}}, {"size", Ints(static_cast<std::size_t>(axes), 1)}},
                 false},
                {"a ratio", {{image}, samples}, {{"kernel", Ints{2}}, {"ratio", graph::Numbers{0.5}}}, false},
                {"a ratio for each axis", {{image}, samples}, {{"kernel", Ints{2}}, {"ratio", each_axis}}, false}},
      .errors = {{"no size", {{image}, samples}, {{"kernel", Ints{2}}}, "takes a size or a ratio, and not both"},
                 {"a ratio above 1",
                  {{image}, samples},
                  {{"kernel", Ints{2}}, {"ratio", 1.5}},
                  "ratio 1.5 is outside of (0, 1)"},
                 {"ratios of other axes",
                  {{image}, samples},
                  {{"kernel", Ints{2}}, {"ratio", graph::Numbers{0.5, 0.5, 0.5, 0.5}}},
                  fmt::format("4 ratios for {} axes", axes)},
                 {"large windows",
                  {{image}, samples},
                  {{"kernel", Ints{5}}, {"size", Ints{6}}},
                  "6 windows of 5 elements do not fit axis"},
                 {"samples of another shape",
                  {{image}, {{2, 2}, 0, 1}},
                  {{"kernel", Ints{2}}, {"size", Ints{2}}},
                  "samples are not ["},
                 {"an axis too few",
                  {{{4, 5}}, samples},
                  {{"kernel", Ints{2}}, {"size", Ints{2}}},
                  "x is not [images, channels]"}},
      .apply = [axes](const Arguments& a) {
        take_seed(a);
        const FractionalPoolOptions options{PerAxis(a.integers("size")), a.numbers("ratio"), a.input(1)};
        const auto [values, positions] =
            fractional_pool(axes, a.input(0), PerAxis(a.integers("kernel")), options, Where::current());
        return Tensors{values, positions};
      }};
}

}  // namespace

graph::OpRows fractional_pool_family() {
  static const std::vector<OpRow> rows = {make_fractional_row(2), make_fractional_row(3)};
  graph::OpRows list;
  for (const OpRow& row : rows) list.push_back(&row);
  return list;
}

}  // namespace runtime
}  // namespace weft
