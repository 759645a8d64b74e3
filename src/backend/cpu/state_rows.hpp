// What kernels that go from step to step have in common: states that are rows of a cache, and the types they run in.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <memory>

#include "backend/cpu/prepared.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::cpu {

inline constexpr Extent kStateTaskWork = 1 << 14;  // states times steps: some microseconds

/// A cache's rows that no task writes. They are copied first, unless the cache is changed in place.
class CacheCopy {
 public:
  CacheCopy(const kernel::CallKernel& kernel, std::size_t from, bool is_cached)
      : from_(kernel.reads[from]), to_(kernel.outs[0]), is_needed_(is_cached && !(from_ == to_)) {}
  bool is_needed() const { return is_needed_; }
  void bind(const Memory& memory) { source_ = memory.at(from_), target_ = memory.at(to_); }
  void run() const { std::memcpy(target_, source_, bytes_of(to_.type, static_cast<std::size_t>(to_.count))); }

 private:
  kernel::Operand from_, to_;
  bool is_needed_;
  const char* source_ = nullptr;
  char* target_ = nullptr;
};

/// Tasks that take parts of sequences through all steps, behind the copy of a cache that must stay.
class SequenceTasks : public Prepared {
 public:
  void run() override {
    if (copy_.is_needed()) copy_.run();
    parallel_for(count(), [&](Extent task) { run_part(task); });
  }
  int stages() const override { return copy_.is_needed() ? 2 : 1; }
  Extent tasks(int stage) const override { return copies(stage) ? 1 : count(); }
  void run_task(int stage, Extent task) override {
    if (copies(stage))
      copy_.run();
    else
      run_part(task);
  }

 protected:
  explicit SequenceTasks(CacheCopy copy) : copy_(copy) {}
  virtual Extent count() const = 0;
  virtual void run_part(Extent task) = 0;

  CacheCopy copy_;

 private:
  bool copies(int stage) const { return copy_.is_needed() && stage == 0; }
};

/// Which row of the cache has the states of a sequence; -1: none. Without a cache, the row is the number of the sequence.
struct SequenceRows {
  const std::int32_t *sequence = nullptr, *is_first = nullptr;
  Extent rows = 0;
  /// Of a kernel with a cache, whose rows are operands behind operand `state`.
  void bind(const kernel::CallKernel& kernel, const Memory& memory, std::size_t state) {
    sequence = reinterpret_cast<const std::int32_t*>(memory.at(kernel.reads[state + 1]));
    is_first = reinterpret_cast<const std::int32_t*>(memory.at(kernel.reads[state + 2]));
    rows = kernel.shapes[state][0];
  }
  Extent row(Extent s) const {
    if (!sequence) return s;
    return sequence[s] >= 0 && sequence[s] < rows ? sequence[s] : -1;
  }
  bool has_state(Extent s) const { return !sequence || (row(s) >= 0 && is_first[s] <= 0); }
};

template <template <class> class Kernel>
std::unique_ptr<Prepared> prepare_for_type(const kernel::CallKernel& kernel) {
  if (kernel.types[0] == DType::f32) return std::make_unique<Kernel<float>>(kernel);
  if (kernel.types[0] == DType::f64) return std::make_unique<Kernel<double>>(kernel);
  throw DTypeError(fmt::format("{}: there is no kernel for {}; cast to f32", kernel.name, name_of(kernel.types[0])));
}

}  // namespace weft::cpu
