#include "base/name_pattern.hpp"

#include <cstddef>

namespace weft {

bool matches_pattern(std::string_view name, std::string_view pattern) {
  // On a mismatch only the last star is tried again, with one more character.
  std::size_t n = 0, p = 0, star = std::string_view::npos, resumed = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resumed = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resumed;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace weft
