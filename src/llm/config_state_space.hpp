// The keys of models whose layers keep a state.
#pragma once

#include "llm/config.hpp"
#include "llm/config_keys.hpp"

namespace weft::llm {

/// Sets `state_space` and the factors of hybrids from a config.json whose architecture, width and number of layers are known;
/// other architectures stay as they are. FileError.
void read_state_space(const Keys& keys, ModelConfig& config);
/// FileError unless its sizes are within bounds and fit each other.
void check_state_space(const ModelConfig& config);

}  // namespace weft::llm
