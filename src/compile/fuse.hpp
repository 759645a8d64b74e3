// Fusion: which values are computed together in one kernel.
#pragma once

#include <unordered_map>
#include <vector>

#include "compile/emit.hpp"

namespace weft::compiler {

/// A future kernel: values that are computed together. `anchor` says which form it takes (a matrix product, a scatter, an
/// attention, or a loop).
struct Cluster {
  const graph::Node* anchor = nullptr;
  std::vector<const graph::Node*> members;  // in order
};

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
/// The loop kernel of a cluster (the epilogue of a matmul cluster), if it has a form as one; else `blame` receives the value
/// that prevents it.
std::optional<BuiltLoop> build_loop(const Cluster& cluster, const std::vector<const graph::Node*>& roots,
                                    const EmitContext& context, const graph::Node** blame = nullptr);

/// The inputs of a node, followed through views: compute nodes and leaves (without constants and iotas).
std::vector<const graph::Node*> sources_of(const graph::Node& node);
/// For each compute node, the compute nodes that read it (inlined ones included).
std::unordered_map<const graph::Node*, std::vector<const graph::Node*>> consumers_of(
    const std::vector<const graph::Node*>& compute);
bool is_compute(const graph::Node& node);
/// The node below a chain of views.
const graph::Node* base_of(const graph::Node* node);

}  // namespace weft::compiler
