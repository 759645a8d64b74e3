// Runs short dispatches that wait for one another as one, whose workgroups stay on the device and meet between its phases. Between
// two dispatches a device drains, and fills again: 4 us on an H100, of which a meeting takes 0.7.
//
// WGSL knows no meeting of workgroups. One needs that all workgroups run at once, and that they see afterwards what the others
// wrote. Tests of the device show the second (TestedFacts::meetings), and a trial of each pipeline the first (Meetings). Even then
// a compute unit may keep what it has read before, so no phase writes near what an earlier phase has touched.
#pragma once

#include <vector>

#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

/// The same work in the same order. Neighbouring dispatches of equal workgroup size become the phases of one, as far as bindings,
/// memory and the target's limits allow. Where dispatches repeat, as in the layers of a model, so do the cuts, and layers have
/// equal text.
std::vector<RenderedDispatch> join_phases(std::vector<RenderedDispatch> dispatches, const Target& target);

}  // namespace weft::webgpu
