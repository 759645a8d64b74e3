// Rows added up by index, as one call that the compiler has kernels for.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct ScatterAttributes {
  Extent rows = 0;
};
/// (indices [n], updates [n, columns]) -> [rows, columns].
const OpRow& scatter_rows_row();
NodeRef scatter_add(const NodeRef& indices, const NodeRef& updates, Extent rows);

}  // namespace weft::graph
