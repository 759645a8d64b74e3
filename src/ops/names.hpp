// Suggestions for names that were not found.
#pragma once

#include <span>
#include <string_view>

namespace weft {

/// The closest of the names to one that was not found, if it is close enough to be a misspelling; else "".
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

}  // namespace weft
