// Pools as windows and reductions.
#include "weft/ops/pooling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/windows.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct PoolAttributes {
  Extents kernel;
  Extents stride;
  Extents padding{0}, dilation{1};
  bool ceil_mode = false;
};
struct AverageAttributes {
  Extents kernel;
  Extents stride;
  Extents padding{0};
  bool ceil_mode = false, count_include_pad = true;
};
struct PowerAttributes {
  double p = 2;
  Extents kernel;
  Extents stride;
  bool ceil_mode = false;
};
struct AdaptiveAttributes {
  Extents size;
};

void check_rank(const Call& c, int axes) {
  if (c.input(0).rank() != axes + 2)
    c.shape_error(fmt::format("x is not [images, channels] followed by {}",
                              axes == 1 ? "one axis" : fmt::format("{} axes", axes)));
}

WindowGrid grid_of(const Call& c, int axes, const Extents& kernel, const Extents& stride, const Extents& padding,
                   const Extents& dilation, bool ceil_mode) {
  check_rank(c, axes);
  if (kernel.empty()) c.shape_error("kernel has no extent");
  WindowGrid grid{.size = per_axis(c, "kernel", kernel, axes, 1, 1),
                  .stride = {},
                  .dilation = per_axis(c, "dilation", dilation, axes, 1, 1),
                  .before = {},
                  .after = {}};
  grid.stride = stride.empty() ? grid.size : per_axis(c, "stride", stride, axes, 1, 1);
  grid.before = grid.after = per_axis(c, "padding", padding, axes, 0, 0);
  for (int i = 0; i < axes; ++i) {
    const Extent extent = c.input(0).shape()[2 + i], step = grid.stride[at(i)], before = grid.before[at(i)];
    if (before > grid.size[at(i)] / 2)
      c.shape_error(fmt::format("padding {} is more than half of a kernel of {}", before, grid.size[at(i)]));
    const Extent rest = extent + 2 * before - grid.span(i);
    if (rest < 0)
      c.shape_error(
          fmt::format("a window of {} elements is longer than axis {} of x with its padding", grid.span(i), 2 + i));
    // One more window, which begins inside x or the padding before it.
    if (ceil_mode && rest % step != 0 && (rest / step + 1) * step < extent + before)
      grid.after[at(i)] += step - rest % step;
  }
  return grid;
}

std::vector<Result> pooled(const Call& c, const WindowGrid& grid, DType type) {
  Shape shape{c.input(0).dim(0), c.input(0).dim(1)};
  for (int i = 0; i < grid.axes(); ++i) shape.push_back(grid.count(i, c.input(0).shape()[2 + i]));
  return {{type, shape}};
}

// Joins the last `count` axes to one.
Tensor joined(const Tensor& x, int count) { return count == 1 ? x : weft::flatten(x, x.rank() - count, -1); }
Axes last_axes(const Tensor& x, int count) {
  Axes axes;
  for (int i = x.rank() - count; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

double lowest_of(DType type) {
  return is_float(type) ? -std::numeric_limits<double>::infinity() : element(type).lowest;
}

// Windows whose padding is smaller than any element.
Tensor windows_for_extremes(const Tensor& x, const WindowGrid& grid) {
  const bool has_padding = std::any_of(grid.before.begin(), grid.before.end(), [](Extent e) { return e > 0; }) ||
                           std::any_of(grid.after.begin(), grid.after.end(), [](Extent e) { return e > 0; });
  if (!has_padding) return windows_of(x, grid);
  const Tensor inside = padded(full(x.shape(), 1, DType::boolean, x.device()), grid.before, grid.after);
  const Tensor all = padded(x, grid.before, grid.after);
  WindowGrid bare = grid;
  bare.before = bare.after = Extents(grid.size.size(), 0);
  return windows_of(elementwise("where", {inside, all, scalar_like(lowest_of(x.dtype()), all)}), bare);
}

// Position in x of element `offset` of each window along one axis: [windows, size].
Tensor positions_along(const WindowGrid& grid, int axis, Extent windows, Device device) {
  const Tensor window = weft::reshape(arange(windows, DType::i32, device), {windows, 1});
  const Tensor offset = weft::reshape(arange(grid.size[at(axis)], DType::i32, device), {1, grid.size[at(axis)]});
  return window * static_cast<double>(grid.stride[at(axis)]) + offset * static_cast<double>(grid.dilation[at(axis)]) -
         static_cast<double>(grid.before[at(axis)]);
}

Tensor positions_of_greatest(const Tensor& x, const WindowGrid& grid, Where where) {
  const Tensor windows = windows_for_extremes(x, grid);
  const int axes = grid.axes();
  const Tensor winner = argmax(joined(windows, axes), -1, {}, where);  // element of the window, row by row
  Tensor place, rest = winner;
  for (int i = axes; i-- > 0;) {
    const auto size = static_cast<double>(grid.size[at(i)]);
    const Tensor offset = elementwise("fmod", {rest, scalar_like(size, rest)});
    rest = elementwise("floor_divide", {rest, scalar_like(size, rest)});
    Shape along(std::vector<Extent>(static_cast<std::size_t>(winner.rank()), 1));
    along[2 + i] = winner.shape()[2 + i];
    const Tensor window = weft::reshape(arange(along[2 + i], DType::i32, x.device()), along);
    const Tensor position = window * static_cast<double>(grid.stride[at(i)]) +
                            offset * static_cast<double>(grid.dilation[at(i)]) -
                            static_cast<double>(grid.before[at(i)]);
    Extent inner = 1;
    for (int j = i + 1; j < axes; ++j) inner *= x.shape()[2 + j];
    const Tensor part = position * static_cast<double>(inner);
    place = place.defined() ? place + part : part;
  }
  return place;
}

Tensor averages(const Tensor& x, const WindowGrid& grid, const Extents& padding, bool count_include_pad) {
  const Tensor windows = windows_of(x, grid);
  const int axes = grid.axes();
  const Tensor total = weft::sum(windows, last_axes(windows, axes));
  double uniform = 1;
  for (Extent size : grid.size) uniform *= static_cast<double>(size);
  bool is_uniform = true;
  for (int i = 0; i < axes; ++i)
    is_uniform = is_uniform && grid.after[at(i)] == padding[at(i)] && (count_include_pad || padding[at(i)] == 0);
  if (is_uniform) return total * (1 / uniform);
  // The number of elements of each window that count: inside x, or inside x and its padding.
  Tensor counts;
  for (int i = 0; i < axes; ++i) {
    const Extent margin = count_include_pad ? padding[at(i)] : 0, n = total.shape()[2 + i];
    const Tensor position = positions_along(grid, i, n, x.device());
    const Tensor counted = elementwise("logical_and", {position >= static_cast<double>(-margin),
                                                       position < static_cast<double>(x.shape()[2 + i] + margin)});
    Shape along(std::vector<Extent>(static_cast<std::size_t>(total.rank()), 1));
    along[2 + i] = n;
    const Tensor count = weft::reshape(weft::sum(weft::cast(counted, x.dtype()), {-1}), along);
    counts = counts.defined() ? counts * count : count;
  }
  return total / counts;
}

// ---- Rows ----------------------------------------------------------------------------------------------------------------

std::vector<Extent> ints(Extent value) { return {value}; }
Shape image_of(int axes) { return axes == 1 ? Shape{2, 3, 11} : axes == 2 ? Shape{2, 3, 8, 7} : Shape{1, 2, 5, 6, 7}; }
// Distinct numbers, so that no window has two largest elements.
CaseInput distinct(int axes) {
  CaseInput input{.shape = image_of(axes)};
  const Extent n = input.shape.numel();
  for (Extent i = 0; i < n; ++i) input.values.push_back(static_cast<double>(i * 37 % n) / 16 - 4);
  return input;
}

template <class S>
AttributeSpec kernel_field() {
  return field("kernel", &S::kernel, "extents of a window",
               {.required = true, .aliases = {"kernel_size", "kernel_shape"}});
}
template <class S>
AttributeSpec stride_field() {
  return field("stride", &S::stride, "distance from one window to the next; none: the extents of a window",
               {.aliases = {"strides"}});
}
template <class S>
AttributeSpec padding_field() {
  return field("padding", &S::padding, "at both ends of each axis", {.aliases = {"pads"}});
}
template <class S>
AttributeSpec ceil_field() {
  return field("ceil_mode", &S::ceil_mode, "whether a last window that reaches beyond the end counts");
}

std::vector<AttributeSpec> pool_fields() {
  return {
      kernel_field<PoolAttributes>(), stride_field<PoolAttributes>(), padding_field<PoolAttributes>(),
      field("dilation", &PoolAttributes::dilation, "distance between elements of a window", {.aliases = {"dilations"}}),
      ceil_field<PoolAttributes>()};
}

std::vector<OpCase> pool_cases(int axes) {
  return {{"side by side", {distinct(axes)}, {{"kernel", ints(2)}}},
          {"padded with steps", {distinct(axes)}, {{"kernel", ints(3)}, {"stride", ints(2)}, {"padding", ints(1)}}},
          {"overlapping", {distinct(axes)}, {{"kernel", ints(3)}, {"stride", ints(1)}}},
          {"dilated", {distinct(axes)}, {{"kernel", ints(2)}, {"stride", ints(1)}, {"dilation", ints(3)}}},
          {"beyond the end", {distinct(axes)}, {{"kernel", ints(3)}, {"stride", ints(2)}, {"ceil_mode", true}}}};
}
std::vector<ErrorCase> pool_errors(int axes) {
  return {
      {"a long window", {{image_of(axes)}}, {{"kernel", ints(20)}}, "is longer than axis 2"},
      {"much padding", {{image_of(axes)}}, {{"kernel", ints(3)}, {"padding", ints(2)}}, "more than half of a kernel"},
      {"no kernel", {{image_of(axes)}}, {}, "attribute kernel is missing"},
      {"an axis too few", {{{4, 5}}}, {{"kernel", ints(2)}}, "x is not [images, channels]"}};
}

WindowGrid grid_of(const Call& c, int axes, const PoolAttributes& a) {
  return grid_of(c, axes, a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode);
}

OpRow make_max_row(int axes) {
  return {
      .name = "max_pool" + space_name(axes),
      .family = "pooling",
      .inputs = {{"x", ops::DTypes::numbers}},
      .attributes = pool_fields(),
      .doc = "The greatest element of each window.",
      .torch = fmt::format("F.max_pool{}(x, kernel, stride or None, padding, dilation, ceil_mode)", space_name(axes)),
      .onnx = "MaxPool",
      .infer =
          [axes](const Call& c) {
            return pooled(c, grid_of(c, axes, c.attributes<PoolAttributes>()), c.input(0).dtype());
          },
      .decompose =
          [axes](const Call& c) {
            const Tensor windows = windows_for_extremes(c.input(0), grid_of(c, axes, c.attributes<PoolAttributes>()));
            return Tensors{amax(windows, last_axes(windows, axes), {}, c.where())};
          },
      .cases = pool_cases(axes),
      .errors = pool_errors(axes)};
}

OpRow make_positions_row(int axes) {
  OpRow row{
      .name = "max_pool_positions" + space_name(axes),
      .family = "pooling",
      .inputs = {{"x", ops::DTypes::numbers}},
      .attributes = pool_fields(),
      .result = "i32",
      .differentiable = false,
      .doc = "Where the greatest element of each window is: its position in the axes of space read row by row.",
      .torch =
          fmt::format("F.max_pool{}(x, kernel, stride or None, padding, dilation, ceil_mode, return_indices=True)[1]",
                      space_name(axes)),
      .infer =
          [axes](const Call& c) { return pooled(c, grid_of(c, axes, c.attributes<PoolAttributes>()), DType::i32); },
      .decompose =
          [axes](const Call& c) {
            return Tensors{
                positions_of_greatest(c.input(0), grid_of(c, axes, c.attributes<PoolAttributes>()), c.where())};
          },
      .cases = pool_cases(axes),
      .errors = pool_errors(axes)};
  for (OpCase& one : row.cases) one.compares_gradients = false;
  return row;
}

OpRow make_average_row(int axes) {
  const auto grid = [axes](const Call& c) {
    const auto a = c.attributes<AverageAttributes>();
    return grid_of(c, axes, a.kernel, a.stride, a.padding, {}, a.ceil_mode);
  };
  return {
      .name = "avg_pool" + space_name(axes),
      .family = "pooling",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {kernel_field<AverageAttributes>(), stride_field<AverageAttributes>(),
                     padding_field<AverageAttributes>(), ceil_field<AverageAttributes>(),
                     field("count_include_pad", &AverageAttributes::count_include_pad,
                           "whether zeros of the padding count as elements")},
      .doc = "The mean of each window.",
      .torch = fmt::format("F.avg_pool{}(x, kernel, stride or None, padding, ceil_mode, count_include_pad)",
                           space_name(axes)),
      .onnx = "AveragePool",
      .infer = [grid](const Call& c) { return pooled(c, grid(c), c.input(0).dtype()); },
      .decompose =
          [axes, grid](const Call& c) {
            const auto a = c.attributes<AverageAttributes>();
            return Tensors{
                averages(c.input(0), grid(c), per_axis(c, "padding", a.padding, axes, 0, 0), a.count_include_pad)};
          },
      .cases = {{"side by side", {{image_of(axes)}}, {{"kernel", ints(2)}}},
                {"padded with steps",
                 {{image_of(axes)}},
                 {{"kernel", ints(3)}, {"stride", ints(2)}, {"padding", ints(1)}}},
                {"of what is there",
                 {{image_of(axes)}},
                 {{"kernel", ints(3)}, {"stride", ints(1)}, {"padding", ints(1)}, {"count_include_pad", false}}},
                {"beyond the end", {{image_of(axes)}}, {{"kernel", ints(3)}, {"stride", ints(2)}, {"ceil_mode", true}}},
                {"beyond the end, padded",
                 {{image_of(axes)}},
                 {{"kernel", ints(2)}, {"padding", ints(1)}, {"ceil_mode", true}}}},
      .errors = pool_errors(axes)};
}

OpRow make_power_row(int axes) {
  const auto grid = [axes](const Call& c) {
    const auto a = c.attributes<PowerAttributes>();
    if (!(a.p > 0)) c.usage_error(fmt::format("p is {}; it must be above 0", a.p));
    return grid_of(c, axes, a.kernel, a.stride, {}, {}, a.ceil_mode);
  };
  return {
      .name = "lp_pool" + space_name(axes),
      .family = "pooling",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("p", &PowerAttributes::p, "the power", {.aliases = {"norm_type"}}),
                     kernel_field<PowerAttributes>(), stride_field<PowerAttributes>(), ceil_field<PowerAttributes>()},
      .doc = "(sum x^p)^(1/p) of each window.",
      .torch = fmt::format("(F.avg_pool{}(x.pow(p), kernel, stride or None) * (kernel[0] ** {})).pow(1 / p)",
                           space_name(axes), axes),
      .onnx = "LpPool",
      .infer = [grid](const Call& c) { return pooled(c, grid(c), c.input(0).dtype()); },
      .decompose =
          [axes, grid](const Call& c) {
            const double p = c.attributes<PowerAttributes>().p;
            const auto power = [](const Tensor& x, double exponent) {
              return exponent == 1 ? x : elementwise("pow", {x, scalar_like(exponent, x)});
            };
            const Tensor windows = windows_of(c.input(0), grid(c));
            return Tensors{power(weft::sum(power(windows, p), last_axes(windows, axes), {}, c.where()), 1 / p)};
          },
      .cases = {{"squares", {{image_of(axes), 0.5, 2}}, {{"kernel", ints(2)}}},
                {"a fraction, overlapping",
                 {{image_of(axes), 0.5, 2}},
                 {{"p", 1.5}, {"kernel", ints(3)}, {"stride", ints(2)}}}},
      .errors = {{"no power", {{image_of(axes)}}, {{"p", 0.0}, {"kernel", ints(2)}}, "p is 0; it must be above 0"}}};
}

Extents adaptive_sizes(const Call& c, int axes) {
  check_rank(c, axes);
  const Extents given = c.attributes<AdaptiveAttributes>().size;
  if (given.empty()) c.shape_error("size has no extent");
  Extents sizes = per_axis(c, "size", given, axes, -1, -1);
  for (int i = 0; i < axes; ++i) {
    if (sizes[at(i)] == -1) sizes[at(i)] = c.input(0).shape()[2 + i];
    if (sizes[at(i)] == 0) c.shape_error("size is 0; it must be at least 1, or -1 for the extent of x");
    if (c.input(0).shape()[2 + i] == 0) c.shape_error(fmt::format("axis {} of x is empty", 2 + i));
  }
  return sizes;
}

// The first place of window i, and the place after its last.
Extent window_begin(Extent i, Extent extent, Extent size) { return i * extent / size; }
Extent window_end(Extent i, Extent extent, Extent size) { return ((i + 1) * extent + size - 1) / size; }

// The mean along one axis: equal windows are a view; others use a product with a matrix of weights.
Tensor adaptive_mean(const Tensor& x, int axis, Extent size) {
  const Extent extent = x.dim(axis);
  Shape split;
  if (extent % size == 0) {
    for (int i = 0; i < x.rank(); ++i) {
      split.push_back(i == axis ? size : x.shape()[i]);
      if (i == axis) split.push_back(extent / size);
    }
    return weft::mean(weft::reshape(x, split), {axis + 1});
  }
  const Tensor window = weft::reshape(arange(size, DType::i32, x.device()), {size, 1});
  const Tensor place = weft::reshape(arange(extent, DType::i32, x.device()), {1, extent});
  const auto divided = [&](const Tensor& by) {
    return elementwise("floor_divide", {by, scalar_like(static_cast<double>(size), by)});
  };
  const auto length = static_cast<double>(extent);
  const Tensor first = divided(window * length),
               last = divided(window * length + (length + static_cast<double>(size) - 1));
  const Tensor inside = elementwise("logical_and", {first <= place, place < last});
  const Tensor weights = weft::cast(inside, x.dtype()) / weft::cast(last - first, x.dtype());
  const Tensor y = weft::matmul(weft::transpose(x, axis, -1), weft::transpose(weights));
  return weft::transpose(y, axis, -1);
}

// The maximum along one axis. If windows differ in length, short ones repeat their last element.
Tensor adaptive_greatest(const Tensor& x, int axis, Extent size) {
  const Extent extent = x.dim(axis);
  Extent longest = 1;
  for (Extent i = 0; i < size; ++i)
    longest = std::max(longest, window_end(i, extent, size) - window_begin(i, extent, size));
  Tensor y;
  for (Extent t = 0; t < longest; ++t) {
    const Tensor window = arange(size, DType::i32, x.device()) * static_cast<double>(extent);
    const auto divided = [&](const Tensor& by) {
      return elementwise("floor_divide", {by, scalar_like(static_cast<double>(size), by)});
    };
    const Tensor last = divided(window + static_cast<double>(extent + size - 1)) - 1.0;
    Shape along(std::vector<Extent>(static_cast<std::size_t>(x.rank()), 1)), wide = x.shape();
    along[axis] = size;
    wide[axis] = size;
    const Tensor place = elementwise("minimum", {divided(window) + static_cast<double>(t), last});
    const Tensor taken = weft::take_along_axis(x, weft::expand(weft::reshape(place, along), wide), axis);
    y = y.defined() ? elementwise("maximum", {y, taken}) : taken;
  }
  return y;
}

OpRow make_adaptive_row(int axes, bool greatest) {
  const std::string name = greatest ? "adaptive_max_pool" : "adaptive_avg_pool";
  const CaseInput whole = distinct(axes);
  return {.name = name + space_name(axes),
          .family = "pooling",
          .inputs = {{"x", greatest ? ops::DTypes::numbers : ops::DTypes::floats}},
          .attributes = {field("size", &AdaptiveAttributes::size, "extents of the result; -1 keeps that of x",
                               {.required = true, .aliases = {"output_size"}})},
          .doc = greatest ? "The greatest element of windows that cover x, as many as asked for."
                          : "The mean of windows that cover x, as many as asked for.",
          .torch = fmt::format("F.{}{}(x, [None if s == -1 else s for s in (size * {} if len(size) == 1 else size)])",
                               name, space_name(axes), axes),
          .infer =
              [axes](const Call& c) {
                Shape shape{c.input(0).dim(0), c.input(0).dim(1)};
                for (Extent size : adaptive_sizes(c, axes)) shape.push_back(size);
                return std::vector<Result>{{c.input(0).dtype(), shape}};
              },
          .decompose =
              [axes, greatest](const Call& c) {
                const Extents sizes = adaptive_sizes(c, axes);
                Tensor y = c.input(0);
                for (int i = 0; i < axes; ++i)
                  if (sizes[at(i)] != y.dim(2 + i)) {
                    if (!greatest)
                      y = adaptive_mean(y, 2 + i, sizes[at(i)]);
                    else if (sizes[at(i)] == 1)
                      y = amax(y, {2 + i}, {.keepdims = true});
                    else
                      y = adaptive_greatest(y, 2 + i, sizes[at(i)]);
                  }
                return Tensors{y};
              },
          .cases = {{"one", {whole}, {{"size", ints(1)}}},
                    {"unequal windows", {whole}, {{"size", ints(3)}}},
                    {"more than there are", {whole}, {{"size", ints(9)}}}},
          .errors = {{"no window", {{image_of(axes)}}, {{"size", ints(0)}}, "size is 0"},
                     {"an axis too few", {{{4, 5}}}, {{"size", ints(2)}}, "x is not [images, channels]"}}};
}

enum Pool : std::uint8_t { greatest, positions, average, power, adaptive_average, adaptive_greatest_kind };

const OpRow& pool_row(Pool kind, int axes) {
  static const std::vector<OpRow> rows = [] {
    std::vector<OpRow> list;
    for (int n = 1; n <= 3; ++n) list.push_back(make_max_row(n));
    for (int n = 1; n <= 3; ++n) list.push_back(make_positions_row(n));
    for (int n = 1; n <= 3; ++n) list.push_back(make_average_row(n));
    for (int n = 1; n <= 3; ++n) list.push_back(make_power_row(n));
    for (int n = 1; n <= 3; ++n) list.push_back(make_adaptive_row(n, false));
    for (int n = 1; n <= 3; ++n) list.push_back(make_adaptive_row(n, true));
    return list;
  }();
  return rows[static_cast<std::size_t>(kind) * 3 + at(axes) - 1];
}

PoolAttributes pool_attributes(const PerAxis& kernel, const PoolOptions& o) {
  return {kernel, o.stride, o.padding, o.dilation, o.ceil_mode};
}

}  // namespace

OpRows pooling_rows() {
  OpRows list;
  for (const Pool kind : {greatest, positions, average, power, adaptive_average, adaptive_greatest_kind})
    for (int axes = 1; axes <= 3; ++axes) list.push_back(&pool_row(kind, axes));
  return list;
}

}  // namespace graph

using graph::call;
using graph::pool_row;

#define WEFT_POOLS(axes)                                                                                             \
  Tensor max_pool##axes##d(const Tensor& x, const PerAxis& kernel, const PoolOptions& options, Where where) {        \
    return call(pool_row(graph::greatest, axes), {x}, graph::pool_attributes(kernel, options), where);               \
  }                                                                                                                  \
  Tensor max_pool_positions##axes##d(const Tensor& x, const PerAxis& kernel, const PoolOptions& options,             \
                                     Where where) {                                                                  \
    return call(pool_row(graph::positions, axes), {x}, graph::pool_attributes(kernel, options), where);              \
  }                                                                                                                  \
  Tensor avg_pool##axes##d(const Tensor& x, const PerAxis& kernel, const AveragePoolOptions& o, Where where) {       \
    return call(pool_row(graph::average, axes), {x},                                                                 \
                graph::AverageAttributes{kernel, o.stride, o.padding, o.ceil_mode, o.count_include_pad}, where);     \
  }                                                                                                                  \
  Tensor lp_pool##axes##d(const Tensor& x, double p, const PerAxis& kernel, const PoolOptions& o, Where where) {     \
    return call(pool_row(graph::power, axes), {x}, graph::PowerAttributes{p, kernel, o.stride, o.ceil_mode}, where); \
  }                                                                                                                  \
  Tensor adaptive_avg_pool##axes##d(const Tensor& x, const PerAxis& size, Where where) {                             \
    return call(pool_row(graph::adaptive_average, axes), {x}, graph::AdaptiveAttributes{size}, where);               \
  }                                                                                                                  \
  Tensor adaptive_max_pool##axes##d(const Tensor& x, const PerAxis& size, Where where) {                             \
    return call(pool_row(graph::adaptive_greatest_kind, axes), {x}, graph::AdaptiveAttributes{size}, where);         \
  }
WEFT_POOLS(1)
WEFT_POOLS(2)
WEFT_POOLS(3)
#undef WEFT_POOLS

}  // namespace weft
