// How ops with kernels of their own are computed for a batch of examples. Composites need nothing: their parts are batched.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/op.hpp"

namespace weft::autograd {

/// A call for every example of a batch.
struct BatchedCall {
  const graph::Call& call;  // for one example
  graph::Tensors inputs;    // with the examples as axis 0 if `is_mapped`, else as for one example
  std::vector<bool> is_mapped;
  Extent examples;

  /// Input i with the examples as axis 0. Undefined if the input is left out.
  Tensor mapped(std::size_t i) const;
  graph::Tensors all_mapped() const;
};
/// The results with the examples as axis 0; nullopt if the rule does not cover this call.
using BatchRule = std::function<std::optional<graph::Tensors>(const BatchedCall&)>;

/// How the calls of a row are batched.
enum class Batching {
  elements,     // an elementwise op or a reduction: a primitive of the graph
  parts,        // a composite: its parts are
  rule,         // by a rule of its own; calls that it does not cover are written out in other ops
  written_out,  // in other ops
  looped,       // one call for each example, because no other ops express it
};
Batching batching_of(const graph::OpRow& row);
/// Null if the row has none.
const BatchRule* batch_rule(const graph::OpRow& row);

}  // namespace weft::autograd
