// Sorting as a call that devices have kernels for, and what the ops that are built on it share.
#pragma once

#include "graph/op.hpp"
#include "weft/ops/order.hpp"

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

/// The axis of an op that needs elements along it.
int filled_axis(std::string_view op, const Tensor& x, int axis, Where where);
/// Ranks [first, first + count) of the order along `axis`, for `op`, which has checked them.
ValuesAndPositions sorted_ranks(std::string_view op, const Tensor& x, int axis, bool descending, Extent first,
                                Extent count, Where where);
/// Without the axis of one element, unless it is to be kept.
ValuesAndPositions without_axis(const ValuesAndPositions& kept, int axis, ReduceOptions options, Where where);

AttributeSpec order_axis();
AttributeSpec order_keepdims();
std::vector<Tensor> with_positions(const ValuesAndPositions& v);  // as results of a row

}  // namespace weft::graph
