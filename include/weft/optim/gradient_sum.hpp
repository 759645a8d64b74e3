// Gradient accumulation: one update from several batches.
#pragma once

#include <span>
#include <vector>

#include "weft/tensor.hpp"

namespace weft::optim {

/// Sums gradients until an update takes their mean, so that a batch may be larger than memory allows:
///
///     for (const Batch& part : parts) sum.add(grad(loss_of(part), optimizer.parameters()));
///     optimizer.step(sum.take_mean(), rate);
///
/// Both calls may be parts of compiled functions. The sum is one flat Variable, of the parameters' dtype.
class GradientSum {
 public:
  /// Errors  UsageError: no parameters, or of several dtypes.
  explicit GradientSum(std::span<const Variable> parameters);
  /// Adds one gradient for each parameter, in their order.
  /// Errors  UsageError: not one gradient a parameter. ShapeError: a gradient of another shape.
  void add(std::span<const Tensor> gradients);
  /// The sums divided by the number of calls of `add` since the last take; the sum begins anew. NaN if there were none.
  std::vector<Tensor> take_mean();

 private:
  std::vector<Shape> shapes_;
  Variable sum_, count_;
};

}  // namespace weft::optim
