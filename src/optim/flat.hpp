// Functions that the optimiser's step and the public clipping functions share.
#pragma once

#include "weft/tensor.hpp"

namespace weft::optim {

/// State of rank 0.
Variable float_variable(double value, std::string_view name, Device device);

Tensor sum_of_squares(const Tensor& x);
/// min(1, max_norm / (norm + 1e-6)). Errors: UsageError unless max_norm > 0.
Tensor clip_factor(const Tensor& norm, double max_norm);

}  // namespace weft::optim
