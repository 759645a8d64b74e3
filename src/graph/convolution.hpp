// The adjoint of a convolution with steps, as a call that devices have kernels for.
#pragma once

#include <vector>

#include "graph/op.hpp"

namespace weft::graph {

struct ConvAdjointAttributes {
  std::vector<Extent> stride, before, extents;  // of each axis of space; `before`: elements in front of the result
  Extent groups = 1;
};

/// (x [N, I, windows...], weight [I, O / groups, size...]) -> y [N, O, extents...]:
/// y[n, o, stride p + k - before] += weight[i, o, k] x[n, i, p].
const OpRow& conv_adjoint_row();

}  // namespace weft::graph
