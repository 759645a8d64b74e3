// Losses of pairs and distributions, and losses with margins.
#include "weft/nn/margin_losses.hpp"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "graph/losses.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"
#include "weft/ops/distances.hpp"

namespace weft {
namespace graph {
namespace {

using nn::Reduction;
constexpr ops::DTypes kLossFloats = ops::DTypes::floats;

// The attributes of all these losses; each row describes its own.
struct MarginAttributes {
  double margin = 1, p = 2, eps = 1e-6, beta = 1;
  bool full = false, log_input = true, log_target = false, batch_mean = false, swap = false;
  Reduction reduction = Reduction::mean;
};
struct NoMargin : MarginAttributes {
  NoMargin() { margin = 0; }
};
struct ManyClasses : MarginAttributes {
  ManyClasses() { p = 1; }
};
struct Poisson : MarginAttributes {
  Poisson() { eps = 1e-8; }
};

Tensor positive_part(const Tensor& x) { return elementwise("relu", {x}); }
Tensor number_like(double value, const Tensor& x) { return scalar_like(value, x); }
Tensor log_of(const Tensor& x) { return elementwise("log", {x}); }

Shape without_last(const Shape& shape) { return Shape(std::vector<Extent>(shape.begin(), shape.end() - 1)); }

// A row whose operands have one shape, or with `by_row` a target for each row.
template <class S>
OpRow loss_row(std::string name, std::vector<InputSpec> inputs, std::vector<AttributeSpec> attributes, std::string doc,
               std::string torch, bool by_row, std::function<Tensor(const Call&, const S&)> each,
               std::vector<OpCase> cases, std::vector<ErrorCase> errors) {
  attributes.push_back(reduction_field<S>());
  const std::size_t vectors = by_row && inputs.size() == 3 && inputs[2].name == "negative" ? 3
                              : by_row                                                     ? inputs.size() - 1
                                                                                           : inputs.size();
  return {.name = std::move(name),
          .family = "loss",
          .inputs = std::move(inputs),
          .attributes = std::move(attributes),
          .result = "that of the first input",
          .doc = std::move(doc),
          .torch = std::move(torch),
          .infer =
              [by_row, vectors](const Call& c) {
                const Tensor& first = c.input(0);
                if (by_row && first.rank() < 1) c.shape_error(c.row().inputs[0].name + " has no rows");
                DType type = first.dtype();
                const Shape rows = by_row ? without_last(first.shape()) : first.shape();
                for (std::size_t i = 1; i < c.inputs().size(); ++i) {
                  const bool is_vector = i < vectors;
                  if (c.input(i).shape() != (is_vector ? first.shape() : rows))
                    c.shape_error(is_vector ? fmt::format("the shapes of {} and {} differ; reshape one of them",
                                                          c.row().inputs[0].name, c.row().inputs[i].name)
                                            : fmt::format("{} has not one number for each row of {}",
                                                          c.row().inputs[i].name, c.row().inputs[0].name));
                  if (is_float(c.input(i).dtype())) type = promote(type, c.input(i).dtype());
                }
                return std::vector<Result>{reduced_like(type, rows, c.attributes<S>().reduction)};
              },
          .decompose =
              [each](const Call& c) {
                const auto a = c.attributes<S>();
                return Tensors{reduced(each(c, a), a.reduction)};
              },
          .cases = std::move(cases),
          .errors = std::move(errors)};
}

std::vector<OpCase> cases_of(const std::vector<CaseInput>& inputs, const CaseAttributes& others) {
  CaseAttributes sum = others;
  sum.emplace_back("reduction", std::string("none"));
  return {{"mean", inputs}, {"each", inputs, sum}};
}
std::vector<ErrorCase> shapes_differ(std::vector<CaseInput> inputs, const std::string& message) {
  return {{"shapes that differ", std::move(inputs), {}, message}};
}

// Targets of 1 and -1.
CaseInput signs(Extent n) {
  CaseInput input{.shape = {n}};
  for (Extent i = 0; i < n; ++i) input.values.push_back(i % 3 == 1 ? -1 : 1);
  return input;
}
CaseInput sign_grid(Extent rows, Extent columns) {
  CaseInput input = signs(rows * columns);
  input.shape = {rows, columns};
  return input;
}

Tensor is_one(const Tensor& target) { return elementwise("eq", {target, number_like(1, target)}); }

// (sum |x - y + eps|^p)^(1/p) over the last axis.
Tensor distance(const Tensor& x, const Tensor& y, double p, double eps) {
  const Tensor d = elementwise("sub", {x, y}) + eps;
  if (p == 2) return weft::norm(d, {-1});
  const Tensor size = elementwise("abs", {d});
  const Tensor total = weft::sum(p == 1 ? size : elementwise("pow", {size, number_like(p, size)}), {-1});
  return p == 1 ? total : elementwise("pow", {total, number_like(1 / p, total)});
}

Tensor triplet(const Call& c, const MarginAttributes& a) {
  const Tensor near = distance(c.input(0), c.input(1), a.p, a.eps);
  Tensor far = distance(c.input(0), c.input(2), a.p, a.eps);
  if (a.swap) far = elementwise("minimum", {far, distance(c.input(1), c.input(2), a.p, a.eps)});
  return positive_part(near - far + a.margin);
}

Tensor multi_margin(const Call& c, const ManyClasses& a) {
  const Tensor& x = c.input(0);
  const Tensor target = weft::unsqueeze(c.input(1), -1);
  const Tensor distances = positive_part(x - weft::take_along_axis(x, target, -1) + a.margin);
  const Tensor powers = a.p == 1 ? distances : elementwise("pow", {distances, number_like(a.p, distances)});
  const Tensor index = weft::cast(arange(x.dim(-1), DType::i32, x.device()), target.dtype());
  const Tensor others = elementwise("where", {elementwise("ne", {index, target}), powers, number_like(0, powers)});
  return weft::sum(others, {-1}) * (1 / static_cast<double>(x.dim(-1)));
}

Tensor cosine(const Call& c, const NoMargin& a) {
  const Tensor &x = c.input(0), &y = c.input(1), &target = c.input(2);
  constexpr double kLeast = 1e-12;
  const auto squares = [&](const Tensor& v) { return weft::sum(elementwise("square", {v}), {-1}) + kLeast; };
  const Tensor cos = weft::sum(elementwise("mul", {x, y}), {-1}) * elementwise("rsqrt", {squares(x) * squares(y)});
  return elementwise("where", {is_one(target), 1.0 - cos, positive_part(cos - a.margin)});
}

Tensor kl_divergence(const Call& c) {
  const auto a = c.attributes<MarginAttributes>();
  const Tensor &x = c.input(0), &t = c.input(1);
  const Tensor each = a.log_target ? elementwise("exp", {t}) * (t - x) : elementwise("xlogy", {t, t}) - t * x;
  return a.batch_mean ? weft::sum(each) * (1 / static_cast<double>(x.rank() ? x.dim(0) : 1))
                      : reduced(each, a.reduction);
}

const std::vector<OpRow>& margin_rows() {
  using A = MarginAttributes;
  static const std::vector<OpRow> rows = {
      loss_row<A>(
          "smooth_l1_loss", {{"prediction", kLossFloats}, {"target", kLossFloats}},
          {field("beta", &A::beta, "difference at which the parabola becomes a line", {.least = 0})},
          "d^2 / (2 beta) where |d| < beta, else |d| - beta / 2, with d = prediction - target.",
          "F.smooth_l1_loss(prediction, target, reduction=reduction, beta=beta)", false,
          [](const Call& c, const A& a) {
            const Tensor d = c.input(0) - c.input(1), size = elementwise("abs", {d});
            if (a.beta == 0) return size;
            return elementwise("where", {size < number_like(a.beta, size), elementwise("square", {d}) * (0.5 / a.beta),
                                         size - 0.5 * a.beta});
          },
          cases_of({{{5, 7}, -4, 4}, {{5, 7}}}, {{"beta", 0.5}}),
          shapes_differ({{{4, 1}}, {{4}}}, "the shapes of prediction and target differ")),
      loss_row<Poisson>(
          "poisson_nll_loss", {{"prediction", kLossFloats}, {"target", kLossFloats}},
          {field("log_input", &Poisson::log_input, "whether predictions are logarithms"),
           field("full", &Poisson::full, "whether to add Stirling's approximation of ln t!"),
           field<Poisson, double>("eps", &Poisson::eps, "added to predictions that are not logarithms")},
          "e^x - t x, or x - t ln(x + eps) where x is not a logarithm.",
          "F.poisson_nll_loss(prediction, target, log_input=log_input, full=full, eps=eps, reduction=reduction)", false,
          [](const Call& c, const Poisson& a) {
            const Tensor &x = c.input(0), &t = c.input(1);
            Tensor loss = a.log_input ? elementwise("exp", {x}) - t * x : x - t * log_of(x + a.eps);
            if (!a.full) return loss;
            const Tensor safe = elementwise("maximum", {t, number_like(1, t)});
            const Tensor stirling = safe * log_of(safe) - safe + log_of(safe * (2 * std::numbers::pi)) * 0.5;
            return loss + elementwise("where", {t > number_like(1, t), stirling, number_like(0, t)});
          },
          {{"logarithms", {{{5, 7}, -1, 1}, {{5, 7}, 0, 3}}, {}, true},
           {"each, in full",
            {{{5, 7}, 0.2, 2}, {{5, 7}, 1.5, 4}},
            {{"log_input", false}, {"full", true}, {"reduction", std::string("none")}}}},
          shapes_differ({{{4, 1}}, {{4}}}, "the shapes of prediction and target differ")),
      loss_row<A>(
          "gaussian_nll_loss", {{"prediction", kLossFloats}, {"target", kLossFloats}, {"variance", kLossFloats}},
          {field("full", &A::full, "whether ln(2 pi) / 2 counts"), field("eps", &A::eps, "the least variance")},
          "(ln v + (x - t)^2 / v) / 2 with v = max(variance, eps).",
          "F.gaussian_nll_loss(prediction, target, variance, full=full, eps=eps, reduction=reduction)", false,
          [](const Call& c, const A& a) {
            const Tensor& given = c.input(2);
            // Only the value is clamped to eps: the gradient passes as without the clamp.
            const Tensor v = given + weft::detach(elementwise("maximum", {given, number_like(a.eps, given)}) - given);
            const Tensor loss = (log_of(v) + elementwise("square", {c.input(0) - c.input(1)}) / v) * 0.5;
            return a.full ? loss + 0.5 * std::log(2 * std::numbers::pi) : loss;
          },
          cases_of({{{5, 7}}, {{5, 7}}, {{5, 7}, 0.3, 2}}, {{"full", true}}),
          shapes_differ({{{4}}, {{4}}, {{3}}}, "the shapes of prediction and variance differ")),
      loss_row<A>(
          "hinge_embedding_loss", {{"x", kLossFloats}, {"target", ops::DTypes::numbers}},
          {field("margin", &A::margin, "margin for targets of -1")},
          "x where the target is 1, max(0, margin - x) where it is -1.",
          "F.hinge_embedding_loss(x, target.detach(), margin=margin, reduction=reduction)", false,
          [](const Call& c, const A& a) {
            return elementwise("where", {is_one(c.input(1)), c.input(0), positive_part(a.margin - c.input(0))});
          },
          cases_of({{{9}, -2, 2}, {.shape = {9}, .type = DType::i32, .values = {1, -1, 1, 1, -1, -1, 1, -1, 1}}},
                   {{"margin", 0.5}}),
          shapes_differ({{{4, 1}}, {{4}}}, "the shapes of x and target differ")),
      loss_row<NoMargin>(
          "margin_ranking_loss", {{"x", kLossFloats}, {"y", kLossFloats}, {"target", kLossFloats}},
          {field<NoMargin, double>("margin", &NoMargin::margin, "least difference between x and y")},
          "max(0, margin - target (x - y)) for targets 1 and -1.",
          "F.margin_ranking_loss(x, y, target, margin=margin, reduction=reduction)", false,
          [](const Call& c, const NoMargin& a) {
            return positive_part(a.margin - c.input(2) * (c.input(0) - c.input(1)));
          },
          cases_of({{{9}}, {{9}}, signs(9)}, {{"margin", 0.5}}),
          shapes_differ({{{4}}, {{4}}, {{4, 1}}}, "the shapes of x and target differ")),
      loss_row<A>(
          "soft_margin_loss", {{"x", kLossFloats}, {"target", kLossFloats}}, {},
          "ln(1 + e^(-target x)) for targets 1 and -1.",
          "(lambda v: v if reduction == 'none' else getattr(v, reduction)())(torch.log1p(torch.exp(-target * x)))",
          false, [](const Call& c, const A&) { return elementwise("softplus", {-(c.input(0) * c.input(1))}); },
          cases_of({{{3, 4}, -4, 4}, sign_grid(3, 4)}, {}),
          shapes_differ({{{4, 1}}, {{4}}}, "the shapes of x and target differ")),
      loss_row<NoMargin>(
          "cosine_embedding_loss", {{"x", kLossFloats}, {"y", kLossFloats}, {"target", ops::DTypes::numbers}},
          {field<NoMargin, double>("margin", &NoMargin::margin, "margin for targets of -1")},
          "1 - cos(x, y) where the target is 1, max(0, cos(x, y) - margin) where it is -1; rows along the last axis.",
          "F.cosine_embedding_loss(x, y, target, margin=margin, reduction=reduction)", true, cosine,
          cases_of({{{9, 4}}, {{9, 4}}, {.shape = {9}, .type = DType::i32, .values = {1, -1, 1, 1, -1, -1, 1, -1, 1}}},
                   {{"margin", -0.5}}),
          shapes_differ({{{4, 3}}, {{4, 3}}, {{4, 3}}}, "target has not one number for each row of x")),
      loss_row<A>(
          "triplet_margin_loss", {{"anchor", kLossFloats}, {"positive", kLossFloats}, {"negative", kLossFloats}},
          {field("margin", &A::margin, "least difference of the two distances"), field("p", &A::p, "order of the norm"),
           field("eps", &A::eps, "added to differences"),
           field("swap", &A::swap,
                 "whether the distance from positive to negative replaces a greater one from the anchor")},
          "max(0, |a - p| - |a - n| + margin) over the last axis.",
          "F.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=reduction)", true, triplet,
          {{"mean", {{{6, 5}}, {{6, 5}}, {{6, 5}}}},
           {"each, sums of sizes, swapped",
            {{{6, 5}}, {{6, 5}}, {{6, 5}}},
            {{"p", 1.0}, {"margin", 3.0}, {"swap", true}, {"reduction", std::string("none")}}},
           {"another norm", {{{6, 5}}, {{6, 5}}, {{6, 5}}}, {{"p", 3.0}, {"margin", 2.0}}}},
          shapes_differ({{{4, 3}}, {{4, 2}}, {{4, 3}}}, "the shapes of anchor and positive differ")),
      loss_row<ManyClasses>(
          "multi_margin_loss", {{"x", kLossFloats}, {"targets", ops::DTypes::integers}},
          {field<ManyClasses, double>("p", &ManyClasses::p, "the power"),
           field<ManyClasses, double>("margin", &ManyClasses::margin, "least lead of the target")},
          "sum over the other classes of max(0, margin - x_target + x_class)^p, divided by the number of classes.",
          "F.multi_margin_loss(x, targets.long(), int(p), margin, reduction=reduction)", true, multi_margin,
          {{"mean", {{{6, 5}}, {{6}, 0, 4, DType::i32}}},
           {"each, squared",
            {{{6, 5}}, {{6}, 0, 4, DType::i32}},
            {{"p", 2.0}, {"margin", 0.7}, {"reduction", std::string("none")}}}},
          shapes_differ({{{4, 3}}, {{4, 3}, 0, 2, DType::i32}}, "targets has not one number for each row of x")),
      {.name = "kl_div",
       .family = "loss",
       .inputs = {{"log_probabilities", kLossFloats}, {"target", kLossFloats}},
       .attributes = {field("log_target", &A::log_target, "whether targets are logarithms too"),
                      field("batch_mean", &A::batch_mean,
                            "the sum divided by the first extent, whatever the reduction"),
                      reduction_field<A>()},
       .result = "that of the first input",
       .doc = "t (ln t - x), with x the logarithm of a probability and t a probability.",
       .torch = "F.kl_div(log_probabilities, target, reduction='batchmean' if batch_mean else reduction, "
                "log_target=log_target)",
       .infer =
           [](const Call& c) {
             if (c.input(0).shape() != c.input(1).shape())
               c.shape_error("the shapes of log_probabilities and target differ; reshape one of them");
             const auto a = c.attributes<A>();
             return std::vector<Result>{reduced_like(promote(c.input(0).dtype(), c.input(1).dtype()),
                                                     c.input(0).shape(), a.batch_mean ? Reduction::sum : a.reduction)};
           },
       .decompose = [](const Call& c) { return Tensors{kl_divergence(c)}; },
       .cases = {{"mean", {{{5, 7}, -4, -0.1}, {{5, 7}, 0.1, 1}}},
                 {"each, of logarithms",
                  {{{5, 7}, -4, -0.1}, {{5, 7}, -2, 0}},
                  {{"log_target", true}, {"reduction", std::string("none")}}},
                 {"over the batch", {{{5, 7}, -4, -0.1}, {{5, 7}, 0.1, 1}}, {{"batch_mean", true}}}},
       .errors = shapes_differ({{{4, 1}}, {{4}}}, "the shapes of log_probabilities and target differ")},
      {.name = "multilabel_soft_margin_loss",
       .family = "loss",
       .inputs = {{"logits", kLossFloats}, {"targets", kLossFloats}},
       .attributes = {reduction_field<A>()},
       .result = "that of logits",
       .doc = "The mean over the last axis of the binary cross-entropies of logits.",
       .torch = "F.multilabel_soft_margin_loss(logits, targets, reduction=reduction)",
       .infer =
           [](const Call& c) {
             if (c.input(0).shape() != c.input(1).shape() || c.input(0).rank() < 1)
               c.shape_error("the shapes of logits and targets differ, or have no classes");
             return std::vector<Result>{reduced_like(promote(c.input(0).dtype(), c.input(1).dtype()),
                                                     without_last(c.input(0).shape()), c.attributes<A>().reduction)};
           },
       .decompose =
           [](const Call& c) {
             const Tensor each = nn::binary_cross_entropy(c.input(0), c.input(1), Reduction::none, c.where());
             return Tensors{reduced(weft::mean(each, {-1}), c.attributes<A>().reduction)};
           },
       .cases = cases_of({{{6, 5}, -4, 4}, {{6, 5}, 0, 1}}, {}),
       .errors = shapes_differ({{{4, 1}}, {{4}}}, "the shapes of logits and targets differ")}};
  return rows;
}

Tensor loss(const char* name, Tensors inputs, const MarginAttributes& a, Where where) {
  const OpRow& row = op_row(name);
  Words words;
  for (const AttributeSpec& spec : row.attributes) spec.write(&a, words);
  return call(row, std::move(inputs), std::move(words), where);
}

}  // namespace

OpRows margin_loss_rows() {
  OpRows list;
  for (const OpRow& row : margin_rows()) list.push_back(&row);
  return list;
}

}  // namespace graph

namespace nn {

using Attributes = graph::MarginAttributes;

Tensor smooth_l1(const Tensor& prediction, const Tensor& target, double beta, Reduction reduction, Where where) {
  return graph::loss("smooth_l1_loss", {prediction, target}, {.beta = beta, .reduction = reduction}, where);
}
Tensor kl_div(const Tensor& log_probabilities, const Tensor& target, const KlOptions& o, Where where) {
  return graph::loss("kl_div", {log_probabilities, target},
                     {.log_target = o.log_target, .batch_mean = o.batch_mean, .reduction = o.reduction}, where);
}
Tensor poisson_nll(const Tensor& prediction, const Tensor& target, const PoissonOptions& o, Where where) {
  return graph::loss("poisson_nll_loss", {prediction, target},
                     {.eps = o.eps, .full = o.full, .log_input = o.log_input, .reduction = o.reduction}, where);
}
Tensor gaussian_nll(const Tensor& prediction, const Tensor& target, const Tensor& variance, bool full, double eps,
                    Reduction reduction, Where where) {
  return graph::loss("gaussian_nll_loss", {prediction, target, variance},
                     {.eps = eps, .full = full, .reduction = reduction}, where);
}
Tensor hinge_embedding(const Tensor& x, const Tensor& target, double margin, Reduction reduction, Where where) {
  return graph::loss("hinge_embedding_loss", {x, target}, {.margin = margin, .reduction = reduction}, where);
}
Tensor margin_ranking(const Tensor& x, const Tensor& y, const Tensor& target, double margin, Reduction reduction,
                      Where where) {
  return graph::loss("margin_ranking_loss", {x, y, target}, {.margin = margin, .reduction = reduction}, where);
}
Tensor soft_margin(const Tensor& x, const Tensor& target, Reduction reduction, Where where) {
  return graph::loss("soft_margin_loss", {x, target}, {.reduction = reduction}, where);
}
Tensor multilabel_soft_margin(const Tensor& logits, const Tensor& targets, Reduction reduction, Where where) {
  return graph::loss("multilabel_soft_margin_loss", {logits, targets}, {.reduction = reduction}, where);
}
Tensor multi_margin(const Tensor& x, const Tensor& targets, double p, double margin, Reduction reduction, Where where) {
  return graph::loss("multi_margin_loss", {x, targets}, {.margin = margin, .p = p, .reduction = reduction}, where);
}
Tensor cosine_embedding(const Tensor& x, const Tensor& y, const Tensor& target, double margin, Reduction reduction,
                        Where where) {
  return graph::loss("cosine_embedding_loss", {x, y, target}, {.margin = margin, .reduction = reduction}, where);
}
Tensor triplet_margin(const Tensor& anchor, const Tensor& positive, const Tensor& negative, const TripletOptions& o,
                      Where where) {
  return graph::loss("triplet_margin_loss", {anchor, positive, negative},
                     {.margin = o.margin, .p = o.p, .eps = o.eps, .swap = o.swap, .reduction = o.reduction}, where);
}
Tensor triplet_margin_with_distance(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                                    const TripletDistanceOptions& o, Where where) {
  const auto distance = [&](const Tensor& x, const Tensor& y) {
    return o.distance ? o.distance(x, y) : pairwise_distance(x, y, 2, 1e-6, {}, where);
  };
  const Tensor near = distance(anchor, positive);
  Tensor far = distance(anchor, negative);
  if (o.swap) far = elementwise("minimum", {far, distance(positive, negative)}, {}, where);
  return graph::reduced(graph::positive_part(near - far + o.margin), o.reduction);
}

}  // namespace nn
}  // namespace weft
