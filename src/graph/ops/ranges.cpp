// Making tensors: ranges, diagonals, windows of signals.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops/making.hpp"

namespace weft {

namespace {

void check_length(std::string_view op, Extent n) {
  if (n < 0) throw ShapeError(fmt::format("{}: negative length {}", op, n));
}
void check_finite(std::string_view op, std::initializer_list<double> numbers) {
  for (const double number : numbers)
    if (!std::isfinite(number)) throw UsageError(fmt::format("{}: {} is not a finite number", op, number));
}
void check_float(std::string_view op, DType type) {
  if (!is_float(type)) throw DTypeError(fmt::format("{}: makes floats, not {}; cast the result", op, name_of(type)));
}

/// start + i step for the n places i, in the compute type of `type`.
Tensor range(double start, double step, Extent n, DType type, Device device) {
  const DType computed = compute_type(type);
  const auto number = [&](double value) { return full({}, value, computed, device); };
  return cast(arange(n, DType::i32, device), computed) * number(step) + number(start);
}

/// Samples from one peak of a window to where the next one would be.
double period_of(Extent n, bool periodic) { return static_cast<double>(periodic ? n : n - 1); }

/// Terms c_k cos(2 pi k i / period) of a window.
Tensor cosine_window(std::string_view op, Extent n, bool periodic, std::initializer_list<double> terms, DType type,
                     Device device) {
  check_length(op, n);
  check_float(op, type);
  if (n == 1) return ones({1}, type, device);
  const double turn = 2 * std::numbers::pi / period_of(n, periodic);
  Tensor sum;
  double k = 0;
  for (const double term : terms) {
    const Tensor each =
        k == 0 ? full({n}, term, compute_type(type), device) : cos(range(0, k * turn, n, type, device)) * term;
    sum = sum.defined() ? sum + each : each;
    ++k;
  }
  return cast(sum, type);
}

/// 2 i / period - 1, the place of a sample in [-1, 1]. One sample is in the middle.
Tensor window_places(std::string_view op, Extent n, bool periodic, DType type, Device device) {
  check_length(op, n);
  check_float(op, type);
  return n == 1 ? zeros({1}, compute_type(type), device) : range(-1, 2 / period_of(n, periodic), n, type, device);
}

}  // namespace

Tensor arange(double start, double stop, double step, std::optional<DType> type, Device device) {
  check_finite("arange", {start, stop, step});
  if (step == 0) throw UsageError("arange: the step is 0");
  const bool is_whole = start == std::trunc(start) && stop == std::trunc(stop) && step == std::trunc(step);
  const double count = std::max(0.0, std::ceil((stop - start) / step));
  if (count >= 0x1p31) throw ShapeError(fmt::format("arange: {} numbers are more than 2^31", count));
  const DType made = type.value_or(is_whole ? DType::i32 : DType::f32);
  const auto n = static_cast<Extent>(count);
  if (is_whole) return cast(range(start, step, n, is_float(made) ? made : DType::i32, device), made);
  return cast(range(start, step, n, is_float(made) ? made : DType::f32, device), made);
}

Tensor linspace(double start, double stop, Extent count, DType type, Device device) {
  check_length("linspace", count);
  check_finite("linspace", {start, stop});
  check_float("linspace", type);
  if (count == 1) return full({1}, start, type, device);
  const double step = (stop - start) / static_cast<double>(std::max<Extent>(1, count - 1));
  // From the nearer end, so that both are exact.
  const Tensor up = range(start, step, count, type, device), down = flip(range(stop, -step, count, type, device), 0);
  const Tensor is_first_half = arange(count, DType::i32, device) < static_cast<double>(count / 2);
  return cast(weft::where(is_first_half, up, down), type);
}

Tensor logspace(double start, double stop, Extent count, double base, DType type, Device device) {
  check_float("logspace", type);
  const Tensor exponent = linspace(start, stop, count, compute_type(type), device);
  return cast(pow(full({}, base, exponent.dtype(), device), exponent), type);
}

Tensor eye(Extent rows, Extent columns, DType type, Device device) {
  if (columns == -1) columns = rows;
  if (rows < 0 || columns < 0) throw ShapeError(fmt::format("eye: {} rows and {} columns", rows, columns));
  const Tensor row(graph::iota({rows, columns}, 0, DType::i32, device)),
      column(graph::iota({rows, columns}, 1, DType::i32, device));
  return cast(eq(row, column), type);
}

Tensor full_like(const Tensor& like, double value) {
  if (!like.defined()) throw UsageError("full_like: the tensor has no value");
  return full(like.shape(), value, like.dtype(), like.device());
}

Tensor hann_window(Extent n, bool periodic, DType type, Device device) {
  return cosine_window("hann_window", n, periodic, {0.5, -0.5}, type, device);
}
Tensor hamming_window(Extent n, bool periodic, DType type, Device device) {
  return cosine_window("hamming_window", n, periodic, {0.54, -0.46}, type, device);
}
Tensor blackman_window(Extent n, bool periodic, DType type, Device device) {
  return cosine_window("blackman_window", n, periodic, {0.42, -0.5, 0.08}, type, device);
}
Tensor bartlett_window(Extent n, bool periodic, DType type, Device device) {
  return cast(1.0 - abs(window_places("bartlett_window", n, periodic, type, device)), type);
}
Tensor kaiser_window(Extent n, bool periodic, double beta, DType type, Device device) {
  const Tensor places = window_places("kaiser_window", n, periodic, type, device);
  if (!std::isfinite(beta) || beta < 0)
    throw UsageError(fmt::format("kaiser_window: beta is {}; give a finite number that is not negative", beta));
  // I0(x) = exp(x) i0e(x), and exp(beta) may be too large for a float.
  const Tensor x = sqrt(relu(1.0 - places * places)) * beta;
  return cast(i0e(x) * exp(x - beta) / i0e(full({}, beta, x.dtype(), device)), type);
}

namespace graph {
namespace {

AttributeSpec made_dtype() {
  return {.name = "dtype", .type = AttributeType::dtype, .default_value = DType::f32, .doc = "dtype of the result"};
}
AttributeSpec number_of(std::string name, std::string doc, std::optional<double> fallback = {}) {
  AttributeSpec spec{.name = std::move(name), .doc = std::move(doc)};
  if (fallback) spec.default_value = *fallback;
  return spec;
}
AttributeSpec length_of(std::string name, std::string doc) {
  return {.name = std::move(name), .type = AttributeType::integer, .doc = std::move(doc)};
}

OpRow window_row(const char* name, const char* formula, Tensor (*make)(Extent, bool, DType, Device)) {
  return {.name = name,
          .family = "making",
          .attributes = {length_of("n", "samples"),
                         {.name = "periodic",
                          .type = AttributeType::boolean,
                          .default_value = true,
                          .doc = "n samples of a window of n + 1"},
                         made_dtype()},
          .result = "as given",
          .differentiable = false,
          .doc = fmt::format("A window of n samples: {}.", formula),
          .torch = fmt::format("torch.{}(n, periodic, dtype=torch.float64)", name),
          .cases = {{"periodic", {}, {{"n", Extent{20}}}},
                    {"symmetric", {}, {{"n", Extent{21}}, {"periodic", false}}},
                    {"one sample", {}, {{"n", Extent{1}}}}},
          .errors = {{"negative", {}, {{"n", Extent{-1}}}, "negative length -1"},
                     {"integers", {}, {{"n", Extent{4}}, {"dtype", DType::i32}}, "makes floats, not i32"}},
          .apply = [make](const Arguments& a) {
            return Tensors{make(a.integer("n"), a.boolean("periodic"), a.dtype("dtype"), default_device())};
          }};
}

OpRow kaiser_row() {
  const auto make = [](Extent n, bool periodic, DType type, Device device) {
    return weft::kaiser_window(n, periodic, 12, type, device);
  };
  OpRow row = window_row("kaiser_window", "I0(beta sqrt(1 - (2 i / n - 1)^2)) / I0(beta)", make);
  row.attributes.push_back(number_of("beta", "how narrow it is", 12.0));
  row.torch = "torch.kaiser_window(n, periodic, beta=beta, dtype=torch.float64)";
  row.cases.push_back({"narrow", {}, {{"n", Extent{9}}, {"beta", 200.0}}});
  row.cases.push_back({"a constant", {}, {{"n", Extent{5}}, {"beta", 0.0}}});
  row.errors.push_back({"a negative beta", {}, {{"n", Extent{4}}, {"beta", -1.0}}, "give a finite number"});
  row.apply = [](const Arguments& a) {
    return Tensors{weft::kaiser_window(a.integer("n"), a.boolean("periodic"), a.number("beta"), a.dtype("dtype"),
                                       default_device())};
  };
  return row;
}

const std::vector<OpRow>& rows_of_ranges() {
  static const std::vector<OpRow> rows = {
      {.name = "range",
       .family = "making",
       .attributes = {number_of("start", "first number"), number_of("stop", "where it ends, itself not included"),
                      number_of("step", "from one to the next", 1.0), made_dtype()},
       .result = "as given",
       .differentiable = false,
       .doc = "start, start + step, ... before stop: arange of three numbers.",
       .torch = "torch.arange(start, stop, step, dtype=torch.float64)",
       .numpy = "np.arange(start, stop, step)",
       .onnx = "Range",
       .cases = {{"fractions", {}, {{"start", -1.0}, {"stop", 2.0}, {"step", 0.3}}},
                 {"backwards", {}, {{"start", 5.0}, {"stop", -2.0}, {"step", -1.0}}},
                 {"none", {}, {{"start", 5.0}, {"stop", 5.0}}}},
       .errors = {{"no step", {}, {{"start", 0.0}, {"stop", 1.0}, {"step", 0.0}}, "the step is 0"},
                  {"infinite", {}, {{"start", 0.0}, {"stop", kInfinity}}, "inf is not a finite number"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::arange(a.number("start"), a.number("stop"), a.number("step"), a.dtype("dtype"))};
           }},
      {.name = "linspace",
       .family = "making",
       .attributes = {number_of("start", "first number"), number_of("stop", "last number"),
                      length_of("count", "how many"), made_dtype()},
       .result = "as given",
       .differentiable = false,
       .doc = "Numbers from start to stop, both included, at equal distances.",
       .torch = "torch.linspace(start, stop, count, dtype=torch.float64)",
       .numpy = "np.linspace(start, stop, count)",
       .cases = {{"some", {}, {{"start", -1.0}, {"stop", 2.5}, {"count", Extent{14}}}},
                 {"one", {}, {{"start", -1.0}, {"stop", 2.5}, {"count", Extent{1}}}}},
       .errors = {{"negative", {}, {{"start", 0.0}, {"stop", 1.0}, {"count", Extent{-1}}}, "negative length -1"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::linspace(a.number("start"), a.number("stop"), a.integer("count"), a.dtype("dtype"))};
           }},
      {.name = "logspace",
       .family = "making",
       .attributes = {number_of("start", "first exponent"), number_of("stop", "last exponent"),
                      length_of("count", "how many"), number_of("base", "of the powers", 10.0), made_dtype()},
       .result = "as given",
       .differentiable = false,
       .doc = "Powers of the base whose exponents are those of linspace.",
       .torch = "torch.logspace(start, stop, count, base, dtype=torch.float64)",
       .numpy = "np.logspace(start, stop, count, base=base)",
       .cases = {{"of two", {}, {{"start", -1.0}, {"stop", 2.5}, {"count", Extent{14}}, {"base", 2.0}}}},
       .errors = {{"negative", {}, {{"start", 0.0}, {"stop", 1.0}, {"count", Extent{-1}}}, "negative length -1"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::logspace(a.number("start"), a.number("stop"), a.integer("count"), a.number("base"),
                                           a.dtype("dtype"))};
           }},
      {.name = "eye",
       .family = "making",
       .attributes = {length_of("rows", "rows"),
                      {.name = "columns",
                       .type = AttributeType::integer,
                       .default_value = Extent{-1},
                       .doc = "columns; -1: as many as rows"},
                      made_dtype()},
       .result = "as given",
       .differentiable = false,
       .doc = "1 on the diagonal, 0 elsewhere.",
       .torch = "torch.eye(rows, rows if columns < 0 else columns)",
       .numpy = "np.eye(rows, rows if columns < 0 else columns)",
       .onnx = "EyeLike",
       .cases = {{"square", {}, {{"rows", Extent{4}}}}, {"wide", {}, {{"rows", Extent{3}}, {"columns", Extent{5}}}}},
       .errors = {{"negative", {}, {{"rows", Extent{-4}}}, "-4 rows"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::eye(a.integer("rows"), a.integer("columns"), a.dtype("dtype"))};
           }},
      {.name = "full_like",
       .family = "making",
       .inputs = {{"x"}},
       .attributes = {number_of("value", "of every element")},
       .differentiable = false,
       .doc = "A value in the shape and dtype of x.",
       .torch = "torch.full_like(x, value)",
       .numpy = "np.full_like(x, value)",
       .cases = {{"two axes", {{{6, 7}}}, {{"value", 2.5}}}},
       .errors = {{"no value", {{{6}}}, {}, "attribute value is missing"}},
       .apply = [](const Arguments& a) { return Tensors{weft::full_like(a.input(0), a.number("value"))}; }},
      window_row("hann_window", "0.5 - 0.5 cos(2 pi i / n)", weft::hann_window),
      window_row("hamming_window", "0.54 - 0.46 cos(2 pi i / n)", weft::hamming_window),
      window_row("blackman_window", "0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n)", weft::blackman_window),
      window_row("bartlett_window", "1 - |2 i / n - 1|", weft::bartlett_window),
      kaiser_row(),
  };
  return rows;
}

}  // namespace

OpRows range_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_ranges()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
