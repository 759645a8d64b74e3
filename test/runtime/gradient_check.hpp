// Gradients of whole graphs against central differences, in f64 on the CPU, along a random direction of all inputs.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::test {

using Values = std::vector<double>;
using Function = std::function<Tensor(std::span<const Tensor>)>;

struct Leaf {
  Shape shape;
  Values values;
};

inline Values uniform(Extent count, double lo, double hi, std::mt19937_64& random) {
  Values values(static_cast<std::size_t>(count));
  for (double& v : values) v = std::uniform_real_distribution<double>(lo, hi)(random);
  return values;
}
inline Leaf random_leaf(const Shape& shape, std::mt19937_64& random, double lo = -1, double hi = 1) {
  return {shape, uniform(shape.numel(), lo, hi, random)};
}

class GradientCheck {
 public:
  /// Checks the gradient of sum(weights * function(leaves)), weights random, and with `second_order` that of
  /// sum(weights * gradient) too.
  void operator()(const std::string& name, const Function& function, const std::vector<Leaf>& leaves,
                  bool second_order = true) {
    SCOPED_TRACE(name);
    try {
      const Function loss = [&](std::span<const Tensor> x) { return weighted(function(x), 1); };
      along_a_direction(loss, leaves, "first order");
      if (second_order)
        along_a_direction(
            [&](std::span<const Tensor> x) {
              const std::vector<Tensor> gradients = grad(loss(x), x);
              Tensor total = full({}, 0, DType::f64);
              for (std::size_t i = 0; i < gradients.size(); ++i) total = total + weighted(gradients[i], 2 + i);
              return total;
            },
            leaves, "second order");
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  int count() const { return count_; }

 private:
  static constexpr double kStep = 1e-4, kAbsolute = 2e-6, kRelative = 2e-5;

  static Tensor leaf_tensor(const Shape& shape, const Values& values) {
    return tensor<double>(std::span<const double>(values), shape);
  }
  static Tensor weighted(const Tensor& y, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    return sum(y * leaf_tensor(y.shape(), uniform(y.numel(), 0.5, 1.5, random)));
  }

  void along_a_direction(const Function& loss, const std::vector<Leaf>& leaves, const char* order) {
    ++count_;
    std::vector<Values> directions;
    double length = 0;
    for (const Leaf& leaf : leaves) {
      directions.push_back(uniform(leaf.shape.numel(), -1, 1, random_));
      for (double d : directions.back()) length += d * d;
    }
    for (Values& direction : directions)
      for (double& d : direction) d /= length > 0 ? std::sqrt(length) : 1;
    auto at = [&](double step) {
      std::vector<Tensor> x;
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        Values moved = leaves[i].values;
        for (std::size_t e = 0; e < moved.size(); ++e) moved[e] += step * directions[i][e];
        x.push_back(leaf_tensor(leaves[i].shape, moved));
      }
      return x;
    };
    const std::vector<Tensor> x = at(0);
    const std::vector<Tensor> gradients = grad(loss(x), x);
    Tensor slope = full({}, 0, DType::f64);
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(gradients[i].shape(), x[i].shape()) << order << ", input " << i;
      ASSERT_EQ(gradients[i].dtype(), x[i].dtype()) << order << ", input " << i;
      slope = slope + sum(gradients[i] * leaf_tensor(x[i].shape(), directions[i]));
    }
    auto central = [&](double h) { return (loss(at(h)).item<double>() - loss(at(-h)).item<double>()) / (2 * h); };
    const double expected = (4 * central(kStep / 2) - central(kStep)) / 3;  // Richardson: fourth order
    EXPECT_NEAR(slope.item<double>(), expected, kAbsolute + kRelative * std::fabs(expected)) << order;
  }

  std::mt19937_64 random_{7};
  int count_ = 0;
};

}  // namespace weft::test
