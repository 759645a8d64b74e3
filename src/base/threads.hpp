// The one threading runtime: each session has a pool that spins briefly between jobs and then parks.
#pragma once

#include <cstdint>

#include "base/function_ref.hpp"

namespace weft {

/// Number of threads that `parallel_for` uses in this thread's session (the caller is one of them). Default: WEFT_THREADS,
/// else physical cores that this process may use.
int thread_count();
/// Sets it (at least 1, else UsageError). Results never depend on it: see `parallel_for`. Waits for a job of another
/// thread to end; UsageError from inside a task.
void set_thread_count(int count);

/// Runs `task(i)` for each i in [0, count) exactly once, on up to `thread_count()` threads; returns when all are done. Tasks
/// are handed out dynamically, so the result may depend on the split into tasks only. Calls from inside a task run serially in
/// that task, and so do calls while another thread's job holds the session's pool; jobs of different sessions run at the same
/// time. The first exception of a task is rethrown; tasks not begun by then are dropped.
void parallel_for(std::int64_t count, FunctionRef<void(std::int64_t)> task);

/// Index of the pool thread that runs the current task, in [0, thread_count()); 0 outside of tasks. No two tasks of one
/// `parallel_for` that run at the same time share it. Scratch that outlives the call is better thread_local.
int thread_index();

/// Whether there is a processor for each thread, so that a thread that waits briefly may spin.
bool threads_may_spin();

}  // namespace weft
