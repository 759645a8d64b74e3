// Ops that make tensors from a shape, and casts. Their public functions are in graph/tensor.cpp.
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

AttributeSpec dtype(DType fallback) {
  return {.name = "dtype", .type = AttributeType::dtype, .default_value = fallback, .doc = "dtype of the result"};
}
AttributeSpec shape(std::string doc) {
  return {.name = "shape", .type = AttributeType::integers, .doc = std::move(doc), .aliases = {"size"}};
}

const std::vector<OpRow>& rows_of_making() {
  static const std::vector<OpRow> rows = {
      {.name = "full",
       .family = "making",
       .attributes =
           {shape("extents"),
            {.name = "value", .type = AttributeType::number, .doc = "of every element", .aliases = {"fill_value"}},
            dtype(DType::f32)},
       .result = "as given",
       .differentiable = false,
       .doc = "`value` everywhere.",
       .apply =
           [](const Arguments& a) { return Tensors{full(a.shape("shape"), a.number("value"), a.dtype("dtype"))}; }},
      {.name = "zeros",
       .family = "making",
       .attributes = {shape("extents"), dtype(DType::f32)},
       .result = "as given",
       .differentiable = false,
       .doc = "0 everywhere.",
       .apply = [](const Arguments& a) { return Tensors{zeros(a.shape("shape"), a.dtype("dtype"))}; }},
      {.name = "ones",
       .family = "making",
       .attributes = {shape("extents"), dtype(DType::f32)},
       .result = "as given",
       .differentiable = false,
       .doc = "1 everywhere.",
       .apply = [](const Arguments& a) { return Tensors{ones(a.shape("shape"), a.dtype("dtype"))}; }},
      {.name = "arange",
       .family = "making",
       .attributes = {{.name = "n", .type = AttributeType::integer, .doc = "number of elements"}, dtype(DType::i32)},
       .result = "as given",
       .differentiable = false,
       .doc = "0, 1, ..., n-1.",
       .apply = [](const Arguments& a) { return Tensors{arange(a.integer("n"), a.dtype("dtype"))}; }},
      {.name = "zeros_like",
       .family = "making",
       .inputs = {{"x"}},
       .differentiable = false,
       .doc = "0 in the shape and dtype of x.",
       .torch = "torch.zeros_like(x)",
       .cases = {{"two axes", {{{6, 7}}}}},
       .apply = [](const Arguments& a) { return Tensors{zeros_like(a.input(0))}; }},
      {.name = "ones_like",
       .family = "making",
       .inputs = {{"x"}},
       .differentiable = false,
       .doc = "1 in the shape and dtype of x.",
       .torch = "torch.ones_like(x)",
       .cases = {{"two axes", {{{6, 7}}}}},
       .apply = [](const Arguments& a) { return Tensors{ones_like(a.input(0))}; }},
      {.name = "cast",
       .aliases = {"astype"},
       .family = "making",
       .inputs = {{"x"}},
       .attributes = {{.name = "dtype", .type = AttributeType::dtype, .doc = "dtype of the result"}},
       .result = "as given",
       .doc = "Converts elements: float to integer truncates and saturates, NaN gives 0; anything to bool is x != 0. "
              "Gradients pass between floats.",
       .onnx = "Cast",
       .cases = {{"to integers", {{{6, 7}, -4, 4}}, {{"dtype", DType::i32}}, false}},
       .apply = [](const Arguments& a) { return Tensors{cast(a.input(0), a.dtype("dtype"))}; }},
      {.name = "detach",
       .aliases = {"stop_gradient"},
       .family = "making",
       .inputs = {{"x"}},
       .differentiable = false,
       .doc = "x, through which no gradient flows.",
       .apply = [](const Arguments& a) { return Tensors{detach(a.input(0))}; }}};
  return rows;
}

}  // namespace

OpRows making_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_making()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
