#include "graph/poisson.hpp"

#include "graph/op_families.hpp"

namespace weft::graph {

const OpRow& poisson_quantile_row() {
  static const OpRow row{
      .name = "poisson_quantile",
      .family = "random",
      .inputs = {{.name = "rate", .only = {DType::f32, DType::f64}},
                 {.name = "unit", .only = {DType::f32, DType::f64}}},
      .result = "that of rate",
      .differentiable = false,
      .doc =
          "The count of a Poisson distribution that a number in [0, 1) stands for; NaN for rates below 0 or above "
          "2^20. "
          "What poisson is made of.",
      .infer =
          [](const Call& c) {
            if (c.input(0).shape() != c.input(1).shape()) c.shape_error("the shapes of rate and unit differ");
            if (c.input(0).dtype() != c.input(1).dtype()) c.dtype_error("the dtypes of rate and unit differ; cast one");
            return std::vector<Result>{like(c.input(0))};
          },
      .no_gradient = "counts do not change with the rate; detach it",
      .form = KernelForm::routine,
      .cases = {{"small rates", {{{40, 10}, 0, 8}, {{40, 10}, 0, 1}}, {}, false},
                {"large rates", {{{20, 5}, 10, 3000}, {{20, 5}, 0, 1}}, {}, false},
                {"no rates",
                 {{.shape = {6}, .values = {0, -1, 2, 1e7, INFINITY, NAN}},
                  {.shape = {6}, .values = {0.5, 0.5, 0, 0.5, 0.5, 0.5}}},
                 {},
                 false}},
      .errors = {{"shapes that differ", {{{3}, 0, 1}, {{4}, 0, 1}}, {}, "the shapes of rate and unit differ"},
                 {"integers", {{{3}, 0, 5, DType::i32}, {{3}, 0, 1}}, {}, "rate"}}};
  return row;
}

OpRows poisson_rows() { return {&poisson_quantile_row()}; }

}  // namespace weft::graph
