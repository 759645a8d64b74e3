// Runs of whole numbers, one after another, listed by the device.
#pragma once

#include "weft/tensor.hpp"

namespace weft::graph {

/// The numbers first[i], first[i] + 1, ..., of which run i has counts[i], of all runs in order: `total` numbers, i32 [total], and the
/// run of each.
struct RunNumbers {
  Tensor run, number;
};
RunNumbers numbers_of_runs(const Tensor& first, const Tensor& counts, Extent total, Where where);

}  // namespace weft::graph
