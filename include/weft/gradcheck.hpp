// Gradients against finite differences.
#pragma once

#include <string>

#include "weft/transforms.hpp"

namespace weft {

struct GradcheckOptions {
  double step = 1e-5;  ///< inputs move by this much to either side
  double relative = 1e-4, absolute = 1e-6;
  bool second_order = false;  ///< also checks the gradient of a random weighting of the gradients
  bool forward = true;        ///< also checks `jvp`
};
struct GradcheckReport {
  bool agrees = true;
  double worst = 0;          ///< the largest difference between the two
  std::string message = {};  ///< the first derivative that differs: its place, and both values
  explicit operator bool() const { return agrees; }
};

/// Compares the derivative of every element of f's results, with respect to every element of the inputs that are f64, with
/// central differences, (f(x + h) - f(x - h)) / 2h. f is called twice for each of these elements. Other inputs stay as they are.
/// Place inputs away from kinks, and do not draw random numbers in f.
///
///     if (const auto report = gradcheck([](std::span<const Tensor> in) { return std::vector<Tensor>{my_op(in[0])}; }, {x}); !report)
///       std::cerr << report.message;
///
/// Errors  UsageError: no f64 input, a step or tolerance that is not positive. Otherwise as f.
GradcheckReport gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {}, Where where = Where::current());

}  // namespace weft
