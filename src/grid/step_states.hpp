// The states of all layers of a network that read sequences step by step.
#pragma once

#include <map>
#include <string>

#include "grid/layer_functions.hpp"

namespace weft::grid {

/// By path, so that a layer that runs at several places has a state at each.
struct StepStates {
  std::map<std::string, StepState> layers;
  StepState& operator[](const std::string& path) { return layers[path]; }
};

}  // namespace weft::grid
