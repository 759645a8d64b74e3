// Work beside the caller's.
#pragma once

#include <future>

#include "base/processors.hpp"

namespace weft {

/// `task()` on a thread of its own; on a system without threads, `get` or `wait` of the result runs it.
template <class Task>
auto run_beside(const Task& task) {
  return std::async(starts_threads() ? std::launch::async : std::launch::deferred, task);
}

}  // namespace weft
