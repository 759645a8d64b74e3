// A kernel of a plan that is ready to run, or several that share their work.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/loop/loop.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

/// The memory of a plan's buffers in a run.
class Memory {
 public:
  explicit Memory(std::span<char* const> buffers) : buffers_(buffers) {}
  /// The operand's first element; null for an operand that is absent.
  char* at(const kernel::Operand& operand) const {
    if (operand.buffer < 0) return nullptr;
    return buffers_[static_cast<std::size_t>(operand.buffer)] +
           bytes_of(operand.type, static_cast<std::size_t>(operand.offset));
  }

 private:
  std::span<char* const> buffers_;
};

class Prepared {
 public:
  virtual ~Prepared() = default;
  /// Sets the operands for the following runs.
  virtual void bind(const Memory& memory) = 0;
  /// Runs the whole kernel on all threads.
  virtual void run() = 0;
  /// Runs one of the kernels that share their work alone, for timing.
  virtual void run_kernel(std::size_t /*index*/) { run(); }
  /// The same in parts, for the caller's schedule: `start`, then all tasks of one stage after the other; the tasks of a stage
  /// may run at the same time. No stages: only `run` works.
  virtual int stages() const { return 0; }
  virtual Extent tasks(int /*stage*/) const { return 0; }
  virtual void start() {}
  virtual void run_task(int /*stage*/, Extent /*task*/) {}
  /// Whether its tasks read so much that waiting threads should prefetch it: `ask_ahead` prefetches piece `piece` (from 0) of a
  /// task's input, and returns whether there may be more.
  virtual bool is_streamed() const { return false; }
  virtual bool ask_ahead(Extent /*task*/, int /*piece*/) const { return false; }
  /// Operands that `start` reads: they must be ready before the first stage of the schedule.
  virtual std::vector<kernel::Operand> read_at_start() const { return {}; }
  /// For `explain`.
  virtual std::string to_string() const = 0;
  virtual std::size_t scratch_bytes() const { return 0; }
};

/// Operands of a loop or an epilogue, and their memory.
class LoopOperands {
 public:
  explicit LoopOperands(const kernel::LoopKernel& kernel) : inputs_(kernel.inputs), outputs_(kernel.outputs) {}
  void bind(const Memory& memory);
  /// Valid until this object is destroyed or bound again.
  LoopBinding binding() const { return {input_pointers_, output_pointers_, nullptr}; }

 private:
  std::vector<kernel::Operand> inputs_, outputs_;
  std::vector<char*> input_pointers_, output_pointers_;
};

/// The kernel for `explain`.
std::string call_text(const kernel::CallKernel& kernel);

/// The kernels of a plan from `first` on that share their work, usually one.
struct PreparedKernels {
  std::size_t first = 0, count = 1;
  std::unique_ptr<Prepared> prepared;
};
/// All kernels of a plan in order. DTypeError for a kernel without code for its types.
std::vector<PreparedKernels> prepare(const kernel::Plan& plan);

}  // namespace weft::cpu
