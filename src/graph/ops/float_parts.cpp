// nextafter, frexp and rounding to decimals; the first two in arithmetic that is exact: powers of two, and sums that round to a neighbour.
#include "weft/ops/float_parts.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "ops/parse.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

constexpr std::string_view kSplit = R"(
  var a = abs(x);
  var n = 0;
  {}
  var whole = a == inf || is_nan(x) || x == 0;
)";

// What distinguishes the float types for nextafter.
struct FloatFormat {
  int digits;  // of the significand
  int least;   // log2 of the least positive number
  int scale;   // numbers below 2^-scale are computed times 2^scale, where nothing is subnormal
  double largest;
};

FloatFormat format_of(DType type) {
  switch (type) {
    case DType::f16: return {11, -24, 10, 65504};
    case DType::bf16: return {8, -133, 100, 0x1.fep127};
    case DType::f32: return {24, -149, 100, std::numeric_limits<float>::max()};
    case DType::f64: return {53, -1074, 900, std::numeric_limits<double>::max()};
    default: throw InternalError("nextafter: not a float type");
  }
}

// Half of a unit in the last place of x, and a little more, is a step to the neighbour once the sum is rounded, also at a power
// of two, below which numbers are closer. (Rump, Zimmermann, Boldo and Melquiond, 2009.)
scalar::Expression nextafter_expression(DType type) {
  const FloatFormat f = format_of(type);
  const double unit = std::ldexp(1.0, -f.digits), scale = std::ldexp(1.0, f.scale);
  const std::string text = fmt::format(
      "var far = abs(x) >= {0:.17g};"
      "var s = far ? x : x * {1:.17g};"
      "var size = max(abs(s) * {2:.17g}, far ? 0 : {3:.17g});"
      "var moved = s + (y > x ? size : -size);"
      "var r = far ? moved : moved * {0:.17g};"
      "is_nan(x) ? x : is_nan(y) ? y : x == y ? y : abs(x) == inf ? copysign({4:.17g}, x) : r == 0 ? copysign(r, x) : "
      "r",
      1 / scale, scale, unit * (1 + 2 * unit), std::ldexp(1.0, f.least + f.scale), f.largest);
  return scalar::parse(text, std::vector<std::string>{"x", "y"});
}

// |x| is brought into [1, 2) by powers of two, the largest first; n counts them.
scalar::Expression frexp_expression(DType type, bool mantissa) {
  const bool is_wide = type == DType::f64;
  std::string steps;
  for (int by = is_wide ? 512 : 64; by > 0; by /= 2)
    steps += fmt::format("if (a >= {0:.17g}) {{ a = a * {1:.17g}; n = n + {2}; }}", std::ldexp(1.0, by),
                         std::ldexp(1.0, -by), by);
  for (int by = is_wide ? 512 : 64, again = 1; by > 0; by = again-- > 0 ? by : by / 2)
    steps += fmt::format("if (a < {0:.17g}) {{ a = a * {1:.17g}; n = n - {2}; }}", std::ldexp(1.0, 1 - by),
                         std::ldexp(1.0, by), by);
  const std::string text = fmt::format(fmt::runtime(kSplit), steps) +
                           (mantissa ? "whole ? x : copysign(0.5 * a, x)" : "i32(whole ? 0 : n + 1)");
  return scalar::parse(text, std::vector<std::string>{"x"});
}

const OpRow& nextafter_row() {
  static const OpRow row{.name = "nextafter",
                         .family = "number",
                         .inputs = {{"x", ops::DTypes::floats}, {"y", ops::DTypes::floats}},
                         .result = "that of the inputs",
                         .differentiable = false,
                         .doc = "The nearest number to x in the direction of y; y where both are equal.",
                         .torch = "torch.nextafter(x, y)",
                         .numpy = "np.nextafter(x, y)",
                         .cases = {{"rows", {{{6, 50}}, {{6, 50}}}},
                                   {"towards one number", {{{6, 50}, -1e4, 1e4}, {{}}}},
                                   {"zeros, powers of two and NaN",
                                    {{.shape = {7}, .values = {0, 1, 1, -2, 2, 1e-3, 3}},
                                     {.shape = {7}, .values = {0, 2, 0, -1, -3, 5, NAN}}}}},
                         .errors = {{"shapes that differ", {{{2, 3}}, {{2, 4}}}, {}, "x and y do not broadcast"},
                                    {"integers", {{{3}, 0, 5, DType::i32}, {{3}}}, {}, "takes floats"}},
                         .apply = [](const Arguments& a) { return Tensors{weft::nextafter(a.input(0), a.input(1))}; }};
  return row;
}

const OpRow& frexp_row() {
  static const OpRow row{
      .name = "frexp",
      .family = "number",
      .inputs = {{"x", ops::DTypes::floats}},
      .result = "mantissa that of x; exponent i32",
      .several_outputs = true,
      .doc = "Mantissa and exponent of x = mantissa 2^exponent with 0.5 <= |mantissa| < 1.",
      .torch = "torch.frexp(x)",
      .numpy = "np.frexp(x)",
      .infer =
          [](const Call& c) {
            return std::vector<Result>{like(c.input(0)), {DType::i32, c.input(0).shape()}};
          },
      .decompose =
          [](const Call& c) {
            const NodeRef x = c.input(0).node();
            Tensors results;
            for (const bool mantissa : {true, false})
              results.emplace_back(map(frexp_expression(x->type, mantissa), {detach(x)}, "frexp", nullptr, c.where()));
            return results;
          },
      .gradient =
          [](const GradientCall& g) {
            if (!g.gradients[0].defined()) return Tensors{Tensor()};
            // 2^-exponent is mantissa / x, and 1 where x has no exponent.
            const Tensor x = weft::detach(g.call.input(0)), mantissa = weft::detach(g.results[0]);
            const Tensor ratio = elementwise("where", {eq(x, mantissa), scalar_like(1, x), mantissa / x});
            return Tensors{g.gradients[0] * elementwise("where", {isnan(x), scalar_like(1, x), ratio})};
          },
      .cases = {{"rows", {{{6, 50}}}},
                {"large and small", {{{6, 50}, -6e4, 6e4}}},
                {"zeros, powers of two and infinities",
                 {{.shape = {8}, .values = {0, 1, -1, 0.5, 2, -0.25, INFINITY, NAN}}},
                 {},
                 false}},
      .errors = {{"integers", {{{3}, 0, 5, DType::i32}}, {}, "takes floats"}}};
  return row;
}

const OpRow& round_decimals_row() {
  static const OpRow row{
      .name = "round_decimals",
      .aliases = {"around"},
      .family = "number",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {{.name = "decimals",
                      .type = AttributeType::integer,
                      .default_value = Extent{0},
                      .doc = "digits behind the point; negative ones round to tens, hundreds, ...",
                      .least = -400,
                      .most = 400}},
      .doc = "The nearest number with so many digits behind the point, of two the even one.",
      .formula = "y = round(10^decimals x) / 10^decimals",
      .torch = "torch.round(x, decimals=decimals)",
      .numpy = "np.around(x, decimals)",
      .cases = {{"hundredths", {{{6, 50}}}, {{"decimals", Extent{2}}}, false},
                {"tens", {{{6, 50}, -500, 500}}, {{"decimals", Extent{-1}}}, false},
                {"whole, halves to even", {{.shape = {5}, .values = {0.5, 1.5, 2.5, -0.5, -1.5}}}, {}, false},
                {"what has no more digits",
                 {{.shape = {3}, .values = {1e30, INFINITY, NAN}}},
                 {{"decimals", Extent{20}}},
                 false}},
      .errors = {{"integers", {{{3}, 0, 5, DType::i32}}, {}, "takes floats; cast x"}},
      .apply = [](const Arguments& a) { return Tensors{weft::round(a.input(0), a.small("decimals"))}; }};
  return row;
}

}  // namespace

OpRows float_part_rows() { return {&nextafter_row(), &frexp_row(), &round_decimals_row()}; }

}  // namespace graph

// Not a composite, whose parts would compute f16 and bf16 in f32: neighbours differ between them.
Tensor nextafter(const Tensor& x, const Tensor& y, Where where) {
  if (!x.defined() || !y.defined()) throw UsageError("nextafter: a tensor has no value");
  const auto fact = [&](const char* text) { return graph::describe("nextafter", text, {{"x", x}, {"y", y}}, where); };
  if (!is_float(x.dtype()) || !is_float(y.dtype())) throw DTypeError(fact("takes floats; cast the other"));
  if (x.device() != y.device()) throw DeviceError(fact("x and y are on different devices"));
  Shape shape;
  if (!graph::broadcast_shapes(x.shape(), y.shape(), shape)) throw ShapeError(fact("x and y do not broadcast"));
  const DType type = promote(x.dtype(), y.dtype());
  const graph::NodeRef from = detach(cast(x, type, where)).node(), to = detach(cast(y, type, where)).node();
  return Tensor(graph::map(graph::nextafter_expression(type), {from, to}, "nextafter", nullptr, where));
}

Tensor round(const Tensor& x, int decimals, Where where) {
  if (!x.defined()) throw UsageError("round_decimals: x has no value");
  if (!is_float(x.dtype()))
    throw DTypeError(graph::describe("round_decimals", "takes floats; cast x", {{"x", x}}, where));
  const Tensor wide = cast(x, compute_type(x.dtype()), where);
  const double scale = std::pow(10.0, std::abs(decimals));
  const Tensor scaled = decimals < 0 ? wide / scale : wide * scale;
  const Tensor rounded = decimals < 0 ? weft::round(scaled, where) * scale : weft::round(scaled, where) / scale;
  // A number whose product is infinite has no digits behind the point.
  const Tensor y = decimals > 0 ? weft::where(isfinite(scaled), rounded, detach(wide), where) : rounded;
  return cast(y, x.dtype(), where);
}

MantissaAndExponent frexp(const Tensor& x, Where where) {
  const std::vector<graph::NodeRef> results = graph::call_nodes(graph::frexp_row(), {x}, {}, where);
  return {Tensor(results[0]), Tensor(results[1])};
}

}  // namespace weft
