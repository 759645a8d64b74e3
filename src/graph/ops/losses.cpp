// Losses: scalars to minimise, or one value for each element.
#include "weft/nn/losses.hpp"

#include <fmt/format.h>

#include <limits>

#include "graph/losses.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

constexpr ops::DTypes kFloats = ops::DTypes::floats;

struct LossAttributes {
  nn::Reduction reduction = nn::Reduction::mean;
};
struct HuberAttributes {
  double delta = 1;
  nn::Reduction reduction = nn::Reduction::mean;
};

// Losses do not broadcast: [n, 1] beside [n] would silently compare all pairs.
template <class S>
std::vector<Result> infer_pair(const Call& c) {
  const Tensor &a = c.input(0), &b = c.input(1);
  if (a.shape() != b.shape())
    c.shape_error(fmt::format("the shapes of {} and {} differ; reshape one of them", c.row().inputs[0].name,
                              c.row().inputs[1].name));
  return {reduced_like(promote(a.dtype(), b.dtype()), a.shape(), c.attributes<S>().reduction)};
}

std::vector<OpCase> pair_cases(double lo, double hi, double target_lo, double target_hi) {
  return {{"mean", {{{6, 9, 50}, lo, hi}, {{6, 9, 50}, target_lo, target_hi}}},
          {"sum", {{{5, 7}, lo, hi}, {{5, 7}, target_lo, target_hi}}, {{"reduction", std::string("sum")}}},
          {"each", {{{5, 7}, lo, hi}, {{5, 7}, target_lo, target_hi}}, {{"reduction", std::string("none")}}}};
}
std::vector<ErrorCase> pair_errors(const std::string& first, const std::string& second) {
  return {
      {"shapes that would broadcast", {{{4, 1}}, {{4}}}, {}, "the shapes of " + first + " and " + second + " differ"},
      {"integers", {{{4}, 0, 3, DType::i32}, {{4}}}, {}, "takes floats"},
      {"another word", {{{4}}, {{4}}}, {{"reduction", std::string("median")}}, "not one of mean, sum, none"}};
}

const OpRow& mse_row() {
  static const OpRow row{
      .name = "mse_loss",
      .aliases = {"mse"},
      .family = "loss",
      .inputs = {{"prediction", kFloats}, {"target"}},
      .attributes = {reduction_field<LossAttributes>()},
      .result = "that of prediction",
      .doc = "(prediction - target)^2.",
      .torch = "F.mse_loss(prediction, target, reduction=reduction)",
      .infer = infer_pair<LossAttributes>,
      .decompose =
          [](const Call& c) {
            const Tensor d = elementwise("sub", {c.input(0), c.input(1)}, {}, c.where());
            return Tensors{reduced(elementwise("square", {d}), c.attributes<LossAttributes>().reduction)};
          },
      .cases = pair_cases(-4, 4, -2, 2),
      .errors = pair_errors("prediction", "target")};
  return row;
}

const OpRow& l1_row() {
  static const OpRow row{.name = "l1_loss",
                         .aliases = {"l1"},
                         .family = "loss",
                         .inputs = {{"prediction", kFloats}, {"target"}},
                         .attributes = {reduction_field<LossAttributes>()},
                         .result = "that of prediction",
                         .doc = "|prediction - target|.",
                         .torch = "F.l1_loss(prediction, target, reduction=reduction)",
                         .infer = infer_pair<LossAttributes>,
                         .decompose =
                             [](const Call& c) {
                               return Tensors{reduced(elementwise("abs", {c.input(0) - c.input(1)}),
                                                      c.attributes<LossAttributes>().reduction)};
                             },
                         .cases = pair_cases(1, 4, -2, 0.5),
                         .errors = pair_errors("prediction", "target")};
  return row;
}

const OpRow& huber_row() {
  static const OpRow row{
      .name = "huber_loss",
      .aliases = {"huber"},
      .family = "loss",
      .inputs = {{"prediction", kFloats}, {"target"}},
      .attributes = {field("delta", &HuberAttributes::delta, "difference at which the parabola becomes a line"),
                     reduction_field<HuberAttributes>()},
      .result = "that of prediction",
      .doc = "d^2 / 2 where |d| < delta, else delta (|d| - delta / 2), with d = prediction - target.",
      .torch = "F.huber_loss(prediction, target, reduction=reduction, delta=delta)",
      .infer =
          [](const Call& c) {
            if (const double delta = c.attributes<HuberAttributes>().delta; !(delta > 0))
              c.usage_error(fmt::format("delta {} must be above 0", delta));
            return infer_pair<HuberAttributes>(c);
          },
      .decompose =
          [](const Call& c) {
            const auto [delta, reduction] = c.attributes<HuberAttributes>();
            const Tensor d = c.input(0) - c.input(1), size = elementwise("abs", {d});
            return Tensors{reduced(elementwise("where", {size < scalar_like(delta, size),
                                                         elementwise("square", {d}) * 0.5, (size - delta / 2) * delta}),
                                   reduction)};
          },
      .cases = pair_cases(-4, 4, -2, 2),
      .errors = {{"no parabola", {{{4}}, {{4}}}, {{"delta", 0.0}}, "delta 0 must be above 0"},
                 {"shapes that would broadcast", {{{4, 1}}, {{4}}}, {}, "the shapes of prediction and target differ"}}};
  return row;
}

const OpRow& binary_cross_entropy_row() {
  static const OpRow row{.name = "binary_cross_entropy",
                         .aliases = {"binary_cross_entropy_with_logits"},
                         .family = "loss",
                         .inputs = {{"logits", kFloats}, {"targets"}},
                         .attributes = {reduction_field<LossAttributes>()},
                         .result = "that of logits",
                         .doc = "-(t log s(x) + (1 - t) log(1 - s(x))) with s the sigmoid.",
                         .formula = "max(x, 0) - x t + log(1 + exp(-|x|))",
                         .torch = "F.binary_cross_entropy_with_logits(logits, targets, reduction=reduction)",
                         .infer = infer_pair<LossAttributes>,
                         .decompose =
                             [](const Call& c) {
                               const Tensor &logits = c.input(0), &targets = c.input(1);
                               const Tensor tail =
                                   elementwise("log1p", {elementwise("exp", {-elementwise("abs", {logits})})});
                               return Tensors{reduced(elementwise("relu", {logits}) - logits * targets + tail,
                                                      c.attributes<LossAttributes>().reduction)};
                             },
                         .cases = pair_cases(-4, 4, 0, 1),
                         .errors = pair_errors("logits", "targets")};
  return row;
}

const OpRow& nll_row() {
  static const OpRow row{
      .name = "nll_loss",
      .aliases = {"nll"},
      .family = "loss",
      .inputs = {{"log_probabilities", kFloats}, {"targets", ops::DTypes::integers}},
      .attributes = {reduction_field<LossAttributes>()},
      .result = "that of log_probabilities",
      .doc = "-log_probabilities[target] of the last axis.",
      .torch =
          "F.nll_loss(log_probabilities.reshape(-1, log_probabilities.shape[-1]), targets.reshape(-1).long(), "
          "reduction=reduction)",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &targets = c.input(1);
            bool fits = x.rank() == targets.rank() + 1;
            for (int i = 0; fits && i < targets.rank(); ++i) fits = x.shape()[i] == targets.shape()[i];
            if (!fits) c.shape_error("targets are not the shape of log_probabilities without its last axis");
            return std::vector<Result>{
                reduced_like(x.dtype(), targets.shape(), c.attributes<LossAttributes>().reduction)};
          },
      .decompose =
          [](const Call& c) {
            const Tensor picked = weft::take_along_axis(c.input(0), unsqueeze(c.input(1), -1), -1);
            return Tensors{reduced(-squeeze(picked, -1), c.attributes<LossAttributes>().reduction)};
          },
      .cases = {{"mean", {{{40, 65}, -4, 0}, {{40}, 0, 64, DType::i32}}},
                {"sum", {{{40, 65}, -4, 0}, {{40}, 0, 64, DType::i32}}, {{"reduction", std::string("sum")}}}},
      .errors = {{"targets of another length", {{{4, 3}}, {{5}, 0, 2, DType::i32}}, {}, "targets are not the shape of"},
                 {"targets that are floats", {{{4, 3}}, {{4}}}, {}, "targets takes integers"}}};
  return row;
}

struct CrossEntropyAttributes {
  int ignore_index = -100;
  double label_smoothing = 0;
  nn::Reduction reduction = nn::Reduction::mean;
};

bool has_probabilities(const Call& c) { return is_float(c.input(1).dtype()); }

// Rows of logits [rows, classes] less the logarithm of their sums of exponentials.
struct LogRows {
  Tensor centred, total;
};
LogRows log_rows(const Tensor& flat, Where where) {
  const Tensor c = flat - detach(amax(flat, {1}, {.keepdims = true}, where));
  return {c, elementwise("log", {sum(elementwise("exp", {c}), {1}, {.keepdims = true})})};
}

// With the class of each row as target.
Tensor cross_entropy_of_classes(const Call& call) {
  const auto [ignore_index, smoothing, reduction] = call.attributes<CrossEntropyAttributes>();
  const Tensor &logits = call.input(0), &weight = call.input(2);
  const Tensor targets = cast(Tensor(index_type(call.input(1).node())), DType::i32);
  const Extent rows = targets.numel(), classes = logits.dim(-1);
  const Tensor flat = weft::reshape(logits, {rows, classes}), target = weft::reshape(targets, {rows, 1});
  const Tensor class_index(iota({rows, classes}, 1, targets.dtype(), logits.device()));
  const Tensor hit = elementwise("eq", {class_index, target});
  // logsumexp - logit of the target, without gathering: one row pass.
  const auto [c, total] = log_rows(flat, call.where());
  const auto picked = [&](const Tensor& of) {
    return sum(elementwise("where", {hit, of, scalar_like(0, of)}), {1}, {.keepdims = true});
  };
  const Tensor counted = elementwise("ne", {target, scalar_like(ignore_index, target)});
  const Tensor valid =
      elementwise("logical_and", {elementwise("ge", {target, scalar_like(0, target)}),
                                  elementwise("lt", {target, scalar_like(static_cast<double>(classes), target)})});
  const Tensor nan = scalar_like(std::numeric_limits<double>::quiet_NaN(), c);
  Tensor each = total - picked(c), share;
  if (weight.defined()) {
    share = picked(weft::expand(weft::reshape(weft::cast(weight, c.dtype()), {1, classes}), {rows, classes}));
    each = each * share;
  }
  if (smoothing > 0) {
    const Tensor every = total - c;
    const Tensor spread =
        sum(weight.defined() ? every * weft::reshape(weight, {1, classes}) : every, {1}, {.keepdims = true});
    each = each * (1 - smoothing) + spread * (smoothing / static_cast<double>(classes));
  }
  const Tensor loss = elementwise("where", {counted, elementwise("where", {valid, each, nan}), scalar_like(0, c)});
  if (reduction == nn::Reduction::none) return weft::reshape(loss, targets.shape());
  if (reduction == nn::Reduction::sum) return sum(loss);
  const Tensor divisor = weight.defined() ? sum(elementwise("where", {counted, share, scalar_like(0, c)}))
                                          : cast(sum(cast(counted, DType::i32)), c.dtype());
  return sum(loss) / divisor;
}

// With a probability of each class as target.
Tensor cross_entropy_of_probabilities(const Call& call) {
  const auto [ignore_index, smoothing, reduction] = call.attributes<CrossEntropyAttributes>();
  const Tensor &logits = call.input(0), &weight = call.input(2);
  const Extent classes = logits.dim(-1), rows = classes ? logits.numel() / classes : 0;
  const auto [c, total] = log_rows(weft::reshape(logits, {rows, classes}), call.where());
  Tensor target = weft::reshape(call.input(1), {rows, classes});
  if (smoothing > 0) target = target * (1 - smoothing) + smoothing / static_cast<double>(classes);
  if (weight.defined()) target = target * weft::reshape(weight, {1, classes});
  const Tensor loss = sum(target * (total - c), {1});
  return reduced(reduction == nn::Reduction::none
                     ? weft::reshape(loss, Shape(std::vector<Extent>(logits.shape().begin(), logits.shape().end() - 1)))
                     : loss,
                 reduction);
}

const OpRow& cross_entropy_row() {
  static const OpRow row{
      .name = "cross_entropy",
      .family = "loss",
      .inputs = {{"logits", kFloats},
                 {"targets", ops::DTypes::numbers},
                 {.name = "weight", .dtypes = kFloats, .optional = true}},
      .attributes = {field("ignore_index", &CrossEntropyAttributes::ignore_index, "rows with this target do not count"),
                     field("label_smoothing", &CrossEntropyAttributes::label_smoothing,
                           "share of each target that is spread over all classes", {.least = 0, .most = 1}),
                     reduction_field<CrossEntropyAttributes>()},
      .result = "that of logits",
      .doc =
          "-log softmax(logits)[target] of each row, times the weight of the class; logits [..., classes], targets "
          "[...] "
          "or a probability of each class [..., classes].",
      // PyTorch has no gradient to weights beside classes: there by the definition.
      .torch =
          "(lambda x, t, keep: F.cross_entropy(x, t, weight, ignore_index=ignore_index, reduction=reduction, "
          "label_smoothing=label_smoothing) if weight is None or t.is_floating_point() else (lambda each, total: each "
          "if "
          "reduction == 'none' else each.sum() if reduction == 'sum' else each.sum() / total)(-(weight * (F.one_hot(t "
          "* keep, "
          "x.shape[-1]).double() * (1 - label_smoothing) + label_smoothing / x.shape[-1]) * torch.log_softmax(x, "
          "-1)).sum(-1) * "
          "keep, "
          "(weight[t * keep] * keep).sum()))(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1, "
          "logits.shape[-1]) if "
          "targets.is_floating_point() else targets.reshape(-1).long(), targets.reshape(-1) != ignore_index)"
          ".reshape(logits.shape[:-1] if reduction == 'none' else ())",
      .onnx = "SoftmaxCrossEntropyLoss",
      .infer =
          [](const Call& c) {
            const Tensor &logits = c.input(0), &targets = c.input(1), &weight = c.input(2);
            if (logits.rank() < 1) c.shape_error("logits have no axis of classes");
            const Shape rows(std::vector<Extent>(logits.shape().begin(), logits.shape().end() - 1));
            if (targets.shape() != (has_probabilities(c) ? logits.shape() : rows))
              c.shape_error(has_probabilities(c)
                                ? "targets are floats, probabilities of classes, and not of logits' shape"
                                : "targets are not logits' shape without its last axis");
            if (has_probabilities(c) && promote(targets.dtype(), logits.dtype()) != logits.dtype())
              c.dtype_error("targets have a wider dtype than logits; cast them");
            if (weight.defined() && (weight.rank() != 1 || weight.dim(0) != logits.dim(-1)))
              c.shape_error("weight is not a number for each class");
            if (weight.defined() && promote(weight.dtype(), logits.dtype()) != logits.dtype())
              c.dtype_error("weight has a wider dtype than logits; cast it");
            return std::vector<Result>{
                reduced_like(logits.dtype(), rows, c.attributes<CrossEntropyAttributes>().reduction)};
          },
      .decompose =
          [](const Call& call) {
            return Tensors{has_probabilities(call) ? cross_entropy_of_probabilities(call)
                                                   : cross_entropy_of_classes(call)};
          },
      .cases = {{"rows", {{{40, 65}, -4, 4}, {{40}, 0, 64, DType::i32}, {.absent = true}}},
                {"rows that do not count",
                 {{{4, 5}, -4, 4}, {.shape = {4}, .type = DType::i32, .values = {1, -100, 4, -100}}, {.absent = true}}},
                {"two leading axes", {{{3, 4, 7}, -4, 4}, {{3, 4}, 0, 6, DType::i32}, {.absent = true}}},
                {"weights of classes",
                 {{{4, 5}, -4, 4}, {.shape = {4}, .type = DType::i32, .values = {1, -100, 4, 0}}, {{5}, 0.2, 2}}},
                {"smoothed",
                 {{{4, 5}, -4, 4}, {.shape = {4}, .type = DType::i32, .values = {1, -100, 4, 0}}, {{5}, 0.2, 2}},
                 {{"label_smoothing", 0.2}}},
                {"smoothed, each row",
                 {{{6, 5}, -4, 4}, {{6}, 0, 4, DType::i32}, {.absent = true}},
                 {{"label_smoothing", 0.1}, {"reduction", std::string("none")}}},
                {"summed",
                 {{{6, 5}, -4, 4}, {{6}, 0, 4, DType::i32}, {{5}, 0.2, 2}},
                 {{"reduction", std::string("sum")}}},
                {"probabilities", {{{6, 5}, -4, 4}, {{6, 5}, 0, 1}, {.absent = true}}},
                {"probabilities, smoothed and weighted",
                 {{{2, 3, 5}, -4, 4}, {{2, 3, 5}, 0, 1}, {{5}, 0.2, 2}},
                 {{"label_smoothing", 0.2}}}},
      .errors =
          {{"targets of another length", {{{4, 3}}, {{5}, 0, 2, DType::i32}}, {}, "targets are not logits' shape"},
           {"probabilities of another shape", {{{4, 3}}, {{4}}}, {}, "and not of logits' shape"},
           {"a weight too few",
            {{{4, 3}}, {{4}, 0, 2, DType::i32}, {{2}}},
            {},
            "weight is not a number for each class"},
           {"much smoothing",
            {{{4, 3}}, {{4}, 0, 2, DType::i32}},
            {{"label_smoothing", 1.5}},
            "label_smoothing is 1.5"}}};
  return row;
}

}  // namespace

OpRows loss_rows() {
  return {&cross_entropy_row(), &mse_row(), &l1_row(), &huber_row(), &binary_cross_entropy_row(), &nll_row()};
}

}  // namespace graph

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, int ignore_index, Where where) {
  return graph::call(graph::cross_entropy_row(), {logits, targets, {}}, graph::CrossEntropyAttributes{ignore_index},
                     where);
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Where where) {
  return graph::call(graph::mse_row(), {prediction, target}, graph::LossAttributes{}, where);
}

namespace nn {

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& o, Where where) {
  return graph::call(graph::cross_entropy_row(), {logits, targets, o.weight},
                     graph::CrossEntropyAttributes{o.ignore_index, o.label_smoothing, o.reduction}, where);
}

Tensor mse(const Tensor& prediction, const Tensor& target, Reduction reduction, Where where) {
  return graph::call(graph::mse_row(), {prediction, target}, graph::LossAttributes{reduction}, where);
}

Tensor l1(const Tensor& prediction, const Tensor& target, Reduction reduction, Where where) {
  return graph::call(graph::l1_row(), {prediction, target}, graph::LossAttributes{reduction}, where);
}

Tensor huber(const Tensor& prediction, const Tensor& target, double delta, Reduction reduction, Where where) {
  return graph::call(graph::huber_row(), {prediction, target}, graph::HuberAttributes{delta, reduction}, where);
}

Tensor binary_cross_entropy(const Tensor& logits, const Tensor& targets, Reduction reduction, Where where) {
  return graph::call(graph::binary_cross_entropy_row(), {logits, targets}, graph::LossAttributes{reduction}, where);
}

Tensor nll(const Tensor& log_probabilities, const Tensor& targets, Reduction reduction, Where where) {
  return graph::call(graph::nll_row(), {log_probabilities, targets}, graph::LossAttributes{reduction}, where);
}

}  // namespace nn
}  // namespace weft
