// The one threading runtime of the process: a pool that spins briefly between jobs and then parks.
#pragma once

#include <cstdint>
#include <functional>

namespace weft {

/// Number of threads that `parallel_for` uses (the caller is one of them). Default: WEFT_THREADS, else physical cores
/// that this process may use.
int thread_count();
/// Sets it (at least 1). Results never depend on it: see `parallel_for`.
void set_thread_count(int count);

/// Runs `task(i)` for i in [0, count), each exactly once, on up to `thread_count()` threads, and returns when all are
/// done. Tasks are handed out dynamically, so the split of work into tasks, and never the number of threads, must fix
/// the result. Calls from inside a task run serially in that task. The first exception thrown by a task is rethrown.
void parallel_for(std::int64_t count, const std::function<void(std::int64_t)>& task);

/// Index of the pool thread that runs the current task, in [0, thread_count()); 0 outside of tasks. For scratch memory.
int thread_index();

}  // namespace weft
