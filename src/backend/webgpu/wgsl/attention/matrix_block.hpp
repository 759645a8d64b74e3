// Attention on subgroup matrices: which kernels suit them, and how they are cut.
#pragma once

#include <span>

#include "backend/webgpu/wgsl/render.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

/// Sizes of a workgroup's work. A subgroup of 32 threads owns rows and walks over tiles of the other side, 16 of it at a time.
struct MatrixAttentionBlock {
  int subgroup_rows = 32;  // 32, or 16; 16 going backward
  int subgroups = 4;
  int tile = 32;  // rows of the other side in workgroup memory, a multiple of 16
  bool interleaved =
      true;  // products of the next chunk are among the exponentials of one; backward only, else always so
  /// Workgroups that own the same rows, each for some channels of the results. All compute the scores, but wide results of one
  /// would not fit its registers. Backward only.
  int slices = 1;

  int rows() const { return subgroup_rows * subgroups; }
  int threads() const { return 32 * subgroups; }
};

/// The parts of an attention going backward each have a block.
struct MatrixAttentionBlocks {
  MatrixAttentionBlock forward, d_query, d_key_value;
};

/// Whether the attention may run on matrices of f16: all operands of f16 or all of bf16, in vectors of eight, and enough rows.
bool suits_matrices(const kernel::AttentionKernel& kernel);

/// The measured blocks for its width and length, smaller ones where those do not fit the device or leave it without work.
MatrixAttentionBlocks choose_matrix_blocks(const kernel::AttentionKernel& kernel, const Target& target);

}  // namespace weft::webgpu
