// Gradients: transforms of the graph. A gradient is made of the same ops, so it can be differentiated again.
#pragma once

#include <span>
#include <vector>

#include "weft/tensor.hpp"

namespace weft {

/// d sum(seed * output) / d input for every input. An input may be any value that output was made from, Variables included.
/// `seed` defaults to 1 and may be left out only for outputs with one element. An input that output does not depend on gets
/// zeros.
/// Errors  UsageError: a non-scalar output without seed; output depends on an input through a value that `eval` has released.
///         ShapeError: seed's shape differs. DTypeError: output is not a float.
std::vector<Tensor> grad(const Tensor& output, std::span<const Tensor> inputs, const Tensor& seed = {},
                         Where where = Where::current());
inline std::vector<Tensor> grad(const Tensor& output, std::initializer_list<Tensor> inputs, const Tensor& seed = {},
                                Where where = Where::current()) {
  return grad(output, std::span<const Tensor>(inputs.begin(), inputs.size()), seed, where);
}
Tensor grad(const Tensor& output, const Tensor& input, Where where = Where::current());
std::vector<Tensor> grad(const Tensor& output, std::span<const Variable> inputs, Where where = Where::current());

/// Another node with the value of x. Functions of it can be differentiated without reaching other uses of x. Nothing is copied.
[[nodiscard]] Tensor alias(const Tensor& x);

/// While this object exists, `eval` on this thread does not release inputs, so gradients of evaluated values can be taken with
/// respect to all of them. The transforms of functions (vjp, jacobian, grad(f)) hold one while they call the function.
class KeepHistory {
 public:
  KeepHistory();
  ~KeepHistory();
  KeepHistory(const KeepHistory&) = delete;
  KeepHistory& operator=(const KeepHistory&) = delete;
};

/// The gradient of f with respect to its first argument: grad([](Tensor v) { return sum(sin(v)); })(x). Other values that f
/// reads are constants, even x itself if f captures it.
template <class F>
auto grad(F f, Where where = Where::current()) {
  return [f, where](const Tensor& x, const auto&... others) {
    const KeepHistory until_asked;
    const Tensor at = alias(x);
    return grad(f(at, others...), at, where);
  };
}
/// f and that gradient.
template <class F>
auto value_and_grad(F f, Where where = Where::current()) {
  return [f, where](const Tensor& x, const auto&... others) {
    const KeepHistory until_asked;
    const Tensor at = alias(x);
    Tensor y = f(at, others...);
    return std::pair<Tensor, Tensor>(y, grad(y, at, where));
  };
}

/// Adds d output / d v to v.grad() for every Variable v with requires_grad that output was made from.
void backward(const Tensor& output, const Tensor& seed = {}, Where where = Where::current());

/// The same value, but no gradient flows through it.
[[nodiscard]] Tensor detach(const Tensor& x);

/// While this object exists, no gradient flows through the results of this thread's ops, and Variables may be changed in place.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};
/// While this object exists, gradients are recorded again, within a NoGrad too.
class EnableGrad {
 public:
  EnableGrad();
  ~EnableGrad();
  EnableGrad(const EnableGrad&) = delete;
  EnableGrad& operator=(const EnableGrad&) = delete;

 private:
  int before_;
};
bool grad_enabled();

}  // namespace weft
