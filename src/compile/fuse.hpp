// Fusion: which values are computed together in one kernel.
#pragma once

#include <unordered_map>
#include <vector>

#include "compile/cluster.hpp"
#include "compile/emit.hpp"
#include "compile/sources.hpp"

namespace weft::compiler {

struct FuseRequest {
  std::vector<const graph::Node*> compute;  // nodes to compute, in a valid order
  NodeSet placed;                           // nodes without a kernel: their inputs are written to their place
  NodeSet stored;                           // must be in memory at the end, or are read by kernels other than loops
  PlaceOf place;
  NodeSet apart;  // nodes that are not fused
  int operands_max = 64;
  Extent shared_points = 0;
  Extent launch_points = 4096;
  Extent near_bytes = 0;  // as in Capabilities
  bool enabled = true;
};

struct FuseResult {
  std::vector<Cluster> clusters;  // in a valid order of execution
  NodeSet inlined;                // computed again wherever they are read, never stored
};

FuseResult fuse(const FuseRequest& request);

/// Values of the cluster that other clusters read, and results.
std::vector<const graph::Node*> roots_of(
    const Cluster& cluster, const FuseRequest& request, const NodeSet& inlined,
    const std::unordered_map<const graph::Node*, std::vector<const graph::Node*>>& consumers);
}  // namespace weft::compiler
