// Rows of the ops that draw random numbers. Their state is a value in memory, so they come after graph/.
#include "graph/op.hpp"
#include "runtime/random_attributes.hpp"
#include "runtime/runtime_families.hpp"

namespace weft::runtime {
namespace {

using graph::Arguments;
using graph::OpRow;
using graph::Tensors;

const std::vector<OpRow>& random_rows() {
  static const std::vector<OpRow> rows = {
      {.name = "rand",
       .family = "random",
       .attributes = {random_shape(), random_number("low", 0, "lower bound"),
                      random_number("high", 1, "upper bound, not included"), random_dtype(), random_seed()},
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
       .attributes = {random_shape(), random_number("mean", 0, "mean of the distribution"),
                      random_number("deviation", 1, "standard deviation", {"std"}), random_dtype(), random_seed()},
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
       .attributes = {random_number("p", std::nullopt, "probability of a 0"), random_seed()},
       .doc = "Each element kept with probability 1-p and then divided by 1-p, else 0.",
       .onnx = "Dropout",
       .cases = {{"some", {{{50, 20}}}, {{"p", 0.3}, {"seed", Extent{7}}}}},
       .errors = {{"no probability", {{{4}}}, {}, "attribute p is missing"},
                  {"above 1", {{{4}}}, {{"p", 1.5}}, "probability 1.5 is outside of [0, 1]"}},
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
