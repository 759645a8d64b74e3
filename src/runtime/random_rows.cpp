// Rows of the ops that draw random numbers. Their state is a value in memory, so they come after graph/.
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops.hpp"

namespace weft::runtime {
namespace {

using graph::Arguments;
using graph::AttributeSpec;
using graph::AttributeType;
using graph::OpRow;
using graph::Tensors;

AttributeSpec number(std::string name, std::optional<double> fallback, std::string doc,
                     std::vector<std::string> aliases = {}) {
  AttributeSpec spec{.name = std::move(name), .doc = std::move(doc), .aliases = std::move(aliases)};
  if (fallback) spec.default_value = *fallback;
  return spec;
}
AttributeSpec shape() {
  return {.name = "shape", .type = AttributeType::integers, .doc = "extents", .aliases = {"size"}};
}
AttributeSpec dtype() {
  return {.name = "dtype", .type = AttributeType::dtype, .default_value = DType::f32, .doc = "dtype of the result"};
}
AttributeSpec seed() {
  return {.name = "seed",
          .type = AttributeType::integer,
          .default_value = std::monostate{},
          .doc = "seeds the generator before this draw; null: it goes on"};
}

void take_seed(const Arguments& a) {
  const Extent value = a.integer_or("seed", -1);
  if (value == -1) return;
  if (value < 0 || value > UINT32_MAX) throw UsageError(a.row().name + ": attribute seed is outside of [0, 2^32)");
  manual_seed(static_cast<std::uint32_t>(value));
}

const std::vector<OpRow>& random_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "rand",
       .family = "random",
       .attributes = {shape(), number("low", 0, "lower bound"), number("high", 1, "upper bound, never reached"),
                      dtype(), seed()},
       .result = "as given",
       .differentiable = false,
       .doc = "Uniform in [low, high), by Philox: the same bits on every device.",
       .onnx = "RandomUniform",
       .cases = {{"two axes", {}, {{"shape", std::vector<Extent>{10, 100}}, {"low", -1.0}, {"seed", Extent{7}}}}},
       .errors = {{"negative extent", {}, {{"shape", std::vector<Extent>{-1}}}, "negative extent"},
                  {"integers", {}, {{"shape", std::vector<Extent>{3}}, {"dtype", DType::i32}}, "makes f32 or f64"},
                  {"large seed", {}, {{"shape", std::vector<Extent>{3}}, {"seed", Extent{1} << 40}}, "attribute seed"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{rand(a.shape("shape"), a.number("low"), a.number("high"), a.dtype("dtype"))};
           }},
      {.name = "randn",
       .family = "random",
       .attributes = {shape(), number("mean", 0, "of the distribution"),
                      number("deviation", 1, "of the distribution", {"std"}), dtype(), seed()},
       .result = "as given",
       .differentiable = false,
       .doc = "Normal, by Box and Muller.",
       .onnx = "RandomNormal",
       .cases = {{"one axis", {}, {{"shape", std::vector<Extent>{1000}}, {"seed", Extent{7}}}}},
       .errors = {{"negative extent", {}, {{"shape", std::vector<Extent>{-1}}}, "negative extent"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{randn(a.shape("shape"), a.number("mean"), a.number("deviation"), a.dtype("dtype"))};
           }},
      {.name = "dropout",
       .family = "random",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = {number("p", std::nullopt, "probability of a 0"), seed()},
       .doc = "Each element kept with probability 1-p and then divided by 1-p, else 0.",
       .onnx = "Dropout",
       .cases = {{"some", {{{50, 20}}}, {{"p", 0.3}, {"seed", Extent{7}}}}},
       .errors = {{"no probability", {{{4}}}, {}, "attribute p is missing"},
                  {"more than all", {{{4}}}, {{"p", 1.5}}, "probability 1.5 is outside of [0, 1]"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{dropout(a.input(0), a.number("p"))};
           }},
  };
  return rows;
}

}  // namespace

graph::OpRows random_family() {
  graph::OpRows list;
  for (const OpRow& row : random_rows()) list.push_back(&row);
  return list;
}

}  // namespace weft::runtime
