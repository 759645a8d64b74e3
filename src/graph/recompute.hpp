// The values that a checkpoint computes from again.
#pragma once

#include "graph/node.hpp"

namespace weft::graph {

/// Whether the node is a copy of its first input that waits for its second. Gradients compute from such copies again what the
/// forward pass computed, so kernels on the two sides stay apart: else values would live as long as without a checkpoint.
inline bool is_recompute(const Node& node) {
  return node.kind == Kind::map && node.name == "copy" && node.inputs.size() == 2;
}

}  // namespace weft::graph
