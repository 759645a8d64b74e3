#pragma once

#include <string>

namespace weft::cli {

/// What `weft --version` prints: version and revision, then a line for each device.
std::string version_text();

}  // namespace weft::cli
