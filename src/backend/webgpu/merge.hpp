// Runs independent small dispatches as one. A dispatch costs the device some microseconds in which it does nothing else, and
// WebGPU orders any two that touch one buffer, so only one dispatch lets such work run side by side.
#pragma once

#include <vector>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// The same work in another order: a dispatch stays after all earlier ones that write bytes which it touches, or touch bytes
/// which it writes (as bound). Dispatches of few workgroups with the same workgroup size become branches of one dispatch if
/// neither waits for the other, as far as the rules for bindings and the target's limits allow.
std::vector<RenderedDispatch> merge_dispatches(std::vector<RenderedDispatch> dispatches, const Target& target);

}  // namespace weft::webgpu
