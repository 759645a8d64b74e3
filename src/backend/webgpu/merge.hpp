// Independent small dispatches run as one: a dispatch costs the device some microseconds in which it does nothing else, and
// WebGPU orders any two that touch one buffer, so what could run side by side has to be one dispatch to do so.
#pragma once

#include <vector>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// The same work in another order: a dispatch comes after all those before it that write what it touches or touch what it
/// writes (bytes as bound). Dispatches of few workgroups and of one workgroup size become branches of one dispatch where
/// neither waits for the other, as far as the rules for bindings and the target's limits allow.
std::vector<RenderedDispatch> merge_dispatches(std::vector<RenderedDispatch> dispatches, const Target& target);

}  // namespace weft::webgpu
