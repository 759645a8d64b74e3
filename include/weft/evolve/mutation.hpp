// Mutation of networks in the manner of NEAT: of weights, activations, types of layers, and links.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/grid/network.hpp"

namespace weft::evolve {

using grid::Network;

/// Probabilities of the changes, and their sizes.
struct MutationOptions {
  double weights = 0.8;     ///< a layer: all its parameters move
  double amount = 0.05;     ///< uniform in +-amount
  double activation = 0.1;  ///< a layer: one of the six activations
  double node = 0.1;        ///< a layer becomes one of another type, with parameters uniform in +-amount
  double toggle = 0.02;     ///< a layer is disabled, or enabled again
  double add_link = 0.05;   ///< once: a layer is added to by a link to another one
  double drop_link = 0.02;  ///< once: one of these links is removed
  Extent width =
      0;  ///< the width of layers that do not tell (convolutions, softmax, residual); 0: they keep their type
  std::uint64_t seed = 1;
};

/// A changed clone; the network stays as it is. Layers are visited in the order of the grid, and one stream of random numbers from
/// `seed` decides, so the same seed gives the same network.
///
/// The result is valid for the same input: a layer takes another type only if that maps the same widths
/// (grid::can_map), and is disabled only if its output has the width of its input. Fresh layers, containers and embeddings keep
/// their types. A link is added to a parallel layer that adds or averages; any other layer first becomes one that adds itself and
/// the link. The layer that it runs has the same widths.
///
/// Source    Stanley and Miikkulainen 2002, "Evolving neural networks through augmenting topologies"
/// Errors    UsageError: a probability outside of [0, 1], an amount that is negative or not finite
std::unique_ptr<Network> mutate(const Network& network, const MutationOptions& options = {});

}  // namespace weft::evolve
