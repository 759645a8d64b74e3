// Sorting as a call that devices have kernels for.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct SortAttributes {
  Extent axis = -1;
  bool descending = false;
  Extent first = 0, count = -1;  // ranks that are kept; count -1: all from `first` on
};
/// x -> its elements in order along the axis, and their positions (i32). Kernels take the last axis only; `weft::sort` moves
/// another one there.
const OpRow& sort_row();

/// Elements that a result has along the axis, of n.
inline Extent ranks_of(const SortAttributes& a, Extent n) { return a.count < 0 ? n - a.first : a.count; }

}  // namespace weft::graph
