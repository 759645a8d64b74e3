// Random numbers of several distributions, made of uniform ones.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/poisson.hpp"
#include "runtime/random_attributes.hpp"
#include "runtime/runtime_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops/order.hpp"
#include "weft/ops/random.hpp"

namespace weft {
namespace {

constexpr double kLeastUnit = 0x1p-25;  // half of the distance between two numbers of `rand`

const Tensor& float_like(std::string_view op, const Tensor& x, Where where) {
  if (!x.defined()) throw UsageError(fmt::format("{}: the tensor has no value", op));
  if (!is_float(x.dtype())) throw DTypeError(graph::describe(op, "takes floats; cast it", {{"x", x}}, where));
  return x;
}
void check_extents(std::string_view op, const Shape& shape) {
  for (const Extent extent : shape)
    if (extent < 0) throw ShapeError(fmt::format("{}: negative extent in {}", op, shape.to_string()));
}

/// Uniform in (0, 1).
Tensor open_unit(const Shape& shape, DType type, Where where) {
  return maximum(rand(shape, 0, 1, type, where), kLeastUnit);
}
/// Of rate 1, more than 0.
Tensor waiting_time(const Shape& shape, DType type, Where where) { return -log(open_unit(shape, type, where)); }

}  // namespace

Tensor rand_like(const Tensor& like, double low, double high, Where where) {
  const DType type = float_like("rand_like", like, where).dtype();
  return cast(rand(like.shape(), low, high, compute_type(type), where), type, where);
}
Tensor randn_like(const Tensor& like, double mean, double deviation, Where where) {
  const DType type = float_like("randn_like", like, where).dtype();
  return cast(randn(like.shape(), mean, deviation, compute_type(type), where), type, where);
}

Tensor randint(Extent low, Extent high, const Shape& shape, Where where) {
  constexpr double kMost = 0x1p24;
  const double count = static_cast<double>(high) - static_cast<double>(low);
  if (!(count >= 1 && count <= kMost) || low < INT32_MIN || high - 1 > INT32_MAX)
    throw UsageError(fmt::format("randint: [{}, {}) is not a range of 1 to 2^24 numbers of 32 bits", low, high));
  check_extents("randint", shape);
  // The product may round up to `count`.
  const Tensor each = minimum(cast(floor(rand(shape, 0, count, DType::f32, where)), DType::i32), count - 1);
  return each + static_cast<double>(low);
}

Tensor randperm(Extent n, Where where) {
  check_extents("randperm", {n});
  Tensor order = argsort(rand({n}, 0, 1, DType::f32, where), 0, false, where);
  // Of many draws some are equal, and keep their order: a second draw decides.
  constexpr Extent kFew = 256;
  if (n <= kFew) return order;
  return take_along_axis(order, argsort(rand({n}, 0, 1, DType::f32, where), 0, false, where), 0, where);
}

Tensor bernoulli(const Tensor& probability, Where where) {
  float_like("bernoulli", probability, where);
  const DType type = probability.dtype();
  const Tensor unit = rand(probability.shape(), 0, 1, compute_type(type), where);
  return cast(unit < cast(probability, compute_type(type), where), type, where);
}

Tensor multinomial(const Tensor& weights, Extent count, bool replacement, Where where) {
  float_like("multinomial", weights, where);
  const auto fail = [&](const std::string& fact) {
    return ShapeError(graph::describe("multinomial", fact, {{"weights", weights}}, where));
  };
  if (weights.rank() == 0) throw fail("weights are a scalar");
  const Extent n = weights.dim(-1);
  if (n == 0) throw fail("there are no weights");
  if (count < 0 || (!replacement && count > n))
    throw fail(fmt::format("{} draws of {}{}", count, n, replacement ? "" : " without replacement"));
  const Tensor w = cast(weights, compute_type(weights.dtype()), where);
  if (!replacement)  // the largest of ln(w) + gumbel is drawn in proportion to w, then the next one of the rest
    return topk(log(w) - log(waiting_time(w.shape(), w.dtype(), where)), count, -1, true, where).positions;
  const Tensor sums = cumsum(w, -1, false, false, where);
  Shape shape = w.shape();
  shape[w.rank() - 1] = count;
  const Tensor goal = rand(shape, 0, 1, w.dtype(), where) * narrow(sums, -1, n - 1, 1, where);
  const Tensor drawn = searchsorted(sums, goal, /*right=*/true, where);
  // Rounding may take a goal to the sum of all: then the last weight that is not 0 is drawn.
  const Tensor last = sum(cast(sums < narrow(sums, -1, n - 1, 1, where), DType::i32), {-1}, {.keepdims = true}, where);
  return minimum(drawn, last);
}

// The largest of logits + gumbel is drawn in proportion to e^logits.
Tensor categorical(const Tensor& logits, Where where) {
  float_like("categorical", logits, where);
  if (logits.rank() == 0 || logits.dim(-1) == 0)
    throw ShapeError(graph::describe("categorical", "there are no classes", {{"logits", logits}}, where));
  const Tensor x = cast(logits, compute_type(logits.dtype()), where);
  return argmax(x - log(waiting_time(x.shape(), x.dtype(), where)), -1);
}

Tensor poisson(const Tensor& rate, Where where) {
  const DType type = float_like("poisson", rate, where).dtype();
  const Tensor each = detach(cast(rate, compute_type(type), where));
  const Tensor unit = rand(each.shape(), 0, 1, each.dtype(), where);
  const Tensor counts = graph::call(graph::poisson_quantile_row(), {each, unit}, graph::Words{}, where);
  // Of large rates: the normal distribution with the first correction for the skewness (Cornish and Fisher).
  const Tensor z = ndtri(maximum(unit, kLeastUnit));
  const Tensor nearly_normal = floor(each + sqrt(each) * z + (z * z - 1.0) / 6.0 + 0.5);
  return cast(weft::where(each > graph::kPoissonRateMax, nearly_normal, counts, where), type, where);
}

Tensor rrelu(const Tensor& x, double lower, double upper, bool training, Where where) {
  float_like("rrelu", x, where);
  if (!(lower <= upper)) throw UsageError(fmt::format("rrelu: no slope is between {} and {}", lower, upper));
  if (!training) return elementwise("leaky_relu", {x}, {(lower + upper) / 2}, where);
  const Tensor slope = rand_like(x, lower, upper, where);
  return weft::where(x < 0.0, x * slope, x, where);
}

Tensor normal(const Tensor& mean, const Tensor& deviation, Where where) {
  const DType type = promote(float_like("normal", mean, where).dtype(), float_like("normal", deviation, where).dtype());
  Shape shape;
  if (!graph::broadcast_shapes(mean.shape(), deviation.shape(), shape))
    throw ShapeError(graph::describe("normal", "mean and deviation do not broadcast",
                                     {{"mean", mean}, {"deviation", deviation}}, where));
  const DType wide = compute_type(type);
  const Tensor z = randn(shape, 0, 1, wide, where);
  return cast(cast(mean, wide, where) + cast(deviation, wide, where) * z, type, where);
}
Tensor normal(const Tensor& mean, double deviation, Where where) {
  return normal(mean, scalar_like(deviation, float_like("normal", mean, where)), where);
}
Tensor normal(double mean, const Tensor& deviation, Where where) {
  return normal(scalar_like(mean, float_like("normal", deviation, where)), deviation, where);
}

namespace {

void check_probability(std::string_view op, double p) {
  if (!(p >= 0 && p <= 1)) throw UsageError(fmt::format("{}: probability {} is outside of [0, 1]", op, p));
}

/// [N, C, 1, ..] of x [N, C, ..].
Shape one_for_each_channel(std::string_view op, const Tensor& x, Where where) {
  if (x.rank() < 2) throw ShapeError(graph::describe(op, "x is not [images, channels, ..]", {{"x", x}}, where));
  Shape shape{x.dim(0), x.dim(1)};
  while (shape.rank() < x.rank()) shape.push_back(1);
  return shape;
}

/// Elements of x, or -1.758 where a draw of `shape` is below p; with mean 0 and variance 1 of such x.
Tensor dropped_to_alpha(const Tensor& x, const Shape& shape, double p, Where where) {
  if (p == 0) return x;
  const DType type = compute_type(x.dtype());
  if (p == 1) return x * 0.0;
  constexpr double kLeast = -1.7580993408473766;  // of selu: -scale alpha
  const double keep = 1 - p, scale = 1 / std::sqrt(keep + kLeast * kLeast * keep * p), shift = -scale * kLeast * p;
  const Tensor kept = rand(shape, 0, 1, type, where) >= p, wide = cast(x, type, where);
  return cast(weft::where(kept, wide, scalar_like(kLeast, wide), where) * scale + shift, x.dtype(), where);
}

}  // namespace

Tensor channel_dropout(const Tensor& x, double p, Where where) {
  float_like("channel_dropout", x, where);
  check_probability("channel_dropout", p);
  const Shape channels = one_for_each_channel("channel_dropout", x, where);
  if (p == 0) return x;
  const DType type = compute_type(x.dtype());
  return x * cast(dropout(ones(channels, type, x.device()), p, where), x.dtype(), where);
}
Tensor alpha_dropout(const Tensor& x, double p, Where where) {
  check_probability("alpha_dropout", p);
  return dropped_to_alpha(float_like("alpha_dropout", x, where), x.shape(), p, where);
}
Tensor feature_alpha_dropout(const Tensor& x, double p, Where where) {
  check_probability("feature_alpha_dropout", p);
  float_like("feature_alpha_dropout", x, where);
  return dropped_to_alpha(x, one_for_each_channel("feature_alpha_dropout", x, where), p, where);
}

Tensor exponential(const Shape& shape, double rate, DType type, Where where) {
  check_extents("exponential", shape);
  if (!(rate > 0)) throw UsageError(fmt::format("exponential: rate {} is not positive", rate));
  return waiting_time(shape, type, where) / rate;
}

Tensor gumbel(const Shape& shape, double location, double scale, DType type, Where where) {
  check_extents("gumbel", shape);
  if (!(scale > 0)) throw UsageError(fmt::format("gumbel: scale {} is not positive", scale));
  return log(waiting_time(shape, type, where)) * -scale + location;
}

namespace {

/// The z with erf(z) = x, for |x| < 1: the approximation of Winitzki (2008), which is within 0.2 %, and steps of Newton's.
Tensor inverse_erf(const Tensor& x) {
  constexpr double kShape = 0.147, kFirst = 2 / (std::numbers::pi * kShape);
  const Tensor logs = log1p(-(x * x)), half = logs * 0.5 + kFirst;
  Tensor z = copysign(sqrt(sqrt(half * half - logs / kShape) - half), x);
  for (int step = 0; step < 2; ++step)
    z = z - (erf(z) - x) * exp(minimum(z * z, 80.0)) * (0.5 * std::sqrt(std::numbers::pi));
  return z;
}

}  // namespace

Tensor truncated_normal(const Shape& shape, double mean, double deviation, double low, double high, DType type,
                        Where where) {
  check_extents("truncated_normal", shape);
  if (!(deviation > 0)) throw UsageError(fmt::format("truncated_normal: deviation {} is not positive", deviation));
  if (!(low < high)) throw UsageError(fmt::format("truncated_normal: no number is between {} and {}", low, high));
  // Where the cumulative distribution reaches a number between its values at the bounds.
  const auto share = [&](double bound) { return std::erf((bound - mean) / deviation / std::numbers::sqrt2); };
  constexpr double kLargest = 1 - 0x1p-23;  // of erf, whose inverse is finite in f32
  const double from = std::clamp(share(low), -kLargest, kLargest), to = std::clamp(share(high), -kLargest, kLargest);
  const Tensor z = inverse_erf(rand(shape, from, to, type, where)) * std::numbers::sqrt2;
  return clamp(z * deviation + mean, low, high);
}

namespace runtime {
namespace {

using graph::Arguments;
using graph::OpRow;
using graph::Tensors;
using Ints = std::vector<Extent>;

OpRow dropout_row(std::string name, std::vector<std::string> aliases, std::string doc,
                  Tensor (*function)(const Tensor&, double, Where), const std::string& of_one_axis) {
  OpRow row{.name = std::move(name),
            .aliases = std::move(aliases),
            .family = "random",
            .inputs = {{"x", ops::DTypes::floats}},
            .attributes = {random_number("p", 0.5, "probability of a drop"), random_seed()},
            .doc = std::move(doc),
            .cases = {{"some", {{{5, 20, 3}}}, {{"p", 0.3}, {"seed", Extent{7}}}},
                      {"none", {{{5, 4}}}, {{"p", 0.0}}},
                      {"all", {{{5, 4}}}, {{"p", 1.0}}}},
            .errors = {{"above 1", {{{4, 3}}}, {{"p", 1.5}}, "probability 1.5 is outside of [0, 1]"},
                       {"integers", {{{4, 3}, 0, 4, DType::i32}}, {}, "takes floats"}},
            .apply = [function](const Arguments& a) {
              take_seed(a);
              return Tensors{function(a.input(0), a.number("p"), Where::current())};
            }};
  if (!of_one_axis.empty()) row.errors.push_back({"one axis", {{{4}}}, {}, of_one_axis});
  return row;
}

const std::vector<OpRow>& rows_of_distributions() {
  static const std::vector<OpRow> rows = {
      {.name = "rand_like",
       .family = "random",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = {random_number("low", 0, "lower bound"), random_number("high", 1, "upper bound, not included"),
                      random_seed()},
       .differentiable = false,
       .doc = "Uniform in [low, high), in the shape and dtype of x.",
       .cases = {{"two axes", {{{10, 100}}}, {{"seed", Extent{7}}}}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{rand_like(a.input(0), a.number("low"), a.number("high"))};
           }},
      {.name = "randn_like",
       .family = "random",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = {random_number("mean", 0, "mean of the distribution"),
                      random_number("deviation", 1, "standard deviation", {"std"}), random_seed()},
       .differentiable = false,
       .doc = "Normal, in the shape and dtype of x.",
       .cases = {{"two axes", {{{10, 100}}}, {{"seed", Extent{7}}}}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{randn_like(a.input(0), a.number("mean"), a.number("deviation"))};
           }},
      {.name = "randint",
       .family = "random",
       .attributes = {random_whole("low", "least number"), random_whole("high", "upper bound, not included"),
                      random_shape(), random_seed()},
       .result = "i32",
       .differentiable = false,
       .doc = "Whole numbers in [low, high), equally likely.",
       .cases = {{"dice", {}, {{"low", Extent{1}}, {"high", Extent{7}}, {"shape", Ints{200}}, {"seed", Extent{7}}}}},
       .errors = {{"none", {}, {{"low", Extent{1}}, {"high", Extent{1}}, {"shape", Ints{2}}}, "[1, 1) is not a range"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{randint(a.integer("low"), a.integer("high"), a.shape("shape"))};
           }},
      {.name = "randperm",
       .family = "random",
       .attributes = {random_whole("n", "how many"), random_seed()},
       .result = "i32",
       .differentiable = false,
       .doc = "0, ..., n - 1 in random order.",
       .cases = {{"few", {}, {{"n", Extent{50}}, {"seed", Extent{7}}}},
                 {"many", {}, {{"n", Extent{1000}}, {"seed", Extent{7}}}}},
       .errors = {{"negative", {}, {{"n", Extent{-1}}}, "negative extent"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{randperm(a.integer("n"))};
           }},
      {.name = "bernoulli",
       .family = "random",
       .inputs = {{"probability", ops::DTypes::floats}},
       .attributes = {random_seed()},
       .result = "that of probability",
       .differentiable = false,
       .doc = "1 with these probabilities, else 0.",
       .onnx = "Bernoulli",
       .cases = {{"two axes", {{{10, 100}, 0, 1}}, {{"seed", Extent{7}}}}},
       .errors = {{"integers", {{{4}, 0, 1, DType::i32}}, {}, "takes floats"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{bernoulli(a.input(0))};
           }},
      {.name = "multinomial",
       .family = "random",
       .inputs = {{"weights", ops::DTypes::floats}},
       .attributes = {random_whole("count", "draws of each line"),
                      {.name = "replacement",
                       .type = graph::AttributeType::boolean,
                       .default_value = false,
                       .doc = "whether one may be drawn twice"},
                      random_seed()},
       .result = "i32",
       .differentiable = false,
       .doc = "Positions along the last axis, drawn in proportion to the weights.",
       .onnx = "Multinomial",
       .cases = {{"with replacement",
                  {{{3, 20}, 0, 1}},
                  {{"count", Extent{50}}, {"replacement", true}, {"seed", Extent{7}}}}},
       .errors = {{"too many", {{{4}, 0, 1}}, {{"count", Extent{5}}}, "5 draws of 4 without replacement"},
                  {"a scalar", {{{}, 0, 1}}, {{"count", Extent{5}}}, "weights are a scalar"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{multinomial(a.input(0), a.integer("count"), a.boolean("replacement"))};
           }},
      {.name = "categorical",
       .family = "random",
       .inputs = {{"logits", ops::DTypes::floats}},
       .attributes = {random_seed()},
       .result = "i32",
       .differentiable = false,
       .doc = "A position along the last axis for each line, drawn in proportion to e^logits.",
       .cases = {{"lines", {{{40, 7}}}, {{"seed", Extent{7}}}}},
       .errors = {{"a scalar", {{{}}}, {}, "there are no classes"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{categorical(a.input(0))};
           }},
      {.name = "poisson",
       .family = "random",
       .inputs = {{"rate", ops::DTypes::floats}},
       .attributes = {random_seed()},
       .result = "that of rate",
       .differentiable = false,
       .doc = "Counts of events that come at these rates. NaN for a negative rate.",
       .formula = "P(y = k) = rate^k e^-rate / k!",
       .cases = {{"small rates", {{{10, 20}, 0, 6}}, {{"seed", Extent{7}}}},
                 {"large rates", {{{40}, 100, 3000}}, {{"seed", Extent{7}}}}},
       .errors = {{"integers", {{{4}, 0, 1, DType::i32}}, {}, "takes floats"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{poisson(a.input(0))};
           }},
      {.name = "normal",
       .family = "random",
       .inputs = {{"mean", ops::DTypes::floats}, {"deviation", ops::DTypes::floats}},
       .attributes = {random_seed()},
       .result = "that of the inputs",
       .doc = "Normal, with a mean and a deviation for each element; gradients flow to both.",
       .formula = "y = mean + deviation z",
       .cases = {{"broadcast", {{{6, 50}}, {{50}, 0.5, 2}}, {{"seed", Extent{7}}}}},
       .errors = {{"other shapes", {{{6}}, {{5}}}, {}, "mean and deviation do not broadcast"},
                  {"integers", {{{6}, 0, 4, DType::i32}, {{6}}}, {}, "takes floats"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{normal(a.input(0), a.input(1))};
           }},
      dropout_row("channel_dropout", {"dropout1d", "dropout2d", "dropout3d"},
                  "Each channel of each image kept with probability 1-p and then divided by 1-p, else 0.",
                  channel_dropout, "x is not [images, channels, ..]"),
      dropout_row("alpha_dropout", {},
                  "Each element the least value of selu with probability p; mean and variance are kept.", alpha_dropout,
                  ""),
      dropout_row("feature_alpha_dropout", {}, "alpha_dropout of whole channels of x [N, C, ..].",
                  feature_alpha_dropout, "x is not [images, channels, ..]"),
      {.name = "rrelu",
       .family = "random",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = {random_number("lower", 0.125, "least slope"),
                      random_number("upper", 1.0 / 3, "largest slope"),
                      {.name = "training",
                       .type = graph::AttributeType::boolean,
                       .default_value = true,
                       .doc = "draws slopes; otherwise each is the mean of the bounds"},
                      random_seed()},
       .doc = "x where it is not negative, else x times a slope drawn between two bounds.",
       .cases = {{"slopes", {{{10, 100}}}, {{"seed", Extent{7}}}, false},
                 {"one slope", {{{5, 6}}}, {{"training", false}}}},
       .errors = {{"bounds", {{{3}}}, {{"lower", 0.5}}, "no slope is between 0.5 and"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{rrelu(a.input(0), a.number("lower"), a.number("upper"), a.boolean("training"))};
           }},
      {.name = "exponential",
       .family = "random",
       .attributes = {random_shape(), random_number("rate", 1, "one over the mean"), random_dtype(), random_seed()},
       .result = "as given",
       .differentiable = false,
       .doc = "Waiting times of a rate.",
       .cases = {{"one axis", {}, {{"shape", Ints{1000}}, {"seed", Extent{7}}}}},
       .errors = {{"no rate", {}, {{"shape", Ints{3}}, {"rate", 0.0}}, "rate 0 is not positive"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{exponential(a.shape("shape"), a.number("rate"), a.dtype("dtype"))};
           }},
      {.name = "gumbel",
       .family = "random",
       .attributes = {random_shape(), random_number("location", 0, "location of the peak"),
                      random_number("scale", 1, "its width"), random_dtype(), random_seed()},
       .result = "as given",
       .differentiable = false,
       .doc = "The distribution of the largest of many.",
       .cases = {{"one axis", {}, {{"shape", Ints{1000}}, {"seed", Extent{7}}}}},
       .errors = {{"no scale", {}, {{"shape", Ints{3}}, {"scale", -1.0}}, "scale -1 is not positive"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{gumbel(a.shape("shape"), a.number("location"), a.number("scale"), a.dtype("dtype"))};
           }},
      {.name = "truncated_normal",
       .aliases = {"trunc_normal"},
       .family = "random",
       .attributes = {random_shape(), random_number("mean", 0, "of the whole distribution"),
                      random_number("deviation", 1, "of the whole distribution", {"std"}),
                      random_number("low", -2, "least draw", {"a"}), random_number("high", 2, "largest draw", {"b"}),
                      random_dtype(), random_seed()},
       .result = "as given",
       .differentiable = false,
       .doc = "The normal distribution between two bounds.",
       .cases = {{"one axis", {}, {{"shape", Ints{1000}}, {"seed", Extent{7}}}}},
       .errors = {{"no deviation", {}, {{"shape", Ints{3}}, {"deviation", 0.0}}, "deviation 0 is not positive"},
                  {"bounds", {}, {{"shape", Ints{3}}, {"low", 3.0}}, "no number is between 3 and 2"}},
       .apply =
           [](const Arguments& a) {
             take_seed(a);
             return Tensors{truncated_normal(a.shape("shape"), a.number("mean"), a.number("deviation"), a.number("low"),
                                             a.number("high"), a.dtype("dtype"))};
           }},
  };
  return rows;
}

}  // namespace

graph::OpRows distribution_family() {
  graph::OpRows list;
  for (const OpRow& row : rows_of_distributions()) list.push_back(&row);
  return list;
}

}  // namespace runtime
}  // namespace weft
