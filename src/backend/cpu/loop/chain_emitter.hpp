// Turns a chain into machine code.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/loop/chain.hpp"

namespace weft::cpu {

/// A ChainFunction that runs at any address. Empty if the chain needs more registers than exist, or on another kind of
/// processor.
std::vector<std::uint8_t> machine_code_of(const Chain& chain);

}  // namespace weft::cpu
