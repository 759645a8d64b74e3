// Scans as calls that devices have kernels for. All have the same attributes, and kernels differ in how they combine two
// elements.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct ScanAttributes {
  Extent axis = -1;
  bool exclusive = false, reverse = false;
};
const OpRow& cumsum_row();
const OpRow& cumprod_row();
const OpRow& logcumsumexp_row();
/// Two results: values, and their positions as i32.
const OpRow& cummax_row();
const OpRow& cummin_row();
/// Of (a, b): y_i = a_i y_{i-1} + b_i.
const OpRow& linear_recurrence_row();

}  // namespace weft::graph
