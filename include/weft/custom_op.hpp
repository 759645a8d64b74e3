// User-defined elementwise ops: Weft makes kernels and gradients for every device from the text of the forward pass.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/tensor.hpp"

namespace weft {

/// auto mish = register_op({.name = "my_mish", .inputs = {"x"}, .forward = "x * tanh(log(1 + exp(x)))"});
/// The language: numbers, + - * / %, comparisons, && || !, c ? a : b, calls of the scalar functions (docs/expressions.md),
/// `var n = e;`, `if (c) {...} else {...}`, `return e`.
struct OpDefinition {
  std::string name;
  std::vector<std::string> inputs;
  std::string forward;
  std::vector<std::pair<std::string, double>> attributes = {};  // name and default; calls pass them as further numbers
  std::vector<std::string> gradients =
      {};  // one for each input, over inputs, attributes, `output` and `g`; derived if absent
  std::string doc = {};
};

/// A registered op, to call. It works wherever built-in ops do.
class CustomOp {
 public:
  explicit CustomOp(std::string name) : name_(std::move(name)) {}
  template <class... T>
  Tensor operator()(const Tensor& first, const T&... rest) const {
    return elementwise(name_, {first, rest...});
  }
  Tensor call(std::initializer_list<Tensor> inputs, std::initializer_list<double> attributes = {}) const {
    return elementwise(name_, inputs, attributes);
  }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

/// Adds the op to the table. Registering the same definition again gives the same op.
/// Errors  UsageError: the name is taken or not an identifier, or a text does not parse (with the place).
CustomOp register_op(const OpDefinition& definition);

}  // namespace weft
