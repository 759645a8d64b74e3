// Grammars as automata over bytes that call each other: one for each rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expression.hpp"
#include "grammar/regular.hpp"

namespace weft::grammar {

using StateId = std::uint32_t;

/// A grammar that is ready to recognise texts. Every state can reach the end of its rule, so every beginning that has been
/// recognised goes on to a whole text.
struct Network {
  struct ByteEdge {
    std::uint8_t first, last;
    StateId target;
  };
  /// Reads a text of the rule.
  struct Call {
    RuleId rule;
    StateId target;
  };
  struct State {
    std::uint32_t byte_edges = 0, byte_edges_end = 0, calls = 0, calls_end = 0;
    RuleId rule = 0;
    bool ends_rule = false;
  };
  struct Rule {
    StateId start = 0;
    bool is_nullable = false;  ///< the empty text fits
  };

  std::vector<State> states;
  std::vector<ByteEdge> byte_edges;
  std::vector<Call> calls;
  std::vector<Rule> rules;  ///< the first is the root

  std::span<const ByteEdge> byte_edges_of(StateId s) const {
    return std::span(byte_edges).subspan(states[s].byte_edges, states[s].byte_edges_end - states[s].byte_edges);
  }
  std::span<const Call> calls_of(StateId s) const {
    return std::span(calls).subspan(states[s].calls, states[s].calls_end - states[s].calls);
  }
};

/// Makes a network from rules. Errors: UsageError above the limits on states and edges.
class NetworkBuilder {
 public:
  static constexpr std::size_t kStatesMax = 1'000'000, kEdgesMax = 4'000'000;

  /// A rule without a definition: nothing fits it yet.
  RuleId add_rule();
  std::size_t rule_count() const { return rules_.size(); }
  /// Gives a rule another alternative.
  void define(RuleId rule, const Expression& expression);
  /// A rule for the texts of an automaton over characters. With `in_json` these are the contents of a string of JSON: quotes,
  /// backslashes and control characters are escaped.
  RuleId add_rule(const Regular& automaton, bool in_json);

  // Automata step by step.
  StateId start_of(RuleId rule) const { return rules_[rule].start; }
  StateId end_of(RuleId rule) const { return rules_[rule].end; }
  StateId add_state(RuleId rule);
  void add_skip(StateId from, StateId to);
  /// Adds what leads from a state to the end of the expression; gives the state there.
  StateId append(StateId from, const Expression& expression);

  /// Errors: UsageError if no text fits the root.
  Network finish(RuleId root) const;

 private:
  struct State {
    std::vector<Network::ByteEdge> bytes;
    std::vector<Network::Call> calls;
    std::vector<StateId> skips;
    RuleId rule = 0;
  };
  struct Rule {
    StateId start, end;
  };
  void add_bytes(StateId from, std::uint8_t first, std::uint8_t last, StateId to);
  void add_call(StateId from, RuleId rule, StateId to);
  void add_characters(StateId from, const CodePoints& set, StateId to);
  void add_json_characters(StateId from, const CodePoints& set, StateId to);
  void count_edge();

  std::vector<State> states_;
  std::vector<Rule> rules_;
  std::size_t edges_ = 0;
};

}  // namespace weft::grammar
