// Losses of rows with several labels, and of sequences whose labels are not aligned with their steps.
#pragma once

#include "weft/nn/losses.hpp"

namespace weft::nn {

/// sum over labels j and other classes i of max(0, 1 - (x_j - x_i)) / classes. A row's labels are its targets up to the first
/// negative one. Shapes: x [..., classes], targets integers of the same shape. Errors: ShapeError, DTypeError.
Tensor multilabel_margin(const Tensor& x, const Tensor& targets, Reduction reduction = Reduction::mean,
                         Where where = Where::current());

struct CtcOptions {
  Extent blank = 0;
  bool zero_infinity = false;  ///< sequences whose labels do not fit their steps count 0, with zeros as gradients
  Reduction reduction = Reduction::mean;  ///< mean: each loss is divided by its number of labels first
};
/// -log of the probability of all alignments of the labels with the steps: a label may last several steps, and blanks may
/// separate labels. Shapes: log_probabilities [T, N, classes], targets integers [N, S], of which sequence n has the first
/// target_lengths[n], input_lengths and target_lengths integers [N]. A sequence whose labels do not fit gives infinity. One
/// kernel takes all steps, and a few their gradient, so a plan does not grow with T; gradients of gradients are made of ops for each
/// step. Gradients to any order.
/// Errors  ShapeError for shapes that do not fit; UsageError for a blank that is not a class.
/// Source  Graves et al. 2006, "Connectionist temporal classification"
Tensor ctc(const Tensor& log_probabilities, const Tensor& targets, const Tensor& input_lengths,
           const Tensor& target_lengths, const CtcOptions& options = {}, Where where = Where::current());

}  // namespace weft::nn
