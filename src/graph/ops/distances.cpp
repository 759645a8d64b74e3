// Distances and similarities, made of norms of differences.
#include "weft/ops/distances.hpp"

#include <fmt/format.h>

#include <cmath>

#include "graph/axes.hpp"
#include "graph/describe.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops/indexing.hpp"
#include "weft/ops/making.hpp"
#include "weft/ops/statistics.hpp"

namespace weft {

using graph::describe;

namespace {

using DistanceOperands = std::vector<std::pair<std::string, Tensor>>;

/// Errors of operands without a value, of a p that is not a number, and of integers unless these are taken.
void check_distance(std::string_view op, const DistanceOperands& operands, double p, bool takes_integers, Where where) {
  for (const auto& [name, tensor] : operands) {
    if (!tensor.defined()) throw UsageError(fmt::format("{}: {} has no value", op, name));
    if (!takes_integers && !is_float(tensor.dtype()))
      throw DTypeError(describe(op, fmt::format("takes floats; cast {}", name), operands, where));
    if (tensor.device() != operands[0].second.device())
      throw DeviceError(describe(op, "operands on different devices; move one with .to(device)", operands, where));
  }
  if (std::isnan(p)) throw UsageError(describe(op, "p is NaN", operands, where));
}

/// Floats as they are, other numbers in f32.
Tensor as_floats(const Tensor& x, Where where) { return is_float(x.dtype()) ? x : cast(x, DType::f32, where); }
Tensor in_compute_type(const Tensor& x, Where where) { return cast(x, compute_type(x.dtype()), where); }

/// Products pay for many points of many coordinates (2000 of 64 in a sixth of the time, 60 of 8 in twice the time), and f64 holds
/// twice the digits of the points.
bool multiplies(const Tensor& x, const Tensor& y, DType type) {
  constexpr Extent kFewPoints = 25, kFewCoordinates = 16;
  return x.device().kind == Device::Kind::cpu && type != DType::f64 && x.dim(-1) >= kFewCoordinates &&
         (x.dim(-2) > kFewPoints || y.dim(-2) > kFewPoints);
}

Tensor euclidean_by_products(const Tensor& x, const Tensor& y, Where where) {
  const bool is_cpu = x.device().kind == Device::Kind::cpu;
  const DType type = is_cpu ? DType::f64 : compute_type(promote(x.dtype(), y.dtype()));
  const Tensor all = cast(y, type, where);
  // The distances do not depend on the middle, so no gradient flows through it.
  const Tensor middle = detach(mean(all, -2, {.keepdims = true}, where));
  const Tensor a = cast(x, type, where) - middle, b = all - middle;
  const Tensor sizes = sum(square(a), -1, {.keepdims = true}, where) + unsqueeze(sum(square(b), -1, {}, where), -2);
  const Tensor squares = sizes - matmul(a, transpose(b), where) * 2.0;
  // What rounding leaves of equal points would have a slope as large as the distance is small.
  const double least = is_cpu ? 0x1p-46 : 0x1p-20;
  const Tensor is_zero = squares <= sizes * least;
  const Tensor root = sqrt(weft::where(is_zero, scalar_like(1, squares), squares));
  return weft::where(is_zero, scalar_like(0, root), root);
}

}  // namespace

Tensor cdist(const Tensor& x, const Tensor& y, double p, DistanceMethod method, Where where) {
  const DistanceOperands operands = {{"x", x}, {"y", y}};
  check_distance("cdist", operands, p, false, where);
  const auto fail = [&](std::string_view fact) { return describe("cdist", fact, operands, where); };
  if (p < 0) throw UsageError(fail(fmt::format("p is {}; it must not be below 0", p)));
  if (x.rank() < 2 || y.rank() < 2) throw ShapeError(fail("points are rows: x is [..., n, k] and y [..., m, k]"));
  if (x.dim(-1) != y.dim(-1)) throw ShapeError(fail("the points of x and y have different numbers of coordinates"));
  const auto batch = [](const Tensor& t) { return Shape(std::vector<Extent>(t.shape().begin(), t.shape().end() - 2)); };
  Shape shape;
  if (!graph::broadcast_shapes(batch(x), batch(y), shape)) throw ShapeError(fail("the leading axes do not broadcast"));
  if (method == DistanceMethod::products && p != 2) throw UsageError(fail("products give distances of p = 2 only"));
  const DType type = promote(x.dtype(), y.dtype());
  if (x.dim(-1) == 0) {
    shape.push_back(x.dim(-2));
    shape.push_back(y.dim(-2));
    return full(shape, 0, type, x.device());
  }
  if (p == 2 && (method == DistanceMethod::products || (method == DistanceMethod::automatic && multiplies(x, y, type))))
    return cast(euclidean_by_products(x, y, where), type, where);
  const Tensor differences = unsqueeze(in_compute_type(x, where), -2) - unsqueeze(in_compute_type(y, where), -3);
  return cast(vector_norm(differences, p, -1, {}, where), type, where);
}

Tensor pdist(const Tensor& x, double p, Where where) {
  check_distance("pdist", {{"x", x}}, p, false, where);
  if (x.rank() != 2) throw ShapeError(describe("pdist", "x is not [points, coordinates]", {{"x", x}}, where));
  if (p < 0) throw UsageError(describe("pdist", fmt::format("p is {}; it must not be below 0", p), {{"x", x}}, where));
  const Extent n = x.dim(0);
  const Tensor pairs = triu_indices(n, n, 1, x.device());
  const Tensor at = select(pairs, 0, 0, where) * static_cast<double>(n) + select(pairs, 0, 1, where);
  return take(cdist(x, x, p, DistanceMethod::automatic, where), at, where);
}

Tensor pairwise_distance(const Tensor& x, const Tensor& y, double p, double eps, ReduceOptions options, Where where) {
  const DistanceOperands operands = {{"x", x}, {"y", y}};
  check_distance("pairwise_distance", operands, p, true, where);
  Shape shape;
  if (!graph::broadcast_shapes(x.shape(), y.shape(), shape) || shape.rank() == 0)
    throw ShapeError(describe("pairwise_distance", "x and y do not broadcast to rows [..., k]", operands, where));
  const Tensor a = as_floats(x, where), b = as_floats(y, where);
  const Tensor differences = in_compute_type(a, where) - in_compute_type(b, where) + eps;
  return cast(vector_norm(differences, p, -1, options, where), promote(a.dtype(), b.dtype()), where);
}

Tensor dist(const Tensor& x, const Tensor& y, double p, Where where) {
  const DistanceOperands operands = {{"x", x}, {"y", y}};
  check_distance("dist", operands, p, true, where);
  Shape shape;
  if (!graph::broadcast_shapes(x.shape(), y.shape(), shape))
    throw ShapeError(describe("dist", "x and y do not broadcast", operands, where));
  const Tensor a = as_floats(x, where), b = as_floats(y, where);
  return cast(vector_norm(in_compute_type(a, where) - in_compute_type(b, where), p, {}, {}, where),
              promote(a.dtype(), b.dtype()), where);
}

Tensor cosine_similarity(const Tensor& x, const Tensor& y, int axis, double eps, Where where) {
  const DistanceOperands operands = {{"x", x}, {"y", y}};
  check_distance("cosine_similarity", operands, 2, false, where);
  Shape shape;
  if (!graph::broadcast_shapes(x.shape(), y.shape(), shape))
    throw ShapeError(describe("cosine_similarity", "x and y do not broadcast", operands, where));
  const Tensor a = expand(in_compute_type(x, where), shape, where), b = expand(in_compute_type(y, where), shape, where);
  const int along = graph::normalized_axis("cosine_similarity", a, axis, where);
  const auto length = [&](const Tensor& v) { return maximum(norm(v, along, {.keepdims = true}, where), eps); };
  return cast(sum(a / length(a) * (b / length(b)), along, {}, where), promote(x.dtype(), y.dtype()), where);
}

Tensor renorm(const Tensor& x, double p, int axis, double most, Where where) {
  check_distance("renorm", {{"x", x}}, p, false, where);
  const auto fail = [&](std::string_view fact) { return describe("renorm", fact, {{"x", x}}, where); };
  if (x.rank() < 2) throw ShapeError(fail("x has fewer than two axes; its slices have no axis"));
  if (!(p > 0)) throw UsageError(fail(fmt::format("p is {}; it must be above 0", p)));
  if (!(most >= 0)) throw UsageError(fail(fmt::format("the largest norm is {}; it must not be below 0", most)));
  const int along = graph::normalized_axis("renorm", x, axis, where);
  Axes others;
  for (int a = 0; a < x.rank(); ++a)
    if (a != along) others.push_back(a);
  constexpr double kSmall = 1e-7;  // PyTorch's, which keeps the norm just below `most`
  const Tensor wide = in_compute_type(x, where), norms = vector_norm(wide, p, others, {.keepdims = true}, where);
  const Tensor factor = weft::where(norms > most, most / (norms + kSmall), scalar_like(1, norms));
  return cast(wide * factor, x.dtype(), where);
}

namespace graph {
namespace {

AttributeSpec distance_order(double fallback = 2) {
  return {.name = "p", .default_value = fallback, .doc = "order of the norm", .aliases = {"ord"}};
}
AttributeSpec small_number(double fallback, std::string doc) {
  return {.name = "eps", .default_value = fallback, .doc = std::move(doc)};
}

std::vector<OpCase> cases_of_cdist() {
  std::vector<OpCase> cases;
  for (const double p : std::vector<double>{2, 1, 3, 1.5, 0, INFINITY})
    cases.push_back({fmt::format("p = {}", p), {{{4, 5}}, {{3, 5}}}, {{"p", p}}});
  cases.push_back({"in batches that broadcast", {{{2, 1, 4, 3}}, {{3, 5, 3}}}});
  cases.push_back({"many points", {{{30, 17}}, {{28, 17}}}});
  cases.push_back({"by products", {{{6, 8}}, {{7, 8}}}, {{"method", std::string("products")}}});
  cases.push_back({"points that are equal",
                   {{.shape = {2, 2}, .values = {1, 2, -1, 0.5}}, {.shape = {2, 2}, .values = {1, 2, 0, 3}}},
                   {},
                   false});
  return cases;
}

const std::vector<OpRow>& rows_of_distances() {
  static const std::vector<OpRow> rows = {
      {.name = "cdist",
       .family = "distance",
       .inputs = {{"x", ops::DTypes::floats}, {"y", ops::DTypes::floats}},
       .attributes = {distance_order(),
                      {.name = "method",
                       .type = AttributeType::choice,
                       .default_value = std::string("automatic"),
                       .doc = "sums of differences, or for p = 2 a matrix product",
                       .choices = {"automatic", "differences", "products"}}},
       .doc = "The distance of every point of x [.., n, k] from every point of y [.., m, k].",
       .formula = "d_ij = (sum_k |x_ik - y_jk|^p)^(1/p)",
       .torch = "torch.cdist(x, y, p, compute_mode='donot_use_mm_for_euclid_dist')",
       .cases = cases_of_cdist(),
       .errors = {{"negative", {{{4, 5}}, {{3, 5}}}, {{"p", -1.0}}, "p is -1; it must not be below 0"},
                  {"one point", {{{5}}, {{3, 5}}}, {}, "points are rows"},
                  {"other coordinates", {{{4, 5}}, {{3, 4}}}, {}, "different numbers of coordinates"},
                  {"other batches", {{{2, 4, 5}}, {{3, 4, 5}}}, {}, "the leading axes do not broadcast"},
                  {"products for another norm",
                   {{{4, 5}}, {{3, 5}}},
                   {{"p", 1.0}, {"method", std::string("products")}},
                   "products give distances of p = 2 only"},
                  {"integers", {{{4, 5}, 0, 4, DType::i32}, {{3, 5}}}, {}, "takes floats; cast x"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{
                 weft::cdist(a.input(0), a.input(1), a.number("p"), static_cast<DistanceMethod>(a.choice("method")))};
           }},
      {.name = "pdist",
       .family = "distance",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = {distance_order()},
       .doc = "The distances of all pairs of different points of x [n, k], row by row.",
       .formula = "d_ij = (sum_k |x_ik - x_jk|^p)^(1/p) for i < j",
       .torch = "F.pdist(x, p)",
       .cases = {{"p = 2", {{{6, 4}}}},
                 {"p = 1", {{{6, 4}}}, {{"p", 1.0}}},
                 {"the largest", {{{6, 4}}}, {{"p", INFINITY}}},
                 {"one point", {{{1, 4}}}}},
       .errors = {{"one axis", {{{5}}}, {}, "x is not [points, coordinates]"},
                  {"negative", {{{4, 5}}}, {{"p", -2.0}}, "p is -2; it must not be below 0"}},
       .apply = [](const Arguments& a) { return Tensors{weft::pdist(a.input(0), a.number("p"))}; }},
      {.name = "pairwise_distance",
       .family = "distance",
       .inputs = {{"x", ops::DTypes::numbers}, {"y", ops::DTypes::numbers}},
       .attributes = {distance_order(),
                      small_number(1e-6, "added to differences"),
                      {.name = "keepdims",
                       .type = AttributeType::boolean,
                       .default_value = false,
                       .doc = "whether the last axis stays, with extent 1",
                       .aliases = {"keepdim"}}},
       .result = "float",
       .doc = "The distance of x from y row by row, along the last axis.",
       .formula = "d = (sum_k |x_k - y_k + eps|^p)^(1/p)",
       .torch = "F.pairwise_distance(x, y, p, eps, keepdims)",
       .cases = {{"rows", {{{6, 5}}, {{6, 5}}}},
                 {"broadcast, kept", {{{2, 6, 5}}, {{6, 5}}}, {{"p", 1.0}, {"keepdims", true}}}},
       .errors = {{"other shapes", {{{6, 5}}, {{6, 4}}}, {}, "do not broadcast to rows"},
                  {"scalars", {{{}}, {{}}}, {}, "do not broadcast to rows"},
                  {"NaN", {{{5}}, {{5}}}, {{"p", std::nan("")}}, "p is NaN"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::pairwise_distance(a.input(0), a.input(1), a.number("p"), a.number("eps"),
                                                    {a.boolean("keepdims")})};
           }},
      {.name = "dist",
       .family = "distance",
       .inputs = {{"x", ops::DTypes::numbers}, {"y", ops::DTypes::numbers}},
       .attributes = {distance_order()},
       .result = "float",
       .doc = "The p-norm of x - y over all elements.",
       .torch = "torch.dist(x, y, p)",
       .cases = {{"p = 2", {{{6, 5}}, {{6, 5}}}}, {"p = 3, broadcast", {{{6, 5}}, {{5}}}, {{"p", 3.0}}}},
       .errors = {{"other shapes", {{{6, 5}}, {{6, 4}}}, {}, "x and y do not broadcast"}},
       .apply = [](const Arguments& a) { return Tensors{weft::dist(a.input(0), a.input(1), a.number("p"))}; }},
      {.name = "cosine_similarity",
       .family = "distance",
       .inputs = {{"x", ops::DTypes::floats}, {"y", ops::DTypes::floats}},
       .attributes = {{.name = "axis",
                       .type = AttributeType::integer,
                       .default_value = Extent{1},
                       .doc = "axis of the vectors",
                       .aliases = {"dim"}},
                      small_number(1e-8, "least length of a vector")},
       .doc = "The cosine of the angle between x and y along an axis.",
       .formula = "c = sum_k x_k y_k / (max(|x|, eps) max(|y|, eps))",
       .torch = "F.cosine_similarity(x, y, axis, eps)",
       .cases = {{"rows", {{{6, 5}}, {{6, 5}}}},
                 {"columns, broadcast", {{{3, 6, 5}}, {{6, 1}}}, {{"axis", Extent{-2}}}}},
       .errors = {{"other shapes", {{{6, 5}}, {{6, 4}}}, {}, "x and y do not broadcast"},
                  {"an axis outside", {{{6}}, {{6}}}, {}, "axis 1 is outside of [-1, 1)"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::cosine_similarity(a.input(0), a.input(1), a.small("axis"), a.number("eps"))};
           }},
      {.name = "renorm",
       .family = "distance",
       .inputs = {{"x", ops::DTypes::floats}},
       .attributes = {distance_order(),
                      {.name = "axis",
                       .type = AttributeType::integer,
                       .default_value = Extent{0},
                       .doc = "axis that counts the slices",
                       .aliases = {"dim"}},
                      {.name = "most", .doc = "largest norm of a slice", .aliases = {"maxnorm", "max_norm"}}},
       .doc = "x with the slices along an axis made shorter whose p-norms are above a number.",
       .formula = "y_i = x_i min(1, most / (|x_i|_p + 1e-7))",
       .torch = "torch.renorm(x, p, axis, most)",
       .cases = {{"rows", {{{6, 5}}}, {{"most", 2.5}}},
                 {"the largest, in the middle", {{{2, 6, 5}}}, {{"p", INFINITY}, {"axis", Extent{1}}, {"most", 1.9}}}},
       .errors = {{"one axis", {{{6}}}, {{"most", 1.0}}, "x has fewer than two axes"},
                  {"no order", {{{6, 5}}}, {{"p", 0.0}, {"most", 1.0}}, "p is 0; it must be above 0"},
                  {"negative", {{{6, 5}}}, {{"most", -1.0}}, "the largest norm is -1"}},
       .apply =
           [](const Arguments& a) {
             return Tensors{weft::renorm(a.input(0), a.number("p"), a.small("axis"), a.number("most"))};
           }},
  };
  return rows;
}

}  // namespace

OpRows distance_rows() {
  OpRows list;
  for (const OpRow& row : rows_of_distances()) list.push_back(&row);
  return list;
}

}  // namespace graph

}  // namespace weft
