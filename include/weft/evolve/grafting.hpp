// Grafting: parts of several networks in one.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "weft/grid/network.hpp"

namespace weft::evolve {

using grid::Network;

/// A network of one layer: a parallel layer whose children are the first layers (0,0,0,0) of the networks with their parameters; of a
/// parallel first layer its children. With Combine::filter the gate, which is drawn anew, weights them.
/// Errors  UsageError: no networks, a null one, a first layer that runs another by a link; a gate without filter or the other way
///         round; children that do not fit together
std::unique_ptr<Network> graft(std::span<const Network* const> networks, grid::Combine combine = grid::Combine::concat,
                               const std::optional<grid::Layer>& gate = std::nullopt);

/// A clone in which a layer gives x + layer(x): a parallel layer that adds the layer, with its parameters, to a disabled one, which
/// passes x on.
/// Errors  UsageError: a place outside of the grid
std::unique_ptr<Network> residual_graft(const Network& network, const grid::Coordinate& at);

}  // namespace weft::evolve
