// The keys of config.json, by the name that this folder uses.
#pragma once

#include "io/config_keys.hpp"

namespace weft::llm {

using Keys = io::ConfigKeys;
inline constexpr Extent kSizeMax = Keys::kSizeMax;
inline constexpr Extent kFurtherLayersMax = 16;
// A model without attention counts positions, but nothing depends on how many there are.
inline constexpr Extent kContextWithoutAttention = 1 << 20, kHeadWithoutAttention = 2;

}  // namespace weft::llm
