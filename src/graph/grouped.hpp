// Products of groups of rows with a matrix each, which devices have kernels for.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct GroupedAttributes {
  bool transposed = false;
};
/// (x [n, k], weights [groups, k, m], ends [groups]) -> [n, m].
const OpRow& grouped_matmul_row();
/// (x [n, k], y [n, m], ends [groups]) -> [groups, k, m].
const OpRow& grouped_outer_row();

}  // namespace weft::graph
