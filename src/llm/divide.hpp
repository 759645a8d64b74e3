// One model over several devices: the graphs of its parts.
#pragma once

#include <span>
#include <vector>

#include "llm/ir.hpp"

namespace weft::llm {

/// The graphs of parts with these numbers of layers, in order. What runs before the first layer is in the first part, what runs
/// behind the last layer in the last one. A part's input is the output of the part before it: the states of all tokens,
/// [T, hidden]. A constant that two parts read (the table of a tied head) is in both.
/// InternalError if the numbers do not add up to the model's layers, or if more than one activation passes from a part to a later
/// one.
std::vector<ModelGraph> divide(const ModelGraph& graph, std::span<const Extent> layers);

}  // namespace weft::llm
