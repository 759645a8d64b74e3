// Jobs in a row with one start and one end: threads walk from stage to stage, and wait only for the stages that a stage needs.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "base/function_ref.hpp"

namespace weft {

struct Stage {
  std::int64_t tasks = 1;
  int after = -1;            // its tasks may begin once all stages up to stage `after` are done
  bool is_streamed = false;  // waiting threads may prefetch the memory that its tasks read (`ask_ahead` of `run`)
};

/// A list of stages that is run again and again. As in `parallel_for`, the split into tasks must determine the results,
/// whichever thread takes a task. Each thread begins with its own part of the tasks, the same part of every stage, so that its
/// earlier results are in its cache. Then it helps the others.
class Stages {
 public:
  explicit Stages(std::vector<Stage> stages);
  ~Stages();
  Stages(Stages&&) noexcept;

  /// Runs `task(stage, i)` for all tasks of all stages, each exactly once, and returns when all are done. The first exception
  /// thrown by a task is rethrown; tasks not begun by then are dropped. A thread that waits calls `ask_ahead(stage, task,
  /// piece)`, piece after piece, for its first task of the next streamed stage, until it returns false (nothing is left). It is
  /// a hint: another thread may then take the task.
  void run(FunctionRef<void(int stage, std::int64_t task)> task,
           FunctionRef<bool(int stage, std::int64_t task, int piece)> ask_ahead = {});

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace weft
