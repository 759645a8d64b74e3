// The ops that a backend has kernels for: a table to which programs may add at run time.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "graph/op.hpp"
#include "weft/error.hpp"

namespace weft::backend {

/// `Entry::accepts` says whether there is a kernel for a call's types, shapes and attributes; if empty, there is one for every
/// call that the row accepts. Thread safe.
template <typename Entry>
class CallTable {
 public:
  CallTable(std::string device, std::initializer_list<std::pair<const graph::OpRow* const, Entry>> entries)
      : device_(std::move(device)), entries_(entries) {}

  /// The kernel of a row; null if there is none. Never freed.
  const Entry* find(const graph::OpRow& row) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(&row);
    return found == entries_.end() ? nullptr : &found->second;
  }
  /// Errors: UsageError if the row has one already.
  void add(const graph::OpRow& row, Entry entry) {
    const std::lock_guard lock(mutex_);
    if (!entries_.emplace(&row, std::move(entry)).second)
      throw UsageError(fmt::format("{}: {} has a kernel for it already", row.name, device_));
  }
  bool accepts(const graph::Call& call) const {
    const Entry* entry = find(call.row());
    return entry && (!entry->accepts || entry->accepts(call));
  }

 private:
  std::string device_;
  mutable std::mutex mutex_;
  std::unordered_map<const graph::OpRow*, Entry> entries_;
};

}  // namespace weft::backend
