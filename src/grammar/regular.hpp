// Finite automata over characters: regular expressions that can be intersected.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "grammar/expression.hpp"

namespace weft::grammar {

/// A nondeterministic automaton, with empty steps (`skips`). State 0 is the start.
struct Regular {
  struct Edge {
    CodePoints on;
    std::uint32_t target;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<std::uint32_t> skips;
    bool accepts = false;
  };
  std::vector<State> states;

  static constexpr std::size_t kStatesMax = 200'000, kEdgesMax = 2'000'000, kSubsetsMax = 4'000;

  /// The automaton of an expression without rules. Errors: UsageError above kStatesMax.
  explicit Regular(const Expression& expression);
  Regular() = default;

  /// Whether a UTF-8 text fits, in time proportional to its length times the number of states.
  bool accepts(std::string_view text) const;
};

/// Texts that fit both. Errors: UsageError above kStatesMax or kEdgesMax.
Regular intersect(const Regular& a, const Regular& b);
/// Texts that do not fit, by the sets of states that texts lead to. Errors: UsageError above kSubsetsMax.
Regular complement(const Regular& a);
/// Texts that are none of these words, which are UTF-8.
Regular none_of(const std::vector<std::string_view>& words);

}  // namespace weft::grammar
