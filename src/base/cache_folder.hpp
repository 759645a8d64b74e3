// Where things are kept between runs that can be made again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>

namespace weft {

/// WEFT_CACHE_DIR, else XDG_CACHE_HOME/weft, else HOME/.cache/weft; empty where none of them is set.
std::filesystem::path default_cache_folder();

/// Removes some of these files, those first that were written to the longest ago, until the others are few enough in bytes
/// and in number. What cannot be removed stays, without an error.
void remove_oldest(std::span<const std::filesystem::path> files, std::uint64_t bytes_max,
                   std::size_t files_max = std::numeric_limits<std::size_t>::max());

}  // namespace weft
