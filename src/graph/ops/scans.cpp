// Scans: each result along an axis depends on the results before it.
#include <fmt/format.h>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/scan.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

// Running sums by doubling: log2(n) additions of the values moved by 1, 2, 4, ... places.
Tensors cumsum_parts(const Call& c) {
  const auto [axis, exclusive, reverse] = c.attributes<CumsumAttributes>();
  const int a = c.axis(axis);
  Tensor x = c.input(0);
  if (x.dtype() == DType::boolean) x = cast(x, DType::i32);
  const Extent n = x.dim(a);
  const auto moved = [&](const Tensor& v, Extent by) {  // shifts zeros in
    by = std::min(by, n);
    Pairs padding(static_cast<std::size_t>(x.rank()), {0, 0});
    auto& [before, after] = padding[static_cast<std::size_t>(a)];
    (reverse ? after : before) = by;
    return weft::pad(narrow(v, a, reverse ? by : 0, n - by), padding);
  };
  Tensor y = exclusive ? moved(x, 1) : x;
  for (Extent by = 1; by < n; by *= 2) y = y + moved(y, by);
  return {y};
}

}  // namespace

const OpRow& cumsum_row() {
  static const OpRow row{
      .name = "cumsum",
      .aliases = {"cumulative_sum"},
      .family = "scan",
      .inputs = {{"x"}},
      .attributes = {field("axis", &CumsumAttributes::axis, "axis to add along", {.aliases = {"dim"}}),
                     field("exclusive", &CumsumAttributes::exclusive, "leaves out the element itself"),
                     field("reverse", &CumsumAttributes::reverse, "adds from the end")},
      .result = "that of x; i32 for bools",
      .doc = "Sums of the elements up to each along an axis. Integers wrap.",
      .formula = "y_i = sum_{j <= i} x_j",
      .torch =
          "(lambda v: v.flip(axis) if reverse else v)((lambda v: v.cumsum(axis) - (v if exclusive else 0))"
          "(x.flip(axis) if reverse else x))",
      .numpy = "np.cumsum(x, axis)",
      .onnx = "CumSum",
      .infer =
          [](const Call& c) {
            const Tensor& x = c.input(0);
            c.axis(c.attributes<CumsumAttributes>().axis);
            return std::vector<Result>{{x.dtype() == DType::boolean ? DType::i32 : x.dtype(), x.shape()}};
          },
      .decompose = cumsum_parts,
      .gradient =
          [](const GradientCall& g) {
            auto attributes = g.call.attributes<CumsumAttributes>();
            attributes.reverse = !attributes.reverse;
            return Tensors{call(cumsum_row(), {g.gradients[0]}, attributes, g.call.where())};
          },
      .form = KernelForm::routine,
      .cases = {{"rows", {{{6, 50}}}},
                {"over axis 0", {{{37, 5}}}, {{"axis", Extent{0}}}},
                {"in the middle, from the end", {{{3, 9, 4}}}, {{"axis", Extent{1}}, {"reverse", true}}},
                {"exclusive", {{{4, 7}}}, {{"exclusive", true}}},
                {"exclusive from the end", {{{4, 7}}}, {{"exclusive", true}, {"reverse", true}}},
                {"a long row", {{{2, 3000}, -1, 1}}},
                {"integers", {{{5, 40}, -9, 9, DType::i32}}, {}, false},
                {"one element", {{{3, 1}}}},
                {"nothing", {{{3, 0}}}}},
      .errors = {{"scalar", {{{}}}, {}, "axis -1 is outside of [0, 0)"},
                 {"axis beyond the rank", {{{2, 3}}}, {{"axis", Extent{2}}}, "axis 2 is outside of [-2, 2)"}}};
  return row;
}

OpRows scan_rows() { return {&cumsum_row()}; }

}  // namespace graph

Tensor cumsum(const Tensor& x, int axis, bool exclusive, bool reverse, Where where) {
  return graph::call(graph::cumsum_row(), {x}, graph::CumsumAttributes{axis, exclusive, reverse}, where);
}

}  // namespace weft
