#include "onnx/record_call.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/op.hpp"
#include "weft/error.hpp"

namespace weft::onnx {
namespace {

using graph::Node;
using Attributes = Record::Attributes;
using Names = std::vector<std::string>;

std::vector<Extent> attribute_words(const Node& node, std::string_view wanted) {
  const graph::Call call(node);
  const Extent* at = call.words().data();
  for (const graph::AttributeSpec& spec : call.row().attributes) {
    using graph::AttributeType;
    std::size_t count = 1;
    if (spec.type == AttributeType::integers) count = static_cast<std::size_t>(*at++);
    if (spec.type == AttributeType::pairs) count = 2 * static_cast<std::size_t>(*at++);
    if (spec.name == wanted) return {at, at + count};
    at += count;
  }
  throw InternalError(fmt::format("onnx::save: {} has no attribute {}", node.op->name, wanted));
}

std::string convolution(Record& record, const Node& node, const graph::Call& c, Names inputs) {
  const auto axes = static_cast<std::size_t>(node.shape.rank() - 2);
  const auto each = [&](std::string_view name, Extent fallback) {
    std::vector<Extent> values = attribute_words(node, name);
    if (values.empty()) values = {fallback};
    if (values.size() == 1) values.resize(axes, values[0]);
    return values;
  };
  const std::vector<Extent> stride = each("stride", 1), dilation = each("dilation", 1);
  std::vector<Extent> pads = each("padding", 0);
  pads.insert(pads.end(), pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(axes));
  if (attribute_words(node, "same")[0])
    for (std::size_t i = 0; i < axes; ++i) {
      const int a = static_cast<int>(i) + 2;
      const Extent n = c.input(0).dim(a), windows = (n + stride[i] - 1) / stride[i];
      const Extent total =
          std::max<Extent>((windows - 1) * stride[i] + dilation[i] * (c.input(1).dim(a) - 1) + 1 - n, 0);
      pads[i] = total / 2;
      pads[axes + i] = total - pads[i];
    }
  if (inputs.back().empty()) inputs.pop_back();
  return record.node("Conv", inputs,
                     Attributes()
                         .integers("strides", stride)
                         .integers("dilations", dilation)
                         .integers("pads", pads)
                         .integer("group", attribute_words(node, "groups")[0]));
}

}  // namespace

bool onnx_has(const Node& node) {
  const std::string& name = node.op->name;
  if (name == "layer_norm") return graph::Call(node).input(1).defined();
  return name == "softmax" || name == "log_softmax" || name == "cumsum" || name == "sort" ||
         (name.size() == 6 && name.starts_with("conv") && name.ends_with("d"));
}

Names record_call(Record& record, const Node& node, const std::function<std::string(const Node&)>& name_of) {
  const std::string& name = node.op->name;
  const graph::Call c(node);
  const auto operand = [&](std::size_t i) {
    return c.input(i).defined() ? name_of(*c.input(i).node()) : std::string();
  };
  const auto axis = [&] {
    const Extent given = attribute_words(node, "axis")[0];
    return given < 0 ? given + node.shape.rank() : given;
  };
  if (name == "softmax" || name == "log_softmax")
    return {
        record.node(name == "softmax" ? "Softmax" : "LogSoftmax", {operand(0)}, Attributes().integer("axis", axis()))};
  if (name == "layer_norm") {
    const DType type = node.type;
    const auto same = [&](std::size_t i) {
      return c.input(i).dtype() == type ? operand(i) : record.cast(operand(i), type);
    };
    Names inputs{operand(0), same(1)};
    if (c.input(2).defined()) inputs.push_back(same(2));
    return {
        record.node("LayerNormalization", inputs,
                    Attributes().integer("axis", -1).real("epsilon", graph::real_of(attribute_words(node, "eps")[0])))};
  }
  if (name == "cumsum") {
    const bool is_bool = c.input(0).dtype() == DType::boolean;
    const std::string x = is_bool ? record.cast(operand(0), node.type) : operand(0);
    return {record.node("CumSum", {x, record.number(static_cast<double>(axis()), DType::i64)},
                        Attributes()
                            .integer("exclusive", attribute_words(node, "exclusive")[0])
                            .integer("reverse", attribute_words(node, "reverse")[0]))};
  }
  if (name == "sort") {
    const Extent first = attribute_words(node, "first")[0], last = first + node.shape[static_cast<int>(axis())];
    Names results{record.fresh(), record.fresh()};
    const Names inputs{operand(0), record.integers({last})};
    record.node("TopK", inputs, results,
                Attributes().integer("axis", axis()).integer("largest", attribute_words(node, "descending")[0]));
    if (first > 0)
      for (std::string& each : results)
        each =
            record.node("Slice", {each, record.integers({first}), record.integers({last}), record.integers({axis()})});
    return {results[0], record.cast(results[1], DType::i32)};
  }
  return {convolution(record, node, c, {operand(0), operand(1), operand(2)})};
}

}  // namespace weft::onnx
