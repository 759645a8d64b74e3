// Any kernel as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// The dispatches of a kernel of a plan with `plan_buffers` buffers. Throws DTypeError for f64, InternalError for a kernel with
/// more operands than the target binds, DeviceError for one with too many elements to count. Messages name the kernel.
Rendered render(const kernel::Kernel& kernel, int plan_buffers, const Target& target);

}  // namespace weft::webgpu
