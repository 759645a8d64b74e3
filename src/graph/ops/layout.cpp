// Layout: the elements of a tensor in other places.
#include "weft/ops/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"

namespace weft {

using graph::describe;

namespace {

const Tensor& with_value(std::string_view op, const Tensor& x) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  return x;
}

/// The extents before `axis`, those given, and the extents from `next` on.
Shape spliced(const Shape& shape, int axis, const std::vector<Extent>& middle, int next) {
  std::vector<Extent> extents(shape.begin(), shape.begin() + axis);
  extents.insert(extents.end(), middle.begin(), middle.end());
  extents.insert(extents.end(), shape.begin() + next, shape.end());
  return Shape(std::move(extents));
}

/// Two axes that differ, counted from the start.
std::pair<int, int> two_axes(std::string_view op, const Tensor& x, int axis_a, int axis_b, Where where) {
  const auto axes = graph::normalized_axes(op, with_value(op, x), {axis_a, axis_b}, where);
  return {axes[0], axes[1]};
}

}  // namespace

Tensor roll(const Tensor& x, const std::vector<Extent>& shifts, const Axes& axes, Where where) {
  with_value("roll", x);
  if (shifts.size() != (axes.empty() ? 1 : axes.size()))
    throw UsageError(
        describe("roll", fmt::format("{} shifts for {} axes", shifts.size(), axes.size()), {{"x", x}}, where));
  if (axes.empty()) return reshape(roll(reshape(x, {x.numel()}, where), shifts, 0, where), x.shape(), where);
  Tensor y = x;
  for (std::size_t i = 0; i < shifts.size(); ++i) {
    const int a = graph::normalized_axis("roll", x, axes[i], where);
    const Extent n = x.dim(a), by = n == 0 ? 0 : (shifts[i] % n + n) % n;
    if (by > 0) y = concat({narrow(y, a, n - by, by, where), narrow(y, a, 0, n - by, where)}, a, where);
  }
  return y;
}

Tensor rot90(const Tensor& x, Extent times, int from, int to, Where where) {
  const auto [a, b] = two_axes("rot90", x, from, to, where);
  switch ((times % 4 + 4) % 4) {
    case 1: return transpose(flip(x, b, where), a, b, where);
    case 2: return flip(x, {a, b}, where);
    case 3: return transpose(flip(x, a, where), a, b, where);
    default: return x;
  }
}

Tensor tile(const Tensor& x, const std::vector<Extent>& repeats, Where where) {
  with_value("tile", x);
  for (const Extent times : repeats)
    if (times < 0) throw ShapeError(describe("tile", fmt::format("{} repeats", times), {{"x", x}}, where));
  const auto rank = std::max(repeats.size(), static_cast<std::size_t>(x.rank()));
  std::vector<Extent> times(rank, 1), extents(rank, 1), apart, spread, joined;
  std::copy_backward(repeats.begin(), repeats.end(), times.end());
  std::copy_backward(x.shape().begin(), x.shape().end(), extents.end());
  for (std::size_t i = 0; i < rank; ++i) {
    apart.insert(apart.end(), {1, extents[i]});
    spread.insert(spread.end(), {times[i], extents[i]});
    joined.push_back(times[i] * extents[i]);
  }
  return reshape(expand(reshape(x, Shape(apart), where), Shape(spread), where), Shape(joined), where);
}

Tensor repeat_interleave(const Tensor& x, Extent repeats, int axis, Where where) {
  const int a = graph::normalized_axis("repeat_interleave", with_value("repeat_interleave", x), axis, where);
  if (repeats < 0)
    throw ShapeError(describe("repeat_interleave", fmt::format("{} repeats", repeats), {{"x", x}}, where));
  const Extent n = x.dim(a);
  return reshape(expand(unsqueeze(x, a + 1, where), spliced(x.shape(), a, {n, repeats}, a + 1), where),
                 spliced(x.shape(), a, {n * repeats}, a + 1), where);
}

Tensor movedim(const Tensor& x, const Axes& from, const Axes& to, Where where) {
  with_value("movedim", x);
  if (from.size() != to.size())
    throw UsageError(
        describe("movedim", fmt::format("{} axes to {} places", from.size(), to.size()), {{"x", x}}, where));
  const auto sources = graph::normalized_axes("movedim", x, from, where),
             places = graph::normalized_axes("movedim", x, to, where);
  Axes order(static_cast<std::size_t>(x.rank()), -1);
  for (std::size_t i = 0; i < sources.size(); ++i) order[static_cast<std::size_t>(places[i])] = sources[i];
  int next = 0;
  for (int& axis : order) {
    if (axis >= 0) continue;
    while (std::find(sources.begin(), sources.end(), next) != sources.end()) ++next;
    axis = next++;
  }
  return permute(x, order, where);
}

std::vector<Tensor> chunk(const Tensor& x, Extent parts, int axis, Where where) {
  const int a = graph::normalized_axis("chunk", with_value("chunk", x), axis, where);
  if (parts < 1) throw UsageError(describe("chunk", fmt::format("{} parts", parts), {{"x", x}}, where));
  const Extent n = x.dim(a), length = std::max<Extent>(1, (n + parts - 1) / parts);
  std::vector<Tensor> result;
  for (Extent start = 0; start < n; start += length)
    result.push_back(narrow(x, a, start, std::min(length, n - start), where));
  if (n == 0) result.push_back(x);
  return result;
}

std::vector<Tensor> unbind(const Tensor& x, int axis, Where where) {
  const int a = graph::normalized_axis("unbind", with_value("unbind", x), axis, where);
  std::vector<Tensor> result;
  for (Extent i = 0; i < x.dim(a); ++i) result.push_back(select(x, a, i, where));
  return result;
}

Tensor unflatten(const Tensor& x, int axis, const Shape& shape, Where where) {
  const int a = graph::normalized_axis("unflatten", with_value("unflatten", x), axis, where);
  std::vector<Extent> extents = shape.vector();
  Extent known = 1;
  Extent* open = nullptr;
  bool fits = true;
  for (Extent& extent : extents) {
    if (extent == -1 && !open)
      open = &extent;
    else if (extent < 0)
      fits = false;
    else
      known *= extent;
  }
  if (open && known > 0) *open = x.dim(a) / known;
  if (open) known *= *open;
  if (!fits || known != x.dim(a))
    throw ShapeError(describe(
        "unflatten", fmt::format("axis {} with {} elements cannot become {}", axis, x.dim(a), shape.to_string()),
        {{"x", x}}, where));
  return reshape(x, spliced(x.shape(), a, extents, a + 1), where);
}

Tensor diagonal(const Tensor& x, Extent offset, int axis_a, int axis_b, Where where) {
  const auto [a, b] = two_axes("diagonal", x, axis_a, axis_b, where);
  const Extent rows = x.dim(a), columns = x.dim(b);
  // The part of x that the diagonal begins in the corner of, as a square; its elements are a row and a column apart.
  const Extent row = std::min(offset < 0 ? -offset : 0, rows), column = std::min(offset > 0 ? offset : 0, columns);
  const Extent n = std::min(rows - row, columns - column);
  const Tensor square = narrow(narrow(movedim(x, {a, b}, {-2, -1}, where), -2, row, n, where), -1, column, n, where);
  return slice(flatten(square, -2, -1, where), -1, 0, kEnd, n + 1, where);
}

Tensor diag_embed(const Tensor& x, Extent offset, int axis_a, int axis_b, Where where) {
  with_value("diag_embed", x);
  if (x.rank() == 0) throw ShapeError(describe("diag_embed", "x is a scalar; it has no diagonal", {{"x", x}}, where));
  const auto shape_error = [&](const std::string& fact) {
    return ShapeError(describe("diag_embed", fact, {{"x", x}}, where));
  };
  const int rank = x.rank() + 1;
  const auto place = [&](int axis) {
    if (axis < -rank || axis >= rank)
      throw shape_error(fmt::format("axis {} of the result is outside of [{}, {})", axis, -rank, rank));
    return axis < 0 ? axis + rank : axis;
  };
  const int a = place(axis_a), b = place(axis_b);
  if (a == b) throw shape_error(fmt::format("axis {} is given twice", axis_b));
  const Extent size = offset < 0 ? -offset : offset, n = x.dim(-1) + size;
  // Element i is in row i, or with a negative offset in column i; elsewhere zeros.
  std::vector<std::pair<Extent, Extent>> padding(static_cast<std::size_t>(x.rank()), {0, 0});
  padding.back() = {0, size};
  Shape square = x.shape();
  square[x.rank() - 1] = n;
  square.push_back(n);
  const Tensor elements = expand(unsqueeze(weft::pad(x, padding, where), offset < 0 ? -2 : -1, where), square, where);
  const Tensor row(graph::iota(square, rank - 2, DType::i32, x.device())),
      column(graph::iota(square, rank - 1, DType::i32, x.device()));
  const Tensor matrix =
      weft::where(eq(column, row + static_cast<double>(offset)), elements, full({}, 0, x.dtype(), x.device()));
  return movedim(matrix, {-2, -1}, {a, b}, where);
}

Tensor diag(const Tensor& x, Extent offset, Where where) {
  with_value("diag", x);
  if (x.rank() == 1) return diag_embed(x, offset, -2, -1, where);
  if (x.rank() == 2) return diagonal(x, offset, 0, 1, where);
  throw ShapeError(describe("diag", "x is neither [n] nor a matrix", {{"x", x}}, where));
}

Tensor diagflat(const Tensor& x, Extent offset, Where where) {
  return diag_embed(reshape(with_value("diagflat", x), {x.numel()}, where), offset, -2, -1, where);
}

Tensor fliplr(const Tensor& x, Where where) {
  return flip(x, graph::normalized_axis("fliplr", with_value("fliplr", x), 1, where), where);
}
Tensor flipud(const Tensor& x, Where where) {
  return flip(x, graph::normalized_axis("flipud", with_value("flipud", x), 0, where), where);
}

std::vector<Tensor> meshgrid(const std::vector<Tensor>& tensors, bool xy, Where where) {
  std::vector<Extent> extents;
  for (const Tensor& x : tensors) {
    if (with_value("meshgrid", x).rank() > 1)
      throw ShapeError(describe("meshgrid", "coordinates are not [n]", {{"x", x}}, where));
    extents.push_back(x.numel());
  }
  std::vector<Tensor> result;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    Shape shape(std::vector<Extent>(tensors.size(), 1));
    shape[static_cast<int>(k)] = extents[k];
    const Tensor grid = expand(reshape(tensors[k], shape, where), Shape(extents), where);
    result.push_back(xy && tensors.size() > 1 ? transpose(grid, 0, 1, where) : grid);
  }
  return result;
}

Tensor pad(const Tensor& x, const std::vector<std::pair<Extent, Extent>>& padding, PadMode mode, double value,
           Where where) {
  const Tensor zeros_around = pad(x, padding, where);  // checks the padding
  if (mode == PadMode::constant && value == 0) return zeros_around;
  const auto fail = [&](const std::string& fact) { return ShapeError(describe("pad", fact, {{"x", x}}, where)); };
  Tensor y = x;
  for (int a = 0; a < x.rank(); ++a) {
    const auto [before, after] = padding[static_cast<std::size_t>(a)];
    if (before == 0 && after == 0) continue;
    const Extent n = x.dim(a), most = std::max(before, after);
    const auto with_extent = [&](Extent extent) {
      Shape shape = y.shape();
      shape[a] = extent;
      return shape;
    };
    Tensor front, back;
    switch (mode) {
      case PadMode::constant:
        front = full(with_extent(before), value, x.dtype(), x.device());
        back = full(with_extent(after), value, x.dtype(), x.device());
        break;
      case PadMode::reflect:
        if (most >= n)
          throw fail(fmt::format("{} elements cannot be reflected from axis {} with extent {}", most, a, n));
        front = flip(narrow(y, a, 1, before, where), a, where);
        back = flip(narrow(y, a, n - 1 - after, after, where), a, where);
        break;
      case PadMode::replicate:
        if (n == 0) throw fail(fmt::format("axis {} is empty, and has no element to repeat", a));
        front = expand(narrow(y, a, 0, 1, where), with_extent(before), where);
        back = expand(narrow(y, a, n - 1, 1, where), with_extent(after), where);
        break;
      case PadMode::circular:
        if (most > n) throw fail(fmt::format("{} elements are more than axis {} has, {}", most, a, n));
        front = narrow(y, a, n - before, before, where);
        back = narrow(y, a, 0, after, where);
        break;
    }
    y = concat({front, y, back}, a, where);
  }
  return y;
}

namespace {

// [.., c r^2, h, w] and [.., c, h r, w r]: the leading extents, and c, h, w.
struct Pixels {
  std::vector<Extent> lead;
  Extent c = 0, h = 0, w = 0;
  Shape shape(std::initializer_list<Extent> last) const {
    std::vector<Extent> extents = lead;
    extents.insert(extents.end(), last.begin(), last.end());
    return Shape(std::move(extents));
  }
  /// `lead` axes, then these, counted from the first after them.
  Axes order(std::initializer_list<int> last) const {
    Axes axes;
    for (std::size_t i = 0; i < lead.size(); ++i) axes.push_back(static_cast<int>(i));
    for (const int axis : last) axes.push_back(axis + static_cast<int>(lead.size()));
    return axes;
  }
};

Pixels pixels_of(std::string_view op, const Tensor& x, Extent factor, Where where) {
  with_value(op, x);
  if (x.rank() < 3) throw ShapeError(describe(op, "x is not [.., channels, height, width]", {{"x", x}}, where));
  if (factor < 1) throw ShapeError(describe(op, fmt::format("factor {}", factor), {{"x", x}}, where));
  return {{x.shape().begin(), x.shape().end() - 3}, x.dim(-3), x.dim(-2), x.dim(-1)};
}

}  // namespace

Tensor pixel_shuffle(const Tensor& x, Extent factor, Where where) {
  Pixels p = pixels_of("pixel_shuffle", x, factor, where);
  if (p.c % (factor * factor) != 0)
    throw ShapeError(describe("pixel_shuffle", fmt::format("{} channels do not divide by {}", p.c, factor * factor),
                              {{"x", x}}, where));
  p.c /= factor * factor;
  const Tensor parts = reshape(x, p.shape({p.c, factor, factor, p.h, p.w}), where);
  return reshape(permute(parts, p.order({0, 3, 1, 4, 2}), where), p.shape({p.c, p.h * factor, p.w * factor}), where);
}

Tensor pixel_unshuffle(const Tensor& x, Extent factor, Where where) {
  const Pixels p = pixels_of("pixel_unshuffle", x, factor, where);
  if (p.h % factor != 0 || p.w % factor != 0)
    throw ShapeError(
        describe("pixel_unshuffle", fmt::format("height and width do not divide by {}", factor), {{"x", x}}, where));
  const Tensor parts = reshape(x, p.shape({p.c, p.h / factor, factor, p.w / factor, factor}), where);
  return reshape(permute(parts, p.order({0, 2, 4, 1, 3}), where),
                 p.shape({p.c * factor * factor, p.h / factor, p.w / factor}), where);
}

Tensor channel_shuffle(const Tensor& x, Extent groups, Where where) {
  with_value("channel_shuffle", x);
  const auto fail = [&](const std::string& fact) {
    return ShapeError(describe("channel_shuffle", fact, {{"x", x}}, where));
  };
  if (x.rank() < 2) throw fail("x is not [images, channels, ..]");
  if (groups < 1 || x.dim(1) % groups != 0)
    throw fail(fmt::format("{} channels do not divide into {} groups", x.dim(1), groups));
  const Tensor grouped = reshape(x, spliced(x.shape(), 1, {groups, x.dim(1) / groups}, 2), where);
  return reshape(transpose(grouped, 1, 2, where), x.shape(), where);
}

Tensor as_strided(const Tensor& x, const Shape& shape, const std::vector<Extent>& strides, Extent offset, Where where) {
  with_value("as_strided", x);
  const auto fail = [&](const std::string& fact) {
    return ShapeError(describe("as_strided", fact, {{"x", x}}, where));
  };
  if (strides.size() != shape.size()) throw fail(fmt::format("{} strides for {} axes", strides.size(), shape.size()));
  // Products of large strides and extents are compared as reals, which do not wrap.
  double first = static_cast<double>(offset), last = first;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] < 0) throw fail(fmt::format("extent {} in {}", shape[i], shape.to_string()));
    const double reach = static_cast<double>(strides[static_cast<std::size_t>(i)]) * static_cast<double>(shape[i] - 1);
    (reach < 0 ? first : last) += reach;
  }
  if (shape.numel() > 0 && (first < 0 || last >= static_cast<double>(x.numel())))
    throw fail(fmt::format("places {} to {} of {} elements", first, last, x.numel()));
  Tensor place = full(shape, static_cast<double>(offset), DType::i32, x.device());
  for (int i = 0; i < shape.rank(); ++i)
    place = place + Tensor(graph::iota(shape, i, DType::i32, x.device())) *
                        static_cast<double>(strides[static_cast<std::size_t>(i)]);
  const Tensor flat = reshape(x, {x.numel()}, where);
  return reshape(take_along_axis(flat, reshape(place, {shape.numel()}, where), 0, where), shape, where);
}

namespace graph {
namespace {

using LayoutInts = std::vector<Extent>;

AttributeSpec whole(std::string name, std::string doc, std::optional<Extent> fallback = {},
                    std::vector<std::string> aliases = {}) {
  AttributeSpec spec{
      .name = std::move(name), .type = AttributeType::integer, .doc = std::move(doc), .aliases = std::move(aliases)};
  if (fallback) spec.default_value = *fallback;
  return spec;
}
AttributeSpec list(std::string name, std::string doc, std::optional<LayoutInts> fallback = {},
                   std::vector<std::string> aliases = {}) {
  AttributeSpec spec{
      .name = std::move(name), .type = AttributeType::integers, .doc = std::move(doc), .aliases = std::move(aliases)};
  if (fallback) spec.default_value = *fallback;
  return spec;
}
std::vector<AttributeSpec> diagonal_attributes(Extent axis_a, Extent axis_b) {
  return {whole("offset", "columns to the right of the main diagonal", 0, {"k"}),
          whole("axis_a", "axis of the rows", axis_a, {"dim1", "axis1"}),
          whole("axis_b", "axis of the columns", axis_b, {"dim2", "axis2"})};
}

const std::vector<OpRow>& rows_of_layout() {
  static const std::vector<OpRow> rows = {
      {.name = "roll",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {list("shifts", "number of places to move by"),
                      list("axes", "axes, one for each shift; none: the flat tensor", LayoutInts{}, {"dims", "axis"})},
       .doc = "Elements moved along axes; those that leave at one end come in at the other.",
       .torch = "torch.roll(x, shifts, axes or None)",
       .numpy = "np.roll(x, shifts, axes or None)",
       .cases = {{"two axes", {{{6, 7}}}, {{"shifts", LayoutInts{2, -3}}, {"axes", LayoutInts{0, 1}}}},
                 {"flat", {{{6, 7}}}, {{"shifts", LayoutInts{50}}}}},
       .errors = {{"a shift too many",
                   {{{6, 7}}},
                   {{"shifts", LayoutInts{2, 1}}, {"axes", LayoutInts{0}}},
                   "2 shifts for 1 axes"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::roll(a.input(0), a.integers("shifts"), a.axes("axes"))}; }},
      {.name = "rot90",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("times", "number of quarter turns", 1, {"k"}), whole("origin", "axis to turn from", 0),
                      whole("to", "axis to turn towards", 1)},
       .doc = "x rotated by quarter turns in the plane of two axes.",
       .torch = "torch.rot90(x, times, [origin, to])",
       .numpy = "np.rot90(x, times)",
       .cases = {{"once", {{{6, 7}}}},
                 {"backwards", {{{2, 3, 4}}}, {{"times", Extent{-1}}, {"origin", Extent{2}}, {"to", Extent{0}}}},
                 {"twice", {{{6, 7}}}, {{"times", Extent{2}}}}},
       .errors = {{"one axis", {{{6, 7}}}, {{"to", Extent{0}}}, "axis 0 is given twice"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::rot90(a.input(0), a.integer("times"), a.small("origin"), a.small("to"))};
           }},
      {.name = "tile",
       .aliases = {"repeat"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {list("repeats", "copies along each of the last axes", {}, {"reps"})},
       .doc = "Copies of x side by side.",
       .torch = "torch.tile(x, repeats)",
       .numpy = "np.tile(x, repeats)",
       .onnx = "Tile",
       .cases = {{"two axes", {{{3, 4}}}, {{"repeats", LayoutInts{2, 3}}}},
                 {"a new axis", {{{3, 4}}}, {{"repeats", LayoutInts{2, 1, 2}}}},
                 {"the last axis", {{{3, 4}}}, {{"repeats", LayoutInts{2}}}},
                 {"none", {{{3, 4}}}, {{"repeats", LayoutInts{0, 1}}}}},
       .errors = {{"negative", {{{3}}}, {{"repeats", LayoutInts{-1}}}, "-1 repeats"}},
       .apply = [](const Arguments& a) { return Tensors{weft::tile(a.input(0), a.integers("repeats"))}; }},
      {.name = "repeat_interleave",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("repeats", "times that each element is there"),
                      whole("axis", "axis of the elements", -1, {"dim"})},
       .doc = "Each element along an axis several times, one after another.",
       .torch = "torch.repeat_interleave(x, repeats, axis)",
       .numpy = "np.repeat(x, repeats, axis)",
       .cases = {{"in the middle", {{{3, 4, 2}}}, {{"repeats", Extent{3}}, {"axis", Extent{1}}}},
                 {"none", {{{3, 4}}}, {{"repeats", Extent{0}}}}},
       .errors = {{"negative", {{{3}}}, {{"repeats", Extent{-1}}}, "-1 repeats"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::repeat_interleave(a.input(0), a.integer("repeats"), a.small("axis"))};
           }},
      {.name = "movedim",
       .aliases = {"moveaxis"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {list("source", "axes to move"), list("destination", "their places")},
       .doc = "Some axes at other places; the others keep their order.",
       .torch = "torch.movedim(x, source, destination)",
       .numpy = "np.moveaxis(x, source, destination)",
       .cases = {{"two axes", {{{2, 3, 4, 5}}}, {{"source", LayoutInts{0, -1}}, {"destination", LayoutInts{2, 0}}}}},
       .errors =
           {{"an axis twice",
             {{{2, 3}}},
             {{"source", LayoutInts{0, 0}}, {"destination", LayoutInts{0, 1}}},
             "axis 0 is given twice"},
            {"too few", {{{2, 3}}}, {{"source", LayoutInts{0}}, {"destination", LayoutInts{0, 1}}}, "1 axes to 2"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::movedim(a.input(0), a.axes("source"), a.axes("destination"))};
           }},
      {.name = "chunk",
       .aliases = {"array_split"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("parts", "how many at most", {}, {"chunks"}), whole("axis", "axis to cut", 0, {"dim"})},
       .several_outputs = true,
       .doc = "x cut into parts of equal length along an axis, the last one shorter; an output each.",
       .torch = "torch.chunk(x, parts, axis)",
       .cases = {{"a shorter one", {{{6, 7}}}, {{"parts", Extent{3}}, {"axis", Extent{1}}}}},
       .errors = {{"no parts", {{{6}}}, {{"parts", Extent{0}}}, "0 parts"}},
       .apply = [](const Arguments& a) { return weft::chunk(a.input(0), a.integer("parts"), a.small("axis")); }},
      {.name = "unbind",
       .aliases = {"unstack"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("axis", "axis to remove", 0, {"dim"})},
       .several_outputs = true,
       .doc = "The slices along an axis, without it; an output each.",
       .torch = "torch.unbind(x, axis)",
       .cases = {{"columns", {{{6, 3}}}, {{"axis", Extent{1}}}}},
       .errors = {{"scalar", {{{}}}, {}, "axis 0 is outside of"}},
       .apply = [](const Arguments& a) { return weft::unbind(a.input(0), a.small("axis")); }},
      {.name = "unflatten",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("axis", "axis to split", {}, {"dim"}),
                      list("shape", "their extents; one may be -1", {}, {"sizes"})},
       .doc = "Splits one axis into several.",
       .torch = "x.unflatten(axis, shape)",
       .cases = {{"in the middle", {{{2, 12, 3}}}, {{"axis", Extent{1}}, {"shape", LayoutInts{3, -1, 2}}}}},
       .errors = {{"that do not divide",
                   {{{2, 7}}},
                   {{"axis", Extent{1}}, {"shape", LayoutInts{2, -1}}},
                   "axis 1 with 7 elements cannot become [2, -1]"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::unflatten(a.input(0), a.small("axis"), a.shape("shape"))}; }},
      {.name = "diagonal",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = diagonal_attributes(0, 1),
       .doc = "The diagonal of two axes, as the last axis.",
       .formula = "y_..i = x_..i..(i + offset)..",
       .torch = "torch.diagonal(x, offset, axis_a, axis_b)",
       .numpy = "np.diagonal(x, offset, axis_a, axis_b)",
       .cases = {{"a matrix", {{{6, 7}}}},
                 {"above, of the last axes",
                  {{{2, 5, 4}}},
                  {{"offset", Extent{1}}, {"axis_a", Extent{-2}}, {"axis_b", Extent{-1}}}},
                 {"below", {{{6, 4, 3}}}, {{"offset", Extent{-2}}, {"axis_b", Extent{2}}}},
                 {"outside", {{{3, 4}}}, {{"offset", Extent{4}}}}},
       .errors = {{"one axis", {{{6}}}, {}, "axis 1 is outside of"},
                  {"an axis twice", {{{6, 7}}}, {{"axis_b", Extent{0}}}, "axis 0 is given twice"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::diagonal(a.input(0), a.integer("offset"), a.small("axis_a"), a.small("axis_b"))};
           }},
      {.name = "diag_embed",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = diagonal_attributes(-2, -1),
       .doc = "The last axis as the diagonal of two new axes, zeros elsewhere.",
       .torch = "torch.diag_embed(x, offset, axis_a, axis_b)",
       .cases = {{"rows", {{{3, 4}}}},
                 {"above, other axes",
                  {{{3, 4}}},
                  {{"offset", Extent{2}}, {"axis_a", Extent{0}}, {"axis_b", Extent{2}}}},
                 {"below", {{{3, 4}}}, {{"offset", Extent{-1}}}}},
       .errors = {{"scalar", {{{}}}, {}, "x is a scalar"},
                  {"an axis twice", {{{6}}}, {{"axis_a", Extent{1}}}, "axis -1 is given twice"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::diag_embed(a.input(0), a.integer("offset"), a.small("axis_a"), a.small("axis_b"))};
           }},
      {.name = "diag",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("offset", "columns to the right of the main diagonal", 0, {"k", "diagonal"})},
       .doc = "The diagonal of a matrix, or the matrix with that diagonal.",
       .torch = "torch.diag(x, offset)",
       .numpy = "np.diag(x, offset)",
       .cases = {{"of a matrix", {{{6, 7}}}, {{"offset", Extent{2}}}},
                 {"to a matrix", {{{5}}}, {{"offset", Extent{-1}}}}},
       .errors = {{"three axes", {{{2, 3, 4}}}, {}, "x is neither [n] nor a matrix"}},
       .apply = [](const Arguments& a) { return Tensors{weft::diag(a.input(0), a.integer("offset"))}; }},
      {.name = "diagflat",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("offset", "columns to the right of the main diagonal", 0, {"k"})},
       .doc = "The matrix with the elements of x, row by row, on a diagonal.",
       .torch = "torch.diagflat(x, offset)",
       .numpy = "np.diagflat(x, offset)",
       .cases = {{"a matrix", {{{2, 3}}}, {{"offset", Extent{1}}}}, {"a scalar", {{{}}}, {{"offset", Extent{-2}}}}},
       .apply = [](const Arguments& a) { return Tensors{weft::diagflat(a.input(0), a.integer("offset"))}; }},
      {.name = "fliplr",
       .family = "layout",
       .inputs = {{"x"}},
       .doc = "Columns, along axis 1, from the last to the first.",
       .torch = "torch.fliplr(x)",
       .numpy = "np.fliplr(x)",
       .cases = {{"a matrix", {{{3, 4}}}}},
       .errors = {{"a line", {{{3}}}, {}, "axis 1 is outside of [-1, 1)"}},
       .apply = [](const Arguments& a) { return Tensors{weft::fliplr(a.input(0))}; }},
      {.name = "flipud",
       .family = "layout",
       .inputs = {{"x"}},
       .doc = "Rows, along axis 0, from the last to the first.",
       .torch = "torch.flipud(x)",
       .numpy = "np.flipud(x)",
       .cases = {{"a matrix", {{{3, 4}}}}},
       .errors = {{"a scalar", {{{}}}, {}, "axis 0 is outside of"}},
       .apply = [](const Arguments& a) { return Tensors{weft::flipud(a.input(0))}; }},
      {.name = "channel_shuffle",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("groups", "groups of channels")},
       .doc = "Channels of several groups in turns: x [N, C, ..] with channel j of group i at place j groups + i.",
       .torch = "x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)",
       .cases = {{"an image", {{{2, 6, 3, 2}}}, {{"groups", Extent{3}}}}},
       .errors = {{"a line", {{{3}}}, {{"groups", Extent{3}}}, "x is not [images, channels, ..]"},
                  {"uneven groups", {{{2, 6, 3}}}, {{"groups", Extent{4}}}, "6 channels do not divide into 4 groups"}},
       .apply = [](const Arguments& a) { return Tensors{weft::channel_shuffle(a.input(0), a.integer("groups"))}; }},
      {.name = "meshgrid",
       .family = "layout",
       .inputs = {{.name = "coordinates", .repeated = true}},
       .attributes = {{.name = "xy",
                       .type = AttributeType::boolean,
                       .default_value = false,
                       .doc = "swaps the first two axes of the results"}},
       .several_outputs = true,
       .doc = "Coordinates of a grid: an output each, with its coordinate along its own axis.",
       .torch = "torch.meshgrid(*coordinates, indexing='xy' if xy else 'ij')",
       .numpy = "np.meshgrid(*coordinates, indexing='xy' if xy else 'ij')",
       .cases = {{"three axes", {{{3}}, {{4}}, {{5}}}}, {"xy", {{{3}}, {{4}}}, {{"xy", true}}}},
       .errors = {{"a matrix", {{{3, 4}}}, {}, "coordinates are not [n]"}},
       .apply = [](const Arguments& a) { return weft::meshgrid(a.inputs(), a.boolean("xy")); }},
      {.name = "pixel_shuffle",
       .aliases = {"depth_to_space"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("factor", "of height and width", {}, {"upscale_factor", "blocksize"})},
       .doc = "Moves channels into space: [.., c r^2, h, w] becomes [.., c, h r, w r].",
       .torch = "F.pixel_shuffle(x, factor)",
       .cases = {{"by two", {{{2, 12, 3, 5}}}, {{"factor", Extent{2}}}}},
       .errors =
           {{"channels that do not divide", {{{6, 3, 5}}}, {{"factor", Extent{2}}}, "6 channels do not divide by 4"},
            {"two axes", {{{3, 5}}}, {{"factor", Extent{2}}}, "x is not [.., channels, height, width]"}},
       .apply = [](const Arguments& a) { return Tensors{weft::pixel_shuffle(a.input(0), a.integer("factor"))}; }},
      {.name = "pixel_unshuffle",
       .aliases = {"space_to_depth"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole("factor", "of height and width", {}, {"downscale_factor"})},
       .doc = "Moves space into channels: [.., c, h r, w r] becomes [.., c r^2, h, w].",
       .torch = "F.pixel_unshuffle(x, factor)",
       .cases = {{"by two", {{{2, 3, 4, 6}}}, {{"factor", Extent{2}}}}},
       .errors = {{"a height that does not divide", {{{6, 3, 4}}}, {{"factor", Extent{2}}}, "do not divide by 2"}},
       .apply = [](const Arguments& a) { return Tensors{weft::pixel_unshuffle(a.input(0), a.integer("factor"))}; }},
      {.name = "as_strided",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {list("shape", "extents", {}, {"size"}),
                      list("strides", "elements from one to the next along each axis", {}, {"stride"}),
                      whole("offset", "of the first element", 0, {"storage_offset"})},
       .doc = "Element (i, j, ..) is element offset + i strides_0 + j strides_1 + .. of x, row-major.",
       .torch = "torch.as_strided(x, shape, strides, offset)",
       .numpy = "np.lib.stride_tricks.as_strided",
       .cases = {{"windows",
                  {{{12}}},
                  {{"shape", LayoutInts{4, 3}}, {"strides", LayoutInts{2, 1}}, {"offset", Extent{1}}}},
                 {"a transpose", {{{3, 4}}}, {{"shape", LayoutInts{4, 3}}, {"strides", LayoutInts{1, 4}}}}},
       .errors = {{"beyond the end",
                   {{{12}}},
                   {{"shape", LayoutInts{4, 3}}, {"strides", LayoutInts{4, 1}}},
                   "places 0 to 14 of 12 elements"},
                  {"too few strides",
                   {{{12}}},
                   {{"shape", LayoutInts{4, 3}}, {"strides", LayoutInts{4}}},
                   "1 strides for 2"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::as_strided(a.input(0), a.shape("shape"), a.integers("strides"), a.integer("offset"))};
           }},
  };
  return rows;
}

}  // namespace

OpRows layout_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_layout()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
