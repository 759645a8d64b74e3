#include "grammar/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "weft/error.hpp"

namespace weft::grammar {
namespace {

// Copies of a part in a repetition are calls of a rule if the part is larger than this, or if there are many copies of a
// character that may take several bytes.
constexpr std::size_t kCopiedParts = 4, kCopiedCharacters = 64;

std::size_t parts_in(const Expression& e) {
  std::size_t count = 1;
  for (const ExpressionPtr& part : e.parts)
    if (count <= kCopiedParts) count += parts_in(*part);
  return e.kind == Expression::Kind::repeat && e.most > 1 ? count + kCopiedParts : count;
}

[[noreturn]] void refuse_size() {
  throw UsageError(
      fmt::format("grammar: more than {} states or {} edges; take shorter repetitions, lengths and lists of items",
                  NetworkBuilder::kStatesMax, NetworkBuilder::kEdgesMax));
}

}  // namespace

RuleId NetworkBuilder::add_rule() {
  const auto rule = static_cast<RuleId>(rules_.size());
  rules_.push_back({});
  const StateId start = add_state(rule), end = add_state(rule);
  rules_[rule] = {start, end};
  return rule;
}

void NetworkBuilder::define(RuleId rule, const Expression& expression) {
  add_skip(append(start_of(rule), expression), end_of(rule));
}

RuleId NetworkBuilder::add_rule(const Regular& automaton, bool in_json) {
  const RuleId rule = add_rule();
  std::vector<StateId> places;
  for (std::size_t i = 0; i < automaton.states.size(); ++i) places.push_back(add_state(rule));
  for (std::size_t i = 0; i < automaton.states.size(); ++i) {
    const Regular::State& state = automaton.states[i];
    for (const std::uint32_t to : state.skips) add_skip(places[i], places[to]);
    for (const Regular::Edge& edge : state.edges)
      if (in_json)
        add_json_characters(places[i], edge.on, places[edge.target]);
      else
        add_characters(places[i], edge.on, places[edge.target]);
    if (state.accepts) add_skip(places[i], end_of(rule));
  }
  if (!places.empty()) add_skip(start_of(rule), places[0]);
  return rule;
}

StateId NetworkBuilder::add_state(RuleId rule) {
  if (states_.size() >= kStatesMax) refuse_size();
  states_.emplace_back().rule = rule;
  return static_cast<StateId>(states_.size() - 1);
}
void NetworkBuilder::count_edge() {
  if (++edges_ > kEdgesMax) refuse_size();
}
void NetworkBuilder::add_skip(StateId from, StateId to) {
  count_edge();
  states_[from].skips.push_back(to);
}
void NetworkBuilder::add_bytes(StateId from, std::uint8_t first, std::uint8_t last, StateId to) {
  count_edge();
  states_[from].bytes.push_back({first, last, to});
}
void NetworkBuilder::add_call(StateId from, RuleId rule, StateId to) {
  count_edge();
  states_[from].calls.push_back({rule, to});
}

void NetworkBuilder::add_characters(StateId from, const CodePoints& set, StateId to) {
  for (const ByteSequence& sequence : utf8_of(set)) {
    StateId at = from;
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      const StateId next = i + 1 == sequence.size() ? to : add_state(states_[from].rule);
      add_bytes(at, sequence[i].first, sequence[i].last, next);
      at = next;
    }
  }
}

void NetworkBuilder::add_json_characters(StateId from, const CodePoints& set, StateId to) {
  static const CodePoints kEscaped = {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}};
  add_characters(from, subtract(set, CodePoints{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}), to);
  const CodePoints escaped = grammar::intersect(set, kEscaped);
  if (escaped.empty()) return;
  const RuleId rule = states_[from].rule;
  const StateId backslash = add_state(rule);
  add_bytes(from, '\\', '\\', backslash);
  constexpr std::pair<char, char> kShort[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                              {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};
  for (const auto& [c, letter] : kShort)
    if (escaped.contains(static_cast<char32_t>(c)))
      add_bytes(backslash, static_cast<std::uint8_t>(letter), static_cast<std::uint8_t>(letter), to);
  const CodePoints controls = subtract(escaped, CodePoints{{'"', '"'}, {'\\', '\\'}});
  if (controls.empty()) return;
  StateId zeros = append(backslash, *literal("u00"));
  for (const CodePointRange& range : controls.ranges())
    for (char32_t c = range.first; c <= range.last; ++c) {
      const StateId last = add_state(rule);
      const auto high = static_cast<std::uint8_t>('0' + (c >> 4)), low = static_cast<std::uint8_t>(c & 15);
      add_bytes(zeros, high, high, last);
      if (low < 10) {
        add_bytes(last, static_cast<std::uint8_t>('0' + low), static_cast<std::uint8_t>('0' + low), to);
        continue;
      }
      for (const char ten : {'a', 'A'}) {
        const auto letter = static_cast<std::uint8_t>(ten + low - 10);
        add_bytes(last, letter, letter, to);
      }
    }
}

StateId NetworkBuilder::append(StateId from, const Expression& e) {
  const RuleId rule = states_[from].rule;
  switch (e.kind) {
    case Expression::Kind::characters: {
      const StateId to = add_state(rule);
      add_characters(from, e.characters, to);
      return to;
    }
    case Expression::Kind::sequence:
      for (const ExpressionPtr& part : e.parts) from = append(from, *part);
      return from;
    case Expression::Kind::choice: {
      const StateId to = add_state(rule);
      for (const ExpressionPtr& part : e.parts) {
        const StateId begin = add_state(rule);
        add_skip(from, begin);
        add_skip(append(begin, *part), to);
      }
      return to;
    }
    case Expression::Kind::repeat: {
      const std::size_t copies = e.most == Expression::kUnbounded ? e.least + 1 : e.most;
      ExpressionPtr part = e.parts[0];
      const bool is_wide = part->kind == Expression::Kind::characters && !part->characters.empty() &&
                           part->characters.ranges().back().last > 0x7F;
      if (copies > 2 && (parts_in(*part) > kCopiedParts || (is_wide && copies > kCopiedCharacters))) {
        const RuleId hoisted = add_rule();
        define(hoisted, *part);
        part = grammar::rule(hoisted);
      }
      for (std::size_t i = 0; i < e.least; ++i) from = append(from, *part);
      const StateId to = add_state(rule);
      if (e.most == Expression::kUnbounded) {
        const StateId loop = add_state(rule);
        add_skip(from, loop);
        add_skip(append(loop, *part), loop);
        add_skip(loop, to);
        return to;
      }
      add_skip(from, to);
      for (std::size_t i = e.least; i < e.most; ++i) {
        from = append(from, *part);
        add_skip(from, to);
      }
      return to;
    }
    case Expression::Kind::rule: break;
  }
  const StateId to = add_state(rule);
  add_call(from, e.rule, to);
  return to;
}

// ---- From rules to a network ---------------------------------------------------------------------------------------------

namespace {

struct DenseState {
  std::vector<Network::ByteEdge> bytes;
  std::vector<Network::Call> calls;
  RuleId rule = 0;
  bool ends_rule = false;
};

// Adds to a state what another one has.
void absorb(DenseState& state, const DenseState& other) {
  state.bytes.insert(state.bytes.end(), other.bytes.begin(), other.bytes.end());
  state.calls.insert(state.calls.end(), other.calls.begin(), other.calls.end());
  state.ends_rule = state.ends_rule || other.ends_rule;
}

void remove_repeated(DenseState& state) {
  const auto by_bytes = [](const auto& e) { return std::tuple(e.first, e.last, e.target); };
  const auto by_call = [](const auto& e) { return std::tuple(e.rule, e.target); };
  const auto clean = [](auto& list, auto key) {
    std::sort(list.begin(), list.end(), [&](const auto& x, const auto& y) { return key(x) < key(y); });
    list.erase(std::unique(list.begin(), list.end(), [&](const auto& x, const auto& y) { return key(x) == key(y); }),
               list.end());
  };
  clean(state.bytes, by_bytes);
  clean(state.calls, by_call);
}

// Which states have a property that spreads backwards over edges. `holds(state, marked)` says it of one state.
template <class Holds>
std::vector<bool> spread(const std::vector<DenseState>& states, const std::vector<StateId>& rule_starts,
                         const Holds& holds) {
  std::vector<std::vector<StateId>> readers(states.size());  // who is to be looked at again
  for (StateId s = 0; s < states.size(); ++s) {
    for (const Network::ByteEdge& e : states[s].bytes) readers[e.target].push_back(s);
    for (const Network::Call& c : states[s].calls) {
      readers[c.target].push_back(s);
      readers[rule_starts[c.rule]].push_back(s);
    }
  }
  std::vector<bool> marked(states.size(), false);
  std::vector<StateId> fresh;
  const auto look = [&](StateId s) {
    if (marked[s] || !holds(states[s], marked)) return;
    marked[s] = true;
    fresh.push_back(s);
  };
  for (StateId s = 0; s < states.size(); ++s) look(s);
  while (!fresh.empty()) {
    const StateId s = fresh.back();
    fresh.pop_back();
    for (const StateId reader : readers[s]) look(reader);
  }
  return marked;
}

}  // namespace

Network NetworkBuilder::finish(RuleId root) const {
  // Without skips: a state has the edges of all states that skips lead to.
  std::vector<DenseState> states(states_.size());
  std::vector<std::uint32_t> seen(states_.size(), 0);
  std::size_t edges = 0;
  for (StateId s = 0; s < states_.size(); ++s) {
    DenseState& state = states[s];
    state.rule = states_[s].rule;
    const StateId end = rules_[state.rule].end;
    std::vector<StateId> reached = {s};
    seen[s] = s + 1;
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const State& from = states_[reached[i]];
      state.ends_rule = state.ends_rule || reached[i] == end;
      state.bytes.insert(state.bytes.end(), from.bytes.begin(), from.bytes.end());
      state.calls.insert(state.calls.end(), from.calls.begin(), from.calls.end());
      for (const StateId t : from.skips)
        if (seen[t] != s + 1) {
          seen[t] = s + 1;
          reached.push_back(t);
        }
    }
    remove_repeated(state);
    edges += state.bytes.size() + state.calls.size();
    if (edges > 4 * kEdgesMax) refuse_size();
  }
  // A rule that ends with a call of itself is a loop: the work for each byte would otherwise grow with the text.
  const auto is_only_end = [&](StateId s) {
    return states[s].ends_rule && states[s].bytes.empty() && states[s].calls.empty();
  };
  const auto is_loop = [&](RuleId rule, const Network::Call& call) {
    return call.rule == rule && is_only_end(call.target);
  };
  for (RuleId r = 0; r < rules_.size(); ++r) {
    DenseState& start = states[rules_[r].start];
    std::erase_if(start.calls, [&](const auto& call) { return is_loop(r, call); });
  }
  for (DenseState& state : states)
    if (std::erase_if(state.calls, [&](const auto& call) { return is_loop(state.rule, call); }) > 0) {
      absorb(state, states[rules_[state.rule].start]);
      remove_repeated(state);
    }
  // States that can reach the end of their rule, and those that can without reading a byte.
  std::vector<StateId> starts;
  for (const Rule& each : rules_) starts.push_back(each.start);
  const std::vector<bool> live = spread(states, starts, [&](const DenseState& state, const std::vector<bool>& known) {
    return state.ends_rule ||
           std::any_of(state.bytes.begin(), state.bytes.end(), [&](const auto& e) { return known[e.target]; }) ||
           std::any_of(state.calls.begin(), state.calls.end(),
                       [&](const auto& c) { return known[c.target] && known[starts[c.rule]]; });
  });
  const std::vector<bool> empty = spread(states, starts, [&](const DenseState& state, const std::vector<bool>& known) {
    return state.ends_rule || std::any_of(state.calls.begin(), state.calls.end(),
                                          [&](const auto& c) { return known[c.target] && known[starts[c.rule]]; });
  });
  if (!live[rules_[root].start])
    throw UsageError("grammar: no text fits it; each rule needs an alternative that comes to an end");
  // What the root reaches, numbered anew.
  constexpr std::uint32_t kUnplaced = 0xFFFFFFFF;
  std::vector<std::uint32_t> state_places(states.size(), kUnplaced), rule_places(rules_.size(), kUnplaced);
  std::vector<StateId> order;
  Network network;
  const auto place_state = [&](StateId s) {
    if (state_places[s] == kUnplaced) {
      state_places[s] = static_cast<std::uint32_t>(order.size());
      order.push_back(s);
    }
    return state_places[s];
  };
  const auto place_rule = [&](RuleId r) {
    if (rule_places[r] == kUnplaced) {
      rule_places[r] = static_cast<std::uint32_t>(network.rules.size());
      network.rules.push_back({place_state(rules_[r].start), empty[rules_[r].start]});
    }
    return rule_places[r];
  };
  place_rule(root);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const DenseState& state = states[order[i]];
    Network::State placed{.rule = place_rule(state.rule), .ends_rule = state.ends_rule};
    placed.byte_edges = static_cast<std::uint32_t>(network.byte_edges.size());
    for (const Network::ByteEdge& e : state.bytes)
      if (live[e.target]) network.byte_edges.push_back({e.first, e.last, place_state(e.target)});
    placed.byte_edges_end = static_cast<std::uint32_t>(network.byte_edges.size());
    placed.calls = static_cast<std::uint32_t>(network.calls.size());
    for (const Network::Call& c : state.calls)
      if (live[c.target] && live[rules_[c.rule].start])
        network.calls.push_back({place_rule(c.rule), place_state(c.target)});
    placed.calls_end = static_cast<std::uint32_t>(network.calls.size());
    network.states.push_back(placed);
  }
  return network;
}

}  // namespace weft::grammar
