// Elements chosen by a mask.
#include "weft/ops/indexing.hpp"

#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "graph/ops/index_rows.hpp"
#include "graph/ops/indexing.hpp"
#include "weft/ops/layout.hpp"

namespace weft {

using graph::check_indexed;
using graph::describe;
using graph::NamedOperands;

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value, Where where) {
  if (!x.defined() || !mask.defined()) throw UsageError("masked_fill: an operand has no value");
  if (mask.dtype() != DType::boolean)
    throw DTypeError(describe("masked_fill", "the mask is not bool; compare it", {{"x", x}, {"mask", mask}}, where));
  return weft::where(expand(mask, x.shape(), where), full({}, value, x.dtype(), x.device()), x, where);
}

Tensor masked_scatter(const Tensor& x, const Tensor& mask, const Tensor& source, Where where) {
  const NamedOperands operands = {{"x", x}, {"mask", mask}, {"source", source}};
  check_indexed("masked_scatter", operands, where);
  if (mask.dtype() != DType::boolean)
    throw DTypeError(describe("masked_scatter", "the mask is not bool; compare it", operands, where));
  if (source.dtype() != x.dtype())
    throw DTypeError(describe("masked_scatter", "the dtypes of x and source differ; cast one", operands, where));
  const Tensor chosen = reshape(expand(mask, x.shape(), where), {x.numel()}, where);
  const Tensor place = cumsum(chosen, 0, /*exclusive=*/true);
  const Tensor next = take_along_axis(reshape(source, {source.numel()}, where), place, 0, where);
  return reshape(weft::where(chosen, next, reshape(x, {x.numel()}, where)), x.shape(), where);
}

namespace graph {
namespace {

const std::vector<OpRow>& rows_of_masks() {
  static const std::vector<OpRow> rows = {
      {.name = "masked_fill",
       .family = "indexing",
       .inputs = {{"x"}, {"mask"}},
       .attributes = {{.name = "value", .default_value = 0.0, .doc = "of the elements"}},
       .result = "that of x",
       .doc = "x with a value where the mask, which broadcasts to x, is true.",
       .torch = "torch.masked_fill(x, mask, value)",
       .cases = {{"a row of a mask", {{{3, 8}}, {{8}, 0, 1, DType::boolean}}, {{"value", -1.5}}}},
       .errors = {{"integers", {{{3, 8}}, {{8}, 0, 1, DType::i32}}, {}, "the mask is not bool"},
                  {"another shape", {{{3, 8}}, {{7}, 0, 1, DType::boolean}}, {}, "does not broadcast"}},
       .apply =
           [](const Arguments& a) { return Tensors{weft::masked_fill(a.input(0), a.input(1), a.number("value"))}; }},
      {.name = "masked_scatter",
       .family = "indexing",
       .inputs = {{"x"}, {"mask"}, {"source"}},
       .result = "that of x",
       .doc = "x with the elements of source, one after another, where the mask is true.",
       .torch = "torch.masked_scatter(x, mask, source)",
       .cases = {{"two axes", {{{3, 8}}, {{3, 8}, 0, 1, DType::boolean}, {{5, 6}}}}},
       .errors = {{"integers", {{{3, 8}}, {{8}, 0, 1, DType::i32}, {{4}}}, {}, "the mask is not bool"}},
       .apply = [](const Arguments& a) { return Tensors{weft::masked_scatter(a.input(0), a.input(1), a.input(2))}; }},
  };
  return rows;
}

}  // namespace

OpRows mask_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_masks()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
