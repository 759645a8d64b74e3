// Alignments of labels with steps (CTC) as WGSL.
#pragma once

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"
#include "graph/op.hpp"

namespace weft::webgpu {

/// Whether the calls of graph/ctc.hpp have kernels for these operands: those of f32, with fewer than 2^32 elements.
bool accepts_ctc_alignment(const graph::Call& call);

/// Appends the dispatch of ctc_alignment. A workgroup takes a sequence through all steps, a thread some places of it. What has reached
/// them after a step is in workgroup memory, if that has room for two steps.
void render_ctc_alignment(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered);

/// Appends three dispatches. The first links the places of each class, in their order. The second goes back through the steps and
/// writes what flows through each place. The third adds that up along the links, all steps at once: no sum depends on the order in
/// which threads run.
void render_ctc_alignment_backward(const kernel::CallKernel& kernel, const Target& target, Scratch& scratch,
                                   Rendered& rendered);

}  // namespace weft::webgpu
