// Rows of the op table: reductions.
#include "ops/table.hpp"

namespace weft::ops {
namespace {

using scalar::Reduction;

// A row is a paragraph.
// clang-format off
constexpr ReduceRow kReduceRows[] = {
    {.name = "sum", .pre = "x", .reduction = Reduction::sum, .post = "r",
     .dtypes = DTypes::all, .result = Result::same, .tested = {-4, 4}, .max_ulp = 16, .ulp_floor = 100,
     .doc = "Sum of the elements; 0 of none. Bools are counted in i32."},
    {.name = "mean", .pre = "x", .reduction = Reduction::sum, .post = "r / n",
     .dtypes = DTypes::all, .result = Result::floating, .tested = {-4, 4}, .max_ulp = 16, .ulp_floor = 1,
     .doc = "Sum of the elements over their number; NaN of none."},
    {.name = "prod", .pre = "x", .reduction = Reduction::prod, .post = "r",
     .dtypes = DTypes::all, .result = Result::same, .tested = {-1.2, 1.2}, .max_ulp = 500,
     .doc = "Product of the elements; 1 of none. The gradient is that of the product of the others, zeros included."},
    {.name = "norm", .pre = "x * x", .reduction = Reduction::sum, .post = "r == 0 ? 0 : sqrt(r)",
     .dtypes = DTypes::all, .result = Result::floating, .tested = {-4, 4}, .max_ulp = 16,
     .doc = "Euclidean norm, sqrt(sum x^2); its gradient at 0 is 0."},
    {.name = "all", .pre = "bool(x)", .reduction = Reduction::min, .post = "r",
     .dtypes = DTypes::all, .result = Result::boolean, .tested = {-4, 4}, .max_ulp = 0, .differentiable = false,
     .doc = "True if no element is zero; true of none."},
    {.name = "any", .pre = "bool(x)", .reduction = Reduction::max, .post = "r",
     .dtypes = DTypes::all, .result = Result::boolean, .tested = {-4, 4}, .max_ulp = 0, .differentiable = false,
     .doc = "True if an element is not zero; false of none."},
    {.name = "count_nonzero", .aliases = {"countNonzero"}, .pre = "i32(x != 0)", .reduction = Reduction::sum, .post = "r",
     .dtypes = DTypes::all, .result = Result::integer, .tested = {-4, 4}, .max_ulp = 0, .differentiable = false,
     .doc = "Number of elements that are not zero."},
    {.name = "amax", .aliases = {"max"}, .pre = "x", .reduction = Reduction::max, .post = "r",
     .dtypes = DTypes::all, .result = Result::same, .tested = {-4, 4}, .max_ulp = 0, .allows_empty = false,
     .doc = "The greatest element; NaN if one is; equal greatest share the gradient evenly."},
    {.name = "amin", .aliases = {"min"}, .pre = "x", .reduction = Reduction::min, .post = "r",
     .dtypes = DTypes::all, .result = Result::same, .tested = {-4, 4}, .max_ulp = 0, .allows_empty = false,
     .doc = "The least element; NaN if one is; equal least share the gradient evenly."},
    {.name = "argmax", .pre = "x", .reduction = Reduction::argmax, .post = "r",
     .dtypes = DTypes::all, .result = Result::integer, .tested = {-4, 4}, .max_ulp = 0, .differentiable = false,
     .allows_empty = false,
     .doc = "Position of the first greatest element, in i32; a NaN is greatest."},
    {.name = "argmin", .pre = "x", .reduction = Reduction::argmin, .post = "r",
     .dtypes = DTypes::all, .result = Result::integer, .tested = {-4, 4}, .max_ulp = 0, .differentiable = false,
     .allows_empty = false,
     .doc = "Position of the first least element, in i32; a NaN is least."},
    {.name = "logsumexp", .center = "amax", .center_is_constant = true,
     .pre = "exp(x - (is_finite(c) ? c : 0))", .reduction = Reduction::sum, .post = "log(r) + (is_finite(c) ? c : 0)",
     .dtypes = DTypes::floats, .result = Result::same, .tested = {-10, 10}, .max_ulp = 16, .ulp_floor = 1,
     .allows_empty = false,
     .doc = "ln(sum e^x), without overflow."},
    {.name = "var",
     .attributes = {{"correction", 1, 0, "subtracted from the number of elements: 1 for a sample, 0 for a population"}},
     .center = "mean", .pre = "var d = x - c; d * d", .reduction = Reduction::sum, .post = "r / max(n - correction, 0)",
     .dtypes = DTypes::floats, .result = Result::same, .tested = {-4, 4}, .max_ulp = 32,
     .doc = "Variance: sum (x - mean)^2 / (n - correction); NaN where n = correction."},
    {.name = "std",
     .attributes = {{"correction", 1, 0, "subtracted from the number of elements: 1 for a sample, 0 for a population"}},
     .center = "mean", .pre = "var d = x - c; d * d", .reduction = Reduction::sum,
     .post = "var v = r / max(n - correction, 0); v == 0 ? 0 : sqrt(v)",
     .dtypes = DTypes::floats, .result = Result::same, .tested = {-4, 4}, .max_ulp = 32,
     .doc = "Standard deviation: the square root of var; its gradient at 0 is 0."},
};
// clang-format on

}  // namespace

std::span<const ReduceRow> reduce_rows() { return kReduceRows; }

}  // namespace weft::ops
