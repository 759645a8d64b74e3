#include "graph/trace_scope.hpp"

#include <algorithm>

namespace weft::graph {

TraceScope::TraceScope() : before_(current_) { current_ = this; }
TraceScope::~TraceScope() { current_ = before_; }

TraceScope::Entry& TraceScope::entry(const std::shared_ptr<Cell>& cell) {
  const auto [at, is_new] = index_.try_emplace(cell.get(), entries_.size());
  if (is_new) entries_.push_back({.cell = cell});
  return entries_[at->second];
}

NodeRef TraceScope::value_of(const std::shared_ptr<Cell>& cell) {
  Entry& e = entry(cell);
  if (e.next) return e.next;
  if (!e.stand_in)
    e.stand_in = make_node({.kind = Kind::data, .type = cell->type, .shape = cell->shape, .device = cell->device});
  return e.stand_in;
}

void TraceScope::assign(const std::shared_ptr<Cell>& cell, NodeRef next) {
  Entry& e = entry(cell);
  if (!e.next) assigned_.push_back(index_.at(cell.get()));
  e.next = std::move(next);
}

void TraceScope::note(const Switch& read, bool value) {
  const auto known = [&](const auto& s) { return s.first == read; };
  if (std::none_of(switches_.begin(), switches_.end(), known)) switches_.emplace_back(read, value);
}

}  // namespace weft::graph
