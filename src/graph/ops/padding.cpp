// Borders around a tensor: zeros as a view, and what is made of its own elements.
#include "weft/ops/layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/layout_attributes.hpp"

namespace weft {

using graph::describe;
using graph::with_value;

Tensor pad(const Tensor& x, const std::vector<std::pair<Extent, Extent>>& padding, Where where) {
  with_value("pad", x);
  if (x.dtype() == DType::binary)
    throw DTypeError(describe("pad", "binary holds 1 and -1, and no 0 to pad with; cast it first", {{"x", x}}, where));
  if (static_cast<int>(padding.size()) != x.rank())
    throw ShapeError(describe("pad", fmt::format("{} pairs for {} axes", padding.size(), x.rank()), {{"x", x}}, where));
  std::vector<Extent> ints;
  for (auto [before, after] : padding) {
    if (before < 0 || after < 0)
      throw ShapeError(describe("pad", "negative padding; use slice to remove elements", {{"x", x}}, where));
    ints.push_back(before);
    ints.push_back(after);
  }
  return graph::wrap(graph::pad(x.node(), ints));
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

namespace graph {
namespace {

const std::vector<OpRow>& rows_of_padding() {
  static const std::vector<OpRow> rows = {
      {.name = "pad",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{.name = "padding",
                       .type = AttributeType::pairs,
                       .doc = "[before, after] of every axis",
                       .aliases = {"pad_width"}},
                      {.name = "mode",
                       .type = AttributeType::choice,
                       .default_value = std::string("constant"),
                       .doc = "what surrounds x",
                       .choices = {"constant", "reflect", "replicate", "circular"}},
                      {.name = "value", .default_value = 0.0, .doc = "the constant", .aliases = {"constant_value"}}},
       .doc = "x with a border: a constant, x reflected, its outermost elements repeated, or its other end.",
       .torch = "F.pad(x, [e for pair in reversed(padding) for e in pair], value=value) if mode == 'constant' else "
                "F.pad(x[None], [e for pair in reversed(padding[1:]) for e in pair], mode)[0]",
       .numpy = "np.pad(x, padding, mode)",
       .onnx = "Pad",
       .cases = {{"some sides", {{{6, 7, 5}}}, {{"padding", Pairs{{1, 0}, {0, 2}, {3, 1}}}}},
                 {"a value", {{{6, 7}}}, {{"padding", Pairs{{1, 0}, {0, 2}}}, {"value", 1.5}}},
                 {"reflected",
                  {{{2, 7, 5}}},
                  {{"padding", Pairs{{0, 0}, {6, 2}, {3, 1}}}, {"mode", std::string("reflect")}}},
                 {"replicated",
                  {{{2, 7, 5}}},
                  {{"padding", Pairs{{0, 0}, {9, 2}, {3, 0}}}, {"mode", std::string("replicate")}}},
                 {"circular",
                  {{{2, 7, 5}}},
                  {{"padding", Pairs{{0, 0}, {7, 2}, {3, 1}}}, {"mode", std::string("circular")}}}},
       .errors = {{"a pair too few", {{{6, 7}}}, {{"padding", Pairs{{1, 0}}}}, "1 pairs for 2 axes"},
                  {"negative", {{{6}}}, {{"padding", Pairs{{-1, 0}}}}, "negative padding"},
                  {"a long reflection",
                   {{{6}}},
                   {{"padding", Pairs{{6, 0}}}, {"mode", std::string("reflect")}},
                   "6 elements cannot be reflected from axis 0 with extent 6"},
                  {"a long circle",
                   {{{6}}},
                   {{"padding", Pairs{{7, 0}}}, {"mode", std::string("circular")}},
                   "7 elements are more than axis 0 has, 6"},
                  {"nothing to repeat",
                   {{{0}}},
                   {{"padding", Pairs{{1, 0}}}, {"mode", std::string("replicate")}},
                   "axis 0 is empty"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{
                 pad(a.input(0), a.pairs("padding"), static_cast<PadMode>(a.choice("mode")), a.number("value"))};
           }},
  };
  return rows;
}

}  // namespace

OpRows padding_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_padding()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
