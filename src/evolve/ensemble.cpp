#include "weft/evolve/ensemble.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "weft/error.hpp"

namespace weft::evolve {
namespace {

void require_equal(const char* what, std::size_t a, std::size_t b) {
  if (a != b) throw UsageError(fmt::format("{}: {} examples beside {}; all have the same ones", what, b, a));
}

struct Counts {
  std::size_t a = 0, b = 0, both = 0, either = 0;
};
Counts counts_of(const CorrectMask& a, const CorrectMask& b) {
  Counts c;
  for (std::size_t i = 0; i < a.size(); ++i) {
    c.a += a[i];
    c.b += b[i];
    c.both += a[i] && b[i];
    c.either += a[i] || b[i];
  }
  return c;
}

}  // namespace

std::vector<std::int32_t> majority_vote(const std::vector<std::vector<std::int32_t>>& votes) {
  if (votes.empty()) throw UsageError("majority vote: there are no voters");
  for (const auto& voter : votes) require_equal("majority vote", votes[0].size(), voter.size());
  std::vector<std::int32_t> result;
  for (std::size_t i = 0; i < votes[0].size(); ++i) {
    std::map<std::int32_t, int> counts;  // by class, so the smallest comes first
    for (const auto& voter : votes) ++counts[voter[i]];
    result.push_back(std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
                       return a.second < b.second;
                     })->first);
  }
  return result;
}

double performance_similarity(const CorrectMask& a, const CorrectMask& b) {
  require_equal("performance similarity", a.size(), b.size());
  const Counts c = counts_of(a, b);
  if (c.a == 0 || c.b == 0) return 0;
  return static_cast<double>(c.both) / std::sqrt(static_cast<double>(c.a) * static_cast<double>(c.b));
}

std::vector<Match> complementary_matches(const std::vector<CorrectMask>& masks, double coverage_min) {
  std::vector<Match> matches;
  for (std::size_t a = 0; a < masks.size(); ++a)
    for (std::size_t b = a + 1; b < masks.size(); ++b) {
      require_equal("complementary matches", masks[a].size(), masks[b].size());
      if (masks[a].empty()) throw UsageError("complementary matches: the masks have no examples");
      const auto n = static_cast<double>(masks[a].size());
      const Counts c = counts_of(masks[a], masks[b]);
      const Match match{a, b, static_cast<double>(c.either) / n, static_cast<double>(c.both) / n};
      if (match.coverage >= coverage_min) matches.push_back(match);
    }
  std::stable_sort(matches.begin(), matches.end(), [](const Match& x, const Match& y) {
    return std::tuple(-x.coverage, x.overlap) < std::tuple(-y.coverage, y.overlap);
  });
  return matches;
}

}  // namespace weft::evolve
