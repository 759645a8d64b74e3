#include "onnx/call_words.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/op.hpp"
#include "weft/error.hpp"

namespace weft::onnx {

using graph::Node;

std::vector<Extent> attribute_words(const Node& node, std::string_view name) {
  const graph::Call call(node);
  const Extent* at = call.words().data();
  for (const graph::AttributeSpec& spec : call.row().attributes) {
    using graph::AttributeType;
    std::size_t count = 1;
    if (spec.type == AttributeType::integers || spec.type == AttributeType::numbers)
      count = static_cast<std::size_t>(*at++);
    if (spec.type == AttributeType::pairs) count = 2 * static_cast<std::size_t>(*at++);
    if (spec.name == name) return {at, at + count};
    at += count;
  }
  throw InternalError(fmt::format("onnx::save: {} has no attribute {}", node.op->name, name));
}

WindowWords::WindowWords(const Node& call) {
  const auto count = static_cast<std::size_t>(call.shape.rank() - 2);
  const graph::Call c(call);
  const auto words = [&](std::string_view name) -> std::vector<Extent> {
    const auto& specs = c.row().attributes;
    const bool has = std::any_of(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == name; });
    return has ? attribute_words(call, name) : std::vector<Extent>{};
  };
  const auto each = [&](std::string_view name, Extent fallback) {
    std::vector<Extent> values = words(name);
    if (values.empty()) values = {fallback};
    if (values.size() == 1) values.resize(count, values[0]);
    return values;
  };
  const auto is_set = [&](std::string_view name) {
    const std::vector<Extent> value = words(name);
    return !value.empty() && value[0] != 0;
  };
  if (is_convolution(call)) {
    const Shape& w = c.input(1).shape();
    size.assign(w.begin() + 2, w.end());
  } else {
    size = each("kernel", 1);
  }
  stride = is_pool(call) && words("stride").empty() ? size : each("stride", 1);
  dilation = each("dilation", 1);
  padding = each("padding", 0);
  same = is_set("same");
  ceil_mode = is_set("ceil_mode");
}

bool is_convolution(const Node& call) {
  const std::string& name = call.op->name;
  return name.size() == 6 && name.starts_with("conv") && name.ends_with("d");
}

bool is_pool(const Node& call) {
  const std::string& name = call.op->name;
  return name.starts_with("max_pool") || name.starts_with("avg_pool") || name.starts_with("lp_pool");
}

}  // namespace weft::onnx
