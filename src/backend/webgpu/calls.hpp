// Ops that WebGPU has kernels for: a table that is open while the program runs.
#pragma once

#include <functional>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"
#include "graph/op.hpp"

namespace weft::webgpu {

struct CallEntry {
  /// Whether there is a kernel for these types, shapes and attributes. Empty: for all that the row takes.
  std::function<bool(const graph::Call&)> accepts = {};
  /// Appends the dispatches. Empty for forms that the compiler describes in another way (attention, products).
  std::function<void(const kernel::CallKernel&, const Target&, Scratch&, Rendered&)> render = {};
};

/// The kernel of a row; null where there is none. Valid for ever. Thread safe, as is `register_call`.
const CallEntry* find_call(const graph::OpRow& row);
/// Errors: UsageError if the row has one already.
void register_call(const graph::OpRow& row, CallEntry entry);
bool has_kernel(const graph::Call& call);

}  // namespace weft::webgpu
