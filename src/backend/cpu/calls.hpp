// Ops that the CPU has kernels for: a table that is open while the program runs.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "backend/cpu/prepared.hpp"
#include "graph/op.hpp"

namespace weft::cpu {

/// Computes a whole call from pointers to the first elements of its operands.
using CallFunction =
    std::function<void(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs)>;

struct CallEntry {
  /// Whether there is a kernel for these types, shapes and attributes. Empty: for all that the row takes.
  std::function<bool(const graph::Call&)> accepts = {};
  /// Makes the kernel ready. Empty for forms that the compiler describes in another way (attention, products).
  std::function<std::unique_ptr<Prepared>(const kernel::CallKernel&)> prepare = {};
};

/// The kernel of a row; null where there is none. Valid for ever. Thread safe, as is `register_call`.
const CallEntry* find_call(const graph::OpRow& row);
/// Errors: UsageError if the row has one already.
void register_call(const graph::OpRow& row, CallEntry entry);
bool has_kernel(const graph::Call& call);

/// A kernel that is one function; `is_short`: one task of a schedule of the neighbours' kernels.
std::unique_ptr<Prepared> prepare_function(const kernel::CallKernel& kernel, CallFunction function, bool is_short);

}  // namespace weft::cpu
