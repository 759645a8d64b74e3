// Layout: the elements of a tensor in other places.
#include "weft/ops/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/layout_attributes.hpp"

namespace weft {

using graph::describe;
using graph::with_value;

namespace {

/// The extents before `axis`, those given, and the extents from `next` on.
Shape spliced(const Shape& shape, int axis, const std::vector<Extent>& middle, int next) {
  std::vector<Extent> extents(shape.begin(), shape.begin() + axis);
  extents.insert(extents.end(), middle.begin(), middle.end());
  extents.insert(extents.end(), shape.begin() + next, shape.end());
  return Shape(std::move(extents));
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
  const auto axes = graph::normalized_axes("rot90", with_value("rot90", x), {from, to}, where);
  const int a = axes[0], b = axes[1];
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

const std::vector<OpRow>& rows_of_layout() {
  static const std::vector<OpRow> rows = {
      {.name = "roll",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {list_attribute("shifts", "number of places to move by"),
                      list_attribute("axes", "axes, one for each shift; none: the flat tensor", std::vector<Extent>{},
                                     {"dims", "axis"})},
       .doc = "Elements moved along axes; those that leave at one end come in at the other.",
       .torch = "torch.roll(x, shifts, axes or None)",
       .numpy = "np.roll(x, shifts, axes or None)",
       .cases = {{"two axes",
                  {{{6, 7}}},
                  {{"shifts", std::vector<Extent>{2, -3}}, {"axes", std::vector<Extent>{0, 1}}}},
                 {"flat", {{{6, 7}}}, {{"shifts", std::vector<Extent>{50}}}}},
       .errors = {{"a shift too many",
                   {{{6, 7}}},
                   {{"shifts", std::vector<Extent>{2, 1}}, {"axes", std::vector<Extent>{0}}},
                   "2 shifts for 1 axes"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::roll(a.input(0), a.integers("shifts"), a.axes("axes"))}; }},
      {.name = "rot90",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("times", "number of quarter turns", 1, {"k"}),
                      whole_attribute("origin", "axis to turn from", 0),
                      whole_attribute("to", "axis to turn towards", 1)},
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
       .attributes = {list_attribute("repeats", "copies along each of the last axes", {}, {"reps"})},
       .doc = "Copies of x side by side.",
       .torch = "torch.tile(x, repeats)",
       .numpy = "np.tile(x, repeats)",
       .onnx = "Tile",
       .cases = {{"two axes", {{{3, 4}}}, {{"repeats", std::vector<Extent>{2, 3}}}},
                 {"a new axis", {{{3, 4}}}, {{"repeats", std::vector<Extent>{2, 1, 2}}}},
                 {"the last axis", {{{3, 4}}}, {{"repeats", std::vector<Extent>{2}}}},
                 {"none", {{{3, 4}}}, {{"repeats", std::vector<Extent>{0, 1}}}}},
       .errors = {{"negative", {{{3}}}, {{"repeats", std::vector<Extent>{-1}}}, "-1 repeats"}},
       .apply = [](const Arguments& a) { return Tensors{weft::tile(a.input(0), a.integers("repeats"))}; }},
      {.name = "repeat_interleave",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("repeats", "times that each element is there"),
                      whole_attribute("axis", "axis of the elements", -1, {"dim"})},
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
       .attributes = {list_attribute("source", "axes to move"), list_attribute("destination", "their places")},
       .doc = "Some axes at other places; the others keep their order.",
       .torch = "torch.movedim(x, source, destination)",
       .numpy = "np.moveaxis(x, source, destination)",
       .cases = {{"two axes",
                  {{{2, 3, 4, 5}}},
                  {{"source", std::vector<Extent>{0, -1}}, {"destination", std::vector<Extent>{2, 0}}}}},
       .errors = {{"an axis twice",
                   {{{2, 3}}},
                   {{"source", std::vector<Extent>{0, 0}}, {"destination", std::vector<Extent>{0, 1}}},
                   "axis 0 is given twice"},
                  {"too few",
                   {{{2, 3}}},
                   {{"source", std::vector<Extent>{0}}, {"destination", std::vector<Extent>{0, 1}}},
                   "1 axes to 2"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::movedim(a.input(0), a.axes("source"), a.axes("destination"))};
           }},
      {.name = "unflatten",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("axis", "axis to split", {}, {"dim"}),
                      list_attribute("shape", "their extents; one may be -1", {}, {"sizes"})},
       .doc = "Splits one axis into several.",
       .torch = "x.unflatten(axis, shape)",
       .cases = {{"in the middle", {{{2, 12, 3}}}, {{"axis", Extent{1}}, {"shape", std::vector<Extent>{3, -1, 2}}}}},
       .errors = {{"that do not divide",
                   {{{2, 7}}},
                   {{"axis", Extent{1}}, {"shape", std::vector<Extent>{2, -1}}},
                   "axis 1 with 7 elements cannot become [2, -1]"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::unflatten(a.input(0), a.small("axis"), a.shape("shape"))}; }},
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
      {.name = "as_strided",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {list_attribute("shape", "extents", {}, {"size"}),
                      list_attribute("strides", "elements from one to the next along each axis", {}, {"stride"}),
                      whole_attribute("offset", "of the first element", 0, {"storage_offset"})},
       .doc = "Element (i, j, ..) is element offset + i strides_0 + j strides_1 + .. of x, row-major.",
       .torch = "torch.as_strided(x, shape, strides, offset)",
       .numpy = "np.lib.stride_tricks.as_strided",
       .cases =
           {{"windows",
             {{{12}}},
             {{"shape", std::vector<Extent>{4, 3}}, {"strides", std::vector<Extent>{2, 1}}, {"offset", Extent{1}}}},
            {"a transpose",
             {{{3, 4}}},
             {{"shape", std::vector<Extent>{4, 3}}, {"strides", std::vector<Extent>{1, 4}}}}},
       .errors = {{"beyond the end",
                   {{{12}}},
                   {{"shape", std::vector<Extent>{4, 3}}, {"strides", std::vector<Extent>{4, 1}}},
                   "places 0 to 14 of 12 elements"},
                  {"too few strides",
                   {{{12}}},
                   {{"shape", std::vector<Extent>{4, 3}}, {"strides", std::vector<Extent>{4}}},
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
