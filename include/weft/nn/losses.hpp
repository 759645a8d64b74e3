// Losses: scalars to minimise, or one value for each element.
#pragma once

#include "weft/ops.hpp"
#include "weft/tensor.hpp"

namespace weft::nn {

/// How the losses of single elements are combined.
enum class Reduction { mean, sum, none };

/// Mean over rows of -log softmax(logits)[target].
using weft::cross_entropy;
struct CrossEntropyOptions {
  Tensor weight = {};          ///< of each class [classes]; a mean divides by the weights of the targets
  double label_smoothing = 0;  ///< share of each target that is spread over all classes
  int ignore_index = -100;     ///< rows with this target do not count
  Reduction reduction = Reduction::mean;
};
/// The same with weights of classes and smoothed targets. Targets are classes, integers [...], or floats [..., classes]: a
/// probability of each class, where a mean is over the rows. Errors: ShapeError, DTypeError.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const CrossEntropyOptions& options,
                     Where where = Where::current());
/// (prediction - target)^2.
Tensor mse(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean,
           Where where = Where::current());
/// |prediction - target|.
Tensor l1(const Tensor& prediction, const Tensor& target, Reduction reduction = Reduction::mean,
          Where where = Where::current());
/// d^2 / 2 where |d| < delta, else delta (|d| - delta / 2), with d = prediction - target.
Tensor huber(const Tensor& prediction, const Tensor& target, double delta = 1, Reduction reduction = Reduction::mean,
             Where where = Where::current());
/// -(t log s(x) + (1 - t) log(1 - s(x))) with s the sigmoid, computed as max(x, 0) - x t + log(1 + exp(-|x|)), which
/// neither overflows nor loses small values. Targets in [0, 1].
Tensor binary_cross_entropy(const Tensor& logits, const Tensor& targets, Reduction reduction = Reduction::mean,
                            Where where = Where::current());
/// -log_probabilities[target] of the last axis. Shapes: log_probabilities [..., classes], targets i32 [...].
Tensor nll(const Tensor& log_probabilities, const Tensor& targets, Reduction reduction = Reduction::mean,
           Where where = Where::current());

}  // namespace weft::nn
