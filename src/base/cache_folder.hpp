// The cache folder keeps files between runs that can be made again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>

namespace weft {

/// WEFT_CACHE_DIR, else XDG_CACHE_HOME/weft, else HOME/.cache/weft; empty if none of them is set.
std::filesystem::path default_cache_folder();

/// Makes the folder, with those above it, if it is missing, and takes all rights of other users from it. Returns false if the
/// folder cannot be made or belongs to another user: then nothing in it can be trusted.
bool make_private_folder(const std::filesystem::path& folder);

/// Removes some of these files, the least recently written first, until the others are within the limits of bytes and number. A
/// file that cannot be removed stays, without an error.
void remove_oldest(std::span<const std::filesystem::path> files, std::uint64_t bytes_max,
                   std::size_t files_max = std::numeric_limits<std::size_t>::max());

}  // namespace weft
