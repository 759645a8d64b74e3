// Ops that the CPU has kernels for.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "backend/call_table.hpp"
#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

/// Computes a call from pointers to the first elements of its operands.
using CallFunction =
    std::function<void(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs)>;

struct CallEntry {
  /// Whether there is a kernel for these types, shapes and attributes. Empty: for all that the row accepts.
  std::function<bool(const graph::Call&)> accepts = {};
  /// Prepares the kernel. Empty for forms that the compiler describes in another way (attention, products).
  std::function<std::unique_ptr<Prepared>(const kernel::CallKernel&)> prepare = {};
};

backend::CallTable<CallEntry>& calls();

/// A kernel that is one function; `is_short`: it is one task in a schedule with its neighbours.
std::unique_ptr<Prepared> prepare_function(const kernel::CallKernel& kernel, CallFunction function, bool is_short);

}  // namespace weft::cpu
