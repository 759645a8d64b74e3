// Resampling as weighted gathers along the axes of space.
#include "weft/ops/interpolation.hpp"

#include <fmt/format.h>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/windows.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct InterpolateAttributes {
  Extents size;
  Interpolation mode = Interpolation::nearest;
  bool align_corners = false;
};
struct GridAttributes {
  Interpolation mode = Interpolation::linear;
  GridPadding padding = GridPadding::zeros;
  bool align_corners = false;
};

Tensor number(double value, const Tensor& like) { return scalar_like(value, like); }

// A row of values along one axis of a tensor of this rank.
Tensor along(const Tensor& row, int axis, int rank) {
  Shape shape(std::vector<Extent>(at(rank), 1));
  shape[axis] = row.dim(0);
  return weft::reshape(row, shape);
}

// Elements `places` (i32 [size]) of x along an axis.
Tensor taken(const Tensor& x, const Tensor& places, int axis) {
  Shape shape = x.shape();
  shape[axis] = places.dim(0);
  return weft::take_along_axis(x, weft::expand(along(places, axis, x.rank()), shape), axis);
}

Tensor resized_nearest(const Tensor& x, int axis, Extent size) {
  const Extent extent = x.dim(axis);
  if (size % extent == 0) {  // whole repeats are a view
    Shape one = x.shape(), many = x.shape();
    auto with = [&](Shape& shape, Extent repeats) {
      std::vector<Extent> extents = shape.vector();
      extents.insert(extents.begin() + axis + 1, repeats);
      shape = Shape(extents);
    };
    with(one, 1);
    with(many, size / extent);
    Shape result = x.shape();
    result[axis] = size;
    return weft::reshape(weft::expand(weft::reshape(x, one), many), result);
  }
  if (extent % size == 0) return weft::slice(x, axis, 0, kEnd, extent / size);
  const Tensor scaled = arange(size, DType::i32, x.device()) * static_cast<double>(extent);
  return taken(x, elementwise("floor_divide", {scaled, number(static_cast<double>(size), scaled)}), axis);
}

// The positions where elements are read: [size], in the dtype of x.
Tensor sources(const Tensor& x, Extent extent, Extent size, bool align_corners) {
  const Tensor i = weft::cast(arange(size, DType::i32, x.device()), x.dtype());
  if (align_corners) return i * (size > 1 ? static_cast<double>(extent - 1) / static_cast<double>(size - 1) : 0.0);
  return (i + 0.5) * (static_cast<double>(extent) / static_cast<double>(size)) - 0.5;
}

Tensor held_within(const Tensor& places, Extent extent) {
  return elementwise("minimum", {elementwise("maximum", {places, number(0, places)}),
                                 number(static_cast<double>(extent - 1), places)});
}

Tensor resized_linear(const Tensor& x, int axis, Extent size, bool align_corners) {
  const Extent extent = x.dim(axis);
  const Tensor source = sources(x, extent, size, align_corners);
  const Tensor from = elementwise("maximum", {source, number(0, source)});
  const Tensor low = elementwise("floor", {from});
  const Tensor place = held_within(weft::cast(low, DType::i32), extent);
  const Tensor weight = along(from - low, axis, x.rank());
  const Tensor first = taken(x, place, axis), second = taken(x, held_within(place + 1.0, extent), axis);
  return first * (1.0 - weight) + second * weight;
}

// Weights of the four neighbours around a place at distance `t` after the second.
Tensors cubic_weights(const Tensor& t) {
  constexpr double a = -0.75;
  const auto near = [&](const Tensor& d) { return ((a + 2) * d - (a + 3)) * d * d + 1.0; };
  const auto far = [&](const Tensor& d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)};
}

Tensor resized_cubic(const Tensor& x, int axis, Extent size, bool align_corners) {
  const Extent extent = x.dim(axis);
  const Tensor source = sources(x, extent, size, align_corners), low = elementwise("floor", {source});
  const Tensor place = weft::cast(low, DType::i32);
  const Tensors weights = cubic_weights(source - low);
  Tensor y;
  for (int k = 0; k < 4; ++k) {
    const Tensor part =
        taken(x, held_within(place + static_cast<double>(k - 1), extent), axis) * along(weights[at(k)], axis, x.rank());
    y = y.defined() ? y + part : part;
  }
  return y;
}

Extents sizes_of(const Call& c, const InterpolateAttributes& a) {
  const Tensor& x = c.input(0);
  if (x.rank() < 3 || x.rank() > 5) c.shape_error("x is not [images, channels] followed by one to three spatial axes");
  if (a.size.empty()) c.shape_error("size has no extent");
  for (int i = 2; i < x.rank(); ++i)
    if (x.shape()[i] == 0) c.shape_error(fmt::format("axis {} of x is empty", i));
  return per_axis(c, "size", a.size, x.rank() - 2, 1, 1);
}

const char* const kTorchMode =
    "{'nearest': 'nearest', 'linear': ('linear', 'bilinear', 'trilinear')[x.dim() - 3], 'cubic': 'bicubic'}[mode]";

const OpRow& interpolate_row() {
  using Ints = std::vector<Extent>;
  const auto mode = [](const char* name) { return std::pair<std::string, AttributeValue>("mode", std::string(name)); };
  static const OpRow row{
      .name = "interpolate",
      .aliases = {"upsample"},
      .family = "interpolation",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("size", &InterpolateAttributes::size, "extents of the spatial axes", {.required = true}),
                     field("mode", &InterpolateAttributes::mode, "which neighbours are read",
                           {.choices = {"nearest", "linear", "cubic"}}),
                     field("align_corners", &InterpolateAttributes::align_corners,
                           "whether the outermost elements keep their values")},
      .doc = "x [N, C, ...] resized along its spatial axes.",
      .torch = std::string("F.interpolate(x, size if len(size) > 1 else size[0], mode=") + kTorchMode +
               ", align_corners=None if mode == 'nearest' else align_corners)",
      .onnx = "Resize",
      .infer =
          [](const Call& c) {
            Shape shape{c.input(0).dim(0), c.input(0).rank() > 1 ? c.input(0).dim(1) : 0};
            for (Extent size : sizes_of(c, c.attributes<InterpolateAttributes>())) shape.push_back(size);
            return std::vector<Result>{{c.input(0).dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const auto a = c.attributes<InterpolateAttributes>();
            const Extents sizes = sizes_of(c, a);
            Tensor y = c.input(0);
            for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
              const Extent size = sizes[at(i)];
              if (size == y.dim(2 + i)) continue;
              y = a.mode == Interpolation::nearest  ? resized_nearest(y, 2 + i, size)
                  : a.mode == Interpolation::linear ? resized_linear(y, 2 + i, size, a.align_corners)
                                                    : resized_cubic(y, 2 + i, size, a.align_corners);
            }
            return Tensors{y};
          },
      .cases = {{"bilinear", {{{2, 3, 5, 6}}}, {{"size", Ints{8, 7}}, mode("linear")}},
                {"repeats", {{{2, 3, 4, 5}}}, {{"size", Ints{8, 15}}}},
                {"nearest, other extents", {{{2, 3, 4, 5}}}, {{"size", Ints{7, 3}}}},
                {"nearest along one axis", {{{2, 3, 12}}}, {{"size", Ints{4}}}},
                {"bilinear, corners kept",
                 {{{2, 3, 5, 6}}},
                 {{"size", Ints{9, 4}}, mode("linear"), {"align_corners", true}}},
                {"linear", {{{2, 3, 7}}}, {{"size", Ints{10}}, mode("linear")}},
                {"trilinear", {{{1, 2, 3, 4, 3}}}, {{"size", Ints{5, 2, 4}}, mode("linear")}},
                {"bicubic", {{{2, 3, 6, 5}}}, {{"size", Ints{9, 4}}, mode("cubic")}},
                {"bicubic, corners kept",
                 {{{2, 3, 6, 5}}},
                 {{"size", Ints{4, 9}}, mode("cubic"), {"align_corners", true}}}},
      .errors = {{"no size", {{{2, 3, 4}}}, {}, "attribute size is missing"},
                 {"an extent of 0", {{{2, 3, 4}}}, {{"size", Ints{0}}}, "size is 0; it must be at least 1"},
                 {"no space", {{{2, 3}}}, {{"size", Ints{4}}}, "one to three spatial axes"}}};
  return row;
}

// ---- Grids ---------------------------------------------------------------------------------------------------------------

// Coordinates -1 to 1 as positions of elements.
Tensor positions_of(const Tensor& coordinate, Extent extent, bool align_corners) {
  const auto n = static_cast<double>(extent);
  return align_corners ? (coordinate + 1.0) * ((n - 1) / 2) : ((coordinate + 1.0) * n - 1.0) * 0.5;
}

// Mirrors x at `low` and `high` until it is between them.
Tensor reflected(const Tensor& x, double low, double high) {
  const double span = high - low;
  if (span <= 0) return x * 0.0;
  const Tensor distance = elementwise("abs", {x - low});
  const Tensor turns = elementwise("floor", {distance / span}), rest = distance - turns * span;
  const Tensor odd = elementwise("remainder", {turns, number(2, turns)}) > number(0.5, turns);
  return elementwise("where", {odd, span - rest, rest}) + low;
}

Tensor placed(const Tensor& position, Extent extent, const GridAttributes& a) {
  const auto n = static_cast<double>(extent);
  if (a.padding == GridPadding::zeros) return position;
  Tensor p = position;
  if (a.padding == GridPadding::reflection) p = a.align_corners ? reflected(p, 0, n - 1) : reflected(p, -0.5, n - 0.5);
  return elementwise("clamp", {p}, {0.0, n - 1});
}

// An element that is read along one axis: its position [N, 1, places], and its weight (undefined: 1).
struct Tap {
  Tensor position, weight;
};

std::vector<Tap> taps_along(const Tensor& coordinate, Extent extent, const GridAttributes& a) {
  const Tensor source = positions_of(coordinate, extent, a.align_corners);
  if (a.mode == Interpolation::cubic) {  // neighbours are placed one by one
    const Tensor low = elementwise("floor", {source});
    const Tensors weights = cubic_weights(source - low);
    std::vector<Tap> taps;
    for (int k = 0; k < 4; ++k) taps.push_back({placed(low + static_cast<double>(k - 1), extent, a), weights[at(k)]});
    return taps;
  }
  const Tensor p = placed(source, extent, a);
  if (a.mode == Interpolation::nearest) return {{elementwise("round", {p}), {}}};
  const Tensor low = elementwise("floor", {p}), fraction = p - low;
  return {{low, 1.0 - fraction}, {low + 1.0, fraction}};
}

Tensor sampled(const Call& c) {
  const auto a = c.attributes<GridAttributes>();
  const Tensor &x = c.input(0), &grid = c.input(1);
  const int axes = x.rank() - 2;
  const Extent n = x.dim(0), channels = x.dim(1), places = grid.numel() / std::max<Extent>(n, 1) / axes;
  Extent elements = 1;
  for (int i = 0; i < axes; ++i) elements *= x.shape()[2 + i];
  const Tensor image = weft::reshape(x, {n, channels, elements}), points = weft::reshape(grid, {n, 1, places, axes});
  std::vector<std::vector<Tap>> taps;  // along each axis
  std::size_t combinations = 1;
  for (int i = 0; i < axes; ++i) {
    taps.push_back(taps_along(weft::select(points, 3, axes - 1 - i), x.shape()[2 + i], a));
    combinations *= taps.back().size();
  }
  Tensor y;
  for (std::size_t combination = 0; combination < combinations; ++combination) {
    Tensor place, weight, inside;
    std::size_t rest = combination;
    for (int i = 0; i < axes; ++i) {
      const auto& [p, part] = taps[at(i)][rest % taps[at(i)].size()];
      rest /= taps[at(i)].size();
      const Extent extent = x.shape()[2 + i];
      const Tensor within =
          elementwise("logical_and", {p >= number(0, p), p <= number(static_cast<double>(extent - 1), p)});
      inside = inside.defined() ? elementwise("logical_and", {inside, within}) : within;
      const Tensor row = held_within(weft::cast(p, DType::i32), extent);
      place = place.defined() ? place * static_cast<double>(extent) + row : row;
      if (part.defined()) weight = weight.defined() ? weight * part : part;
    }
    Tensor value = weft::take_along_axis(image, weft::expand(place, {n, channels, places}), 2);
    if (weight.defined()) value = value * weight;
    value = elementwise("where", {inside, value, number(0, value)});
    y = y.defined() ? y + value : value;
  }
  Shape shape{n, channels};
  for (int i = 1; i + 1 < grid.rank(); ++i) shape.push_back(grid.shape()[i]);
  return weft::reshape(y, shape);
}

const OpRow& grid_sample_row() {
  const auto word = [](const char* name, const char* value) {
    return std::pair<std::string, AttributeValue>(name, std::string(value));
  };
  static const OpRow row{
      .name = "grid_sample",
      .family = "interpolation",
      .inputs = {{"x", ops::DTypes::floats}, {"grid", ops::DTypes::floats}},
      .attributes = {field("mode", &GridAttributes::mode, "which neighbours are read",
                           {.choices = {"nearest", "linear", "cubic"}}),
                     field("padding", &GridAttributes::padding, "what is read outside of the image",
                           {.aliases = {"padding_mode"}, .choices = {"zeros", "border", "reflection"}}),
                     field("align_corners", &GridAttributes::align_corners,
                           "whether -1 and 1 are the centres of the outermost elements")},
      .doc =
          "x [N, C, H, W] at the places of a grid [N, P, Q, 2] with coordinates from -1 to 1; the same with three "
          "spatial axes.",
      .torch =
          "F.grid_sample(x, grid, {'nearest': 'nearest', 'linear': 'bilinear', 'cubic': 'bicubic'}[mode], padding, "
          "align_corners)",
      .onnx = "GridSample",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &grid = c.input(1);
            if (x.dtype() != grid.dtype()) c.dtype_error("the dtypes differ; cast one");
            if (x.rank() != 4 && x.rank() != 5)
              c.shape_error("x is not [images, channels] followed by two or three spatial axes");
            if (grid.rank() != x.rank() || grid.dim(0) != x.dim(0) || grid.dim(-1) != x.rank() - 2)
              c.shape_error("grid is not [images, places..., spatial axes]");
            for (int i = 2; i < x.rank(); ++i)
              if (x.shape()[i] == 0) c.shape_error(fmt::format("axis {} of x is empty", i));
            Shape shape{x.dim(0), x.dim(1)};
            for (int i = 1; i + 1 < grid.rank(); ++i) shape.push_back(grid.shape()[i]);
            return std::vector<Result>{{x.dtype(), shape}};
          },
      .decompose = [](const Call& c) { return Tensors{sampled(c)}; },
      .cases = {{"zeros outside", {{{2, 3, 5, 6}}, {{2, 4, 3, 2}, -1.3, 1.3}}},
                {"corners kept", {{{2, 3, 5, 6}}, {{2, 4, 3, 2}, -1.3, 1.3}}, {{"align_corners", true}}},
                {"border", {{{2, 3, 5, 6}}, {{2, 4, 3, 2}, -1.3, 1.3}}, {word("padding", "border")}},
                {"reflection", {{{2, 3, 5, 6}}, {{2, 4, 3, 2}, -2.5, 2.5}}, {word("padding", "reflection")}},
                {"reflection, corners kept",
                 {{{2, 3, 5, 6}}, {{2, 4, 3, 2}, -2.5, 2.5}},
                 {word("padding", "reflection"), {"align_corners", true}}},
                {"nearest", {{{2, 3, 5, 6}}, {{2, 4, 3, 2}, -1.2, 1.2}}, {word("mode", "nearest")}},
                {"cubic", {{{2, 3, 5, 6}}, {{2, 4, 3, 2}, -1.2, 1.2}}, {word("mode", "cubic")}},
                {"cubic, border, corners kept",
                 {{{1, 2, 5, 6}}, {{1, 4, 3, 2}, -1.2, 1.2}},
                 {word("mode", "cubic"), word("padding", "border"), {"align_corners", true}}},
                {"cubic, reflection",
                 {{{1, 2, 5, 6}}, {{1, 4, 3, 2}, -2.5, 2.5}},
                 {word("mode", "cubic"), word("padding", "reflection")}},
                {"three axes", {{{1, 2, 3, 4, 5}}, {{1, 2, 3, 2, 3}, -1.1, 1.1}}}},
      .errors =
          {{"one coordinate", {{{2, 3, 5, 6}}, {{2, 4, 3, 1}}}, {}, "grid is not [images, places..., spatial axes]"},
           {"one axis of space", {{{2, 3, 5}}, {{2, 4, 1}}}, {}, "two or three spatial axes"}}};
  return row;
}

const OpRow& affine_grid_row() {
  using Ints = std::vector<Extent>;
  static const OpRow row{
      .name = "affine_grid",
      .family = "interpolation",
      .inputs = {{"theta", ops::DTypes::floats}},
      .attributes = {{.name = "size", .type = AttributeType::integers, .doc = "shape of the image: [N, C, H, W]"},
                     {.name = "align_corners",
                      .type = AttributeType::boolean,
                      .default_value = false,
                      .doc = "whether -1 and 1 are the centres of the outermost elements"}},
      .result = "that of theta",
      .doc =
          "A grid for grid_sample: the places theta [x, y, 1] of the elements of an image; the same with three axes.",
      .torch = "F.affine_grid(theta, size, align_corners)",
      .onnx = "AffineGrid",
      .cases = {{"two axes", {{{2, 2, 3}}}, {{"size", Ints{2, 3, 4, 5}}}},
                {"corners kept", {{{2, 2, 3}}}, {{"size", Ints{2, 3, 4, 5}}, {"align_corners", true}}},
                {"one element", {{{1, 2, 3}}}, {{"size", Ints{1, 1, 1, 3}}, {"align_corners", true}}},
                {"three axes", {{{2, 3, 4}}}, {{"size", Ints{2, 1, 2, 3, 4}}}}},
      .errors = {{"another theta", {{{2, 3, 4}}}, {{"size", Ints{2, 3, 4, 5}}}, "theta is not [2, 2, 3]"},
                 {"one axis of space", {{{2, 2, 3}}}, {{"size", Ints{2, 3, 4}}}, "size is not [images, channels]"},
                 {"integers", {{{2, 2, 3}, 0, 4, DType::i32}}, {{"size", Ints{2, 3, 4, 5}}}, "takes floats"}},
      .apply = [](const Arguments& a) {
        return Tensors{weft::affine_grid(a.input(0), a.shape("size"), a.boolean("align_corners"))};
      }};
  return row;
}

}  // namespace

OpRows interpolation_rows() { return {&interpolate_row(), &grid_sample_row(), &affine_grid_row()}; }

}  // namespace graph

Tensor interpolate(const Tensor& x, const PerAxis& size, Interpolation mode, bool align_corners, Where where) {
  return graph::call(graph::interpolate_row(), {x}, graph::InterpolateAttributes{size, mode, align_corners}, where);
}

Tensor affine_grid(const Tensor& theta, const Shape& size, bool align_corners, Where where) {
  if (!theta.defined()) throw UsageError("affine_grid: theta has no value");
  const auto fail = [&](const std::string& fact) {
    return graph::describe("affine_grid", fact, {{"theta", theta}}, where);
  };
  if (!is_float(theta.dtype())) throw DTypeError(fail("takes floats; cast theta"));
  if (size.rank() != 4 && size.rank() != 5)
    throw ShapeError(fail("size is not [images, channels] followed by two or three axes of space"));
  const int axes = size.rank() - 2;
  for (const Extent extent : size)
    if (extent < 0) throw ShapeError(fail(fmt::format("extent {} in size", extent)));
  const Shape wanted{size[0], axes, axes + 1};
  if (theta.shape() != wanted) throw ShapeError(fail(fmt::format("theta is not {}", wanted.to_string())));
  const DType type = compute_type(theta.dtype());
  Shape places{1};
  for (int i = 0; i < axes; ++i) places.push_back(size[2 + i]);
  places.push_back(1);
  const Tensor t = cast(theta, type, where);
  // Column k of theta, [N, 1, .., axes], belongs to the k-th axis from the last one.
  Shape column{size[0]};
  for (int i = 0; i < axes; ++i) column.push_back(1);
  column.push_back(axes);
  Tensor grid = reshape(select(t, 2, axes, where), column, where);
  for (int k = 0; k < axes; ++k) {
    const Extent n = size[1 + axes - k];
    Shape along(std::vector<Extent>(static_cast<std::size_t>(axes + 2), 1));
    along[axes - k] = n;
    const Tensor number = cast(arange(n, DType::i32, theta.device()), type, where);
    // The centre of element i, where the outermost centres, or else edges, are at -1 and 1. The only one is in the middle.
    const double step = align_corners ? 2 / static_cast<double>(std::max<Extent>(n - 1, 1))
                                      : 2 / static_cast<double>(std::max<Extent>(n, 1));
    const double first = align_corners ? (n > 1 ? -1 : 0) : step / 2 - 1;
    grid = grid + reshape(select(t, 2, k, where), column, where) * reshape(number * step + first, along, where);
  }
  return cast(grid, theta.dtype(), where);
}

Tensor grid_sample(const Tensor& x, const Tensor& grid, Interpolation mode, GridPadding padding, bool align_corners,
                   Where where) {
  return graph::call(graph::grid_sample_row(), {x, grid}, graph::GridAttributes{mode, padding, align_corners}, where);
}

}  // namespace weft
