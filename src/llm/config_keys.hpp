// The keys of config.json, by the name that this folder uses.
#pragma once

#include "io/config_keys.hpp"

namespace weft::llm {

using Keys = io::ConfigKeys;
inline constexpr Extent kSizeMax = Keys::kSizeMax;

}  // namespace weft::llm
