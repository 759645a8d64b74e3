#include "graph/op.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/quote.hpp"
#include "graph/autocast.hpp"
#include "graph/axes.hpp"
#include "graph/caller.hpp"
#include "graph/describe.hpp"
#include "graph/no_grad.hpp"

namespace weft::graph {
namespace {

bool has_optional(const OpRow& row) {
  return std::any_of(row.inputs.begin(), row.inputs.end(), [](const InputSpec& input) { return input.optional; });
}

const InputSpec& spec_of(const OpRow& row, std::size_t i) { return row.inputs[std::min(i, row.inputs.size() - 1)]; }

// "floats", or the dtypes by name.
std::string taken(const InputSpec& spec) {
  if (spec.only.empty() && spec.dtypes == ops::DTypes::floats) return "floats";
  if (spec.only.empty() && spec.dtypes == ops::DTypes::integers) return "integers";
  if (spec.only.empty() && spec.dtypes == ops::DTypes::numbers) return "floats and integers";
  std::string types = spec.dtypes_text();
  if (const auto last = types.rfind(' '); last != std::string::npos) types.replace(last, 1, " or ");
  return types;
}

void check_inputs(const Call& call) {
  const OpRow& row = call.row();
  const Tensor* first = nullptr;
  for (std::size_t i = 0; i < call.inputs().size(); ++i) {
    const Tensor& x = call.input(i);
    const InputSpec& spec = spec_of(row, i);
    if (!x.defined()) {
      if (spec.optional) continue;
      throw UsageError(fmt::format("{}: {} has no value", row.name, spec.name));
    }
    if (first && x.device() != first->device())
      throw DeviceError(describe(row.name, "operands on different devices; move one with .to(device)",
                                 {{spec_of(row, 0).name, *first}, {spec.name, x}}, call.where()));
    if (!first) first = &x;
    if (!spec.allows(x.dtype())) {
      const std::string name = row.inputs.size() > 1 ? spec.name + " takes " : "takes ";
      call.dtype_error(fmt::format("{}{}; cast {}", name, taken(spec), spec.name));
    }
  }
}

// A node's words, after a mask of the inputs that are given if some are optional.
Words with_mask(const Call& call) {
  if (!has_optional(call.row())) return call.words();
  Words words{0};
  for (std::size_t i = 0; i < call.inputs().size(); ++i)
    if (call.input(i).defined()) words[0] |= Extent{1} << i;
  words.insert(words.end(), call.words().begin(), call.words().end());
  return words;
}

NodeFields fields_of(const Call& call, const std::vector<Result>& results) {
  NodeFields fields{.kind = Kind::call,
                    .type = results.at(0).type,
                    .shape = results[0].shape,
                    .ints = with_mask(call),
                    .value = static_cast<double>(results.size()),
                    .name = call.row().name,
                    .op = &call.row()};
  for (const Tensor& x : call.inputs())
    if (x.defined()) fields.inputs.push_back(x.node());
  if (fields.inputs.empty()) throw InternalError(fmt::format("{}: a call without inputs", call.row().name));
  fields.device = fields.inputs[0]->device;
  return fields;
}

// Parts are the same whether gradients are recorded or not (the call as a whole is detached), and in any Autocast scope.
class RecordGradients {
 public:
  RecordGradients() : depth_(no_grad_depth()) { no_grad_depth() = 0; }
  ~RecordGradients() { no_grad_depth() = depth_; }
  RecordGradients(const RecordGradients&) = delete;

 private:
  const NoAutocast types_are_known_;
  int depth_;
};

// Composites of narrow floats compute in their compute type from end to end, and round once.
std::vector<NodeRef> parts_in_compute_type(const Call& call, const std::vector<Result>& results) {
  Tensors inputs = call.inputs();
  bool any = false;
  for (Tensor& x : inputs)
    if (x.defined() && is_float(x.dtype()) && is_narrow(x.dtype())) {
      x = weft::cast(x, compute_type(x.dtype()));
      any = true;
    }
  const Call wide(call.row(), std::move(inputs), call.words(), call.where());
  std::vector<NodeRef> parts;
  for (const Tensor& part : call.row().decompose(any ? wide : call)) {
    const std::size_t i = parts.size();
    parts.push_back(any && i < results.size() ? cast(part.node(), results[i].type) : part.node());
  }
  return parts;
}

std::vector<NodeRef> parts_of(const Call& call, const std::vector<Result>& results) {
  const RecordGradients record;
  const CallerLine line(call.where());
  const Within outermost(Within::current().op ? Within::current() : Origin{&call.row()});
  std::vector<NodeRef> parts = parts_in_compute_type(call, results);
  bool fits = parts.size() == results.size();
  for (std::size_t i = 0; fits && i < parts.size(); ++i)
    fits = parts[i]->type == results[i].type && parts[i]->shape == results[i].shape;
  if (!fits)
    throw InternalError(
        fmt::format("{}: its parts are not of the dtype and shape that its row infers", call.row().name));
  return parts;
}

}  // namespace

bool InputSpec::allows(DType type) const {
  return only.empty() ? ops::allows(dtypes, type) : std::find(only.begin(), only.end(), type) != only.end();
}

std::string InputSpec::dtypes_text() const {
  std::string text;
  for (DType type : kComputeDTypes)
    if (allows(type)) text += (text.empty() ? "" : " ") + std::string(weft::name_of(type));
  return text;
}

Call::Call(const Node& node)
    : row_(*node.op),
      words_(node.ints.begin() + (has_optional(*node.op) ? 1 : 0), node.ints.end()),
      where_(node.where) {
  if (!has_optional(row_)) {
    for (const NodeRef& input : node.inputs) inputs_.emplace_back(input);
    return;
  }
  inputs_.resize(row_.inputs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (node.ints[0] >> i & 1) inputs_[i] = Tensor(node.inputs[next++]);
}

std::vector<std::pair<std::string, Tensor>> Call::operands() const {
  std::vector<std::pair<std::string, Tensor>> list;
  for (std::size_t i = 0; i < inputs_.size(); ++i)
    if (inputs_[i].defined()) list.emplace_back(spec_of(row_, i).name, inputs_[i]);
  return list;
}

void Call::shape_error(std::string_view fact) const { throw ShapeError(describe(row_.name, fact, operands(), where_)); }
void Call::dtype_error(std::string_view fact) const { throw DTypeError(describe(row_.name, fact, operands(), where_)); }
void Call::usage_error(std::string_view fact) const { throw UsageError(describe(row_.name, fact, operands(), where_)); }

int Call::axis(Extent axis) const {
  const int rank = inputs_[0].rank();
  if (axis < -rank || axis >= rank) shape_error(fmt::format("axis {} is outside of [{}, {})", axis, -rank, rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<NodeRef> call_nodes(const OpRow& row, Tensors inputs, Words words, Where where) {
  if (autocast_is_on()) {
    const DType type = autocast_inputs(row, inputs);
    const NoAutocast done;
    std::vector<NodeRef> results = call_nodes(row, std::move(inputs), std::move(words), where);
    for (NodeRef& result : results)
      if (type != DType::f32 && result->type == DType::f32) result = cast(result, type);
    return results;
  }
  const Call call(row, std::move(inputs), std::move(words), where);
  check_inputs(call);
  const std::vector<Result> results = row.infer(call);
  NodeFields fields = fields_of(call, results);
  NodeRef node = find_node(fields);
  if (!node) {
    if (row.is_composite()) fields.parts = parts_of(call, results);
    node = make_node(std::move(fields), where);
  }
  if (results.size() == 1) return {node};
  std::vector<NodeRef> projections;
  for (std::size_t i = 0; i < results.size(); ++i)
    projections.push_back(make_node({.kind = Kind::project,
                                     .type = results[i].type,
                                     .shape = results[i].shape,
                                     .device = node->device,
                                     .inputs = {node},
                                     .ints = {static_cast<Extent>(i)}},
                                    where));
  return projections;
}

Tensor call(const OpRow& row, Tensors inputs, Words words, Where where) {
  return wrap(call_nodes(row, std::move(inputs), std::move(words), where).at(0));
}

std::vector<NodeRef> decompose(const Node& node) {
  if (!node.parts.empty()) return node.parts;
  if (!node.op->decompose) return {};
  const Call call(node);
  const RecordGradients record;
  std::vector<NodeRef> parts;
  for (const Tensor& part : node.op->decompose(call)) parts.push_back(part.node());
  return parts;
}

// ---- By name -----------------------------------------------------------------------------------------------------------

const AttributeValue& Arguments::value(std::string_view name) const {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (row_.attributes[i].name == name) return values_[i];
  throw InternalError(fmt::format("{}: attribute {} is not described", row_.name, name));
}

Extent Arguments::integer_or(std::string_view name, Extent fallback) const {
  return std::holds_alternative<std::monostate>(value(name)) ? fallback : integer(name);
}

namespace {
int narrowed(const OpRow& row, std::string_view name, Extent value) {
  if (value < INT32_MIN || value > INT32_MAX)
    throw UsageError(fmt::format("{}: attribute {} is {}, beyond 32 bits", row.name, name, value));
  return static_cast<int>(value);
}
}  // namespace

int Arguments::small(std::string_view name) const { return narrowed(row_, name, integer(name)); }

std::vector<int> Arguments::axes(std::string_view name) const {
  std::vector<int> result;
  for (Extent axis : integers(name)) result.push_back(narrowed(row_, name, axis));
  return result;
}

int Arguments::choice(std::string_view name) const {
  for (const AttributeSpec& spec : row_.attributes)
    if (spec.name == name)
      return static_cast<int>(std::find(spec.choices.begin(), spec.choices.end(), word(name)) - spec.choices.begin());
  throw InternalError(fmt::format("{}: attribute {} is not described", row_.name, name));
}

namespace {

std::string known_attributes(const OpRow& row) {
  if (row.attributes.empty()) return fmt::format("{} has none", row.name);
  std::vector<std::string> names;
  for (const AttributeSpec& a : row.attributes) names.push_back(a.name);
  return fmt::format("{} has {}", row.name, fmt::join(names, ", "));
}

std::size_t attribute_named(const OpRow& row, std::string_view name) {
  for (std::size_t i = 0; i < row.attributes.size(); ++i) {
    const AttributeSpec& a = row.attributes[i];
    if (a.name == name || std::find(a.aliases.begin(), a.aliases.end(), name) != a.aliases.end()) return i;
  }
  throw UsageError(
      fmt::format("{}: unknown attribute {}; {}", row.name, quote(std::string(name)), known_attributes(row)));
}

void check_range(const OpRow& row, const AttributeSpec& spec, const AttributeValue& value) {
  double number = 0;
  if (const auto* whole = std::get_if<Extent>(&value))
    number = static_cast<double>(*whole);
  else if (const auto* real = std::get_if<double>(&value))
    number = *real;
  else
    return;
  if (number < spec.least || number > spec.most)
    throw UsageError(fmt::format("{}: attribute {} is {}, outside of [{}, {}]", row.name, spec.name, to_string(value),
                                 spec.least, spec.most));
}

std::vector<AttributeValue> checked_values(const OpRow& row, const CaseAttributes& given) {
  std::vector<std::optional<AttributeValue>> values(row.attributes.size());
  for (const auto& [name, value] : given) {
    const std::size_t i = attribute_named(row, name);
    const AttributeSpec& spec = row.attributes[i];
    if (std::holds_alternative<std::monostate>(value) && spec.default_value) continue;
    const auto fitting = converted(spec, value);
    if (!fitting)
      throw UsageError(
          fmt::format("{}: attribute {} is {}, not {}", row.name, name, quote(to_string(value)), wanted(spec)));
    check_range(row, spec, *fitting);
    if (values[i])
      throw UsageError(
          fmt::format("{}: attribute {} is given twice, by its name and by an alias", row.name, spec.name));
    values[i] = *fitting;
  }
  std::vector<AttributeValue> all;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const AttributeSpec& spec = row.attributes[i];
    if (!values[i] && !spec.default_value)
      throw UsageError(fmt::format("{}: attribute {} is missing ({})", row.name, spec.name, spec.doc));
    all.push_back(values[i] ? *values[i] : *spec.default_value);
  }
  return all;
}

void complete_inputs(const OpRow& row, Tensors& inputs) {
  std::vector<std::string> names;
  for (const InputSpec& input : row.inputs)
    names.push_back(input.name + (input.optional ? " (optional)" : input.repeated ? "..." : ""));
  const std::string signature = names.empty() ? "it takes none" : fmt::format("it takes {}", fmt::join(names, ", "));
  const bool repeated = !row.inputs.empty() && row.inputs.back().repeated;
  if (inputs.size() > row.inputs.size() && !repeated)
    throw UsageError(fmt::format("{}: {} inputs are given; {}", row.name, inputs.size(), signature));
  inputs.resize(std::max(inputs.size(), row.inputs.size()));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined() && !spec_of(row, i).optional)
      throw UsageError(fmt::format("{}: input {} is missing; {}", row.name, spec_of(row, i).name, signature));
}

}  // namespace

const AttributeSpec& attribute_of(const OpRow& row, std::string_view name) {
  return row.attributes[attribute_named(row, name)];
}

Tensors apply(const OpRow& row, Tensors inputs, const CaseAttributes& attributes, Where where) {
  complete_inputs(row, inputs);
  std::vector<AttributeValue> values = checked_values(row, attributes);
  if (row.apply) return row.apply(Arguments(row, std::move(inputs), std::move(values)));
  Words words;
  for (std::size_t i = 0; i < values.size(); ++i) append_words(row.attributes[i], values[i], words);
  Tensors results;
  for (const NodeRef& node : call_nodes(row, std::move(inputs), std::move(words), where)) results.push_back(wrap(node));
  return results;
}

}  // namespace weft::graph
