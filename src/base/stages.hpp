// Jobs in a row with one start and one end: threads walk from stage to stage, and wait only for what a stage needs.
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
  int after = -1;            // its tasks may begin once all stages up to this one are done
  bool is_streamed = false;  // its tasks read memory that threads may ask for while they wait (`ask_ahead` of `run`)
};

/// A list of stages that is run again and again. As in `parallel_for`, the split into tasks must fix the results: who
/// takes a task does not matter. Each thread begins with a part of the tasks that is its own, the same part of every
/// stage, so that it meets what it made before in its cache; then it helps the others.
class Stages {
 public:
  explicit Stages(std::vector<Stage> stages);
  ~Stages();
  Stages(Stages&&) noexcept;

  /// Runs `task(stage, i)` for all tasks of all stages, each exactly once, and returns when all are done. The first
  /// exception thrown by a task is rethrown; tasks not begun by then are dropped.
  /// `ask_ahead(stage, task, piece)`: what a thread that waits does, piece after piece, for its first task of the next
  /// streamed stage; false: nothing is left. A hint, which may be given for tasks that another thread takes then.
  void run(FunctionRef<void(int stage, std::int64_t task)> task,
           FunctionRef<bool(int stage, std::int64_t task, int piece)> ask_ahead = {});

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace weft
