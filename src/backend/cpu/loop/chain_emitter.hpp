// From a chain to machine code.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/loop/chain.hpp"

namespace weft::cpu {

/// A ChainFunction, to be run from anywhere. Empty where the chain needs more registers than there are, and where the
/// processor is of another kind.
std::vector<std::uint8_t> machine_code_of(const Chain& chain);

}  // namespace weft::cpu
