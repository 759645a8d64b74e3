// Rows of A that a product computes while it reads them.
#pragma once

#include <string>
#include <vector>

#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/row_factors.hpp"

namespace weft::webgpu {

/// Computes rows of A on reading (PackedMatmulKernel::rows), without the factor of each row, which is known only at the end.
class ComputedRows {
 public:
  ComputedRows(const kernel::LoopKernel& rows, Bindings& bindings, Helpers& helpers);
  int sums() const { return static_cast<int>(factors_.sums.size()); }

  /// Declares `activations`, which gives four elements of a row without the row's factor and adds their part of the row's
  /// sums to these, and `row_factor`.
  void declare(ShaderPieces& shader);

 private:
  static kernel::LoopKernel without_stores(kernel::LoopKernel rows);
  Space outer() const { return {{{"i", rows_.outer}}, -1}; }
  Space inner() const { return {{{"i", rows_.outer}, {"e", rows_.inner}}, 1}; }
  std::vector<int> wanted() const;
  std::string four(int step) const;

  kernel::LoopKernel rows_;
  compiler::RowFactors factors_;
  StepWriter elements_, scales_;
};

}  // namespace weft::webgpu
