// Scatters by index, as calls that devices have kernels for.
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

/// indices [.., taken, ..] -> i32 [.., extent, ..]: for each place along the axis, 1 + the last t whose index is the place, or 0.
/// Where several elements are written to a place, that one stays.
const OpRow& last_along_row();
/// (x [.., extent, ..], indices and updates [.., taken, ..]) -> x with the updates at their indices, in order.
const OpRow& put_along_row();

}  // namespace weft::graph
