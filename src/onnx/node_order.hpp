// The order of nodes.
#pragma once

#include "onnx/proto.hpp"

namespace weft::onnx {

/// Puts nodes behind those that make their inputs, also in graphs inside of them, and otherwise leaves the order. ONNX asks files to
/// be in such an order, but converters to f16 put casts at the end, and ONNX Runtime reads that. Nodes of a cycle stay where they are.
void order_nodes(ModelProto& model);

}  // namespace weft::onnx
