// The order in which kernels run, and which results are written over old values.
#pragma once

#include <unordered_map>
#include <vector>

#include "compile/compile.hpp"
#include "compile/draft.hpp"
#include "compile/place.hpp"

namespace weft::compiler {

struct Order {
  std::vector<std::size_t> kernels;                                     // numbers of drafts in the order they run
  std::unordered_map<const graph::Node*, const graph::Node*> in_place;  // outputs and the leaves that they overwrite
};

/// `outputs` are the results of the request, as nodes of the compiled graph.
Order order_of(const std::vector<DraftKernel>& drafts, const std::vector<graph::NodeRef>& outputs,
               const Request& request, const Placement& placement);

}  // namespace weft::compiler
