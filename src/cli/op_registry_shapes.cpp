// Entries of the op registry: making tensors, views, joining and splitting, cast.
#include "cli/op_registry.hpp"
#include "weft/grad.hpp"

namespace weft::cli {
namespace {

using Results = std::vector<Tensor>;

constexpr const char* kAll = "f32 f64 i32 u32 bool";

AttributeSpec axis(std::string doc, std::optional<Json> fallback = {}) {
  return {"axis", AttributeType::integer, std::move(fallback), std::move(doc), {"dim"}};
}
AttributeSpec dtype(std::string_view fallback) {
  return {"dtype", AttributeType::dtype, Json(fallback), "dtype of the result"};
}
AttributeSpec shape(std::string doc) { return {"shape", AttributeType::integers, {}, std::move(doc), {"size"}}; }

std::vector<OpSpec> making() {
  constexpr const char* kGiven = "as given";
  return {
      {.name = "full",
       .family = "making",
       .attributes = {shape("extents"),
                      {"value", AttributeType::number, {}, "of every element", {"fill_value"}},
                      dtype("f32")},
       .dtypes = "",
       .result = kGiven,
       .differentiable = false,
       .doc = "`value` everywhere.",
       .apply =
           [](const Arguments& a) { return Results{full(a.shape("shape"), a.number("value"), a.dtype("dtype"))}; }},
      {.name = "zeros",
       .family = "making",
       .attributes = {shape("extents"), dtype("f32")},
       .dtypes = "",
       .result = kGiven,
       .differentiable = false,
       .doc = "0 everywhere.",
       .apply = [](const Arguments& a) { return Results{zeros(a.shape("shape"), a.dtype("dtype"))}; }},
      {.name = "ones",
       .family = "making",
       .attributes = {shape("extents"), dtype("f32")},
       .dtypes = "",
       .result = kGiven,
       .differentiable = false,
       .doc = "1 everywhere.",
       .apply = [](const Arguments& a) { return Results{ones(a.shape("shape"), a.dtype("dtype"))}; }},
      {.name = "arange",
       .family = "making",
       .attributes = {{"n", AttributeType::integer, {}, "number of elements"}, dtype("i32")},
       .dtypes = "",
       .result = kGiven,
       .differentiable = false,
       .doc = "0, 1, ..., n-1.",
       .apply = [](const Arguments& a) { return Results{arange(a.integer("n"), a.dtype("dtype"))}; }},
      {.name = "zeros_like",
       .family = "making",
       .inputs = {{"x"}},
       .dtypes = kAll,
       .result = kSameAsX,
       .differentiable = false,
       .doc = "0 in the shape and dtype of x.",
       .apply = [](const Arguments& a) { return Results{zeros_like(a.input(0))}; }},
      {.name = "ones_like",
       .family = "making",
       .inputs = {{"x"}},
       .dtypes = kAll,
       .result = kSameAsX,
       .differentiable = false,
       .doc = "1 in the shape and dtype of x.",
       .apply = [](const Arguments& a) { return Results{ones_like(a.input(0))}; }},
      {.name = "cast",
       .aliases = {"astype"},
       .family = "making",
       .inputs = {{"x"}},
       .attributes = {{"dtype", AttributeType::dtype, {}, "dtype of the result"}},
       .dtypes = kAll,
       .result = kGiven,
       .doc = "Converts elements: float to integer truncates and saturates, NaN gives 0; anything to bool is x != 0. "
              "Gradients pass between floats.",
       .apply = [](const Arguments& a) { return Results{cast(a.input(0), a.dtype("dtype"))}; }},
      {.name = "detach",
       .aliases = {"stop_gradient"},
       .family = "making",
       .inputs = {{"x"}},
       .dtypes = kAll,
       .result = kSameAsX,
       .differentiable = false,
       .doc = "x, through which no gradient flows.",
       .apply = [](const Arguments& a) { return Results{detach(a.input(0))}; }},
  };
}

std::vector<OpSpec> views() {
  return {
      {.name = "reshape",
       .aliases = {"view"},
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {shape("extents; one may be -1")},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "The same elements, row-major, in another shape.",
       .apply = [](const Arguments& a) { return Results{reshape(a.input(0), a.shape("shape"))}; }},
      {.name = "permute",
       .family = "view",
       .inputs = {{"x"}},
       .attributes =
           {{"order", AttributeType::integers, {}, "axis i of the result is axis order[i] of x", {"axes", "dims"}}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "The axes of x in another order.",
       .apply = [](const Arguments& a) { return Results{permute(a.input(0), a.axes("order"))}; }},
      {.name = "transpose",
       .aliases = {"swapaxes"},
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{"axis_a", AttributeType::integer, -2, "one axis", {"dim0"}},
                      {"axis_b", AttributeType::integer, -1, "the other", {"dim1"}}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "Swaps two axes, the last two by default.",
       .apply =
           [](const Arguments& a) { return Results{transpose(a.input(0), a.small("axis_a"), a.small("axis_b"))}; }},
      {.name = "expand",
       .aliases = {"broadcast_to"},
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {shape("extents to broadcast to")},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "x repeated along extents of 1 and new leading axes; the gradient adds the repeats up.",
       .apply = [](const Arguments& a) { return Results{expand(a.input(0), a.shape("shape"))}; }},
      {.name = "slice",
       .family = "view",
       .inputs = {{"x"}},
       .attributes =
           {axis("axis to cut"),
            {"start", AttributeType::integer, 0, "first position; negative ones count from the end"},
            {"stop", AttributeType::integer, Json(nullptr), "position to stop before; null: through the end", {"end"}},
            {"step", AttributeType::integer, 1, "distance from one to the next; may be negative"}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "Elements start, start+step, ... before stop along an axis, clipped as in Python.",
       .apply =
           [](const Arguments& a) {
             return Results{slice(a.input(0), a.small("axis"), a.integer_or("start", 0), a.integer_or("stop", kEnd),
                                  a.integer("step"))};
           }},
      {.name = "narrow",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis("axis to cut"),
                      {"start", AttributeType::integer, {}, "first position"},
                      {"length", AttributeType::integer, {}, "number of elements"}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "`length` elements from `start` along an axis.",
       .apply =
           [](const Arguments& a) {
             return Results{narrow(a.input(0), a.small("axis"), a.integer("start"), a.integer("length"))};
           }},
      {.name = "select",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis("axis that goes"), {"index", AttributeType::integer, {}, "position; may be negative"}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "Element `index` along an axis, the axis removed.",
       .apply = [](const Arguments& a) { return Results{select(a.input(0), a.small("axis"), a.integer("index"))}; }},
      {.name = "flip",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{"axes", AttributeType::integers, {}, "axes to turn round", {"axis", "dims", "dim"}}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "x backwards along the axes.",
       .apply = [](const Arguments& a) { return Results{flip(a.input(0), a.axes("axes"))}; }},
      {.name = "pad",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{"padding", AttributeType::pairs, {}, "[before, after] of every axis", {"pad_width"}}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "Zeros around x.",
       .apply = [](const Arguments& a) { return Results{pad(a.input(0), a.pairs("padding"))}; }},
      {.name = "unsqueeze",
       .aliases = {"expand_dims"},
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis("place of the new axis")},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "A new axis of extent 1.",
       .apply = [](const Arguments& a) { return Results{unsqueeze(a.input(0), a.small("axis"))}; }},
      {.name = "squeeze",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {axis("axis of extent 1 that goes")},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "An axis of extent 1 removed.",
       .apply = [](const Arguments& a) { return Results{squeeze(a.input(0), a.small("axis"))}; }},
      {.name = "flatten",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{"first", AttributeType::integer, 0, "first axis", {"start_dim"}},
                      {"last", AttributeType::integer, -1, "last axis", {"end_dim"}}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "Axes [first, last] become one.",
       .apply = [](const Arguments& a) { return Results{flatten(a.input(0), a.small("first"), a.small("last"))}; }},
      {.name = "tril",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{"diagonal", AttributeType::integer, 0, "shifts the edge to the right", {"k"}}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "The lower triangle of the last two axes, zeros elsewhere.",
       .apply = [](const Arguments& a) { return Results{tril(a.input(0), a.small("diagonal"))}; }},
      {.name = "triu",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{"diagonal", AttributeType::integer, 0, "shifts the edge to the right", {"k"}}},
       .dtypes = kAll,
       .result = kSameAsX,
       .doc = "The upper triangle of the last two axes, zeros elsewhere.",
       .apply = [](const Arguments& a) { return Results{triu(a.input(0), a.small("diagonal"))}; }},
      {.name = "concat",
       .aliases = {"concatenate", "cat"},
       .family = "view",
       .inputs = {{.name = "parts", .repeated = true}},
       .attributes = {axis("axis to join along", 0)},
       .dtypes = kAll,
       .result = "that of the parts",
       .doc = "Tensors one after another along an axis.",
       .apply = [](const Arguments& a) { return Results{concat(a.inputs(), a.small("axis"))}; }},
      {.name = "stack",
       .family = "view",
       .inputs = {{.name = "parts", .repeated = true}},
       .attributes = {axis("place of the new axis", 0)},
       .dtypes = kAll,
       .result = "that of the parts",
       .doc = "Tensors of one shape side by side along a new axis.",
       .apply = [](const Arguments& a) { return Results{stack(a.inputs(), a.small("axis"))}; }},
      {.name = "split",
       .family = "view",
       .inputs = {{"x"}},
       .attributes = {{"lengths", AttributeType::integers, {}, "of the parts; they add up to the extent"},
                      axis("axis to cut", 0)},
       .dtypes = kAll,
       .result = kSameAsX,
       .several_outputs = true,
       .doc = "x cut into parts along an axis, an output each.",
       .apply =
           [](const Arguments& a) {
             const std::vector<Extent> lengths = a.integers("lengths");
             return split(a.input(0), lengths, a.small("axis"));
           }},
  };
}

}  // namespace

std::vector<OpSpec> shape_ops() {
  std::vector<OpSpec> specs = making();
  for (OpSpec& spec : views()) specs.push_back(std::move(spec));
  return specs;
}

}  // namespace weft::cli
