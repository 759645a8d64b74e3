// How workgroups and threads share a reduction.
#pragma once

#include "backend/webgpu/wgsl/passes.hpp"
#include "backend/webgpu/wgsl/render.hpp"

namespace weft::webgpu {

constexpr int kReductionThreads = 256;  // of a workgroup: every device allows as many
constexpr int kSerialPartsMax = 16;     // partial results that every thread adds up alone

/// How workgroups and threads share a reduction.
struct ReductionLayout {
  bool columns = false;    // neighbouring threads take neighbouring outer indices
  int width = 1;           // neighbours that a thread takes at once: along inner in rows, along outer in columns
  Extent items = 0;        // of a row: inner, or groups of `width`
  Extent rows = 0;         // outer, or groups of `width`
  int lanes = 1;           // threads that share a row
  Extent chunks = 1;       // workgroups that share a row
  bool registers = false;  // each thread keeps its part of the row
  int threads = kReductionThreads;

  int rows_per_group() const { return threads / lanes; }
  Extent slots() const { return divide_up(items, lanes); }
  Extent chunk_items() const { return divide_up(items, chunks); }
};

}  // namespace weft::webgpu
