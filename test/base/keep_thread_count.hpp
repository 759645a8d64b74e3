// Tests that change the number of threads.
#pragma once

#include "base/threads.hpp"

namespace weft {

/// Gives the pool its size back at the end of a test.
struct KeepThreadCount {
  int before = thread_count();
  ~KeepThreadCount() { set_thread_count(before); }
};

}  // namespace weft
