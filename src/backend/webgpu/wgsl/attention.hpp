// Attention as WGSL: scores stay on the chip, forward and backward.
#pragma once

#include "backend/webgpu/wgsl/attention/block.hpp"
#include "backend/webgpu/wgsl/attention/matrix_block.hpp"
#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Appends the dispatches of `kernel` (f32, width at most 256): one forward, two backward.
///
/// A workgroup owns a block of rows (queries; for dK and dV keys) of one head and walks over tiles of the other side, with an
/// online softmax; tiles that the mask hides are skipped. Backward recomputes the probabilities from the saved logsumexp: the
/// first dispatch gives dQ and keeps rowsum(dO * O), the second gives dK and dV, for each key head from all query heads that
/// share it. Nothing is added atomically, so results repeat bit for bit. A query that sees no key gets O = 0 and L = -infinity.
/// `block` overrides the choice of block, for measurements.
///
/// Operands of f16 are multiplied on subgroup matrices where the device has them and rows are enough (render_on_matrices), and
/// so are those of bf16, scaled to f16: a dispatch before finds their ranges, and dispatches behind compute in f32 the heads
/// whose numbers do not fit (attention/ranges.hpp).
///
/// Throws DTypeError for other types, DeviceError where the device has too little workgroup memory for the width.
/// Source: Dao 2023, arXiv:2307.08691.
void render(const kernel::AttentionKernel& kernel, const Target& target, Scratch& scratch, Rendered& rendered,
            const AttentionBlock* block = nullptr);
/// The same on subgroup matrices of f16, whatever the device says of them; where the operands suit. False, and nothing is
/// appended, where the operands cannot be bound so or the blocks do not fit. Results then hold sums of products of halves,
/// of which shares and slopes were rounded to f16.
bool render_on_matrices(const kernel::AttentionKernel& kernel, const MatrixAttentionBlocks& blocks,
                        const Target& target, Scratch& scratch, Rendered& rendered);
/// Whether the device can run it in such blocks.
bool is_possible(const kernel::AttentionKernel& kernel, const Target& target, const AttentionBlock& block);

}  // namespace weft::webgpu
