// Tensors joined and cut under the names of NumPy and PyTorch: views and concats.
#include "weft/ops/joins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/runs.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/layout.hpp"
#include "weft/ops/making.hpp"

namespace weft {

using graph::describe;

namespace {

using Parts = std::span<const Tensor>;

void check_parts(std::string_view op, Parts parts) {
  if (parts.empty()) throw UsageError(fmt::format("{}: there are no tensors", op));
  for (const Tensor& part : parts)
    if (!part.defined()) throw UsageError(fmt::format("{}: a tensor has no value", op));
}

template <class Change>
std::vector<Tensor> each_changed(Parts parts, Change change) {
  std::vector<Tensor> changed;
  for (const Tensor& part : parts) changed.push_back(change(part));
  return changed;
}

void check_defined_part(std::string_view op, const Tensor& x) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
}

}  // namespace

Tensor atleast_1d(const Tensor& x, Where where) {
  check_defined_part("atleast_1d", x);
  return x.rank() == 0 ? reshape(x, {1}, where) : x;
}
Tensor atleast_2d(const Tensor& x, Where where) {
  check_defined_part("atleast_2d", x);
  return x.rank() < 2 ? reshape(x, {1, x.numel()}, where) : x;
}
Tensor atleast_3d(const Tensor& x, Where where) {
  check_defined_part("atleast_3d", x);
  if (x.rank() > 2) return x;
  const Tensor rows = atleast_2d(x, where);
  return unsqueeze(rows, 2, where);
}

Tensor hstack(Parts parts, Where where) {
  check_parts("hstack", parts);
  const std::vector<Tensor> lines = each_changed(parts, [&](const Tensor& x) { return atleast_1d(x, where); });
  return concat(lines, lines[0].rank() == 1 ? 0 : 1, where);
}
Tensor vstack(Parts parts, Where where) {
  check_parts("vstack", parts);
  return concat(each_changed(parts, [&](const Tensor& x) { return atleast_2d(x, where); }), 0, where);
}
Tensor dstack(Parts parts, Where where) {
  check_parts("dstack", parts);
  return concat(each_changed(parts, [&](const Tensor& x) { return atleast_3d(x, where); }), 2, where);
}
Tensor column_stack(Parts parts, Where where) {
  check_parts("column_stack", parts);
  const auto column = [&](const Tensor& x) { return x.rank() < 2 ? reshape(x, {x.numel(), 1}, where) : x; };
  return concat(each_changed(parts, column), 1, where);
}

Tensor block_diag(Parts parts, Where where) {
  check_parts("block_diag", parts);
  DType type = parts[0].dtype();
  Extent columns = 0;
  for (const Tensor& part : parts) {
    if (part.rank() > 2)
      throw ShapeError(describe("block_diag", "a part has more than two axes", {{"part", part}}, where));
    type = promote(type, part.dtype());
    columns += part.rank() == 0 ? 1 : part.dim(-1);
  }
  std::vector<Tensor> rows;
  Extent before = 0;
  for (const Tensor& part : parts) {
    const Tensor block = cast(atleast_2d(part, where), type, where);
    rows.push_back(weft::pad(block, {{0, 0}, {before, columns - before - block.dim(1)}}, where));
    before += block.dim(1);
  }
  return concat(rows, 0, where);
}

Tensor cartesian_prod(Parts parts, Where where) {
  check_parts("cartesian_prod", parts);
  for (const Tensor& part : parts)
    if (part.rank() != 1) throw ShapeError(describe("cartesian_prod", "a part is not [n]", {{"part", part}}, where));
  if (parts.size() == 1) return parts[0];
  std::vector<Tensor> columns;
  for (const Tensor& grid : meshgrid({parts.begin(), parts.end()}, false, where))
    columns.push_back(reshape(grid, {grid.numel()}, where));
  return stack(columns, 1, where);
}

std::vector<Tensor> broadcast_tensors(Parts parts, Where where) {
  check_parts("broadcast_tensors", parts);
  Shape shape;
  for (const Tensor& part : parts)
    if (!graph::broadcast_shapes(Shape(shape), part.shape(), shape))
      throw ShapeError(
          describe("broadcast_tensors", "the shapes do not broadcast", {{"first", parts[0]}, {"other", part}}, where));
  return each_changed(parts, [&](const Tensor& x) { return expand(x, shape, where); });
}

Tensor combinations(const Tensor& x, Extent count, bool repeats, Where where) {
  check_defined_part("combinations", x);
  const auto fail = [&](const std::string& fact) { return describe("combinations", fact, {{"x", x}}, where); };
  if (x.rank() != 1) throw ShapeError(fail("x is not [n]"));
  if (count < 0) throw UsageError(fail(fmt::format("{} elements cannot be chosen", count)));
  const Extent n = x.dim(0);
  if (count == 0) return zeros({0}, x.dtype(), x.device());
  if (n == 0 || (!repeats && n < count)) return zeros({0, count}, x.dtype(), x.device());
  // Without repeats the i-th place of a choice is i more than that of a choice with repeats among the first `among` elements.
  const Extent among = repeats ? n : n - count + 1;
  // The number of choices, which must be known before they are listed.
  constexpr double kMost = 0x1p28;
  const auto more = [&](Extent chosen) {
    return static_cast<double>(among + chosen) / static_cast<double>(chosen + 1);
  };
  double choices = 1;
  for (Extent i = 0; among > 1 && i < count && choices * static_cast<double>(count) <= kMost; ++i) choices *= more(i);
  if (choices * static_cast<double>(count) > kMost)
    throw UsageError(fail(fmt::format("{} choices of {} elements are too many", choices, count)));
  if (among == 1) return expand(unsqueeze(x, 0, where), {1, count}, where);
  // Choices of one more element each time, which are that of the last one or after it; each begins a choice of the result.
  std::vector<graph::RunNumbers> steps{{Tensor(), arange(among, DType::i32, x.device())}};
  double total = static_cast<double>(among);
  for (Extent chosen = 1; chosen < count; ++chosen) {
    const Tensor last = steps.back().number;
    total *= more(chosen);
    steps.push_back(graph::numbers_of_runs(last, static_cast<double>(among) - last, std::llround(total), where));
  }
  // Back from the last element of each choice to the first. `at` is the choice of fewer elements that each goes on from.
  std::vector<Tensor> columns;
  Tensor at;
  const auto taken = [&](const Tensor& list) { return at.defined() ? index_select(list, 0, at, where) : list; };
  for (Extent i = count; i-- > 0;) {
    const auto& [run, number] = steps[static_cast<std::size_t>(i)];
    const Tensor place = repeats ? taken(number) : taken(number) + static_cast<double>(i);
    columns.push_back(index_select(x, 0, place, where));
    if (i > 0) at = taken(run);
  }
  std::reverse(columns.begin(), columns.end());
  return stack(columns, 1, where);
}

namespace {

std::vector<Tensor> split_before(const Tensor& x, const std::vector<Extent>& positions, int axis, Where where) {
  const Extent n = x.dim(axis);
  std::vector<Tensor> parts;
  Extent begin = 0;
  for (std::size_t i = 0; i <= positions.size(); ++i) {
    Extent end = n;
    if (i < positions.size()) end = std::clamp<Extent>(positions[i] < 0 ? positions[i] + n : positions[i], 0, n);
    parts.push_back(narrow(x, axis, begin, std::max<Extent>(end - begin, 0), where));
    begin = end;
  }
  return parts;
}

std::vector<Tensor> split_in(const Tensor& x, Extent parts, int axis, Where where) {
  const Extent n = x.dim(axis);
  std::vector<Tensor> result;
  for (Extent i = 0, begin = 0; i < parts; ++i) {
    const Extent length = n / parts + (i < n % parts ? 1 : 0);
    result.push_back(narrow(x, axis, begin, length, where));
    begin += length;
  }
  return result;
}

int axis_of_split(std::string_view op, const Tensor& x, Where where) {
  check_defined_part(op, x);
  const int axis = op == "vsplit" ? 0 : op == "dsplit" ? 2 : x.rank() == 1 ? 0 : 1;
  const int least = op == "vsplit" ? 2 : op == "dsplit" ? 3 : 1;
  if (x.rank() < least)
    throw ShapeError(describe(op, fmt::format("x has {} axes and needs {}", x.rank(), least), {{"x", x}}, where));
  return axis;
}

std::vector<Tensor> even_split(std::string_view op, const Tensor& x, Extent parts, Where where) {
  const int axis = axis_of_split(op, x, where);
  if (parts < 1 || x.dim(axis) % parts != 0)
    throw ShapeError(
        describe(op, fmt::format("axis {} with {} elements does not make {} equal parts", axis, x.dim(axis), parts),
                 {{"x", x}}, where));
  return split_in(x, parts, axis, where);
}

}  // namespace

std::vector<Tensor> tensor_split(const Tensor& x, Extent parts, int axis, Where where) {
  check_defined_part("tensor_split", x);
  const int a = graph::normalized_axis("tensor_split", x, axis, where);
  if (parts < 1) throw UsageError(describe("tensor_split", fmt::format("{} parts", parts), {{"x", x}}, where));
  return split_in(x, parts, a, where);
}
std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<Extent>& positions, int axis, Where where) {
  check_defined_part("tensor_split", x);
  return split_before(x, positions, graph::normalized_axis("tensor_split", x, axis, where), where);
}

#define WEFT_SPLIT(name)                                                                                              \
  std::vector<Tensor> name(const Tensor& x, Extent parts, Where where) { return even_split(#name, x, parts, where); } \
  std::vector<Tensor> name(const Tensor& x, const std::vector<Extent>& positions, Where where) {                      \
    return split_before(x, positions, axis_of_split(#name, x, where), where);                                         \
  }
WEFT_SPLIT(hsplit)
WEFT_SPLIT(vsplit)
WEFT_SPLIT(dsplit)
#undef WEFT_SPLIT

namespace graph {
namespace {

using JoinInts = std::vector<Extent>;

OpRow row_of_parts(std::string name, std::string doc, std::string torch, std::string numpy, std::vector<OpCase> cases,
                   std::vector<ErrorCase> errors, std::function<Tensors(const Arguments&)> apply) {
  return {.name = std::move(name),
          .family = "layout",
          .inputs = {{.name = "parts", .repeated = true}},
          .doc = std::move(doc),
          .torch = std::move(torch),
          .numpy = std::move(numpy),
          .cases = std::move(cases),
          .errors = std::move(errors),
          .apply = std::move(apply)};
}

OpRow row_of_rank(int rank, Tensor (*function)(const Tensor&, Where)) {
  const std::string name = fmt::format("atleast_{}d", rank);
  return {.name = name,
          .family = "layout",
          .inputs = {{"x"}},
          .doc = fmt::format("x with axes of extent 1 until there are at least {}.", rank),
          .torch = fmt::format("torch.{}(x)", name),
          .numpy = fmt::format("np.{}(x)", name),
          .cases = {{"a scalar", {{{}}}}, {"a line", {{{4}}}}, {"a matrix", {{{2, 3}}}}, {"more", {{{2, 1, 3, 2}}}}},
          .apply = [function](const Arguments& a) { return Tensors{function(a.input(0), Where::current())}; }};
}

OpRow row_of_split(std::string name, std::string where_to, Shape image, bool with_axis) {
  OpRow row{.name = name,
            .family = "layout",
            .inputs = {{"x"}},
            .attributes = {{.name = "parts",
                            .type = AttributeType::integer,
                            .default_value = Extent{0},
                            .doc = "how many; 0: cut at positions",
                            .aliases = {"sections"}},
                           {.name = "positions",
                            .type = AttributeType::integers,
                            .default_value = JoinInts{},
                            .doc = "elements before which x is cut",
                            .aliases = {"indices"}}},
            .several_outputs = true,
            .doc = fmt::format("x cut into {} parts {}, or before positions; an output each.",
                               with_axis ? "nearly equal" : "equal", where_to),
            .torch = fmt::format("torch.{}(x, parts or positions{})", name, with_axis ? ", axis" : ""),
            .numpy = fmt::format("np.{}(x, parts or positions{})", with_axis ? "array_split" : name,
                                 with_axis ? ", axis" : ""),
            .cases = {{"parts", {{image}}, {{"parts", Extent{2}}}},
                      {"at positions", {{image}}, {{"positions", JoinInts{1, 3}}}},
                      {"at positions from the end and beyond it", {{image}}, {{"positions", JoinInts{-1, 9}}}}}};
  if (with_axis) {
    row.attributes.push_back({.name = "axis",
                              .type = AttributeType::integer,
                              .default_value = Extent{0},
                              .doc = "axis to cut",
                              .aliases = {"dim"}});
    row.cases.push_back({"unequal parts", {{{7, 2}}}, {{"parts", Extent{3}}}});
    row.cases.push_back({"more parts than elements", {{{2, 2}}}, {{"parts", Extent{3}}, {"axis", Extent{1}}}});
    row.errors = {{"no parts", {{{6}}}, {{"parts", Extent{-1}}}, "-1 parts"},
                  {"scalar", {{{}}}, {{"parts", Extent{1}}}, "axis 0 is outside of"}};
  } else {
    row.errors = {{"uneven parts", {{image}}, {{"parts", Extent{3}}}, "does not make 3 equal parts"},
                  {"too few axes", {{{}}}, {{"parts", Extent{1}}}, "x has 0 axes and needs"}};
  }
  return row;
}

template <class ByParts, class ByPositions>
OpRow with_split(OpRow row, ByParts by_parts, ByPositions by_positions) {
  row.apply = [by_parts, by_positions](const Arguments& a) {
    return a.integer("parts") != 0 ? by_parts(a, a.integer("parts")) : by_positions(a, a.integers("positions"));
  };
  return row;
}

#define WEFT_SPLIT_ROW(function, where_to, image, ...)                                                         \
  with_split(                                                                                                  \
      row_of_split(#function, where_to, image, #function[0] == 't'),                                           \
      [](const Arguments& a, Extent parts) { return function(a.input(0), parts __VA_OPT__(, ) __VA_ARGS__); }, \
      [](const Arguments& a, const JoinInts& positions) {                                                      \
        return function(a.input(0), positions __VA_OPT__(, ) __VA_ARGS__);                                     \
      })

const std::vector<OpRow>& rows_of_joins() {
  static const std::vector<OpRow> rows = {
      row_of_rank(1, atleast_1d),
      row_of_rank(2, atleast_2d),
      row_of_rank(3, atleast_3d),
      row_of_parts("hstack", "Parts side by side: along axis 1, or along axis 0 for parts [n].", "torch.hstack(parts)",
                   "np.hstack(parts)", {{"lines", {{{3}}, {{}}, {{2}}}}, {"matrices", {{{2, 3}}, {{2, 4}}}}},
                   {{"other rows", {{{2, 3}}, {{3, 3}}}, {}, "concat"}},
                   [](const Arguments& a) { return Tensors{hstack(a.inputs())}; }),
      row_of_parts("vstack", "Parts one above the other: along axis 0, with [n] as a row.", "torch.vstack(parts)",
                   "np.vstack(parts)", {{"lines", {{{3}}, {{3}}}}, {"a line below a matrix", {{{2, 3}}, {{3}}}}},
                   {{"other columns", {{{2, 3}}, {{2, 4}}}, {}, "concat"}},
                   [](const Arguments& a) { return Tensors{vstack(a.inputs())}; }),
      row_of_parts(
          "dstack", "Parts one behind the other: along axis 2 of [m, n, 1].", "torch.dstack(parts)", "np.dstack(parts)",
          {{"lines", {{{3}}, {{3}}}}, {"matrices", {{{2, 3}}, {{2, 3}}}}, {"three axes", {{{2, 3, 2}}, {{2, 3}}}}},
          {{"other columns", {{{2, 3}}, {{2, 4}}}, {}, "concat"}},
          [](const Arguments& a) { return Tensors{dstack(a.inputs())}; }),
      row_of_parts("column_stack", "Parts side by side along axis 1, with [n] as a column.",
                   "torch.column_stack(parts)", "np.column_stack(parts)",
                   {{"lines", {{{3}}, {{3}}}}, {"a line beside a matrix", {{{3, 2}}, {{3}}}}},
                   {{"other rows", {{{2, 3}}, {{3}}}, {}, "concat"}},
                   [](const Arguments& a) { return Tensors{column_stack(a.inputs())}; }),
      row_of_parts("block_diag", "Matrices along a diagonal, zeros elsewhere.", "torch.block_diag(*parts)", "",
                   {{"matrices", {{{2, 3}}, {{1, 2}}, {{3, 1}}}}, {"a line and a scalar", {{{3}}, {{}}, {{2, 2}}}}},
                   {{"three axes", {{{2, 3}}, {{2, 3, 4}}}, {}, "a part has more than two axes"}},
                   [](const Arguments& a) { return Tensors{block_diag(a.inputs())}; }),
      row_of_parts("cartesian_prod", "All choices of an element from each part, a row each.",
                   "torch.cartesian_prod(*parts)", "", {{"three parts", {{{2}}, {{3}}, {{2}}}}, {"one part", {{{4}}}}},
                   {{"a matrix", {{{2, 3}}, {{2}}}, {}, "a part is not [n]"}},
                   [](const Arguments& a) { return Tensors{cartesian_prod(a.inputs())}; }),
      [] {
        OpRow row = row_of_parts("broadcast_tensors", "The parts broadcast to one shape, an output each.",
                                 "torch.broadcast_tensors(*parts)", "np.broadcast_arrays(*parts)",
                                 {{"three parts", {{{2, 1}}, {{3}}, {{}}}}},
                                 {{"other shapes", {{{2}}, {{3}}}, {}, "the shapes do not broadcast"}},
                                 [](const Arguments& a) { return broadcast_tensors(a.inputs()); });
        row.several_outputs = true;
        return row;
      }(),
      {.name = "combinations",
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {{.name = "count",
                       .type = AttributeType::integer,
                       .default_value = Extent{2},
                       .doc = "elements of a choice",
                       .aliases = {"r"}},
                      {.name = "repeats",
                       .type = AttributeType::boolean,
                       .default_value = false,
                       .doc = "whether an element may be chosen again",
                       .aliases = {"with_replacement"}}},
       .doc = "All choices of so many elements of x [n], a row each, in the order of their positions.",
       .torch = "torch.combinations(x, count, repeats)",
       .cases = {{"pairs", {{{5}}}},
                 {"triples with repeats", {{{4}}}, {{"count", Extent{3}}, {"repeats", true}}},
                 {"more than there are", {{{2}}}, {{"count", Extent{3}}}, false}},
       .errors = {{"a matrix", {{{2, 3}}}, {}, "x is not [n]"},
                  {"negative", {{{3}}}, {{"count", Extent{-1}}}, "-1 elements cannot be chosen"},
                  {"many", {{{100000}}}, {}, "are too many"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::combinations(a.input(0), a.integer("count"), a.boolean("repeats"))};
           }},
      WEFT_SPLIT_ROW(tensor_split, "along an axis", (Shape{6, 5}), a.small("axis")),
      WEFT_SPLIT_ROW(hsplit, "along axis 1, or axis 0 of [n]", (Shape{2, 4})),
      WEFT_SPLIT_ROW(vsplit, "along axis 0", (Shape{4, 2})),
      WEFT_SPLIT_ROW(dsplit, "along axis 2", (Shape{2, 1, 4})),
  };
  return rows;
}

#undef WEFT_SPLIT_ROW

}  // namespace

OpRows join_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_joins()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
