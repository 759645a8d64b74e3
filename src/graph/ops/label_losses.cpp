#include "weft/nn/label_losses.hpp"

#include "graph/losses.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "weft/ops.hpp"

namespace weft {
namespace graph {
namespace {

struct LabelAttributes {
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

}  // namespace

OpRows label_loss_rows() { return {&multilabel_margin_row()}; }

}  // namespace graph

namespace nn {

Tensor multilabel_margin(const Tensor& x, const Tensor& targets, Reduction reduction, Where where) {
  return graph::call(graph::multilabel_margin_row(), {x, targets}, graph::LabelAttributes{reduction}, where);
}

}  // namespace nn
}  // namespace weft
