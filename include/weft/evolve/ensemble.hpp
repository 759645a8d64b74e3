// Ensembles: votes of several classifiers, and pairs that make up for each other's mistakes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::evolve {

/// For each example the class that most voters chose; of classes with as many votes the smallest.
/// Shapes    votes: for each voter a class of each example
/// Errors    UsageError: no voters, or voters with different numbers of examples
std::vector<std::int32_t> majority_vote(const std::vector<std::vector<std::int32_t>>& votes);

/// Which examples a classifier got right.
using CorrectMask = std::vector<bool>;

/// The cosine of two masks as vectors of 0 and 1: |both right| / sqrt(|a right| |b right|); 0 if one is never right.
/// Errors    UsageError: masks of different lengths
double performance_similarity(const CorrectMask& a, const CorrectMask& b);

/// Two classifiers together.
struct Match {
  std::size_t a = 0, b = 0;
  double coverage = 0;  ///< share of the examples that at least one got right
  double overlap = 0;   ///< share that both got right
};
/// All pairs a < b whose coverage is at least `coverage_min`: those with the most coverage first, of these those with the least
/// overlap, then in the order of a and b. Errors: UsageError: masks of different lengths or without examples
std::vector<Match> complementary_matches(const std::vector<CorrectMask>& masks, double coverage_min = 0);

}  // namespace weft::evolve
