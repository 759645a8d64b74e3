// Calls of ops that ONNX has as such.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "graph/node.hpp"
#include "onnx/record.hpp"

namespace weft::onnx {

/// Whether ONNX has the op as one operator; other ops are written as what they are made of.
bool onnx_has(const graph::Node& call);

/// Records such a call; gives the names of its results. `name_of`: of an input, with all its elements.
std::vector<std::string> record_call(Record& record, const graph::Node& call,
                                     const std::function<std::string(const graph::Node&)>& name_of);

}  // namespace weft::onnx
