// One tensor of several along an axis, and several of one.
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

namespace {

DType common_type(std::span<const Tensor> parts, Where where) {
  DType type = parts[0].dtype();
  for (const Tensor& part : parts) {
    if (with_value("concat", part).dtype() == type) continue;
    try {
      type = promote(type, part.dtype());
    } catch (const DTypeError& error) {
      throw DTypeError(describe("concat", error.what(), {{"first", parts[0]}, {"part", part}}, where));
    }
  }
  return type;
}

}  // namespace

Tensor concat(std::span<const Tensor> parts, int axis, Where where) {
  if (parts.empty()) throw UsageError("concat: no tensors given");
  with_value("concat", parts[0]);
  const int a = graph::normalized_axis("concat", parts[0], axis, where);
  std::vector<graph::NodeRef> nodes;
  const DType type = common_type(parts, where);
  for (const Tensor& part : parts) {
    const std::vector<std::pair<std::string, Tensor>> operands = {{"first", parts[0]}, {"part", part}};
    bool fits = part.rank() == parts[0].rank();
    for (int i = 0; fits && i < part.rank(); ++i) fits = i == a || part.shape()[i] == parts[0].shape()[i];
    if (!fits)
      throw ShapeError(
          describe("concat", fmt::format("extents differ elsewhere than on axis {}", axis), operands, where));
    if (part.device() != parts[0].device())
      throw DeviceError(describe("concat", "the devices differ; move one with .to(device)", operands, where));
    nodes.push_back(part.dtype() == type ? part.node() : cast(part, type).node());
  }
  return graph::wrap(graph::concat(std::move(nodes), a));
}

Tensor stack(std::span<const Tensor> parts, int axis, Where where) {
  std::vector<Tensor> raised;
  for (const Tensor& part : parts) raised.push_back(unsqueeze(part, axis, where));
  return concat(raised, axis, where);
}

std::vector<Tensor> split(const Tensor& x, std::span<const Extent> lengths, int axis, Where where) {
  with_value("split", x);
  const int a = graph::normalized_axis("split", x, axis, where);
  Extent total = 0;
  for (Extent length : lengths) total += length;
  if (total != x.shape()[a])
    throw ShapeError(describe("split",
                              fmt::format("lengths add up to {}, axis {} has extent {}", total, axis, x.shape()[a]),
                              {{"x", x}}, where));
  std::vector<Tensor> parts;
  Extent start = 0;
  for (Extent length : lengths) {
    parts.push_back(narrow(x, a, start, length, where));
    start += length;
  }
  return parts;
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

namespace graph {
namespace {

const std::vector<OpRow>& rows_of_parts() {
  static const std::vector<OpRow> rows = {
      {.name = "concat",
       .aliases = {"concatenate", "cat"},
       .family = "view",
       .inputs = {{.name = "parts", .repeated = true}},
       .attributes = {axis_attribute("axis to join along", Extent{0})},
       .result = "the common one of the parts",
       .doc = "Tensors one after another along an axis.",
       .torch = "torch.cat(parts, axis)",
       .onnx = "Concat",
       .cases = {{"three parts", {{{6, 7, 5}}, {{6, 2, 5}}, {{6, 1, 5}}}, {{"axis", Extent{1}}}},
                 {"several dtypes", {{{6, 2}}, {{6, 3}, 0, 5, DType::i32}}, {{"axis", Extent{1}}}}},
       .errors = {{"other extents differ", {{{6, 7}}, {{5, 7}}}, {{"axis", Extent{1}}}, "extents differ elsewhere"},
                  {"no common dtype", {{{6}, 0, 5, DType::u64}, {{6}, 0, 5, DType::i32}}, {}, "u64"}},
       .apply = [](const Arguments& a) { return Tensors{concat(a.inputs(), a.small("axis"))}; }},
      {.name = "stack",
       .family = "view",
       .inputs = {{.name = "parts", .repeated = true}},
       .attributes = {axis_attribute("place of the new axis", Extent{0})},
       .result = "the common one of the parts",
       .doc = "Tensors of one shape side by side along a new axis.",
       .torch = "torch.stack(parts, axis)",
       .cases = {{"at the end", {{{6, 7}}, {{6, 7}}}, {{"axis", Extent{-1}}}}},
       .errors = {{"shapes that differ", {{{6}}, {{7}}}, {}, "extents differ elsewhere"}},
       .apply = [](const Arguments& a) { return Tensors{stack(a.inputs(), a.small("axis"))}; }},
      {.name = "split",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{.name = "lengths",
                       .type = AttributeType::integers,
                       .doc = "of the parts; they add up to the extent"},
                      axis_attribute("axis to cut", Extent{0})},
       .several_outputs = true,
       .doc = "x cut into parts along an axis, an output each.",
       .onnx = "Split",
       .cases = {{"two parts", {{{6, 7}}}, {{"lengths", std::vector<Extent>{2, 5}}, {"axis", Extent{1}}}}},
       .errors =
           {{"lengths that do not add up", {{{6}}}, {{"lengths", std::vector<Extent>{2, 5}}}, "lengths add up to 7"}},
       .apply =
           [](const Arguments& a) {
             const std::vector<Extent> lengths = a.integers("lengths");
             return weft::split(a.input(0), lengths, a.small("axis"));
           }},
      {.name = "chunk",
       .aliases = {"array_split"},
       .family = "layout",
       .inputs = {{"x"}},
       .attributes = {whole_attribute("parts", "how many at most", {}, {"chunks"}),
                      whole_attribute("axis", "axis to cut", 0, {"dim"})},
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
       .attributes = {whole_attribute("axis", "axis to remove", 0, {"dim"})},
       .several_outputs = true,
       .doc = "The slices along an axis, without it; an output each.",
       .torch = "torch.unbind(x, axis)",
       .cases = {{"columns", {{{6, 3}}}, {{"axis", Extent{1}}}}},
       .errors = {{"scalar", {{{}}}, {}, "axis 0 is outside of"}},
       .apply = [](const Arguments& a) { return weft::unbind(a.input(0), a.small("axis")); }},
  };
  return rows;
}

}  // namespace

OpRows part_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_parts()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
