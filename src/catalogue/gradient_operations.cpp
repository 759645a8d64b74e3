// gradient.check: an op's gradients against central differences, in f64 on the CPU.
#include <fmt/format.h>

#include <cmath>

#include "catalogue/families.hpp"
#include "catalogue/op_values.hpp"
#include "runtime/op_cases.hpp"
#include "weft/elementwise.hpp"
#include "weft/error.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::operations {
namespace {

// The loss is sum(weights * result), and the direction is a random one over all float inputs.
Value check_gradient(Context& call) {
  const graph::OpRow& row = graph::op_row(call.input("op").string());
  if (!row.differentiable)
    throw OperationError("NO_GRADIENT", fmt::format("{} has no gradient{}{}", row.name,
                                                    row.no_gradient.empty() ? "" : ": ", row.no_gradient));
  const double step = call.input("step").number(), tolerance = call.input("tolerance").number();
  const Device cpu = parse_device("cpu");

  // Float inputs become leaves in f64.
  Value::Object input = call.input("input").members();
  graph::Tensors leaves;
  std::vector<Value*> places;
  const auto take = [&](Value& value) {
    if (!value.is_tensor() || !is_float(value.tensor().dtype())) return;
    leaves.push_back(cast(value.tensor().to(cpu), DType::f64).eval());
    places.push_back(&value);
  };
  for (std::size_t i = 0; i < input.size(); ++i) {
    Value& value = input.value(i);
    if (value.is_array())
      for (Value& each : value.elements()) take(each);
    else
      take(value);
  }
  if (leaves.empty())
    throw OperationError("NO_GRADIENT", "no input is a tensor of floats, so there is nothing to differentiate by");
  const auto loss = [&](const graph::Tensors& at) {
    for (std::size_t i = 0; i < at.size(); ++i) *places[i] = at[i];
    const Tensor result = apply_to(row, Value(input)).at(0);
    if (!is_float(result.dtype()))
      throw OperationError("NO_GRADIENT", fmt::format("the result of {} is {}", row.name, name_of(result.dtype())));
    const Tensor weights =
        runtime::tensor_of(runtime::random_numbers(result.numel(), 0.5, 1.5, 99), result.shape(), DType::f64);
    return sum(cast(result, DType::f64) * weights.to(cpu));
  };
  graph::Tensors directions;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    directions.push_back(
        runtime::tensor_of(runtime::random_numbers(leaves[i].numel(), -1, 1, static_cast<std::uint32_t>(i + 1)),
                           leaves[i].shape(), DType::f64)
            .to(cpu));
  const std::vector<Tensor> gradients = grad(loss(leaves), leaves);
  double analytic = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) analytic += sum(gradients[i] * directions[i]).item<double>();
  const auto moved = [&](double by) {
    graph::Tensors at;
    for (std::size_t i = 0; i < leaves.size(); ++i) at.push_back(leaves[i] + by * directions[i]);
    return loss(at).item<double>();
  };
  call.check();
  const double numeric = (moved(step) - moved(-step)) / (2 * step);
  const double error = std::abs(analytic - numeric) / std::max(1.0, std::max(std::abs(analytic), std::abs(numeric)));
  return Value::object({{"analytic", analytic}, {"numeric", numeric}, {"error", error}, {"holds", error <= tolerance}});
}

}  // namespace

void add_gradient_operations(Registry& registry) {
  registry.add(
      {.space = "gradient",
       .name = "check",
       .title = "check a gradient",
       .description =
           "Compares the gradients of an op with central differences, in f64 on the CPU, along a random direction of "
           "all inputs of floats. Inputs must keep away from kinks.",
       .input =
           schema_of(R"({"type": "object", "required": ["op", "input"], "additionalProperties": false, "properties": {
                  "op": {"type": "string", "description": "name of an op, as in tensor.NAME"},
                  "input": {"type": "object", "description": "what tensor.NAME takes"},
                  "step": {"type": "number", "exclusiveMinimum": 0, "maximum": 1, "default": 1e-5},
                  "tolerance": {"type": "number", "exclusiveMinimum": 0, "default": 1e-6, "description": "of the relative error"}}})"),
       .output = schema_of(R"({"type": "object", "required": ["analytic", "numeric", "error", "holds"], "properties": {
                  "analytic": {"type": "number"}, "numeric": {"type": "number"}, "error": {"type": "number"}, "holds": {"type": "boolean"}}})"),
       .errors = {{"NO_GRADIENT", "the op has no gradient, or no input of floats"}},
       .access = {.scopes = {"tensor:run"}}},
      check_gradient);
}

}  // namespace weft::operations
