#include "ops/names.hpp"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace weft {
namespace {

/// Number of edits (insert, delete, replace, swap of neighbours) that turn a into b; letter case is ignored.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  };
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = previous;
    previous = row;
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({previous[j] + 1, row[j - 1] + 1, previous[j - 1] + !same(a[i - 1], b[j - 1])});
      if (i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

/// Breaks ties at equal edit distance: an anagram first, then the longest common prefix.
std::size_t likeness(std::string_view name, std::string_view candidate) {
  std::string a(name), b(candidate);
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  const auto common = std::mismatch(name.begin(), name.end(), candidate.begin(), candidate.end());
  return (a == b ? name.size() : 0) + static_cast<std::size_t>(common.first - name.begin());
}

}  // namespace

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names) {
  if (name.size() > 64) return "";  // too long to be a misspelling of a known name
  std::string_view best;
  std::size_t best_edits = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (std::string_view candidate : names) {
    const std::size_t distance = edits(name, candidate);
    if (distance >= std::max(name.size(), candidate.size())) continue;  // nothing in common
    if (distance < best_edits ||
        (distance == best_edits && !best.empty() && likeness(name, candidate) > likeness(name, best)))
      best = candidate, best_edits = distance;
  }
  return best;
}

}  // namespace weft
