// The Tensor handle, elementwise ops and Variables: the parts that need the graph but no device.
#include "weft/tensor.hpp"

#include <fmt/format.h>

#include "graph/autocast.hpp"
#include "graph/describe.hpp"
#include "graph/map_row.hpp"
#include "graph/no_grad.hpp"
#include "graph/node.hpp"
#include "graph/packed.hpp"
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

const graph::Node& node_of(const Tensor& tensor, Where where) {
  if (!tensor.defined()) throw UsageError(describe("tensor", "used before it was given a value", {}, where));
  return *tensor.node();
}

}  // namespace

const Shape& Tensor::shape(Where where) const { return node_of(*this, where).shape; }
DType Tensor::dtype(Where where) const { return node_of(*this, where).type; }
Device Tensor::device(Where where) const { return node_of(*this, where).device; }

Extent Tensor::dim(int axis, Where where) const {
  const Shape& extents = shape(where);
  const int rank = extents.rank();
  if (axis < -rank || axis >= rank)
    throw ShapeError(
        describe("dim", fmt::format("axis {} is outside of [{}, {})", axis, -rank, rank), {{"x", *this}}, where));
  return extents.dim(axis);
}

Tensor Tensor::named(std::string_view label, Where where) const {
  node_of(*this, where).label = label;
  return *this;
}
const std::string& Tensor::label(Where where) const { return node_of(*this, where).label; }

Tensor full(const Shape& shape, double value, DType type, Device device) {
  for (Extent e : shape)
    if (e < 0) throw ShapeError(fmt::format("full: negative extent in {}", shape.to_string()));
  if (is_block(type))
    throw DTypeError(fmt::format("full: elements of {} share scales; make them f32, and cast", name_of(type)));
  return Tensor(graph::constant(value, type, shape, device));
}
Tensor zeros(const Shape& shape, DType type, Device device) { return full(shape, 0, type, device); }
Tensor ones(const Shape& shape, DType type, Device device) { return full(shape, 1, type, device); }
Tensor arange(Extent n, DType type, Device device) {
  if (n < 0) throw ShapeError(fmt::format("arange: negative length {}", n));
  return cast(Tensor(graph::iota({n}, 0, DType::i32, device)), type);
}
Tensor scalar_like(double value, const Tensor& like) {
  // A number does not promote: it takes the tensor's type, unless that would change it.
  DType type = like.dtype();
  const bool is_whole = value == std::trunc(value);
  if (type == DType::boolean || (is_integer(type) && !is_whole)) type = is_whole ? DType::i32 : DType::f32;
  const Element& row = element(type);
  if (is_integer(type) && std::isfinite(value) && (value < row.lowest || value > row.highest))
    throw UsageError(fmt::format("{} is not a number of type {}, which holds {:.0f} to {:.0f}; cast the tensor", value,
                                 row.name, row.lowest, row.highest));
  return full({}, value, type, like.device());
}
Tensor long_scalar_like(std::uint64_t bits, bool is_signed, const Tensor& like) {
  const auto as_signed = static_cast<std::int64_t>(bits);
  const bool is_negative = is_signed && as_signed < 0;
  const double value = is_negative ? static_cast<double>(as_signed) : static_cast<double>(bits);
  const DType type = like.dtype();
  if (std::fabs(value) <= 0x1p53 || !is_integer(type) || element(type).bits < 64) return scalar_like(value, like);
  if (element(type).is_signed ? !is_negative && as_signed < 0 : is_negative)
    throw UsageError(fmt::format("{} is not a number of type {}; cast the tensor",
                                 is_negative ? fmt::format("{}", as_signed) : fmt::format("{}", bits), name_of(type)));
  // A constant is a double, so the device makes the number from two constants, one for each half.
  const double high = is_negative ? static_cast<double>(as_signed >> 32) : static_cast<double>(bits >> 32);
  const auto number = [&](double half) { return full({}, half, type, like.device()); };
  return number(high) * number(0x1p32) + number(static_cast<double>(bits & 0xffffffffu));
}
Tensor zeros_like(const Tensor& like) { return full(like.shape(), 0, like.dtype(), like.device()); }
Tensor ones_like(const Tensor& like) { return full(like.shape(), 1, like.dtype(), like.device()); }

Tensor elementwise(std::string_view name, std::initializer_list<Tensor> inputs,
                   std::initializer_list<double> attributes, Where where) {
  return elementwise(name, std::span<const Tensor>(inputs.begin(), inputs.size()),
                     std::span<const double>(attributes.begin(), attributes.size()), where);
}

namespace {

// The inputs as an Autocast scope wants them. The rows of elementwise ops are of no family that has a rule.
std::vector<Tensor> autocast_inputs(const ops::ElementwiseRow& row, std::span<const Tensor> inputs) {
  const AutocastRule rule = graph::autocast_rule_of(row.name, {});
  std::vector<Tensor> cast(inputs.begin(), inputs.end());
  for (Tensor& x : cast)
    if (x.defined()) x = Tensor(graph::autocast_input(rule, x.node()));
  return cast;
}

void check_given(const Tensor& x, std::string_view op, std::string_view name, Where where) {
  if (!x.defined())
    throw UsageError(describe(op, fmt::format("{} was used before it was given a value", name), {}, where));
}

// The text that only messages need is built only for an error.
Tensor apply(const ops::ElementwiseRow& row, std::span<const Tensor> given, std::span<const double> attributes,
             Where where) {
  std::vector<Tensor> autocast;
  if (graph::autocast_is_on()) autocast = autocast_inputs(row, given);
  const std::span<const Tensor> inputs = graph::autocast_is_on() ? std::span<const Tensor>(autocast) : given;
  const auto& names = row.inputs;
  if (inputs.size() != names.size())
    throw UsageError(describe(
        row.name, fmt::format("takes {} inputs ({}), {} given", names.size(), fmt::join(names, ", "), inputs.size()),
        {}, where));
  const auto text = [&](std::string_view fact) {
    std::vector<std::pair<std::string, Tensor>> operands;
    for (std::size_t i = 0; i < inputs.size(); ++i) operands.emplace_back(std::string(names[i]), inputs[i]);
    return describe(row.name, fact, operands, where);
  };
  DType types[ops::kOperandsMax];
  std::vector<graph::NodeRef> nodes;
  nodes.reserve(inputs.size() + row.attributes.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) check_given(inputs[i], row.name, names[i], where);
  const Shape* shape = &inputs[0].shape();
  Shape joined;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const graph::Node& node = *inputs[i].node();
    if (node.device != inputs[0].node()->device)
      throw DeviceError(text(fmt::format("operands on {} and {}; move one with .to(device)",
                                         inputs[0].device().to_string(), node.device.to_string())));
    if (node.shape != *shape) {
      Shape wider;
      if (!graph::broadcast_shapes(*shape, node.shape, wider))
        throw ShapeError(text("shapes do not broadcast: extents must be equal or 1, aligned from the right"));
      joined = std::move(wider);
      shape = &joined;
    }
    types[i] = node.type;
    nodes.push_back(inputs[i].node());
  }
  const std::span<const DType> of_inputs(types, inputs.size());
  try {
    const scalar::Expression& typed = ops::typed_forward(row, of_inputs);
    if (!row.attributes.empty() || !attributes.empty()) {
      const DType type = ops::attribute_type(row, of_inputs);
      for (double value : ops::checked_attributes(row, attributes, type))
        nodes.push_back(graph::constant(value, type, {}, inputs[0].device()));
    }
    return graph::wrap(graph::map_row(row, typed, std::move(nodes), where));
  } catch (const DTypeError& error) {
    throw DTypeError(text(error.what()));
  }
}

}  // namespace

Tensor elementwise(std::string_view name, std::span<const Tensor> inputs, std::span<const double> attributes,
                   Where where) {
  return apply(ops::elementwise_row(name), inputs, attributes, where);
}

Tensor cast(const Tensor& x, DType type, Where where) {
  const graph::Node& node = node_of(x, where);
  if (is_block(type)) return node.type == type ? x : graph::in_blocks(cast(x, DType::f32, where), type, where);
  if (graph::has_packed_layout(node)) return cast(graph::unpacked(x, where), type, where);
  return graph::wrap(graph::cast(x.node(), type));
}

#define WEFT_OPERATOR(symbol, name)                                     \
  Tensor operator symbol(const Term& x, const Term& y) {                \
    static const ops::ElementwiseRow& row = ops::elementwise_row(name); \
    const Tensor inputs[] = {x.tensor, y.tensor};                       \
    return apply(row, inputs, {}, x.where);                             \
  }                                                                     \
  Tensor operator symbol(const Term& x, double y) {                     \
    check_given(x.tensor, name, "x", x.where);                          \
    return x symbol Term(scalar_like(y, x.tensor), x.where);            \
  }                                                                     \
  Tensor operator symbol(double x, const Term& y) {                     \
    check_given(y.tensor, name, "y", y.where);                          \
    return Term(scalar_like(x, y.tensor), y.where) symbol y;            \
  }
WEFT_OPERATOR(+, "add")
WEFT_OPERATOR(-, "sub")
WEFT_OPERATOR(*, "mul")
WEFT_OPERATOR(/, "div")
WEFT_OPERATOR(<, "lt")
WEFT_OPERATOR(<=, "le")
WEFT_OPERATOR(>, "gt")
WEFT_OPERATOR(>=, "ge")
WEFT_OPERATOR(&, "bitwise_and")
WEFT_OPERATOR(|, "bitwise_or")
WEFT_OPERATOR(^, "bitwise_xor")
#undef WEFT_OPERATOR

Tensor operator-(const Term& x) { return elementwise("neg", {x.tensor}, {}, x.where); }
Tensor operator~(const Term& x) { return elementwise("bitwise_not", {x.tensor}, {}, x.where); }
Tensor operator!(const Term& x) { return elementwise("logical_not", {x.tensor}, {}, x.where); }

namespace {

// The value of x after `x symbol= y`, which must keep shape and dtype.
Tensor next_value(std::string_view symbol, const Tensor& x, const Tensor& next, const Term& y) {
  if (next.shape() == x.shape() && next.dtype() == x.dtype()) return next;
  const std::string text = describe(symbol,
                                    fmt::format("the result would be {} {}; write x = x {} y", name_of(next.dtype()),
                                                next.shape().to_string(), symbol[0]),
                                    {{"x", x}, {"y", y.tensor}}, y.where);
  if (next.shape() != x.shape()) throw ShapeError(text);
  throw DTypeError(text);
}

}  // namespace

#define WEFT_ASSIGNMENT(symbol)                                                                    \
  Tensor& operator symbol##=(Tensor& x, const Term& y) {                                           \
    return x = next_value(#symbol "=", x, Term(x, y.where) symbol y, y);                           \
  }                                                                                                \
  Tensor& operator symbol##=(Tensor& x, double y) { return x symbol## = Term(scalar_like(y, x)); } \
  Variable& operator symbol##=(Variable& x, const Term& y) {                                       \
    const Tensor value = x.value();                                                                \
    x.assign(next_value(#symbol "=", value, Term(value, y.where) symbol y, y), y.where);           \
    return x;                                                                                      \
  }                                                                                                \
  Variable& operator symbol##=(Variable& x, double y) { return x symbol## = Term(scalar_like(y, x)); }
WEFT_ASSIGNMENT(+)
WEFT_ASSIGNMENT(-)
WEFT_ASSIGNMENT(*)
WEFT_ASSIGNMENT(/)
#undef WEFT_ASSIGNMENT

void detail::check_row_length(Extent length, Extent wanted, Where where) {
  if (length != wanted)
    throw ShapeError(
        describe("tensor", fmt::format("a row has {} numbers and the first has {}", length, wanted), {}, where));
}

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
