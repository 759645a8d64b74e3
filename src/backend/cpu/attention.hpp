// Fused attention, forward and backward.
#pragma once

#include "compile/kernel.hpp"

namespace weft::cpu {

/// Pointers to the first element of each operand; pointers that the direction does not use may be null.
struct AttentionBinding {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *o = nullptr, *logsumexp = nullptr;
  const void* d_o = nullptr;
  void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  const void* mask = nullptr;
  const std::int32_t* key_spans = nullptr;
  const std::uint32_t* seed = nullptr;
};

/// Runs it for f32 or f64, with operands of narrower types than f32 too (DTypeError for others). Heads (backward heads
/// of keys), and forward blocks of queries too, are tasks; sums have one order, whatever the number of threads. A query that sees no key gives zeros and a logsumexp of -infinity.
void run_attention(const kernel::AttentionKernel& kernel, const AttentionBinding& binding);
/// The same as tasks, for the caller's schedule.
Extent attention_tasks(const kernel::AttentionKernel& kernel);
void run_attention_task(const kernel::AttentionKernel& kernel, const AttentionBinding& binding, Extent task);

}  // namespace weft::cpu
