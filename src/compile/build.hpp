// Turns placed values into kernels: fusion, loops with the values that they store, and the other forms.
#pragma once

#include <vector>

#include "compile/compile.hpp"
#include "compile/draft.hpp"
#include "compile/place.hpp"
#include "compile/rewrite.hpp"

namespace weft::compiler {

struct Drafts {
  std::vector<DraftKernel> kernels;
  std::vector<graph::NodeRef> made;  // nodes that only the kernels refer to
};

/// Kernels for all of `compute`, in no particular order.
Drafts build_kernels(const OrderedGraph& graph, const std::vector<const graph::Node*>& compute, Placement& placement,
                     const Target& target, const Settings& settings);

}  // namespace weft::compiler
