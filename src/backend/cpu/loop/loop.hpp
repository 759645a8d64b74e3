// Loop kernels as blocked bytecode: instructions over tiles of a slow x fast rectangle that stay in the nearest cache.
//
// The rectangle is outer x inner ("rows") or, if memory is contiguous along outer, inner x outer ("columns"). An elementwise
// kernel is cut into rows where its views repeat. A block is a range of the outer axis, a chunk one of the inner; the
// reductions of a kernel make phases, and each phase passes over the chunks once:
//
//   for each block:  for each phase:  outer-level code;  for each chunk: inner-level code;  results of its reductions
//
// Work is divided into tasks by sizes alone, so that results do not depend on the number of threads.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/access.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

/// The memory of a kernel's operands: a pointer to the first element of each.
struct LoopBinding {
  std::span<char*const> inputs, outputs;
  /// The matrix product of an epilogue: element (row, column) at product + (row * columns + column) elements.
  const char* product = nullptr;
  /// Elements from row to row of a product with other rows: element (row, column) at product + (row * product_row + column)
  /// elements. For programs with `takes_product_rows`; 0: as above.
  Extent product_row = 0;
};

/// Whether the memory of two operands overlaps.
bool overlap(const kernel::Operand& x, const kernel::Operand& y);

class LoopProgram {
 public:
  /// `columns`: for epilogues, the extent n that the space must be divided by, so that `run_rectangle` can serve
  /// blocks of the product; else 0. `product_type` is the type of accumulator steps, and `product_output` the output
  /// that the product itself is stored in (-1: none).
  /// Throws DTypeError for an op without that type, InternalError for a malformed kernel.
  explicit LoopProgram(const kernel::LoopKernel& kernel, Extent columns = 0, DType product_type = DType::f32,
                       int product_output = -1);
  ~LoopProgram();
  LoopProgram(LoopProgram&&) noexcept;

  void run(const LoopBinding& binding) const;
  /// The same in parts, for the caller's schedule: `start`, then all tasks of one stage after the other. The tasks of a stage
  /// may run at the same time.
  int stages() const;
  Extent tasks(int stage) const;
  void start() const;
  void run_task(const LoopBinding& binding, int stage, Extent task) const;
  /// Elementwise kernels only: rows [row_begin, row_end) and columns [column_begin, column_end), in the calling thread.
  void run_rectangle(const LoopBinding& binding, Extent row_begin, Extent row_end, Extent column_begin,
                     Extent column_end) const;
  /// Whether an epilogue reads the product only in place, as rows of `columns` elements.
  bool takes_product_rows(Extent columns) const;
  /// The bytecode.
  std::string to_string() const;

  struct Code;    // the bytecode, for its compiler and interpreter
  struct Totals;  // results of the parts of a divided inner axis

 private:
  void run_part(const LoopBinding& binding, int stage, Extent task) const;

  std::shared_ptr<const Code> code_;  // shared by all equal kernels
  std::unique_ptr<Totals> totals_;
};

}  // namespace weft::cpu
