// Rows of the op table: activations of networks.
#include "ops/rows.hpp"

namespace weft::ops {
namespace {

// A row is a paragraph.
// clang-format off
constexpr ElementwiseRow kActivationRows[] = {
    {.name = "celu", .inputs = {"x"},
     .attributes = {{"alpha", 1, 1.5, "scale of the negative side"}},
     .forward = "x > 0 ? x : alpha * expm1(x / alpha)",
     .gradients = {"x > 0 ? g : g * exp(x / alpha)"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-4, 4}}, .kinks = {"x"}, .max_ulp = 6,
     .doc = "x above 0, else alpha (e^(x / alpha) - 1)."},
    {.name = "elu", .inputs = {"x"},
     .attributes = {{"alpha", 1, 1.5, "limit of the negative side"}},
     .forward = "x > 0 ? x : alpha * expm1(x)",
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-4, 4}}, .kinks = {"x"}, .max_ulp = 6,
     .doc = "x above 0, else alpha (e^x - 1)."},
    {.name = "gelu", .inputs = {"x"}, .forward = "0.5 * x * (1 + erf(x * sqrt(0.5)))",
     .gradients = {"g * (0.5 * (1 + erf(x * sqrt(0.5))) + x * exp(-0.5 * x * x) * (1 / sqrt(2 * pi)))"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-5, 5}}, .max_ulp = 8, .ulp_floor = 1,
     .doc = "x Phi(x), with Phi the normal distribution, through erf."},
    // (1 + tanh(u)) / 2 is the logistic function of 2 u: fewer steps than tanh, and no digits lost where it is near 0.
    {.name = "gelu_tanh", .inputs = {"x"},
     .forward = "var c = -2 * sqrt(2 / pi); x / (1 + exp(x * (0.044715 * c * (x * x) + c)))",
     .gradients = {"var c = -2 * sqrt(2 / pi); var q = x * x; var s = 1 / (1 + exp(x * (0.044715 * c * q + c)));"
                   "g * (s - (s - s * s) * (x * (3 * 0.044715 * c * q + c)))"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-5, 5}}, .max_ulp = 8, .ulp_floor = 1,
     .doc = "gelu through tanh, as GPT-2 has it: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))."},
    {.name = "hardsigmoid", .inputs = {"x"}, .forward = "min(max(x + 3, 0), 6) / 6",
     .gradients = {"x > -3 && x < 3 ? g / 6 : 0"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-5, 5}}, .kinks = {"x + 3", "x - 3"}, .max_ulp = 3,
     .ulp_floor = 0.1,
     .doc = "x / 6 + 1/2 held within [0, 1]; its gradient at -3 and 3 is 0."},
    {.name = "hardswish", .inputs = {"x"}, .forward = "x * min(max(x + 3, 0), 6) / 6",
     .gradients = {"x <= -3 ? 0 : x < 3 ? g * (x / 3 + 0.5) : g"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-5, 5}}, .kinks = {"x + 3", "x - 3"}, .max_ulp = 4,
     .ulp_floor = 0.1,
     .doc = "x hardsigmoid(x)."},
    {.name = "leaky_relu", .inputs = {"x"},
     .attributes = {{"negative_slope", 0.01, 0.2, "slope below 0"}},
     .forward = "x > 0 ? x : negative_slope * x",
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-4, 4}}, .kinks = {"x"}, .max_ulp = 1,
     .doc = "x above 0, else negative_slope x; at 0 its gradient is the slope."},
    {.name = "log_sigmoid", .aliases = {"logsigmoid"}, .inputs = {"x"}, .forward = "min(x, 0) - log1p(exp(-abs(x)))",
     .gradients = {"g * sigmoid(-x)"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-10, 10}}, .max_ulp = 6,
     .doc = "ln sigmoid(x), without overflow."},
    {.name = "mish", .inputs = {"x"}, .forward = "x * tanh(softplus(x))",
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-5, 5}}, .max_ulp = 8,
     .doc = "x tanh(ln(1 + e^x))."},
    {.name = "relu", .inputs = {"x"}, .forward = "x <= 0 ? 0 : x",
     .dtypes = DTypes::numbers, .result = Result::same, .tested = {{-4, 4}}, .kinks = {"x"}, .max_ulp = 0,
     .doc = "max(x, 0); NaN stays; its gradient at 0 is 0."},
    {.name = "relu6", .inputs = {"x"}, .forward = "min(max(x, 0), 6)",
     .gradients = {"x > 0 && x < 6 ? g : 0"},
     .dtypes = DTypes::numbers, .result = Result::same, .tested = {{-4, 9}}, .kinks = {"x", "x - 6"}, .max_ulp = 0,
     .doc = "x held within [0, 6]; its gradient at 0 and 6 is 0."},
    {.name = "selu", .inputs = {"x"},
     .forward = "1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * expm1(x))",
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-4, 4}}, .kinks = {"x"}, .max_ulp = 6,
     .doc = "elu scaled to keep mean 0 and variance 1 (Klambauer et al. 2017, arXiv:1706.02515)."},
    {.name = "sigmoid", .inputs = {"x"}, .forward = "sigmoid(x)",
     .gradients = {"g * output * (1 - output)"},
     .dtypes = DTypes::all, .result = Result::floating, .tested = {{-10, 10}}, .max_ulp = 6,
     .doc = "1 / (1 + e^-x)."},
    {.name = "silu", .aliases = {"swish"}, .inputs = {"x"}, .forward = "x * sigmoid(x)",
     .gradients = {"var s = sigmoid(x); g * s * (1 + x * (1 - s))"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-10, 10}}, .max_ulp = 8,
     .doc = "x sigmoid(x)."},
    {.name = "softplus", .inputs = {"x"},
     .attributes = {{"beta", 1, 1.5, "sharpness"}, {"threshold", 20, 20, "above beta x = threshold it is x itself"}},
     .forward = "var z = beta * x; z > threshold ? x : softplus(z) / beta",
     .gradients = {"beta * x > threshold ? g : g * sigmoid(beta * x)"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-5, 5}}, .max_ulp = 8,
     .doc = "ln(1 + e^(beta x)) / beta, without overflow."},
    {.name = "softsign", .inputs = {"x"}, .forward = "x / (1 + abs(x))",
     .gradients = {"var d = 1 + abs(x); g / (d * d)"},
     .dtypes = DTypes::floats, .result = Result::same, .tested = {{-5, 5}}, .kinks = {"x"}, .max_ulp = 4,
     .doc = "x / (1 + |x|)."},
};
// clang-format on

}  // namespace

std::span<const ElementwiseRow> activation_rows() { return kActivationRows; }

}  // namespace weft::ops
