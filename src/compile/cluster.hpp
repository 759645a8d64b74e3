// Values that are computed together, and the loop kernel that they become.
#pragma once

#include <optional>
#include <vector>

#include "compile/emit.hpp"

namespace weft::compiler {

/// A future kernel: values that are computed together. `anchor` says which form it takes (a matrix product, a scatter, an
/// attention, or a loop).
struct Cluster {
  const graph::Node* anchor = nullptr;
  std::vector<const graph::Node*> members;  // in order
};

/// The first reduction of a cluster, or null; and whether one takes the last axes of its input.
const graph::Node* first_reduce(const Cluster& cluster);
bool axes_are_last(const graph::Node& reduce);

/// The loop kernel of a cluster (the epilogue of a matmul cluster), if it has a form as one; else `blame` receives the value
/// that prevents it.
std::optional<BuiltLoop> build_loop(const Cluster& cluster, const std::vector<const graph::Node*>& roots,
                                    const EmitContext& context, const graph::Node** blame = nullptr);

}  // namespace weft::compiler
