// A check that long work makes now and then, so that the program around it can end the work with an exception.
#pragma once

#include <atomic>

namespace weft {

/// Called on every thread before each task of parallel work, so it has to be quick. It may throw: the work then ends as if the
/// task had thrown. Values that were asked for stay uncomputed; Variables that a compiled function updates in place may hold a
/// part of the update.
using InterruptCheck = void (*)();

namespace detail {
inline constinit std::atomic<InterruptCheck> interrupt_check = nullptr;
}

/// Sets the check of the process; null for none.
inline void set_interrupt_check(InterruptCheck check) { detail::interrupt_check.store(check); }

inline void check_interrupt() {
  if (const InterruptCheck check = detail::interrupt_check.load(std::memory_order_relaxed)) check();
}

}  // namespace weft
