// One model over several devices: which layers each of them has, and the graph of its part.
#pragma once

#include <cstdint>
#include <functional>
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

/// Chooses the numbers of layers: at least one for each part, so that the largest load is as small as it can be; the first such
/// choice. `load(part, first, last)` is that of a part with the layers [first, last); more layers have no smaller load.
std::vector<Extent> choose_layers(Extent layers, std::size_t parts,
                                  const std::function<double(std::size_t part, Extent first, Extent last)>& load);

}  // namespace weft::llm
