// Divisions with a remainder in the shapes that ops make of the shapes of their inputs.
#pragma once

#include "graph/node.hpp"
#include "onnx/record.hpp"

namespace weft::onnx {

/// Declares those of a node, so that sizes may depend on them.
void record_quotients(Record& record, const graph::Node& node);

}  // namespace weft::onnx
