// The search for the op that made the first NaN.
#pragma once

#include <span>

#include "graph/node.hpp"

namespace weft::runtime {

/// Throws an AnomalyError if one of these evaluated values has a NaN.
void check_for_anomalies(std::span<const graph::NodeRef> evaluated);

}  // namespace weft::runtime
