// Rows added up by index, as one call that devices have kernels for.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct ScatterAttributes {
  Extent rows = 0;
};
/// (indices [n], updates [n, columns]) -> [rows, columns].
const OpRow& scatter_rows_row();
NodeRef scatter_add(const NodeRef& indices, const NodeRef& updates, Extent rows);

struct ScatterAlongAttributes {
  Extent axis = -1, extent = 0;
};
const OpRow& scatter_along_row();
/// The adjoint of a gather along an axis: updates [.., taken, ..] added up at their indices, in order, along an axis that
/// gets `extent` places.
NodeRef scatter_add_along(const NodeRef& indices, const NodeRef& updates, int axis, Extent extent);

}  // namespace weft::graph
