// The keys of config.json, under the name that this folder uses.
#pragma once

#include "io/config_keys.hpp"

namespace weft::llm {

using io::ConfigKeys;

}  // namespace weft::llm
