// Matrix products with an epilogue that runs over each block of the product while it is in the cache.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/loop.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

class ProductProgram {
 public:
  /// Throws DTypeError for products of bool or of mixed types.
  explicit ProductProgram(const kernel::MatmulKernel& kernel);
  /// a and b at their operands' first elements; `epilogue` as for loops, without the product.
  void run(const char* a, const char* b, LoopBinding epilogue);
  /// The same as tasks for a schedule of the caller's: `start`, then each of `tasks()`. 0: only `run` can do it.
  Extent tasks() const { return tasks_; }
  void start(const char* a, const char* b, LoopBinding epilogue);
  void run_task(Extent task) const { started_->run(task); }
  /// Products of one A with several packed matrices: their work is shared out together.
  struct PackedCall {
    ProductProgram* program;
    const char* weights;
    LoopBinding epilogue;
  };
  static void run_packed(std::span<const PackedCall> calls, const char* a);
  /// Whether it is a packed product of the same A as all of these, and none touches what another writes.
  bool runs_with(std::span<const ProductProgram* const> others) const;
  std::string to_string() const;
  std::size_t scratch_bytes() const { return scratch_.size() + packed_a_.size() + packed_b_.size(); }

 private:
  /// Runs the epilogue over a block of the product.
  struct AfterBlock {
    const ProductProgram* program = nullptr;
    LoopBinding epilogue;
    void operator()(std::int64_t batch, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                    std::int64_t column_end) const;
  };
  template <class T>
  GemmArgs<T> arguments(const char* a, const char* b, LoopBinding epilogue);
  template <class T>
  void run_as(const char* a, const char* b, LoopBinding epilogue);

  bool swapped_ = false;  // the transposed product is computed: a and b have changed places
  kernel::MatmulKernel kernel_;
  Extent product_offset_ = 0;  // in elements; set while the next is initialised, so it comes first
  int product_output_ = -1;    // the output that the product itself goes to, before the epilogue passes over it
  bool plain_ = false;         // the epilogue is that store alone
  bool in_tiles_ = false;      // nor is it stored: each block goes to the epilogue as it is made
  LoopProgram epilogue_;
  std::vector<std::int64_t> a_offsets_, b_offsets_;
  std::vector<char> scratch_, packed_a_, packed_b_;  // the product; sources that lack a stride of 1
  AfterBlock after_;                                 // of this run
  Extent tasks_ = 0;
  std::optional<GemmTasks<float>> started_;
};

}  // namespace weft::cpu
