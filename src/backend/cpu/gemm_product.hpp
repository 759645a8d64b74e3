// One product of floats or doubles: its tasks, and the loops around the kernels.
//
// A task owns a block of C (or some whole small products) and computes it alone, over all of k, so that tasks never wait for
// each other. Inside it, k is cut into blocks whose part of B stays in the L2 cache. A panel of A (the rows of one kernel call)
// stays in L1 and is multiplied with all strips of B (the columns of one kernel call) before the next panel. If a product's
// tasks share a packed B, all threads pack it first. If all of B would not stay in the caches, all tasks go through blocks of k
// together, and share A as well.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu/gemm_packing.hpp"
#include "backend/cpu/gemm_split.hpp"

namespace weft::cpu::blocked {

/// Defined for float and double.
template <class T>
class Product {
 public:
  Product(const GemmArgs<T>& args, const GemmKernels<T>& kernels);

  /// Independent tasks; 0 if there are steps before them.
  int64_t tasks() const { return split_.shares_b ? 0 : split_.tasks; }
  /// Blocks of C that one product is split into, or can be.
  int64_t tiles() const { return (split_.shares_b ? split_.panels : split_.row_tiles) * split_.column_tiles; }

  void run() const;
  void run_task(int64_t task) const;

 private:
  /// A part of C: some panels by the columns of some tiles.
  struct Part {
    Range panels, tiles;
  };

  /// C in parts that get smaller towards the end, in pairs, so that threads end together. Parts of one tile are consecutive; if
  /// a task packs its own A, it takes all tiles.
  std::vector<Part> parts_of(Range panels, Range tiles) const;

  /// All threads pack the shared operands, then compute. A B that stays in the caches is packed over all of k, and a task
  /// computes its part of C over all of k. Otherwise both operands are packed block by block of k, and a block stays in the
  /// caches while it is used; if it is too large, C is computed in groups of rows and of columns.
  void run_shared() const;

  /// The parts of C, all of `panels` by `tiles`, over `whole_depth`: one block of k, or all of them.
  void run_shared_depth(Range whole_depth, Range panels, Range tiles, const std::vector<Part>& parts, T* packed_a,
                        T* packed_b) const;
  Range panels_of(int64_t row_tile) const {
    return {split_.panels * row_tile / split_.row_tiles, split_.panels * (row_tile + 1) / split_.row_tiles};
  }
  Range columns_of(int64_t column_tile) const {
    return {column_tile * split_.tile_columns, std::min(args_.n, (column_tile + 1) * split_.tile_columns)};
  }

  void run_block(int64_t batch, int64_t column_tile, Range panels, Range columns, ConfiguredPanels& configured) const;

  /// Runs all panels of a task over one block of k. A packed A is given (`given_a`), or packed here group by group.
  void run_depth(int64_t batch, Range depth, Range panels, Range columns, const T* packed_b,
                 ConfiguredPanels& configured, const T* given_a = nullptr) const;

  /// One panel of A, at `a`, and all strips of B. Meanwhile prefetches the next panel of A, at `next_a`.
  void run_panel(int64_t batch, Range depth, Range rows, Range columns,
                 const typename GemmKernels<T>::Tile (&tiles)[2][kGemmRowsMax][kGemmVectors], const T* a,
                 int64_t a_stride, const T* packed_b, const T* next_a, ConfiguredPanels& configured) const;

  const GemmArgs<T>& args_;
  const GemmKernels<T>& kernels_;
  const Split split_;
  const Packing<T> operands_;
  const std::uint64_t call_;
};

}  // namespace weft::cpu::blocked
