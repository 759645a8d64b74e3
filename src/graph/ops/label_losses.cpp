#include "weft/nn/label_losses.hpp"

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

struct LabelAttributes {
  nn::Reduction reduction = nn::Reduction::mean;
};
struct CtcAttributes {
  Extent blank = 0;
  bool zero_infinity = false;
  nn::Reduction reduction = nn::Reduction::mean;
};

Tensor pick_where(const Tensor& condition, const Tensor& then, const Tensor& otherwise) {
  return elementwise("where", {condition, then, otherwise});
}

// For each row: the sum over its labels and the other classes.
Tensor multilabel_losses(const Tensor& x, const Tensor& given) {
  const Extent classes = x.dim(-1), rows = classes ? x.numel() / classes : 0;
  const Tensor scores = weft::reshape(x, {rows, classes}),
               targets = weft::reshape(cast(given, DType::i32), {rows, classes});
  const Tensor ended = weft::cast(targets < 0.0, DType::i32);  // a label counts if nothing up to it is negative
  const Tensor before(iota({1, classes, classes}, 2, DType::i32, x.device())),
      place(iota({1, classes, classes}, 1, DType::i32, x.device()));
  const Tensor ends = weft::sum(weft::cast(before <= place, DType::i32) * weft::unsqueeze(ended, 1), {2});
  const Tensor counts = elementwise("eq", {ends, scalar_like(0, ends)});  // [rows, label]
  const Tensor of_class(iota({1, 1, classes}, 2, DType::i32, x.device()));
  const Tensor hit = elementwise("eq", {weft::unsqueeze(targets, 2), of_class}) & weft::unsqueeze(counts, 2);
  const Tensor hits = weft::cast(hit, x.dtype());                         // [rows, label, class]
  const Tensor is_target = weft::amax(weft::cast(hit, DType::i32), {1});  // [rows, class]
  const Tensor of_label = weft::sum(hits * weft::unsqueeze(scores, 1), {2});
  const Tensor margins =
      elementwise("relu", {1.0 - weft::unsqueeze(of_label, 2) + weft::unsqueeze(scores, 1)});  // [rows, label, class]
  const Tensor pairs =
      weft::unsqueeze(counts, 2) & weft::unsqueeze(elementwise("eq", {is_target, scalar_like(0, is_target)}), 1);
  const Tensor losses =
      weft::sum(pick_where(pairs, margins, zeros_like(margins)), {1, 2}) / static_cast<double>(classes);
  return weft::reshape(losses, Shape(std::vector<Extent>(x.shape().begin(), x.shape().end() - 1)));
}

// Used as log 0. It is finite, so that differences of two such numbers, and their gradients, are not NaN.
constexpr double kNever = -1e30;

Tensor shifted_labels(const Tensor& x, Extent by) {  // along the last axis, with log 0 in front
  const Extent n = x.dim(-1);
  const Tensor none = full({x.dim(0), std::min(by, n)}, kNever, x.dtype(), x.device());
  if (by >= n) return none;
  return weft::concat(Tensors{none, weft::narrow(x, -1, 0, n - by)}, -1);
}

Tensor log_sum(const Tensors& terms) {
  Tensor top = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) top = elementwise("maximum", {top, terms[i]});
  top = weft::detach(top);
  Tensor sum;
  for (const Tensor& term : terms) {
    const Tensor e = elementwise("exp", {term - top});
    sum = sum.defined() ? sum + e : e;
  }
  return elementwise("log", {sum}) + top;
}

Tensor ctc_losses(const Call& c) {
  const auto a = c.attributes<CtcAttributes>();
  const Tensor x = cast(c.input(0), compute_type(c.input(0).dtype())), targets = cast(c.input(1), DType::i32),
               steps = cast(c.input(2), DType::i32), labels = cast(c.input(3), DType::i32);
  const Extent t_count = x.dim(0), n = x.dim(1), s = targets.dim(1), places = 2 * s + 1;
  // Places: a blank before, between and after the labels.
  const Tensor blanks = weft::full({n, s, 1}, static_cast<double>(a.blank), DType::i32, x.device());
  Tensor at = weft::reshape(weft::concat(Tensors{blanks, weft::unsqueeze(targets, 2)}, 2), {n, 2 * s});
  at = weft::concat(Tensors{at, weft::full({n, 1}, static_cast<double>(a.blank), DType::i32, x.device())}, 1);
  const Tensor read = weft::take_along_axis(x, weft::expand(weft::unsqueeze(at, 0), {t_count, n, places}), 2);
  // A step over the blank between two labels is allowed if the labels differ.
  const Tensor place(iota({n, places}, 1, DType::i32, x.device()));
  const Tensor two_before =
      s > 0 ? weft::concat(Tensors{weft::narrow(at, 1, 0, 2), weft::narrow(at, 1, 0, places - 2)}, 1) : at;
  const Tensor may_skip = (place > 1.0) & elementwise("ne", {at, scalar_like(static_cast<double>(a.blank), at)}) &
                          elementwise("ne", {at, two_before});
  const Tensor never = full({n, places}, kNever, x.dtype(), x.device());
  const Tensor lengths = weft::unsqueeze(labels, 1);
  Tensor alpha = pick_where((place < 2.0) & (place <= lengths * 2.0), weft::select(read, 0, 0), never);
  for (Extent t = 1; t < t_count; ++t) {
    const Tensor next =
        log_sum({alpha, shifted_labels(alpha, 1), pick_where(may_skip, shifted_labels(alpha, 2), never)}) +
        weft::select(read, 0, t);
    alpha = pick_where(weft::unsqueeze(steps, 1) > static_cast<double>(t), next, alpha);
  }
  const auto ends_at = [&](const Tensor& end) {  // [n, 1]; -1 if the sequence has no labels
    const Tensor hit = elementwise("eq", {place, weft::expand(end, place.shape())});
    const Tensor reached = weft::sum(pick_where(hit, alpha, zeros_like(alpha)), {1});
    return pick_where(weft::squeeze(end, 1) < 0.0, full({n}, kNever, x.dtype(), x.device()), reached);
  };
  const Tensor total = log_sum({ends_at(lengths * 2.0), ends_at(lengths * 2.0 - 1.0)});
  const Tensor fits = (total > kNever / 2) & (steps > 0.0);
  const Tensor otherwise =
      full({n}, a.zero_infinity ? 0 : std::numeric_limits<double>::infinity(), x.dtype(), x.device());
  return pick_where(fits, -total, otherwise);
}

const OpRow& multilabel_margin_row() {
  static const OpRow row{
      .name = "multilabel_margin_loss",
      .family = "loss",
      .inputs = {{"x", ops::DTypes::floats}, {"targets", ops::DTypes::integers}},
      .attributes = {reduction_field<LabelAttributes>()},
      .doc =
          "sum over labels j and other classes i of max(0, 1 - (x_j - x_i)) / classes; labels end at a negative one.",
      .torch = "F.multilabel_margin_loss(x, targets.long(), reduction=reduction)",
      .infer =
          [](const Call& c) {
            if (c.input(0).rank() < 1 || c.input(0).shape() != c.input(1).shape())
              c.shape_error("the shapes of x and targets differ, or have no classes");
            const Shape& shape = c.input(0).shape();
            return std::vector<Result>{reduced_like(c.input(0).dtype(),
                                                    Shape(std::vector<Extent>(shape.begin(), shape.end() - 1)),
                                                    c.attributes<LabelAttributes>().reduction)};
          },
      .decompose =
          [](const Call& c) {
            return Tensors{
                reduced(multilabel_losses(c.input(0), c.input(1)), c.attributes<LabelAttributes>().reduction)};
          },
      .cases = {{"mean",
                 {{{3, 4}}, {.shape = {3, 4}, .type = DType::i32, .values = {3, 0, -1, 1, -1, 2, 2, 2, 0, 1, 2, 3}}}},
                {"each",
                 {{{2, 3}}, {.shape = {2, 3}, .type = DType::i32, .values = {1, -1, 2, 0, 2, -1}}},
                 {{"reduction", std::string("none")}}}},
      .errors = {{"targets of another shape",
                  {{{3, 4}}, {{3}, 0, 2, DType::i32}},
                  {},
                  "the shapes of x and targets differ"}}};
  return row;
}

const OpRow& ctc_row() {
  static const OpRow row{
      .name = "ctc_loss",
      .family = "loss",
      .inputs = {{"log_probabilities", ops::DTypes::floats},
                 {"targets", ops::DTypes::integers},
                 {"input_lengths", ops::DTypes::integers},
                 {"target_lengths", ops::DTypes::integers}},
      .attributes = {field("blank", &CtcAttributes::blank, "the class that means no label", {.least = 0}),
                     field("zero_infinity", &CtcAttributes::zero_infinity, "0 for labels that do not fit their steps"),
                     reduction_field<CtcAttributes>()},
      .result = "that of log_probabilities",
      .doc = "-log of the probability of all alignments of labels [N, S] with steps [T, N, classes].",
      .torch =
          "F.ctc_loss(log_probabilities, targets.long(), input_lengths.long(), target_lengths.long(), blank, "
          "reduction, zero_infinity)",
      .infer =
          [](const Call& c) {
            const Tensor &x = c.input(0), &targets = c.input(1);
            if (x.rank() != 3 || targets.rank() != 2 || targets.dim(0) != x.dim(1) || x.dim(0) < 1)
              c.shape_error("not log_probabilities [T, N, classes] with targets [N, S] and one step at least");
            for (std::size_t i : {2u, 3u})
              if (c.input(i).shape() != Shape{x.dim(1)}) c.shape_error("lengths are not [N]");
            const auto a = c.attributes<CtcAttributes>();
            if (a.blank >= x.dim(2)) c.usage_error(fmt::format("the blank {} is not a class", a.blank));
            return std::vector<Result>{reduced_like(x.dtype(), {x.dim(1)}, a.reduction)};
          },
      .decompose =
          [](const Call& c) {
            const auto reduction = c.attributes<CtcAttributes>().reduction;
            Tensor losses = ctc_losses(c);
            if (reduction == nn::Reduction::mean)
              losses = losses / elementwise("clamp", {cast(c.input(3), losses.dtype())},
                                            {1.0, std::numeric_limits<double>::infinity()});
            return Tensors{cast(reduced(losses, reduction), c.input(0).dtype())};
          },
      .cases = {{"mean",
                 {{{6, 2, 4}, -3, -0.1},
                  {.shape = {2, 3}, .type = DType::i32, .values = {1, 2, 2, 3, 1, 0}},
                  {.shape = {2}, .type = DType::i32, .values = {6, 4}},
                  {.shape = {2}, .type = DType::i32, .values = {3, 2}}}},
                {"each, with labels that do not fit",
                 {{{3, 2, 4}, -3, -0.1},
                  {.shape = {2, 3}, .type = DType::i32, .values = {1, 1, 1, 3, 0, 0}},
                  {.shape = {2}, .type = DType::i32, .values = {3, 2}},
                  {.shape = {2}, .type = DType::i32, .values = {3, 1}}},
                 {{"blank", Extent{2}}, {"zero_infinity", true}, {"reduction", std::string("none")}}}},
      .errors = {{"a blank beyond the classes",
                  {{{3, 2, 4}, -3, -1}, {{2, 3}, 1, 3, DType::i32}, {{2}, 3, 3, DType::i32}, {{2}, 3, 3, DType::i32}},
                  {{"blank", Extent{4}}},
                  "the blank 4 is not a class"},
                 {"no steps",
                  {{{0, 2, 4}, -3, -1}, {{2, 3}, 1, 3, DType::i32}, {{2}, 3, 3, DType::i32}, {{2}, 3, 3, DType::i32}},
                  {},
                  "one step at least"}}};
  return row;
}

}  // namespace

OpRows label_loss_rows() { return {&multilabel_margin_row(), &ctc_row()}; }

}  // namespace graph

namespace nn {

Tensor multilabel_margin(const Tensor& x, const Tensor& targets, Reduction reduction, Where where) {
  return graph::call(graph::multilabel_margin_row(), {x, targets}, graph::LabelAttributes{reduction}, where);
}

Tensor ctc(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
           const Tensor& target_lengths, const CtcOptions& o, Where where) {
  return graph::call(graph::ctc_row(), {log_probabilities, targets, input_lengths, target_lengths},
                     graph::CtcAttributes{o.blank, o.zero_infinity, o.reduction}, where);
}

}  // namespace nn
}  // namespace weft
