// Einsum, which other products are made of.
#pragma once

#include <vector>

#include "graph/op.hpp"

namespace weft::graph {

/// The number of an axis: axes of one number are multiplied element by element.
using Label = Extent;
using Labels = std::vector<Label>;

struct EinsumAttributes {
  Labels labels;  // of the axes of all operands, one after another
  Labels output;
};
const OpRow& einsum_row();

}  // namespace weft::graph
