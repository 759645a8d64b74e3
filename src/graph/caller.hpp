// The user's line for nodes that are made on behalf of another node: its gradients, its parts, its batched form.
#pragma once

#include "weft/error.hpp"

namespace weft::graph {

/// While this object exists, nodes that its thread makes get this line, not that of the code that makes them.
class CallerLine {
 public:
  explicit CallerLine(Where where) : before_(current_), where_(where) { current_ = &where_; }
  ~CallerLine() { current_ = before_; }
  CallerLine(const CallerLine&) = delete;
  /// The line of the innermost object, or null.
  static const Where* current() { return current_; }

 private:
  static inline constinit thread_local const Where* current_ = nullptr;
  const Where* before_;
  Where where_;
};

}  // namespace weft::graph
