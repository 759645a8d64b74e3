// Softmaxes besides `softmax`, and soft assignment to centres.
#include "weft/ops/softmaxes.hpp"

#include <fmt/format.h>

#include <limits>

#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct SoftmaxAttributes {
  Extent axis = -1;
  double temperature = 1;
  bool hard = false;
};
struct GroupAttributes {
  Extent size = 1;
};
struct CentreAttributes {
  double temperature = 1;
  bool features = false;
};

AttributeSpec softmax_axis() { return field("axis", &SoftmaxAttributes::axis, "axis", {.aliases = {"dim"}}); }
AttributeSpec softmax_temperature() { return field("temperature", &SoftmaxAttributes::temperature, "divides x"); }

int checked_axis(const Call& c) {
  const auto a = c.attributes<SoftmaxAttributes>();
  if (!(a.temperature > 0)) c.usage_error(fmt::format("temperature is {}; it must be above 0", a.temperature));
  return c.axis(a.axis);
}
std::vector<Result> like_first(const Call& c) {
  checked_axis(c);
  return {like(c.input(0))};
}

// Rows along the last axis, and back.
template <class F>
Tensor along_last(const Tensor& x, int axis, F f) {
  return weft::transpose(f(weft::transpose(x, axis, -1)), axis, -1);
}

// Sums over the elements of each row [..., n, n] that are at least x_i: over j, for each i.
struct Above {
  explicit Above(const Tensor& x)
      : mine(weft::unsqueeze(x, -1)), other(weft::unsqueeze(x, -2)), greater(other >= mine) {}
  Tensor total(const Tensor& of) const {
    return weft::sum(elementwise("where", {greater, of, scalar_like(0, of)}), {-1});
  }
  Tensor mine, other, greater;
};

// An element stays if its share of 1 is positive together with all greater elements. The threshold is then computed from the
// elements that stay, and gradients flow through this computation.
Tensor sparse_rows(const Tensor& x) {
  const Tensor z = x - detach(amax(x, {-1}, {.keepdims = true}));
  const Above above(detach(z));
  const Tensor count = above.total(ones_like(above.other)), sum = above.total(above.other);
  const Tensor stays = detach(count * detach(z) + 1.0 > sum);
  const auto kept = [&](const Tensor& of) {
    return weft::sum(elementwise("where", {stays, of, scalar_like(0, of)}), {-1}, {.keepdims = true});
  };
  const Tensor threshold = (kept(z) - 1.0) / kept(ones_like(z));
  return elementwise("where", {stays, z - threshold, scalar_like(0, z)});
}

Tensor entmax_rows(const Tensor& x) {
  const Tensor z = (x - detach(amax(x, {-1}, {.keepdims = true}))) * 0.5;
  // t = m - sqrt((1 - s) / k), with m the mean of k elements and s the sum of their squares less k m^2.
  const auto threshold = [](const Tensor& count, const Tensor& sum, const Tensor& squares) {
    const Tensor mean = sum / count, spread = squares - sum * mean;
    return mean - elementwise("sqrt", {elementwise("maximum", {(1.0 - spread) / count, scalar_like(0, mean)})});
  };
  const Tensor fixed = detach(z);
  const Above above(fixed);
  const Tensor stays = detach(threshold(above.total(ones_like(above.other)), above.total(above.other),
                                        above.total(elementwise("square", {above.other}))) <= fixed);
  const auto kept = [&](const Tensor& of) {
    return weft::sum(elementwise("where", {stays, of, scalar_like(0, of)}), {-1}, {.keepdims = true});
  };
  const Tensor t = threshold(kept(ones_like(z)), kept(z), kept(elementwise("square", {z})));
  return elementwise("where", {stays, elementwise("square", {z - t}), scalar_like(0, z)});
}

OpRow sparse_row(std::string name, std::string doc, std::string torch, Tensor (*rows)(const Tensor&)) {
  return {.name = std::move(name),
          .family = "norm",
          .inputs = {{"x", ops::DTypes::floats}},
          .attributes = {softmax_axis()},
          .doc = std::move(doc),
          .torch = std::move(torch),
          .infer = like_first,
          .decompose =
              [rows](const Call& c) {
                const int axis = checked_axis(c);
                return Tensors{c.input(0).numel() == 0 ? c.input(0) : along_last(c.input(0), axis, rows)};
              },
          .cases = {{"rows", {{{6, 9}, -2, 2}}},
                    {"over axis 0", {{{7, 4}, -2, 2}}, {{"axis", Extent{0}}}},
                    {"far apart", {{{4, 30}, -40, 40}}},
                    {"one element", {{{3, 1}}}},
                    {"equal ones", {{.shape = {2, 4}, .values = {1, 1, 1, 1, 2, 2, 0, 0.5}}}, {}, false}},
          .errors = {{"scalar", {{{}}}, {}, "axis -1 is outside of"},
                     {"integers", {{{2, 3}, 0, 5, DType::i32}}, {}, "takes floats"}}};
}

// Bisects for the threshold, then makes one exact step with the elements that stay.
const char* const kTorchSparsemax =
    "(lambda z: (lambda s: (z - ((torch.where(s, z, 0 * z).sum(-1, keepdim=True) - 1) / s.sum(-1, "
    "keepdim=True))).clamp(min=0))"
    "((lambda v: z >= v.gather(-1, (torch.arange(1, z.shape[-1] + 1) * v + 1 > v.cumsum(-1)).sum(-1, keepdim=True) - "
    "1))"
    "(z.detach().sort(-1, descending=True)[0])))(x.transpose(axis, -1)).transpose(axis, -1)";
const char* const kTorchEntmax =
    "(lambda z: (lambda v: (lambda k: (lambda m, q: (lambda t: (lambda n: (z - t.gather(-1, n - 1)).clamp(min=0) ** 2)"
    "((t <= v).sum(-1, keepdim=True)))(m - ((1 - k * (q - m * m)) / k).clamp(min=0).sqrt()))(v.cumsum(-1) / k, (v * "
    "v).cumsum(-1) / k))"
    "(torch.arange(1, z.shape[-1] + 1)))(z.sort(-1, descending=True)[0]))((x.transpose(axis, -1) - "
    "x.transpose(axis, -1).max(-1, keepdim=True)[0]) / 2).transpose(axis, -1)";

const OpRow& sparsemax_row() {
  static const OpRow row =
      sparse_row("sparsemax", "The point of the simplex nearest to x, along an axis.", kTorchSparsemax, sparse_rows);
  return row;
}
const OpRow& entmax15_row() {
  static const OpRow row = sparse_row("entmax15", "max(x / 2 - t, 0)^2 along an axis, with t so that it adds up to 1.",
                                      kTorchEntmax, entmax_rows);
  return row;
}

const OpRow& tempered_row() {
  static const OpRow row{
      .name = "tempered_softmax",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {softmax_temperature(), softmax_axis()},
      .doc = "softmax(x / temperature) along an axis.",
      .torch = "torch.softmax(x / temperature, axis)",
      .infer = like_first,
      .decompose =
          [](const Call& c) {
            return Tensors{weft::softmax(c.input(0) * (1 / c.attributes<SoftmaxAttributes>().temperature),
                                         checked_axis(c), c.where())};
          },
      .cases = {{"hot", {{{6, 9}}}, {{"temperature", 3.0}}},
                {"cold, over axis 0", {{{6, 9}}}, {{"temperature", 0.25}, {"axis", Extent{0}}}}},
      .errors = {{"frozen", {{{6, 9}}}, {{"temperature", 0.0}}, "temperature is 0; it must be above 0"}}};
  return row;
}

const OpRow& masked_row() {
  static const OpRow row{
      .name = "masked_softmax",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}, {.name = "mask", .only = {DType::boolean}}},
      .attributes = {softmax_axis()},
      .doc = "softmax over the elements where the mask is true; 0 elsewhere, and in rows without any.",
      .torch = "torch.softmax(x.masked_fill(~mask, -float('inf')), axis).nan_to_num(0)",
      .infer =
          [](const Call& c) {
            Shape joined;
            if (!broadcast_shapes(c.input(0).shape(), c.input(1).shape(), joined) || joined != c.input(0).shape())
              c.shape_error("mask does not broadcast to x");
            return like_first(c);
          },
      .decompose =
          [](const Call& c) {
            const int axis = checked_axis(c);
            const Tensor& x = c.input(0);
            if (x.numel() == 0) return Tensors{x};
            const double infinity = std::numeric_limits<double>::infinity();
            const Tensor seen = elementwise("where", {c.input(1), x, scalar_like(-infinity, x)});
            const Tensor top = detach(amax(seen, {axis}, {.keepdims = true}));
            const Tensor e = elementwise(
                "exp", {seen - elementwise("where", {top > scalar_like(-infinity, top), top, scalar_like(0, top)})});
            const Tensor total = weft::sum(e, {axis}, {.keepdims = true});
            return Tensors{e / elementwise("where", {total > scalar_like(0, total), total, scalar_like(1, total)})};
          },
      .cases = {{"some",
                 {{{3, 4}}, {.shape = {3, 4}, .type = DType::boolean, .values = {1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1}}}},
                {"none of a row, over axis 0",
                 {{{3, 2}}, {.shape = {3, 2}, .type = DType::boolean, .values = {1, 0, 0, 0, 1, 0}}},
                 {{"axis", Extent{0}}},
                 false}},
      .errors = {{"a long mask", {{{3, 4}}, {{3, 5}, 0, 1, DType::boolean}}, {}, "mask does not broadcast to x"},
                 {"a mask of floats", {{{3, 4}}, {{3, 4}}}, {}, "mask takes bool"}}};
  return row;
}

const OpRow& grouped_row() {
  static const OpRow row{
      .name = "grouped_softmax",
      .aliases = {"grid_softmax", "hierarchical_softmax"},
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {field("size", &GroupAttributes::size, "elements of a group", {.required = true, .least = 1})},
      .doc = "softmax over groups of neighbours along the last axis.",
      .torch = "torch.softmax(x.reshape(*x.shape[:-1], -1, size), -1).reshape(x.shape)",
      .infer =
          [](const Call& c) {
            const Extent size = c.attributes<GroupAttributes>().size;
            if (c.input(0).rank() < 1 || c.input(0).dim(-1) % size != 0)
              c.shape_error(fmt::format("groups of {} do not divide the last axis of x", size));
            return std::vector<Result>{like(c.input(0))};
          },
      .decompose =
          [](const Call& c) {
            const Extent size = c.attributes<GroupAttributes>().size;
            return Tensors{weft::reshape(
                weft::softmax(weft::reshape(c.input(0), {c.input(0).numel() / size, size}), -1, c.where()),
                c.input(0).shape())};
          },
      .cases = {{"threes", {{{4, 12}}}, {{"size", Extent{3}}}}},
      .errors = {{"a rest", {{{4, 7}}}, {{"size", Extent{3}}}, "groups of 3 do not divide"}}};
  return row;
}

const OpRow& mixture_row() {
  static const OpRow row{
      .name = "mixture_softmax",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}, {"weights", ops::DTypes::floats}},
      .doc = "The softmaxes of x [..., K, n] along the last axis, added up with weights softmax(weights) [..., K].",
      .torch = "(torch.softmax(x, -1) * torch.softmax(weights, -1)[..., None]).sum(-2)",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &weights = c.input(1);
            if (x.dtype() != weights.dtype()) c.dtype_error("the dtypes differ; cast one");
            if (x.rank() < 2 || weights.shape() != Shape(std::vector<Extent>(x.shape().begin(), x.shape().end() - 1)))
              c.shape_error("weights are not [..., K] of x [..., K, n]");
            Shape shape(std::vector<Extent>(x.shape().begin(), x.shape().end() - 2));
            shape.push_back(x.dim(-1));
            return std::vector<Result>{{x.dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            return Tensors{weft::sum(
                weft::softmax(c.input(0), -1, c.where()) * weft::unsqueeze(weft::softmax(c.input(1), -1), -1), {-2})};
          },
      .cases = {{"three", {{{4, 3, 7}}, {{4, 3}}}}},
      .errors = {{"weights that differ", {{{4, 3, 7}}, {{4, 7}}}, {}, "weights are not [..., K]"}}};
  return row;
}

const OpRow& gumbel_row() {
  static const OpRow row{
      .name = "gumbel_softmax",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}, {"u", ops::DTypes::floats}},
      .attributes = {softmax_temperature(),
                     field("hard", &SoftmaxAttributes::hard,
                           "1 at the greatest, with the gradient of the relaxed draw"),
                     softmax_axis()},
      .doc = "softmax((x - ln(-ln u)) / temperature) with u uniform in [0, 1): a relaxed draw from the softmax of x.",
      .torch =
          "(lambda y: y - y.detach() + F.one_hot(y.argmax(axis), y.shape[axis]).transpose(axis, -1) if hard else y)"
          "(torch.softmax((x - (-u.detach().clamp(min=1e-10).log()).log()) / temperature, axis))",
      .infer =
          [](const Call& c) {
            if (c.input(0).shape() != c.input(1).shape()) c.shape_error("the shapes of x and u differ");
            if (c.input(0).dtype() != c.input(1).dtype()) c.dtype_error("the dtypes differ; cast one");
            return like_first(c);
          },
      .decompose =
          [](const Call& c) {
            const int axis = checked_axis(c);
            const auto a = c.attributes<SoftmaxAttributes>();
            const Tensor& x = c.input(0);
            const Tensor u = elementwise("maximum", {detach(c.input(1)), scalar_like(1e-10, c.input(1))});
            const Tensor noise = elementwise("log", {-elementwise("log", {u})});
            const Tensor y = weft::softmax((x - noise) * (1 / a.temperature), axis, c.where());
            if (!a.hard || x.numel() == 0) return Tensors{y};
            Shape along(std::vector<Extent>(static_cast<std::size_t>(x.rank()), 1));
            along[axis] = x.dim(axis);
            const Tensor place = weft::reshape(arange(x.dim(axis), DType::i32, x.device()), along);
            const Tensor hit = elementwise("eq", {place, argmax(y, axis, {.keepdims = true})});
            // Exactly 1 and 0, with the gradient of y.
            return Tensors{weft::cast(hit, y.dtype()) + (y - detach(y))};
          },
      .cases = {{"relaxed", {{{6, 9}}, {{6, 9}, 0.05, 0.95}}, {{"temperature", 0.7}}, false},
                {"hard", {{{6, 9}}, {{6, 9}, 0.05, 0.95}}, {{"hard", true}}, false}},
      .errors = {{"noise of another shape", {{{6, 9}}, {{6, 8}}}, {}, "the shapes of x and u differ"}}};
  return row;
}

const OpRow& kmeans_row() {
  static const OpRow row{
      .name = "soft_kmeans",
      .family = "network",
      .inputs = {{"x", ops::DTypes::floats}, {"centres", ops::DTypes::floats}},
      .attributes = {field("temperature", &CentreAttributes::temperature,
                           "distance at which a centre has little weight"),
                     field("features", &CentreAttributes::features, "centres, weighted, in place of their weights")},
      .doc = "softmax over k of -|x - c_k|^2 / (2 temperature^2): how near rows x [N, I] are to centres [K, I].",
      .torch =
          "(lambda a: a @ centres if features else a)(torch.softmax(-((x[:, None] - centres[None]) ** 2).sum(-1) / (2 "
          "* temperature ** 2), -1))",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &centres = c.input(1);
            const auto a = c.attributes<CentreAttributes>();
            if (!(a.temperature > 0))
              c.usage_error(fmt::format("temperature is {}; it must be above 0", a.temperature));
            if (x.dtype() != centres.dtype()) c.dtype_error("the dtypes differ; cast one");
            if (x.rank() != 2 || centres.rank() != 2 || x.dim(1) != centres.dim(1) || centres.dim(0) < 1)
              c.shape_error("not x [N, I] with centres [K, I]");
            return std::vector<Result>{{x.dtype(), {x.dim(0), a.features ? x.dim(1) : centres.dim(0)}}};
          },
      .decompose =
          [](const Call& c) {
            const auto [temperature, features] = c.attributes<CentreAttributes>();
            const Tensor &x = c.input(0), &centres = c.input(1);
            const Tensor squares = weft::sum(
                elementwise("squared_difference", {weft::unsqueeze(x, 1), weft::unsqueeze(centres, 0)}), {-1});
            const Tensor shares = weft::softmax(squares * (-0.5 / (temperature * temperature)), -1, c.where());
            return Tensors{features ? weft::matmul(shares, centres) : shares};
          },
      .cases = {{"shares", {{{7, 4}}, {{3, 4}}}},
                {"features", {{{7, 4}}, {{3, 4}}}, {{"temperature", 1.5}, {"features", true}}}},
      .errors = {{"another width", {{{7, 4}}, {{3, 5}}}, {}, "not x [N, I] with centres [K, I]"},
                 {"frozen", {{{7, 4}}, {{3, 4}}}, {{"temperature", -1.0}}, "temperature is -1"}}};
  return row;
}

Tensor apply_softmax(const OpRow& row, Tensors inputs, const SoftmaxAttributes& a, Where where) {
  return call(row, std::move(inputs), a, where);
}

const OpRow& softmin_row() {
  static const OpRow row{
      .name = "softmin",
      .family = "norm",
      .inputs = {{"x", ops::DTypes::floats}},
      .attributes = {{.name = "axis",
                      .type = AttributeType::integer,
                      .default_value = Extent{-1},
                      .doc = "axis to normalise",
                      .aliases = {"dim"}}},
      .doc = "softmax(-x) along an axis.",
      .formula = "y_i = exp(-x_i) / sum_j exp(-x_j)",
      .torch = "F.softmin(x, axis)",
      .cases = {{"rows", {{{6, 50}, -4, 4}}}, {"columns", {{{6, 50}}}, {{"axis", Extent{0}}}}},
      .errors = {{"an axis outside", {{{6}}}, {{"axis", Extent{1}}}, "axis 1 is outside of"}},
      .apply = [](const Arguments& a) { return Tensors{weft::softmin(a.input(0), a.small("axis"))}; }};
  return row;
}

}  // namespace

OpRows softmax_rows() {
  return {&sparsemax_row(), &entmax15_row(), &softmin_row(), &tempered_row(), &masked_row(),
          &grouped_row(),   &mixture_row(),  &gumbel_row(),  &kmeans_row()};
}

}  // namespace graph

using graph::apply_softmax;

Tensor sparsemax(const Tensor& x, int axis, Where where) {
  return apply_softmax(graph::sparsemax_row(), {x}, {.axis = axis}, where);
}
Tensor entmax15(const Tensor& x, int axis, Where where) {
  return apply_softmax(graph::entmax15_row(), {x}, {.axis = axis}, where);
}
Tensor softmin(const Tensor& x, int axis, Where where) {
  if (!x.defined()) throw UsageError("softmin: the tensor has no value");
  return softmax(-x, axis, where);
}
Tensor tempered_softmax(const Tensor& x, double temperature, int axis, Where where) {
  return apply_softmax(graph::tempered_row(), {x}, {.axis = axis, .temperature = temperature}, where);
}
Tensor masked_softmax(const Tensor& x, const Tensor& mask, int axis, Where where) {
  return apply_softmax(graph::masked_row(), {x, mask}, {.axis = axis}, where);
}
Tensor grouped_softmax(const Tensor& x, Extent size, Where where) {
  return graph::call(graph::grouped_row(), {x}, graph::GroupAttributes{size}, where);
}
Tensor mixture_softmax(const Tensor& x, const Tensor& weights, Where where) {
  return graph::call(graph::mixture_row(), {x, weights}, graph::Words{}, where);
}
Tensor gumbel_softmax(const Tensor& x, const Tensor& u, double temperature, bool hard, int axis, Where where) {
  return apply_softmax(graph::gumbel_row(), {x, u}, {.axis = axis, .temperature = temperature, .hard = hard}, where);
}
Tensor soft_kmeans(const Tensor& x, const Tensor& centres, double temperature, bool features, Where where) {
  return graph::call(graph::kmeans_row(), {x, centres}, graph::CentreAttributes{temperature, features}, where);
}

}  // namespace weft
