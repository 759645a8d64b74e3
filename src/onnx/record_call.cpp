#include "onnx/record_call.hpp"

#include "graph/op.hpp"
#include "onnx/call_words.hpp"

namespace weft::onnx {
namespace {

using graph::Node;
using Attributes = Record::Attributes;
using Names = std::vector<std::string>;

std::string convolution(Record& record, const Node& node, Names inputs) {
  const WindowWords w(node);
  std::vector<Extent> before = w.padding, after = w.padding;
  for (std::size_t i = 0; w.same && i < w.axes(); ++i) {  // steps are 1
    before[i] = (w.span(i) - 1) / 2;
    after[i] = w.span(i) - 1 - before[i];
  }
  before.insert(before.end(), after.begin(), after.end());
  if (inputs.back().empty()) inputs.pop_back();
  return record.node("Conv", inputs,
                     Attributes()
                         .integers("strides", w.stride)
                         .integers("dilations", w.dilation)
                         .integers("pads", before)
                         .integer("group", attribute_words(node, "groups")[0]));
}

std::string pool(Record& record, const Node& node, const std::string& x) {
  const WindowWords w(node);
  // With ceil_mode ONNX's shapes of AveragePool count a window that begins in the padding behind x, which PyTorch leaves out. Such
  // an axis ends where its last window does.
  std::vector<Extent> end = w.padding;
  const bool is_mean = !node.op->name.starts_with("max");
  for (std::size_t i = 0; is_mean && w.ceil_mode && i < w.axes(); ++i) {
    const int axis = static_cast<int>(i) + 2;
    const Extent room = node.inputs[0]->shape[axis] + 2 * w.padding[i] - w.span(i), rest = room % w.stride[i];
    if (node.shape[axis] == room / w.stride[i] + 1 && rest <= end[i]) end[i] -= rest;
  }
  std::vector<Extent> pads = w.padding;
  pads.insert(pads.end(), end.begin(), end.end());
  Attributes attributes;
  attributes.integers("kernel_shape", w.size).integers("strides", w.stride).integers("pads", pads);
  attributes.integer("ceil_mode", w.ceil_mode ? 1 : 0);
  if (!is_mean) return record.node("MaxPool", {x}, attributes.integers("dilations", w.dilation));
  return record.node("AveragePool", {x},
                     attributes.integer("count_include_pad", attribute_words(node, "count_include_pad")[0]));
}

// Pools of other types are written as windows and reductions.
bool onnx_has_pool(const Node& node) {
  const DType type = node.type;
  if (node.op->name.starts_with("max_pool"))
    return !node.op->name.starts_with("max_pool_positions") &&
           (type == DType::f32 || type == DType::f16 || type == DType::f64 || type == DType::i8 || type == DType::u8);
  return node.op->name.starts_with("avg_pool") && (type == DType::f32 || type == DType::f16);
}

}  // namespace

bool onnx_has(const Node& node) {
  const std::string& name = node.op->name;
  if (name == "layer_norm") return graph::Call(node).input(1).defined();
  return name == "softmax" || name == "log_softmax" || name == "cumsum" || name == "sort" || is_convolution(node) ||
         onnx_has_pool(node);
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
  if (is_pool(node)) return {pool(record, node, operand(0))};
  return {convolution(record, node, {operand(0), operand(1), operand(2)})};
}

}  // namespace weft::onnx
