#include "onnx/record_quotients.hpp"

#include <algorithm>

#include "graph/op.hpp"
#include "onnx/call_words.hpp"

namespace weft::onnx {
namespace {

using graph::Kind;
using graph::Node;

void quotients_of_slice(Record& record, const Node& node) {
  for (int i = 0; i < node.shape.rank(); ++i) {
    const Extent start = node.ints[static_cast<std::size_t>(2 * i)],
                 step = node.ints[static_cast<std::size_t>(2 * i + 1)];
    if (step > 0)
      record.quotient(node.inputs[0]->shape[i] - 1 - start, step);
    else
      record.quotient(start, -step);
  }
}

// The number of windows but the first.
void quotients_of_windows(Record& record, const Node& node) {
  const WindowWords w(node);
  for (std::size_t i = 0; i < w.axes(); ++i) {
    const Extent n = node.inputs[0]->shape[static_cast<int>(i) + 2];
    Extent rest = n + 2 * w.padding[i] - w.span(i);
    // One more window, which begins inside x or the padding before it.
    if (w.ceil_mode) rest = std::min(rest + w.stride[i] - 1, n + w.padding[i] - 1);
    record.quotient(rest, w.stride[i]);  // the steps of `same` are 1
  }
}

}  // namespace

void record_quotients(Record& record, const Node& node) {
  if (node.kind == Kind::slice) quotients_of_slice(record, node);
  if (node.kind == Kind::window) {
    const Extent step = node.ints[1], dilation = node.ints[2], size = node.shape.back();
    record.quotient(node.inputs[0]->shape[static_cast<int>(node.ints[0])] - (size - 1) * dilation - 1, step);
  }
  if (node.kind != Kind::call) return;
  if (is_convolution(node) || is_pool(node)) quotients_of_windows(record, node);
  if (node.op->name == "overlap_add") {
    const Extent step = attribute_words(node, "step")[0];
    record.quotient(attribute_words(node, "extent")[0] + step - 1, step);
  }
}

}  // namespace weft::onnx
