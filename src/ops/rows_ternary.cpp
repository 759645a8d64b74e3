// Rows of the op table: functions of three values, which broadcast.
#include "ops/rows.hpp"

namespace weft::ops {
namespace {

// A row is a paragraph.
// clang-format off
constexpr ElementwiseRow kTernaryRows[] = {
    {.name = "where", .inputs = {"condition", "x", "y"}, .forward = "condition ? x : y",
     .dtypes = DTypes::all, .result = Result::same, .tested = {{0, 1}, {-4, 4}, {-4, 4}}, .kinks = {"condition"},
     .max_ulp = 0,
     .doc = "x where the condition is true or not zero, else y; the gradient goes to the one taken."},
    {.name = "clamp_tensor", .inputs = {"x", "lo", "hi"}, .forward = "min(max(x, lo), hi)",
     .gradients = {"x >= lo && x <= hi ? g : 0", "x < lo && lo < hi ? g : 0", "x > hi || hi < lo ? g : 0"},
     .dtypes = DTypes::numbers, .result = Result::same, .tested = {{-4, 4}, {-2, -1}, {1, 2}},
     .kinks = {"x - lo", "x - hi"}, .max_ulp = 0,
     .doc = "x held within [lo, hi], element by element; the gradient goes to the one that was taken."},
    {.name = "lerp", .inputs = {"x", "y", "weight"}, .forward = "mix(x, y, weight)",
     .gradients = {"g * (1 - weight)", "g * weight", "g * (y - x)"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-4, 4}, {-4, 4}, {0, 1}}, .kinks = {"weight - 0.5"},
     .max_ulp = 4, .ulp_floor = 4,
     .doc = "x + weight (y - x); exactly x at weight 0 and y at weight 1."},
    {.name = "addcmul", .inputs = {"x", "y", "z"},
     .attributes = {{"value", 1, 1.5, "factor of the product"}},
     .forward = "x + value * y * z",
     .dtypes = DTypes::numbers, .result = Result::same, .tested = {{-4, 4}}, .max_ulp = 4, .ulp_floor = 4,
     .doc = "x + value y z."},
    {.name = "addcdiv", .inputs = {"x", "y", "z"},
     .attributes = {{"value", 1, 1.5, "factor of the quotient"}},
     .forward = "x + value * y / z",
     .dtypes = DTypes::numbers, .result = Result::floating, .tested = {{-4, 4}, {-4, 4}, {0.5, 4}}, .max_ulp = 4,
     .ulp_floor = 4,
     .doc = "x + value y / z."},
};
// clang-format on

}  // namespace

std::span<const ElementwiseRow> ternary_rows() { return kTernaryRows; }

}  // namespace weft::ops
