// The Tensor handle, elementwise ops and Variables: what needs the graph but no device.
#include "weft/tensor.hpp"

#include <fmt/format.h>

#include "graph/describe.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "ops/table.hpp"
#include "weft/custom_op.hpp"
#include "weft/elementwise.hpp"

namespace weft {
namespace graph {

std::string describe(std::string_view op, std::string_view fact,
                     const std::vector<std::pair<std::string, Tensor>>& operands, Where where) {
  std::size_t width = 0;
  for (const auto& [name, value] : operands) width = std::max(width, name.size());
  std::string text = fmt::format("{}: {}", op, fact);
  for (const auto& [name, value] : operands) {
    text += fmt::format("\n  {:<{}}  {} {}", name, width, weft::name_of(value.dtype()), value.shape().to_string());
    if (!value.label().empty()) text += fmt::format("  \"{}\"", value.label());
  }
  if (where.line())
    text += fmt::format("\n  called at {}:{} ({})", where.file_name(), where.line(), where.function_name());
  return text;
}

}  // namespace graph

using graph::describe;

namespace {

const graph::Node& node_of(const Tensor& tensor) {
  if (!tensor.defined()) throw UsageError("tensor: used before it was given a value");
  return *tensor.node();
}

}  // namespace

const Shape& Tensor::shape() const { return node_of(*this).shape; }
DType Tensor::dtype() const { return node_of(*this).type; }
Device Tensor::device() const { return node_of(*this).device; }

Extent Tensor::dim(int axis) const {
  if (axis < -rank() || axis >= rank())
    throw ShapeError(fmt::format("dim: axis {} of a tensor of rank {} {}", axis, rank(), shape().to_string()));
  return shape().dim(axis);
}

Tensor Tensor::named(std::string_view label) const {
  node_of(*this).label = label;
  return *this;
}
const std::string& Tensor::label() const { return node_of(*this).label; }

Tensor Tensor::operator-() const { return elementwise("neg", {*this}); }

Tensor full(const Shape& shape, double value, DType type, Device device) {
  for (Extent e : shape)
    if (e < 0) throw ShapeError(fmt::format("full: negative extent in {}", shape.to_string()));
  return Tensor(graph::constant(value, type, shape, device));
}
Tensor zeros(const Shape& shape, DType type, Device device) { return full(shape, 0, type, device); }
Tensor ones(const Shape& shape, DType type, Device device) { return full(shape, 1, type, device); }
Tensor arange(Extent n, DType type, Device device) {
  if (n < 0) throw ShapeError(fmt::format("arange: negative length {}", n));
  return Tensor(graph::cast(graph::iota({n}, 0, DType::i32, device), type));
}
Tensor scalar_like(double value, const Tensor& like) {
  // A number does not promote: it takes the tensor's type, unless that would change it.
  DType type = like.dtype();
  if (type == DType::boolean || (is_integer(type) && value != std::trunc(value)))
    type = value == std::trunc(value) ? DType::i32 : DType::f32;
  return full({}, value, type, like.device());
}
Tensor zeros_like(const Tensor& like) { return full(like.shape(), 0, like.dtype(), like.device()); }
Tensor ones_like(const Tensor& like) { return full(like.shape(), 1, like.dtype(), like.device()); }

Tensor elementwise(std::string_view name, std::initializer_list<Tensor> inputs,
                   std::initializer_list<double> attributes, Where where) {
  return elementwise(name, std::span<const Tensor>(inputs.begin(), inputs.size()),
                     std::span<const double>(attributes.begin(), attributes.size()), where);
}

Tensor elementwise(std::string_view name, std::span<const Tensor> inputs, std::span<const double> attributes,
                   Where where) {
  const ops::ElementwiseRow& row = ops::elementwise_row(name);
  const auto& names = row.inputs;
  if (inputs.size() != names.size())
    throw UsageError(fmt::format("{}: takes {} inputs ({}), {} given", row.name, names.size(), fmt::join(names, ", "),
                                 inputs.size()));
  std::vector<std::pair<std::string, Tensor>> operands;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    node_of(inputs[i]);
    operands.emplace_back(std::string(names[i]), inputs[i]);
  }
  Shape shape;
  std::vector<DType> types;
  for (const Tensor& input : inputs) {
    if (input.device() != inputs[0].device())
      throw DeviceError(describe(row.name,
                                 fmt::format("operands on {} and {}; move one with .to(device)",
                                             inputs[0].device().to_string(), input.device().to_string()),
                                 operands, where));
    Shape joined;
    if (!graph::broadcast_shapes(shape, input.shape(), joined))
      throw ShapeError(describe(row.name, "shapes do not broadcast: extents must be equal or 1, aligned from the right",
                                operands, where));
    shape = joined;
    types.push_back(input.dtype());
  }
  std::vector<graph::NodeRef> nodes;
  for (const Tensor& input : inputs) nodes.push_back(input.node());
  try {
    const scalar::Expression& typed = ops::typed_forward(row, types);
    if (!row.attributes.empty() || !attributes.empty()) {
      const DType type = ops::attribute_type(row, types);
      for (double value : ops::checked_attributes(row, attributes, type))
        nodes.push_back(graph::constant(value, type, {}, inputs[0].device()));
    }
    return graph::wrap(graph::map_typed(typed, std::move(nodes), row.name, &row, where));
  } catch (const DTypeError& error) {
    throw DTypeError(describe(row.name, error.what(), operands, where));
  }
}

Tensor cast(const Tensor& x, DType type, Where) {
  node_of(x);
  return graph::wrap(graph::cast(x.node(), type));
}

// An operator cannot be told its caller's line, so its messages name none.
#define WEFT_BINARY(symbol, name)                                                                                      \
  Tensor operator symbol(const Tensor& x, const Tensor& y) { return elementwise(name, {x, y}, {}, Where()); }          \
  Tensor operator symbol(const Tensor& x, double y) { return elementwise(name, {x, scalar_like(y, x)}, {}, Where()); } \
  Tensor operator symbol(double x, const Tensor& y) { return elementwise(name, {scalar_like(x, y), y}, {}, Where()); }
WEFT_BINARY(+, "add")
WEFT_BINARY(-, "sub")
WEFT_BINARY(*, "mul")
WEFT_BINARY(/, "div")
#undef WEFT_BINARY
Tensor operator<(const Tensor& x, const Tensor& y) { return elementwise("lt", {x, y}, {}, Where()); }
Tensor operator<=(const Tensor& x, const Tensor& y) { return elementwise("le", {x, y}, {}, Where()); }
Tensor operator>(const Tensor& x, const Tensor& y) { return elementwise("gt", {x, y}, {}, Where()); }
Tensor operator>=(const Tensor& x, const Tensor& y) { return elementwise("ge", {x, y}, {}, Where()); }

CustomOp register_op(const OpDefinition& definition) {
  ops::CustomOp op{.name = definition.name,
                   .inputs = definition.inputs,
                   .forward = definition.forward,
                   .attributes = definition.attributes,
                   .gradients = definition.gradients,
                   .aliases = {},
                   .doc = definition.doc};
  return CustomOp(std::string(ops::register_elementwise(op).name));
}

}  // namespace weft
