// Scans as calls that devices have kernels for.
#pragma once

#include "graph/op.hpp"

namespace weft::graph {

struct CumsumAttributes {
  Extent axis = -1;
  bool exclusive = false, reverse = false;
};
const OpRow& cumsum_row();

}  // namespace weft::graph
