// Gradients of scalar expressions against differences, in f64.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/derivative.hpp"
#include "ops/scalar.hpp"

namespace weft::scalar::test {

/// Value of a gradient expression over (operands..., output, g).
inline double value_of(const Expression& gradient, const Expression& forward, std::vector<double> at, double g = 1) {
  const double output = evaluate(forward, at);
  at.push_back(output);
  at.push_back(g);
  return evaluate(gradient, at);
}

/// d forward / d operand, by the derived gradient.
inline double slope(const Expression& forward, std::size_t operand, const std::vector<double>& at) {
  return value_of(gradient(forward)[operand], forward, at);
}

/// d f / d operand by differences: central, and Richardson's step to fourth order.
template <class Function>
double difference_of(const Function& function, std::size_t operand, std::vector<double> at,
                     double relative_step = 1e-3) {
  const double x = at[operand], step = relative_step * std::max(1.0, std::fabs(x));
  auto central = [&](double h) {
    at[operand] = x + h;
    const double above = function(at);
    at[operand] = x - h;
    return (above - function(at)) / (2 * h);
  };
  return (4 * central(step / 2) - central(step)) / 3;
}

inline double difference(const Expression& forward, std::size_t operand, const std::vector<double>& at,
                         double relative_step = 1e-3) {
  return difference_of([&](const std::vector<double>& values) { return evaluate(forward, values); }, operand, at,
                       relative_step);
}

}  // namespace weft::scalar::test
