// The DNA of a network: the directions of its layers' parameters, and how alike two networks are.
#pragma once

#include <map>
#include <vector>

#include "weft/grid/network.hpp"

namespace weft::evolve {

using grid::Coordinate;
using grid::Network;

/// A layer of the grid: its parameters as the pass sees them, in the order of storage, divided by their norm. Of parallel and
/// sequential layers the signatures of the children, one after another, and that of a gate, divided by their norm again; links are
/// left out. [1] for layers without parameters.
struct Signature {
  Coordinate at;
  grid::LayerType type = grid::LayerType::dense;
  DType dtype = DType::f32;
  std::vector<float> direction;
};

/// The signatures of all layers but fresh ones, in the order of the grid.
std::vector<Signature> extract_dna(const Network& network);

/// The cosine: 0 if type, dtype or length differ, or one of them is all zeros; 1 if both are.
double similarity(const Signature& a, const Signature& b);

/// A layer of a that is most alike a layer of b at another place.
struct LogicShift {
  Coordinate from, to;
  double similarity = 0;
};
struct Comparison {
  double overall = 0;                   ///< the mean of `layers`; 0 if there are none
  std::map<Coordinate, double> layers;  ///< of places that both networks use
  std::vector<LogicShift> shifts;       ///< in the order of a
};
/// Compares place by place, and finds layers that have moved: for each layer of a the one most alike among all of b with as many
/// elements (the first of equals), if its similarity is above `shift_above` and its place is another.
Comparison compare(const std::vector<Signature>& a, const std::vector<Signature>& b, double shift_above = 0.8);

}  // namespace weft::evolve
