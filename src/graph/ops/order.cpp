// Order: sorting, and the ops that are built on it.
#include "weft/ops/order.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/order.hpp"
#include "graph/scatter.hpp"

namespace weft {

using graph::describe;

namespace graph {

int filled_axis(std::string_view op, const Tensor& x, int axis, Where where) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  const int a = graph::normalized_axis(op, x, axis, where);
  if (x.dim(a) == 0)
    throw ShapeError(
        describe(op, fmt::format("axis {} is empty, and the {} of nothing has no value", axis, op), {{"x", x}}, where));
  return a;
}

ValuesAndPositions sorted_ranks(std::string_view op, const Tensor& x, int axis, bool descending, Extent first,
                                Extent count, Where where) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  const int a = graph::normalized_axis(op, x, axis, where);
  const DType type = x.dtype(), computed = type == DType::boolean ? DType::u32 : compute_type(type);
  const auto turned = [&](const Tensor& t) { return a == x.rank() - 1 ? t : transpose(t, a, -1, where); };
  const auto nodes = graph::call_nodes(
      graph::sort_row(), {cast(turned(x), computed, where)},
      graph::words_of(graph::sort_row().attributes, graph::SortAttributes{-1, descending, first, count}), where);
  return {cast(turned(graph::wrap(nodes[0])), type, where), turned(graph::wrap(nodes[1]))};
}

ValuesAndPositions without_axis(const ValuesAndPositions& kept, int axis, ReduceOptions options, Where where) {
  if (options.keepdims) return kept;
  return {squeeze(kept.values, axis, where), squeeze(kept.positions, axis, where)};
}

AttributeSpec order_axis() {
  return {.name = "axis",
          .type = AttributeType::integer,
          .default_value = Extent{-1},
          .doc = "axis to order along",
          .aliases = {"dim"}};
}
AttributeSpec order_keepdims() {
  return {.name = "keepdims",
          .type = AttributeType::boolean,
          .default_value = false,
          .doc = "whether the axis stays, with extent 1",
          .aliases = {"keepdim"}};
}
Tensors with_positions(const ValuesAndPositions& v) { return {v.values, v.positions}; }

}  // namespace graph

ValuesAndPositions sort(const Tensor& x, int axis, bool descending, Where where) {
  return graph::sorted_ranks("sort", x, axis, descending, 0, -1, where);
}
Tensor argsort(const Tensor& x, int axis, bool descending, Where where) {
  return graph::sorted_ranks("argsort", x, axis, descending, 0, -1, where).positions;
}

ValuesAndPositions topk(const Tensor& x, Extent k, int axis, bool largest, Where where) {
  if (!x.defined()) throw UsageError("topk: the tensor has no value");
  const int a = graph::normalized_axis("topk", x, axis, where);
  if (k < 0 || k > x.dim(a))
    throw ShapeError(
        describe("topk", fmt::format("k is {}, and axis {} has {} elements", k, axis, x.dim(a)), {{"x", x}}, where));
  return graph::sorted_ranks("topk", x, a, largest, 0, k, where);
}

ValuesAndPositions kthvalue(const Tensor& x, Extent k, int axis, ReduceOptions options, Where where) {
  if (!x.defined()) throw UsageError("kthvalue: the tensor has no value");
  const int a = graph::normalized_axis("kthvalue", x, axis, where);
  if (k < 1 || k > x.dim(a))
    throw ShapeError(describe("kthvalue", fmt::format("k is {}, and ranks of axis {} are 1 to {}", k, axis, x.dim(a)),
                              {{"x", x}}, where));
  return graph::without_axis(graph::sorted_ranks("kthvalue", x, a, false, k - 1, 1, where), a, options, where);
}

ValuesAndPositions mode(const Tensor& x, int axis, ReduceOptions options, Where where) {
  const int a = graph::filled_axis("mode", x, axis, where);
  const auto [values, positions] = sort(x, a, false, where);
  // The longest run of equal neighbours: how far each element is from where its run begins.
  const Extent n = x.dim(a);
  Shape first = x.shape();
  first[a] = 1;
  const Tensor place(graph::iota(x.shape(), a, DType::i32, x.device()));
  const Tensor differs = ne(narrow(values, a, 1, n - 1, where), narrow(values, a, 0, n - 1, where));
  const Tensor parts[] = {full(first, 1, DType::boolean, x.device()), differs};
  const Tensor begins = cummax(weft::where(concat(parts, a, where), place, scalar_like(0, place)), a).values;
  const Tensor best = argmax(place - begins, a, {.keepdims = true});
  return graph::without_axis({take_along_axis(values, best, a, where), take_along_axis(positions, best, a, where)}, a,
                             options, where);
}

Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right, Where where) {
  if (!sorted.defined() || !values.defined()) throw UsageError("searchsorted: an operand has no value");
  const auto fail = [&](std::string_view fact) {
    return describe("searchsorted", fact, {{"sorted", sorted}, {"values", values}}, where);
  };
  if (sorted.rank() == 0) throw ShapeError(fail("sorted is a scalar; it has an axis of sorted elements"));
  if (sorted.device() != values.device()) throw DeviceError(fail("the devices differ; move one with .to(device)"));
  const bool is_one_line = sorted.rank() == 1;
  bool fits = is_one_line || sorted.rank() == values.rank();
  for (int i = 0; fits && !is_one_line && i + 1 < sorted.rank(); ++i) fits = sorted.dim(i) == values.dim(i);
  if (!fits) throw ShapeError(fail("sorted is not [n], nor of the shape of values but for the last extent"));
  const Tensor v = is_one_line ? reshape(values, {values.numel()}, where) : values;
  const Extent n = sorted.dim(-1);
  const bool floats = is_float(sorted.dtype()), float_values = is_float(v.dtype());
  // Whether an element comes before a value; NaN is larger than all numbers.
  const auto comes_before = [&](const Tensor& element) {
    Tensor before = right ? element <= v : element < v;
    if (!float_values) return before;
    const Tensor is_last = isnan(v);
    if (right || !floats) return before | is_last;
    return before | (is_last & !isnan(element));
  };
  // The number of elements before each value, a bit at a time from the highest.
  Tensor count = zeros(v.shape(), DType::i32, v.device());
  for (auto step = static_cast<Extent>(std::bit_floor(static_cast<std::uint64_t>(n))); step > 0; step /= 2) {
    const Tensor next = count + static_cast<double>(step);
    const Tensor element = take_along_axis(sorted, next - 1.0, -1, where);
    count = weft::where((next <= static_cast<double>(n)) & comes_before(element), next, count);
  }
  return reshape(count, values.shape(), where);
}

Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool right, Where where) {
  if (boundaries.defined() && boundaries.rank() != 1)
    throw ShapeError(describe("bucketize", "boundaries are not [n]", {{"x", x}, {"boundaries", boundaries}}, where));
  return searchsorted(boundaries, x, right, where);
}

Tensor isin(const Tensor& x, const Tensor& elements, bool invert, Where where) {
  if (!x.defined() || !elements.defined()) throw UsageError("isin: an operand has no value");
  if (x.device() != elements.device())
    throw DeviceError(
        describe("isin", "the devices differ; move one with .to(device)", {{"x", x}, {"elements", elements}}, where));
  const Extent n = elements.numel();
  DType type = promote(x.dtype(), elements.dtype());
  if (type == DType::boolean) type = DType::i32;
  const Tensor values = cast(x, type, where), few = cast(reshape(elements, {n}, where), type, where);
  // One pass compares with this many elements in less time than a search takes.
  constexpr Extent kFew = 32;
  Tensor found;
  if (n <= kFew) {
    found = any(eq(unsqueeze(values, -1, where), few), -1, {}, where);
  } else {
    const Tensor line = reshape(values, {x.numel()}, where), sorted = sort(few, 0, false, where).values;
    const Tensor place = minimum(searchsorted(sorted, line, false, where), static_cast<double>(n - 1));
    found = reshape(eq(take_along_axis(sorted, place, 0, where), line), x.shape(), where);
  }
  return invert ? !found : found;
}

Tensor msort(const Tensor& x, Where where) {
  if (!x.defined()) throw UsageError("msort: the tensor has no value");
  graph::normalized_axis("msort", x, 0, where);
  return sort(x, 0, false, where).values;
}

namespace graph {

const OpRow& sort_row() {
  static const OpRow row{
      .name = "sort",
      .family = "order",
      .inputs = {{"x"}},
      .attributes = {field("axis", &SortAttributes::axis, "axis to sort along", {.aliases = {"dim"}}),
                     field("descending", &SortAttributes::descending, "from the largest to the smallest"),
                     field("first", &SortAttributes::first, "first rank that is kept", {.least = 0}),
                     field("count", &SortAttributes::count, "ranks that are kept; -1: all from the first on",
                           {.least = -1})},
      .result = "that of x; positions i32",
      .several_outputs = true,
      .doc =
          "The elements in order along an axis, and where each was. Equal ones keep their order; NaN is the largest.",
      .torch =
          "tuple(t.narrow(axis, first, x.shape[axis] - first if count < 0 else count) for t in "
          "torch.sort(x, dim=axis, descending=descending, stable=True))",
      .numpy = "np.sort(x, axis, kind='stable')",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<SortAttributes>();
            const int axis = c.axis(a.axis);
            const Extent n = c.input(0).dim(axis);
            if (a.first > n || ranks_of(a, n) > n - a.first)
              c.shape_error(fmt::format("ranks from {}, {} of them, of {} elements", a.first, a.count, n));
            Shape shape = c.input(0).shape();
            shape[axis] = ranks_of(a, n);
            return std::vector<Result>{{c.input(0).dtype(), shape}, {DType::i32, shape}};
          },
      .decompose =
          [](const Call&
                 c) {  // an element's rank is the number of those before it: [.., rank, its position, others, ..]
            const auto a = c.attributes<SortAttributes>();
            const int axis = c.axis(a.axis);
            Tensor x = c.input(0);
            if (x.dtype() == DType::boolean) x = weft::cast(x, DType::u32);
            const Extent n = x.dim(axis), count = ranks_of(a, n);
            Shape square = x.shape();
            std::vector<Extent> extents = square.vector();
            extents.insert(extents.begin() + axis, n);
            square = Shape(extents);
            const Tensor mine = weft::expand(weft::unsqueeze(x, axis + 1), square),
                         other = weft::expand(weft::unsqueeze(x, axis), square);
            const Tensor my_place(iota(square, axis, DType::i32, x.device())),
                other_place(iota(square, axis + 1, DType::i32, x.device()));
            Tensor before = a.descending ? other > mine : other < mine, same = eq(other, mine);
            if (is_float(x.dtype())) {
              const Tensor &first = a.descending ? other : mine, &second = a.descending ? mine : other;
              before = before | (isnan(first) & !isnan(second));
              same = same | (isnan(mine) & isnan(other));
            }
            before = before | (same & (other_place < my_place));
            const Tensor rank = weft::sum(weft::cast(before, DType::i32), {axis + 1});
            extents[static_cast<std::size_t>(axis)] = count;  // [.., kept rank, position, ..]
            const Shape kept(extents);
            const Tensor wanted = Tensor(iota(kept, axis, DType::i32, x.device())) + static_cast<double>(a.first);
            const Tensor here = eq(weft::expand(weft::unsqueeze(rank, axis), kept), wanted);
            const Tensor value = weft::expand(weft::unsqueeze(x, axis), kept),
                         place(iota(kept, axis + 1, DType::i32, x.device()));
            const auto chosen = [&](const Tensor& v) {
              return weft::sum(weft::where(here, v, scalar_like(0, v)), {axis + 1});
            };
            return Tensors{weft::cast(chosen(value), c.input(0).dtype()), chosen(place)};
          },
      .gradient =
          [](const GradientCall& g) {
            if (!g.gradients[0].defined()) return Tensors{Tensor()};
            const int axis = g.call.axis(g.call.attributes<SortAttributes>().axis);
            return Tensors{
                Tensor(scatter_add_along(g.results[1].node(), g.gradients[0].node(), axis, g.call.input(0).dim(axis)))};
          },
      .form = KernelForm::routine,
      .flops = [](const Call& c) { return static_cast<double>(c.input(0).numel()); },
      .cases =
          {{"rows", {{{6, 50}}}},
           {"descending over axis 0", {{{37, 5}}}, {{"axis", Extent{0}}, {"descending", true}}},
           {"in the middle", {{{3, 9, 4}}}, {{"axis", Extent{1}}}},
           {"NaN, zeros and ties",
            {{.shape = {2, 5}, .values = {std::nan(""), 1, -0.0, 0.0, -INFINITY, 2, std::nan(""), 2, INFINITY, 2}}},
            {},
            false},
           {"NaN, zeros and ties, descending",
            {{.shape = {2, 5}, .values = {std::nan(""), 1, -0.0, 0.0, -INFINITY, 2, std::nan(""), 2, INFINITY, 2}}},
            {{"descending", true}},
            false},
           {"some ranks", {{{4, 30}}}, {{"first", Extent{7}}, {"count", Extent{3}}}},
           {"long rows", {{{2, 1500}}}, {}, false},
           {"integers with ties", {{{3, 1100}, -90, 90, DType::i32}}, {}, false},
           {"unsigned integers", {{{5, 40}, 0, 9, DType::u32}}, {{"descending", true}}, false},
           {"bools", {{{5, 40}, 0, 1, DType::boolean}}, {}, false},
           {"one element", {{{3, 1}}}},
           {"nothing", {{{3, 0}}}}},
      .errors = {{"scalar", {{{}}}, {}, "axis -1 is outside of [0, 0)"},
                 {"axis beyond the rank", {{{2, 3}}}, {{"axis", Extent{2}}}, "axis 2 is outside of [-2, 2)"},
                 {"ranks beyond the end",
                  {{{2, 3}}},
                  {{"first", Extent{2}}, {"count", Extent{2}}},
                  "ranks from 2, 2 of them, of 3 elements"}},
      .apply =
          [](const Arguments& a) {
            const auto [values, positions] = sorted_ranks("sort", a.input(0), a.small("axis"), a.boolean("descending"),
                                                          a.integer("first"), a.integer("count"), {});
            return Tensors{values, positions};
          }};
  return row;
}

namespace {

AttributeSpec flag(std::string name, bool fallback, std::string doc) {
  return {.name = std::move(name), .type = AttributeType::boolean, .default_value = fallback, .doc = std::move(doc)};
}

const std::vector<OpRow>& rows_of_order() {
  static const std::vector<OpRow> rows = {
      {.name = "argsort",
       .family = "order",
       .inputs = {{"x"}},
       .attributes = {order_axis(), flag("descending", false, "from the largest to the smallest")},
       .result = "i32",
       .differentiable = false,
       .doc = "Positions of the elements in order along an axis. Equal ones keep their order; NaN is the largest.",
       .torch = "torch.sort(x, dim=axis, descending=descending, stable=True)[1]",
       .numpy = "np.argsort(x, axis, kind='stable')",
       .cases = {{"rows", {{{6, 50}}}},
                 {"descending over axis 0, ties",
                  {{{37, 5}, -4, 4, DType::i32}},
                  {{"axis", Extent{0}}, {"descending", true}}}},
       .errors = {{"scalar", {{{}}}, {}, "axis -1 is outside of"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::argsort(a.input(0), a.small("axis"), a.boolean("descending"))};
           }},
      {.name = "topk",
       .aliases = {"top_k"},
       .family = "order",
       .inputs = {{"x"}},
       .attributes = {{.name = "k", .type = AttributeType::integer, .doc = "how many"},
                      order_axis(),
                      flag("largest", true, "the largest, else the smallest")},
       .result = "that of x; positions i32",
       .several_outputs = true,
       .doc = "The k largest or smallest elements along an axis, in order, and where each was.",
       .torch = "tuple(torch.topk(x, k, axis, largest))",
       .onnx = "TopK",
       .cases = {{"rows", {{{6, 50}}}, {{"k", Extent{4}}}},
                 {"smallest over axis 0", {{{37, 5}}}, {{"k", Extent{3}}, {"axis", Extent{0}}, {"largest", false}}},
                 {"a long row", {{{3000}}}, {{"k", Extent{5}}}},
                 {"none", {{{4, 5}}}, {{"k", Extent{0}}}, false}},
       .errors = {{"too many", {{{4, 5}}}, {{"k", Extent{6}}}, "k is 6, and axis -1 has 5 elements"},
                  {"no k", {{{4, 5}}}, {}, "attribute k is missing"}},
       .apply =
           [](const Arguments& a) {
             return with_positions(weft::topk(a.input(0), a.integer("k"), a.small("axis"), a.boolean("largest")));
           }},
      {.name = "kthvalue",
       .family = "order",
       .inputs = {{"x"}},
       .attributes = {{.name = "k", .type = AttributeType::integer, .doc = "its rank, from 1"},
                      order_axis(),
                      order_keepdims()},
       .result = "that of x; positions i32",
       .several_outputs = true,
       .doc = "The k-th smallest element along an axis, and where it was.",
       .torch = "tuple(torch.kthvalue(x, k, axis, keepdims))",
       .numpy = "np.partition(x, k - 1, axis).take(k - 1, axis)",
       .cases = {{"rows", {{{6, 50}}}, {{"k", Extent{9}}}},
                 {"over axis 0, kept", {{{37, 5}}}, {{"k", Extent{37}}, {"axis", Extent{0}}, {"keepdims", true}}}},
       .errors = {{"rank 0", {{{4, 5}}}, {{"k", Extent{0}}}, "k is 0, and ranks of axis -1 are 1 to 5"}},
       .apply =
           [](const Arguments& a) {
             return with_positions(
                 weft::kthvalue(a.input(0), a.integer("k"), a.small("axis"), {a.boolean("keepdims")}));
           }},
      {.name = "mode",
       .family = "order",
       .inputs = {{"x"}},
       .attributes = {order_axis(), order_keepdims()},
       .result = "that of x; positions i32",
       .several_outputs = true,
       .doc = "The most frequent element along an axis, the smallest of several, and the last place where it is.",
       .torch = "(torch.mode(x, axis, keepdims)[0], None)",
       .cases = {{"rows", {{{6, 50}, -4, 4, DType::i32}}, {}, false},
                 {"over axis 0", {{{37, 5}, -4, 4, DType::i32}}, {{"axis", Extent{0}}, {"keepdims", true}}, false},
                 {"floats", {{.shape = {2, 5}, .values = {3, 1, 1, 3, 2, -1, 5, 5, 0, 5}}}, {}, false}},
       .errors = {{"nothing", {{{4, 0}}}, {}, "the mode of nothing has no value"}},
       .apply =
           [](const Arguments& a) {
             return with_positions(weft::mode(a.input(0), a.small("axis"), {a.boolean("keepdims")}));
           }},
      {.name = "searchsorted",
       .family = "order",
       .inputs = {{"sorted"}, {"values"}},
       .attributes = {flag("right", false, "counts equal elements too")},
       .result = "i32",
       .differentiable = false,
       .doc = "Where values belong in sorted lines: how many of the elements are smaller, or not larger.",
       .torch = "torch.searchsorted(sorted, values, right=right)",
       .numpy = "np.searchsorted(sorted, values, 'right' if right else 'left')",
       .cases = {{"one line", {{.shape = {5}, .values = {-1, 0, 0, 1.5, 2}}, {{4, 7}}}},
                 {"from the right",
                  {{.shape = {5}, .type = DType::i32, .values = {-1, 0, 0, 1, 2}}, {{4, 7}, -3, 3, DType::i32}},
                  {{"right", true}}},
                 {"lines", {{.shape = {2, 3}, .values = {-1, 0, 1, -2, -0.5, 0.5}}, {{2, 9}}}},
                 {"an empty line", {{{0}}, {{3}}}}},
       .errors = {{"another shape", {{{2, 3}}, {{3, 3}}}, {}, "sorted is not [n], nor of the shape of values"},
                  {"a scalar", {{{}}, {{3}}}, {}, "sorted is a scalar"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::searchsorted(a.input(0), a.input(1), a.boolean("right"))}; }},
      {.name = "isin",
       .family = "order",
       .inputs = {{"x"}, {"elements"}},
       .attributes = {flag("invert", false, "whether an element equals none of them")},
       .result = "bool",
       .differentiable = false,
       .doc = "Whether each element of x equals one of the elements of another tensor.",
       .torch = "torch.isin(x, elements, invert=invert)",
       .numpy = "np.isin(x, elements, invert=invert)",
       .cases = {{"a few", {{{4, 7}, -6, 6, DType::i32}, {{5}, -6, 6, DType::i32}}},
                 {"many", {{{4, 7}, -99, 99, DType::i32}, {{10, 10}, -99, 99, DType::i32}}},
                 {"none of them", {{{9}, -6, 6, DType::i32}, {{5}, -6, 6, DType::i32}}, {{"invert", true}}},
                 {"floats", {{{4, 5}}, {.shape = {3}, .values = {0.5, 1, 2}}}},
                 {"of nothing", {{{4}}, {{0}}}}},
       .apply = [](const Arguments& a) { return Tensors{weft::isin(a.input(0), a.input(1), a.boolean("invert"))}; }},
      {.name = "bucketize",
       .aliases = {"digitize"},
       .family = "order",
       .inputs = {{"x"}, {"boundaries"}},
       .attributes = {flag("right", false, "counts equal boundaries too")},
       .result = "i32",
       .differentiable = false,
       .doc = "How many of the sorted boundaries are smaller than each element, or not larger.",
       .torch = "torch.bucketize(x, boundaries, right=right)",
       .numpy = "np.digitize(x, boundaries, not right)",
       .cases = {{"two axes", {{{4, 7}}, {.shape = {4}, .values = {-1, 0, 0.5, 1}}}},
                 {"from the right",
                  {{{4, 7}, -3, 3, DType::i32}, {.shape = {3}, .type = DType::i32, .values = {-1, 0, 2}}},
                  {{"right", true}}}},
       .errors = {{"two axes of boundaries", {{{4}}, {{2, 3}}}, {}, "boundaries are not [n]"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::bucketize(a.input(0), a.input(1), a.boolean("right"))}; }},
      {.name = "msort",
       .family = "order",
       .inputs = {{"x"}},
       .doc = "The elements in order along axis 0.",
       .torch = "torch.msort(x)",
       .numpy = "np.sort(x, axis=0)",
       .cases = {{"columns", {{{9, 5}}}}},
       .errors = {{"scalar", {{{}}}, {}, "axis 0 is outside of"}},
       .apply = [](const Arguments& a) { return Tensors{weft::msort(a.input(0))}; }},
  };
  return rows;
}

}  // namespace

OpRows order_rows() {
  OpRows list{&sort_row()};
  for (const OpRow& row : rows_of_order()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
