// Rows without texts.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/tune.hpp"

namespace weft::tune {

/// The numbers below `count` in an order that depends on the seed and the epoch.
std::vector<std::uint32_t> order_of(std::size_t count, std::uint64_t seed, std::uint32_t epoch);

/// Rows of padding alone.
Rows no_rows(Extent count, Extent context, bool of_preferences);

}  // namespace weft::tune
