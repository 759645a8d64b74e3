#include "graph/ctc.hpp"

#include <fmt/format.h>

#include <limits>

#include "graph/losses.hpp"
#include "graph/op_families.hpp"
#include "graph/scatter.hpp"
#include "weft/grad.hpp"
#include "weft/nn/label_losses.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct CtcAttributes {
  Extent blank = 0;
  bool zero_infinity = false;
  nn::Reduction reduction = nn::Reduction::mean;
};

Tensor choose(const Tensor& condition, const Tensor& then, const Tensor& otherwise) {
  return elementwise("where", {condition, then, otherwise});
}
Tensor never_like(const Tensor& x) { return full(x.shape(), kNeverLog, x.dtype(), x.device()); }

// Along the last axis, forwards for a positive `by`, with `filler` in the places that are freed.
Tensor moved_places(const Tensor& x, Extent by, double filler) {
  const Extent n = x.dim(-1), count = std::min(by < 0 ? -by : by, n);
  const Tensor none = full({x.dim(0), count}, filler, x.dtype(), x.device());
  const Tensor kept = weft::narrow(x, -1, by < 0 ? count : 0, n - count);
  return by < 0 ? weft::concat(Tensors{kept, none}, -1) : weft::concat(Tensors{none, kept}, -1);
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

// What the parts of both calls need.
struct Alignment {
  explicit Alignment(const Call& c)
      : x(c.input(0)),
        at(c.input(1)),
        may_skip(elementwise("ne", {c.input(2), scalar_like(0, c.input(2))})),
        steps(weft::unsqueeze(c.input(3), 1)),
        labels(weft::unsqueeze(c.input(4), 1)),
        place(iota(at.shape(), 1, DType::i32, x.device())),
        classes(weft::expand(weft::unsqueeze(at, 0), {x.dim(0), x.dim(1), at.dim(1)})) {}

  /// Places where an alignment may end: that of the last blank, or with `before_last` 1 that of the last label.
  Tensor is_end(Extent before_last) const {
    return elementwise("eq", {place, weft::expand(labels * 2.0 - static_cast<double>(before_last), place.shape())});
  }
  /// The log-probability [N, 1] of all alignments that end at that place. Sequences without labels have no last label, so
  /// theirs is log 0.
  Tensor ended(const Tensor& reached, Extent before_last) const {
    const Tensor found = weft::sum(choose(is_end(before_last), reached, zeros_like(reached)), {1}, {.keepdims = true});
    return before_last == 0 ? found : choose(labels > 0.0, found, never_like(found));
  }
  Tensor has_step(Extent t) const { return steps > static_cast<double>(t); }

  Tensor x, at, may_skip, steps, labels, place, classes;
};

Tensors alignment_parts(const Call& c) {
  const Alignment a(c);
  const Tensor read = weft::take_along_axis(a.x, a.classes, 2);
  const Tensor first = weft::select(read, 0, 0), never = never_like(first);
  Tensor reached = choose((a.place < 2.0) & (a.place <= a.labels * 2.0), first, never);
  Tensors all{reached};
  for (Extent t = 1; t < a.x.dim(0); ++t) {
    const Tensor next = log_sum({reached, moved_places(reached, 1, kNeverLog),
                                 choose(a.may_skip, moved_places(reached, 2, kNeverLog), never)}) +
                        weft::select(read, 0, t);
    reached = choose(a.has_step(t), next, reached);
    all.push_back(reached);
  }
  const Tensor total = log_sum({a.ended(reached, 0), a.ended(reached, 1)});
  return {weft::squeeze(total, 1), weft::stack(all, 0)};
}

// The share of a place's probability that came from each place before it: the gradient flows back in these shares.
Tensors alignment_backward_parts(const Call& c) {
  const Alignment a(c);
  const Tensor &reached = c.input(5), gradient = weft::unsqueeze(c.input(6), 1);
  const Tensor read = weft::take_along_axis(a.x, a.classes, 2), zeros = zeros_like(weft::select(read, 0, 0));
  const Extent count = a.x.dim(0);
  const Tensor last = weft::select(reached, 0, count - 1);
  const Tensor total = log_sum({a.ended(last, 0), a.ended(last, 1)});
  const Tensor is_end = a.is_end(0) | a.is_end(1);
  Tensor flowing = gradient * elementwise("exp", {choose(is_end, last - total, never_like(last))});
  Tensors all(static_cast<std::size_t>(count));
  for (Extent t = count; t-- > 0;) {
    const Tensor has = a.has_step(t);
    all[static_cast<std::size_t>(t)] = t == 0 ? flowing : choose(has, flowing, zeros);
    if (t == 0) break;
    const Tensor before = weft::select(reached, 0, t - 1);
    const Tensor entered = weft::select(reached, 0, t) - weft::select(read, 0, t);
    const auto from = [&](Extent by) {  // the share of a place's probability that came from `by` places before it
      // Log 0 where nothing flows: what is left out must not be infinite, or its gradients are NaN.
      const Tensor flows = by == 2 ? a.may_skip & has : has;
      const Tensor share =
          elementwise("exp", {choose(flows, moved_places(before, by, kNeverLog) - entered, never_like(zeros))});
      return moved_places(share * flowing, -by, 0);
    };
    flowing = choose(has, from(0) + from(1) + from(2), flowing);
  }
  return {Tensor(scatter_add_along(a.classes.node(), weft::stack(all, 0).node(), 2, a.x.dim(2)))};
}

void check_alignment(const Call& c) {
  const Tensor& x = c.input(0);
  if (x.rank() != 3 || x.dim(0) < 1 || c.input(1).rank() != 2 || c.input(1).dim(0) != x.dim(1))
    c.shape_error("not x [T, N, classes] with at [N, places] and one step at least");
  if (c.input(2).shape() != c.input(1).shape()) c.shape_error("skips are not of the shape of at");
  for (const std::size_t i : {3u, 4u})
    if (c.input(i).shape() != Shape{x.dim(1)}) c.shape_error("lengths are not [N]");
}

std::vector<InputSpec> alignment_inputs() {
  return {{"x", ops::DTypes::floats},
          {.name = "at", .only = {DType::i32}},
          {.name = "skips", .only = {DType::i32}},
          {.name = "steps", .only = {DType::i32}},
          {.name = "labels", .only = {DType::i32}}};
}

double alignment_flops(const Call& c) {
  constexpr double kOfPlace = 12;
  return kOfPlace * static_cast<double>(c.input(0).dim(0) * c.input(1).numel());
}

// For each sequence: -log of the probability of all alignments.
Tensor ctc_losses(const Call& c) {
  const auto a = c.attributes<CtcAttributes>();
  const Tensor x = cast(c.input(0), compute_type(c.input(0).dtype())), targets = cast(c.input(1), DType::i32),
               steps = cast(c.input(2), DType::i32), labels = cast(c.input(3), DType::i32);
  const Extent n = x.dim(1), s = targets.dim(1), places = 2 * s + 1;
  const auto blank = static_cast<double>(a.blank);
  const Tensor blanks = weft::full({n, s, 1}, blank, DType::i32, x.device());
  Tensor at = weft::reshape(weft::concat(Tensors{blanks, weft::unsqueeze(targets, 2)}, 2), {n, 2 * s});
  at = weft::concat(Tensors{at, weft::full({n, 1}, blank, DType::i32, x.device())}, 1);
  // A step over the blank between two labels is allowed if the labels differ.
  const Tensor place(iota({n, places}, 1, DType::i32, x.device()));
  const Tensor two_before =
      s > 0 ? weft::concat(Tensors{weft::narrow(at, 1, 0, 2), weft::narrow(at, 1, 0, places - 2)}, 1) : at;
  const Tensor may_skip =
      (place > 1.0) & elementwise("ne", {at, scalar_like(blank, at)}) & elementwise("ne", {at, two_before});
  const Tensor total(
      call_nodes(ctc_alignment_row(), {x, at, cast(may_skip, DType::i32), steps, labels}, {}, c.where())[0]);
  const Tensor fits = (total > kNeverLog / 2) & (steps > 0.0);
  const Tensor otherwise =
      full({n}, a.zero_infinity ? 0 : std::numeric_limits<double>::infinity(), x.dtype(), x.device());
  return choose(fits, -total, otherwise);
}

const OpRow& ctc_loss_row() {
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

const OpRow& ctc_alignment_row() {
  static const OpRow row{
      .name = "ctc_alignment",
      .family = "recurrent",
      .inputs = alignment_inputs(),
      .result = "that of x",
      .several_outputs = true,
      .doc =
          "The log-probability of all alignments of labels with steps [N], and that of those that have reached each "
          "place after each step [T, N, places]. What ctc_loss is made of.",
      .infer =
          [](const Call& c) {
            check_alignment(c);
            const Tensor& x = c.input(0);
            return std::vector<Result>{{x.dtype(), {x.dim(1)}}, {x.dtype(), {x.dim(0), x.dim(1), c.input(1).dim(1)}}};
          },
      .decompose = alignment_parts,
      .gradient =
          [](const GradientCall& g) {
            if (g.gradients[1].defined()) return Tensors{};  // of second order: use the decomposition
            Tensors inputs = g.call.inputs();
            inputs.push_back(g.results[1]);
            inputs.push_back(g.gradients[0]);
            return Tensors{
                call(ctc_alignment_backward_row(), std::move(inputs), Words{}, g.call.where()), {}, {}, {}, {}};
          },
      .form = KernelForm::routine,
      .flops = alignment_flops,
      .cases = {{"two sequences",
                 {{{6, 2, 4}, -3, -0.1},
                  {.shape = {2, 5}, .type = DType::i32, .values = {0, 1, 0, 2, 0, 0, 3, 0, 3, 0}},
                  {.shape = {2, 5}, .type = DType::i32, .values = {0, 0, 0, 1, 0, 0, 0, 0, 0, 0}},
                  {.shape = {2}, .type = DType::i32, .values = {6, 4}},
                  {.shape = {2}, .type = DType::i32, .values = {2, 2}}}},
                {"one without labels",
                 {{{5, 2, 3}, -3, -0.1},
                  {.shape = {2, 3}, .type = DType::i32, .values = {0, 1, 0, 0, 2, 0}},
                  {.shape = {2, 3}, .type = DType::i32, .values = {0, 0, 0, 0, 0, 0}},
                  {.shape = {2}, .type = DType::i32, .values = {5, 3}},
                  {.shape = {2}, .type = DType::i32, .values = {1, 0}}}}},
      .errors = {{"places of other sequences",
                  {{{6, 2, 4}, -3, -1},
                   {{3, 5}, 0, 3, DType::i32},
                   {{3, 5}, 0, 1, DType::i32},
                   {{2}, 1, 6, DType::i32},
                   {{2}, 1, 2, DType::i32}},
                  {},
                  "not x [T, N, classes] with at [N, places]"}}};
  return row;
}

const OpRow& ctc_alignment_backward_row() {
  static const OpRow row{
      .name = "ctc_alignment_backward",
      .family = "recurrent",
      .inputs =
          [] {
            std::vector<InputSpec> inputs = alignment_inputs();
            inputs.push_back({"reached", ops::DTypes::floats});
            inputs.push_back({"gradient", ops::DTypes::floats});
            return inputs;
          }(),
      .result = "that of x",
      .doc = "The gradient of ctc_alignment to x, from its second result and the gradient of its first.",
      .infer =
          [](const Call& c) {
            check_alignment(c);
            const Tensor& x = c.input(0);
            if (c.input(5).shape() != Shape{x.dim(0), x.dim(1), c.input(1).dim(1)} ||
                c.input(6).shape() != Shape{x.dim(1)})
              c.shape_error("not reached [T, N, places] with a gradient [N]");
            return std::vector<Result>{like(x)};
          },
      .decompose = alignment_backward_parts,
      .form = KernelForm::routine,
      .flops = alignment_flops};
  return row;
}

OpRows ctc_rows() { return {&ctc_loss_row(), &ctc_alignment_row(), &ctc_alignment_backward_row()}; }

}  // namespace graph

namespace nn {

Tensor ctc(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
           const Tensor& target_lengths, const CtcOptions& o, Where where) {
  return graph::call(graph::ctc_loss_row(), {log_probabilities, targets, input_lengths, target_lengths},
                     graph::CtcAttributes{o.blank, o.zero_infinity, o.reduction}, where);
}

}  // namespace nn
}  // namespace weft
