#include "grammar/regular.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/utf8.hpp"
#include "weft/error.hpp"

namespace weft::grammar {
namespace {

[[noreturn]] void refuse_automaton() {
  throw UsageError(fmt::format(
      "grammar: a pattern or a range needs more than {} states or {} steps between them; take shorter lengths "
      "and repetitions",
      Regular::kStatesMax, Regular::kEdgesMax));
}

std::uint32_t add_state(Regular& automaton) {
  if (automaton.states.size() >= Regular::kStatesMax) refuse_automaton();
  automaton.states.emplace_back();
  return static_cast<std::uint32_t>(automaton.states.size() - 1);
}

void skip(Regular& automaton, std::uint32_t from, std::uint32_t to) { automaton.states[from].skips.push_back(to); }

// Adds what leads from a state to the end of the expression; gives the state there (Thompson's construction).
std::uint32_t append(Regular& automaton, const Expression& e, std::uint32_t from) {
  switch (e.kind) {
    case Expression::Kind::characters: {
      const std::uint32_t to = add_state(automaton);
      if (!e.characters.empty()) automaton.states[from].edges.push_back({e.characters, to});
      return to;
    }
    case Expression::Kind::sequence:
      for (const ExpressionPtr& part : e.parts) from = append(automaton, *part, from);
      return from;
    case Expression::Kind::choice: {
      const std::uint32_t to = add_state(automaton);
      for (const ExpressionPtr& part : e.parts) {
        const std::uint32_t begin = add_state(automaton);
        skip(automaton, from, begin);
        skip(automaton, append(automaton, *part, begin), to);
      }
      return to;
    }
    case Expression::Kind::repeat: {
      for (std::size_t i = 0; i < e.least; ++i) from = append(automaton, *e.parts[0], from);
      const std::uint32_t to = add_state(automaton);
      if (e.most == Expression::kUnbounded) {
        const std::uint32_t loop = add_state(automaton);
        skip(automaton, from, loop);
        skip(automaton, append(automaton, *e.parts[0], loop), loop);
        skip(automaton, loop, to);
        return to;
      }
      skip(automaton, from, to);
      for (std::size_t i = e.least; i < e.most; ++i) {
        from = append(automaton, *e.parts[0], from);
        skip(automaton, from, to);
      }
      return to;
    }
    case Expression::Kind::rule: break;
  }
  throw InternalError("grammar: a rule inside a regular expression");
}

}  // namespace

Regular::Regular(const Expression& expression) {
  add_state(*this);
  const std::uint32_t end = append(*this, expression, 0);
  states[end].accepts = true;
}

bool Regular::accepts(std::string_view text) const {
  std::vector<std::uint32_t> now = {0}, next;
  std::vector<bool> seen(states.size(), false);
  const auto close = [&](std::vector<std::uint32_t>& list) {
    std::fill(seen.begin(), seen.end(), false);
    for (const std::uint32_t s : list) seen[s] = true;
    for (std::size_t i = 0; i < list.size(); ++i)
      for (const std::uint32_t t : states[list[i]].skips)
        if (!seen[t]) {
          seen[t] = true;
          list.push_back(t);
        }
  };
  close(now);
  for (const char32_t c : decode_utf8(text)) {
    next.clear();
    for (const std::uint32_t s : now)
      for (const Edge& edge : states[s].edges)
        if (edge.on.contains(c) && std::find(next.begin(), next.end(), edge.target) == next.end())
          next.push_back(edge.target);
    close(next);
    std::swap(now, next);
  }
  return std::any_of(now.begin(), now.end(), [&](std::uint32_t s) { return states[s].accepts; });
}

Regular intersect(const Regular& a, const Regular& b) {
  Regular both;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> places;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
  const auto place = [&](std::uint32_t x, std::uint32_t y) {
    const auto [found, is_new] = places.try_emplace({x, y}, 0);
    if (is_new) {
      found->second = add_state(both);
      both.states.back().accepts = a.states[x].accepts && b.states[y].accepts;
      pairs.emplace_back(x, y);
    }
    return found->second;
  };
  place(0, 0);
  std::size_t edges = 0;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto [x, y] = pairs[i];
    const auto from = static_cast<std::uint32_t>(i);
    edges += a.states[x].skips.size() + b.states[y].skips.size() + a.states[x].edges.size() * b.states[y].edges.size();
    if (edges > Regular::kEdgesMax) refuse_automaton();
    for (const std::uint32_t t : a.states[x].skips) {
      const std::uint32_t to = place(t, y);
      skip(both, from, to);
    }
    for (const std::uint32_t t : b.states[y].skips) {
      const std::uint32_t to = place(x, t);
      skip(both, from, to);
    }
    for (const Regular::Edge& left : a.states[x].edges)
      for (const Regular::Edge& right : b.states[y].edges) {
        CodePoints common = intersect(left.on, right.on);
        if (common.empty()) continue;
        const std::uint32_t to = place(left.target, right.target);
        both.states[from].edges.push_back({std::move(common), to});
      }
  }
  return both;
}

Regular complement(const Regular& a) {
  using Subset = std::vector<std::uint32_t>;  // in order, with all that skips reach
  const auto closed = [&](Subset list) {
    std::vector<bool> seen(a.states.size(), false);
    for (const std::uint32_t s : list) seen[s] = true;
    for (std::size_t i = 0; i < list.size(); ++i)
      for (const std::uint32_t t : a.states[list[i]].skips)
        if (!seen[t]) {
          seen[t] = true;
          list.push_back(t);
        }
    std::sort(list.begin(), list.end());
    return list;
  };
  Regular others;
  std::map<Subset, std::uint32_t> places;
  std::vector<const Subset*> open;
  const auto place = [&](Subset subset) {
    const auto [found, is_new] = places.try_emplace(closed(std::move(subset)), 0);
    if (is_new) {
      if (places.size() > Regular::kSubsetsMax)
        throw UsageError(
            fmt::format("grammar: the texts that a pattern does not fit need more than {} states; take a "
                        "simpler pattern",
                        Regular::kSubsetsMax));
      found->second = add_state(others);
      others.states.back().accepts =
          std::none_of(found->first.begin(), found->first.end(), [&](std::uint32_t s) { return a.states[s].accepts; });
      open.push_back(&found->first);
    }
    return found->second;
  };
  place({0});
  for (std::size_t i = 0; i < open.size(); ++i) {
    // Characters that lead to the same states are taken together.
    std::vector<std::pair<CodePoints, Subset>> parts = {{CodePoints::any(), {}}};
    for (const std::uint32_t s : *open[i])
      for (const Regular::Edge& edge : a.states[s].edges) {
        std::vector<std::pair<CodePoints, Subset>> finer;
        for (auto& [characters, targets] : parts) {
          CodePoints inside = intersect(characters, edge.on), outside = subtract(characters, edge.on);
          if (!inside.empty()) {
            Subset more = targets;
            if (std::find(more.begin(), more.end(), edge.target) == more.end()) more.push_back(edge.target);
            finer.emplace_back(std::move(inside), std::move(more));
          }
          if (!outside.empty()) finer.emplace_back(std::move(outside), std::move(targets));
        }
        parts = std::move(finer);
      }
    for (auto& [characters, targets] : parts) {
      const std::uint32_t to = place(std::move(targets));
      others.states[i].edges.push_back({std::move(characters), to});
    }
  }
  return others;
}

Regular none_of(const std::vector<std::string_view>& words) {
  // A trie of the words, and a state for all texts that have left it.
  Regular automaton;
  add_state(automaton);
  const std::uint32_t other = add_state(automaton);
  automaton.states[other].accepts = true;
  automaton.states[other].edges.push_back({CodePoints::any(), other});
  std::vector<bool> is_word = {false, false};
  for (const std::string_view word : words) {
    std::uint32_t at = 0;
    for (const char32_t c : decode_utf8(word)) {
      const auto& edges = automaton.states[at].edges;
      const auto found =
          std::find_if(edges.begin(), edges.end(), [&](const auto& edge) { return edge.on.contains(c); });
      if (found != edges.end()) {
        at = found->target;
        continue;
      }
      const std::uint32_t next = add_state(automaton);
      is_word.push_back(false);
      automaton.states[at].edges.push_back({CodePoints::one(c), next});
      at = next;
    }
    is_word[at] = true;
  }
  for (std::uint32_t s = 0; s < automaton.states.size(); ++s) {
    if (s == other) continue;
    CodePoints known;
    for (const Regular::Edge& edge : automaton.states[s].edges) known = unite(known, edge.on);
    automaton.states[s].edges.push_back({known.complement(), other});
    automaton.states[s].accepts = !is_word[s];
  }
  return automaton;
}

}  // namespace weft::grammar
