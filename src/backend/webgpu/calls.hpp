// Ops that WebGPU has kernels for.
#pragma once

#include <functional>

#include "backend/call_table.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

struct CallEntry {
  /// Whether there is a kernel for these types, shapes and attributes. Empty: for all that the row accepts.
  std::function<bool(const graph::Call&)> accepts = {};
  /// Appends the dispatches. Empty for forms that the compiler describes in another way (attention, products).
  std::function<void(const kernel::CallKernel&, const Target&, Scratch&, Rendered&)> render = {};
};

backend::CallTable<CallEntry>& calls();

}  // namespace weft::webgpu
