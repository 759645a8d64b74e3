#include "onnx/exporter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/op.hpp"
#include "onnx/record_call.hpp"
#include "onnx/record_expression.hpp"
#include "onnx/record_quotients.hpp"
#include "ops/table.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::onnx {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;
using Attributes = Record::Attributes;
using Names = std::vector<std::string>;

std::vector<Extent> extents_of(const Shape& shape) { return shape.vector(); }

class Exporter {
 public:
  Exporter(Record& record, std::unordered_map<const Node*, Names> known) : record_(record), names_(std::move(known)) {}

  /// Writes what the value needs, and the value.
  std::string write(const NodeRef& root) {
    struct Step {
      NodeRef node;
      const Node* reader;  // not a view; for messages
    };
    std::vector<Step> stack{{root, root.get()}};
    while (!stack.empty()) {
      const auto [node, reader] = stack.back();
      if (names_.contains(node.get())) {
        stack.pop_back();
        continue;
      }
      const std::size_t before = stack.size();
      for (const NodeRef& source : sources_of(node))
        if (!names_.contains(source.get())) stack.push_back({source, graph::is_view(node->kind) ? reader : node.get()});
      if (stack.size() != before) continue;
      begin(node->kind == Kind::constant ? *reader : *node);
      if (!node->storage) record_quotients(record_, *node);
      names_[node.get()] = written(*node);
      kept_.push_back(node);
      stack.pop_back();
    }
    return whole(*root);
  }

 private:
  // What must be written before a node: its inputs, or its parts.
  const std::vector<NodeRef>& sources_of(const NodeRef& node) {
    static const std::vector<NodeRef> kNone;
    if (node->storage) return kNone;  // the value is in memory
    if (node->kind != Kind::call || onnx_has(*node)) return node->inputs;
    auto [found, fresh] = parts_.try_emplace(node.get());
    if (fresh) {
      found->second = graph::decompose(*node);
      if (found->second.empty())
        throw UsageError(fmt::format("onnx::save: ONNX has no operator for {}", node->op->name));
    }
    return found->second;
  }

  // The value with all its elements: constants are kept as one number until they are needed whole.
  std::string whole(const Node& node, int output = 0) {
    const std::string& name = names_.at(&node)[static_cast<std::size_t>(output)];
    if (node.kind != Kind::constant || node.shape.rank() == 0) return name;
    std::string& expanded = expanded_[&node];
    if (expanded.empty()) expanded = record_.node("Expand", {name, record_.integers(extents_of(node.shape))});
    return expanded;
  }
  std::string in(const Node& node, std::size_t i) { return whole(*node.inputs[i]); }

  // Tells the record which op of the user the next steps are a part of.
  void begin(const Node& node) {
    const std::string op = node.within.op            ? node.within.op->name
                           : node.kind == Kind::call ? node.op->name
                           : node.name.empty()       ? std::string(name_of(node.kind))
                                                     : node.name;
    const bool has_line = node.kind == Kind::map || node.kind == Kind::call;  // views do not know the user's line
    record_.begin(op, has_line ? node.where : Where());
  }

  Names written(const Node& node) {
    if (node.storage && node.kind != Kind::constant) return {stored(node)};
    switch (node.kind) {
      case Kind::constant: return {record_.number(node.value, node.type)};
      case Kind::data: return {stored(node)};
      case Kind::input: throw InternalError("onnx::save: an input without a name");
      case Kind::iota: return {coordinates(node)};
      case Kind::reshape: return {record_.reshape(in(node, 0), extents_of(node.shape))};
      case Kind::permute: return {record_.node("Transpose", {in(node, 0)}, Attributes().integers("perm", node.ints))};
      case Kind::expand: return {record_.node("Expand", {in(node, 0), record_.integers(extents_of(node.shape))})};
      case Kind::slice: return {slice(node)};
      case Kind::pad: return {pad(node)};
      case Kind::window: return {window(node)};
      case Kind::detach: return {in(node, 0)};
      case Kind::map: return {map(node)};
      case Kind::reduce: return {reduce(node)};
      case Kind::matmul: return {record_.node("MatMul", {in(node, 0), in(node, 1)})};
      case Kind::gather: return {gather(node)};
      case Kind::concat: {
        Names parts;
        for (std::size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(in(node, i));
        return {record_.node("Concat", parts, Attributes().integer("axis", node.ints[0]))};
      }
      case Kind::call: return call(node);
      case Kind::project: return {names_.at(node.inputs[0].get())[static_cast<std::size_t>(node.ints[0])]};
    }
    throw InternalError("onnx::save: an unknown kind of node");
  }

  std::string stored(const Node& node) { return record_.stored(node.label, Tensor(node.shared_from_this())); }

  std::string coordinates(const Node& node) {
    const auto axis = static_cast<int>(node.ints[0]);
    Shape line(std::vector<Extent>(node.shape.size(), 1));
    line[axis] = node.shape[axis];
    const std::string row = record_.range(line, axis, node.type);
    return line == node.shape ? row : record_.node("Expand", {row, record_.integers(extents_of(node.shape))});
  }

  std::string slice(const Node& node) {
    std::vector<Extent> starts, ends, axes, steps;
    for (int i = 0; i < node.shape.rank(); ++i) {
      const Extent start = node.ints[static_cast<std::size_t>(2 * i)],
                   step = node.ints[static_cast<std::size_t>(2 * i + 1)];
      const Extent n = node.inputs[0]->shape[i];
      if (start == 0 && step == 1 && node.shape[i] == n) continue;
      const Extent last = start + step * (node.shape[i] - 1), next = last + step;
      axes.push_back(i), starts.push_back(start), steps.push_back(step);
      // With steps to an end of the axis, how many elements are left over does not matter.
      ends.push_back(step == 1 || (step > 0 && next < n) ? last + 1
                     : step > 0                          ? INT64_MAX
                     : next < 0                          ? INT64_MIN
                                                         : last - 1);
      if (node.shape[i] == 0) ends.back() = starts.back() = 0;
    }
    return record_.node("Slice", {in(node, 0), record_.integers(starts), record_.integers(ends), record_.integers(axes),
                                  record_.integers(steps)});
  }

  std::string pad(const Node& node) {
    std::vector<Extent> before, after;
    for (std::size_t i = 0; i < node.shape.size(); ++i)
      before.push_back(node.ints[2 * i]), after.push_back(node.ints[2 * i + 1]);
    before.insert(before.end(), after.begin(), after.end());
    const bool is_bool = node.type == DType::boolean;  // runtimes pad numbers
    const std::string x = is_bool ? record_.cast(in(node, 0), DType::i32) : in(node, 0);
    const std::string y = record_.node("Pad", {x, record_.integers(before)});
    return is_bool ? record_.cast(y, node.type) : y;
  }

  // Each window's positions along the axis, read by a gather.
  std::string window(const Node& node) {
    const auto axis = static_cast<int>(node.ints[0]);
    const Extent step = node.ints[1], dilation = node.ints[2], count = node.shape[axis], size = node.shape.back();
    const std::string at = record_.windows(count, size, step, dilation);
    const std::string read = record_.node("Gather", {in(node, 0), at}, Attributes().integer("axis", axis));
    std::vector<Extent> order;
    for (int i = 0; i < node.shape.rank(); ++i)
      if (i != axis + 1) order.push_back(i);
    order.push_back(axis + 1);
    return record_.node("Transpose", {read}, Attributes().integers("perm", order));
  }

  std::string reduce(const Node& node) {
    const Node& x = *node.inputs[0];
    std::string in_name = in(node, 0);
    using scalar::Reduction;
    const bool is_bool = x.type == DType::boolean;
    // "Or" and "and" are extremes of numbers below, which over nothing would be those of the type.
    if (is_bool && std::any_of(node.ints.begin(), node.ints.end(),
                               [&](Extent axis) { return x.shape[static_cast<int>(axis)] == 0; })) {
      const bool is_and = node.reduction == Reduction::prod || node.reduction == Reduction::min;
      return record_.node("Expand", {record_.number(is_and, node.type), record_.integers(extents_of(node.shape))});
    }
    if (is_bool) in_name = record_.cast(in_name, DType::i32);
    std::string y;
    if (node.reduction == Reduction::argmax || node.reduction == Reduction::argmin) {
      // The axes move to the end and become one.
      std::vector<Extent> order, shape;
      for (Extent i = 0; i < x.shape.rank(); ++i)
        if (std::find(node.ints.begin(), node.ints.end(), i) == node.ints.end()) {
          order.push_back(i);
          shape.push_back(x.shape[static_cast<int>(i)]);
        }
      order.insert(order.end(), node.ints.begin(), node.ints.end());
      Extent together = 1;
      for (const Extent axis : node.ints) together *= x.shape[static_cast<int>(axis)];
      shape.push_back(together);
      in_name = record_.node("Transpose", {in_name}, Attributes().integers("perm", order));
      in_name = record_.reshape(in_name, shape);
      y = record_.node(node.reduction == Reduction::argmax ? "ArgMax" : "ArgMin", {in_name},
                       Attributes().integer("axis", -1).integer("keepdims", 0));
      return record_.cast(y, node.type);
    }
    const char* type = node.reduction == Reduction::sum    ? "ReduceSum"
                       : node.reduction == Reduction::prod ? "ReduceProd"
                       : node.reduction == Reduction::max  ? "ReduceMax"
                                                           : "ReduceMin";
    if (is_bool && node.reduction == Reduction::sum) type = "ReduceMax";   // or
    if (is_bool && node.reduction == Reduction::prod) type = "ReduceMin";  // and
    y = record_.node(type, {in_name, record_.integers(node.ints)}, Attributes().integer("keepdims", 0));
    return is_bool ? record_.cast(y, node.type) : y;
  }

  // Reads zeros outside of the axis.
  std::string gather(const Node& node) {
    const auto axis = static_cast<int>(node.ints[0]);
    const Node &x = *node.inputs[0], &indices = *node.inputs[1];
    const Extent n = x.shape[axis];
    if (n == 0) return record_.node("Expand", {record_.number(0, node.type), record_.integers(extents_of(node.shape))});
    // One index for whole slices is a Gather.
    bool slices = indices.kind == Kind::expand && node.shape.rank() == x.shape.rank();
    if (slices) {
      const Shape& s = indices.inputs[0]->shape;
      const int missing = node.shape.rank() - s.rank();
      for (int i = 0; i < node.shape.rank(); ++i) {
        const Extent own = i < missing ? 1 : s[i - missing];
        slices = slices && (i == axis ? own == node.shape[i] : own == 1 && node.shape[i] == x.shape[i]);
      }
    }
    std::string at = record_.cast(slices ? whole(*indices.inputs[0]) : whole(indices), DType::i64);
    const std::string inside = record_.node(
        "Clip", {at, record_.number(0, DType::i64), record_.number(static_cast<double>(n - 1), DType::i64)});
    std::string holds = record_.node("Equal", {at, inside}), y;
    if (slices) {
      Shape line(std::vector<Extent>(node.shape.size(), 1));
      line[axis] = node.shape[axis];
      const std::string flat = record_.reshape(inside, {node.shape[axis]});
      y = record_.node("Gather", {whole(x), flat}, Attributes().integer("axis", axis));
      holds = record_.reshape(holds, extents_of(line));
    } else {
      y = record_.node("GatherElements", {whole(x), inside}, Attributes().integer("axis", axis));
    }
    return record_select(record_, holds, y, record_.number(0, node.type), node.type);
  }

  std::string map(const Node& node) {
    if (node.row && node.inputs[0]->type == node.type && !is_narrow(node.type)) {
      if (node.row->name == "relu" && element(node.type).is_signed) return record_.node("Relu", {in(node, 0)});
      if (node.row->name == "sigmoid" && is_float(node.type)) return record_.node("Sigmoid", {in(node, 0)});
    }
    std::vector<Operand> operands;
    for (const NodeRef& input : node.inputs) operands.push_back({names_.at(input.get())[0], input->type});
    std::string result = record_expression(record_, *node.expression, operands);
    bool expanded = false;
    for (const scalar::Instruction& i : node.expression->code)
      if (i.op == scalar::Op::input) {
        const Node& source = *node.inputs[static_cast<std::size_t>(i.slot)];
        expanded = expanded || source.kind != Kind::constant || source.shape.rank() == 0;
      }
    if (!expanded && node.shape.rank() > 0)  // made of constants alone
      result = record_.node("Expand", {result, record_.integers(extents_of(node.shape))});
    return result;
  }

  Names call(const Node& node) {
    if (onnx_has(node)) return record_call(record_, node, [&](const Node& input) { return whole(input); });
    Names names;
    for (const NodeRef& part : parts_.at(&node)) names.push_back(whole(*part));
    return names;
  }

  Record& record_;
  std::unordered_map<const Node*, Names> names_;  // of each result
  std::unordered_map<const Node*, std::string> expanded_;
  std::unordered_map<const Node*, std::vector<NodeRef>> parts_;
  std::vector<NodeRef> kept_;  // so that no address is used again
};

}  // namespace

std::vector<std::string> record_graph(Record& record, std::unordered_map<const Node*, Names> known,
                                      std::span<const NodeRef> results) {
  Exporter exporter(record, std::move(known));
  std::vector<std::string> names;
  for (const NodeRef& result : results) names.push_back(exporter.write(result));
  return names;
}

}  // namespace weft::onnx
