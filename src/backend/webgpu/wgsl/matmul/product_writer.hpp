// The common part of tiled products: the tile of a workgroup, and the handling of its results.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "backend/webgpu/wgsl/matmul/row_groups.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/kernel.hpp"

namespace weft::webgpu {

class ProductWriter {
 protected:
  struct TileShape {
    int rows = 0, columns = 0, depth = 0;  // of results; of k in one step
  };
  /// `groups`: of rows that differ in their B, which are the batches of the kernel's B; or null. `split` workgroups share a
  /// result, each over a multiple of `turn` steps of k; only without groups.
  ProductWriter(const kernel::MatmulKernel& kernel, const RowGroups* groups, const TileShape& shape, int split,
                int turn, const Target& target, Scratch& scratch, Rendered& rendered);

  /// The computation for each sum: the epilogue, or for a split the store of partial sums, which a second dispatch joins.
  kernel::LoopKernel begin_results();
  /// The iteration space of the results, by fours where n allows it.
  Space results_space() const;
  bool wide() const { return kernel_.n % 4 == 0; }
  /// One call applies the epilogue to four results of a row (or to one, if n is not a multiple of four).
  ShaderPieces::Function finish_function(const kernel::LoopKernel& results, StepWriter& writer);
  /// The arguments of that function before the row.
  std::string finish_batch() const { return groups_ ? "0u, " : split_ > 1 ? "s, b, " : "b, "; }
  /// The tile of this workgroup: `row0`, `column0`, `b` and for a split `s`. With groups, rows are slots, and a workgroup ends
  /// here if its tile has no group of this product.
  void write_tile_place();
  /// With groups: their binding, and what reads it.
  void add_groups(Bindings& bindings) { order_ = groups_ ? bindings.add(groups_->order, false) : -1; }
  void declare_groups(ShaderPieces& shader, const Bindings& bindings) const {
    if (groups_) declare_row_groups(*groups_, order_, bindings, shader);
  }
  /// Rows of A: slots, if there are groups.
  Extent rows_of_a() const { return groups_ ? groups_->slots() : kernel_.m; }
  /// Appends the dispatch, and for a split the one that joins. `form` is a part of the name.
  void add_dispatches(ShaderPieces shader, const Bindings& bindings, const std::string& form = "");

  void line(const std::string& text) { text_ += "  " + text + "\n"; }

  const kernel::MatmulKernel& kernel_;
  const RowGroups* groups_;
  int order_ = -1;
  TileShape shape_;
  int split_;
  Extent steps_per_split_ = 1;
  const Target& target_;
  Scratch& scratch_;
  Rendered& rendered_;
  Helpers helpers_;
  kernel::LoopKernel join_;
  std::size_t steps_of_u_ = 0;   // of the epilogue: their sum is another one, `u`, an argument after `v`
  DType sum_type_ = DType::f32;  // i32 for products of integers, which are not split
  std::string text_;

 private:
  kernel::LoopKernel partial_kernel(const kernel::Operand& partial, Extent results) const;
  kernel::LoopKernel join_kernel(const kernel::Operand& partial, Extent results) const;
  Extent tiles_m() const { return divide_up(rows_of_a(), shape_.rows); }
  Extent batch_of_results() const { return groups_ ? 1 : kernel_.batch; }
  Extent tiles_n() const { return divide_up(kernel_.n, shape_.columns); }
};

}  // namespace weft::webgpu
