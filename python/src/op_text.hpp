// What Python shows of an op: its signature and its documentation, from the op's row.
#pragma once

#include <string>

#include "graph/op.hpp"

namespace weft::python {

/// "(x: Operand, axis: int = -1) -> Tensor"; without types "(x, axis=-1)". Attribute `first` comes before the others (-1: as in the
/// row). Stubs, help and signatures use it.
std::string signature_of(const graph::OpRow& row, int first, bool with_types);
/// Meaning, formula, attributes, dtype of the result, and the expression for PyTorch.
std::string doc_of(const graph::OpRow& row);

}  // namespace weft::python
