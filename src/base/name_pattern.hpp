// Patterns for names: '*' matches any text, '?' one character.
#pragma once

#include <string_view>

namespace weft {

/// Whether all of `name` matches. Time is at most the product of the two lengths.
bool matches_pattern(std::string_view name, std::string_view pattern);

}  // namespace weft
