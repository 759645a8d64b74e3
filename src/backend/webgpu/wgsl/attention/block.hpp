// Sizes of a workgroup's work on attention.
#pragma once

#include <span>

namespace weft::webgpu {

/// Sizes of a workgroup's work.
struct AttentionBlock {
  int lane_rows = 4;    // owned rows of a thread
  int lane_others = 8;  // rows of a tile that a thread scores, 4 or 8
  int patches = 4;      // of 32 threads
  int buffers = 3;      // slabs in workgroup memory, 2 or 3
  bool ahead = true;    // reads the next slab into registers while one is multiplied
  bool written = true;  // inner loops are unrolled: faster, but slower to compile

  int rows() const { return 4 * lane_rows * patches; }
  int tile() const { return 8 * lane_others; }
  int threads() const { return 32 * patches; }
};

}  // namespace weft::webgpu
