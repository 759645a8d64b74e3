// From the nodes of a graph to steps of a record. Ops that ONNX has as such are written as one node; others as what they are
// made of.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/node.hpp"
#include "onnx/record.hpp"

namespace weft::onnx {

/// Records what the results need; gives the names of the results. `known`: names of values that exist.
/// Errors  UsageError: an op that ONNX cannot express.
std::vector<std::string> record_graph(Record& record,
                                      std::unordered_map<const graph::Node*, std::vector<std::string>> known,
                                      std::span<const graph::NodeRef> results);

}  // namespace weft::onnx
