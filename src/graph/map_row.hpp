// The map of a row of the op table.
#pragma once

#include "graph/node.hpp"

namespace weft::graph {

/// `typed` is the result of ops::typed_forward for the row and the types of the inputs, which must broadcast.
NodeRef map_row(const ops::ElementwiseRow& row, const scalar::Expression& typed, std::vector<NodeRef> inputs,
                Where where);

}  // namespace weft::graph
