// Matrix products with an epilogue that runs over each block of the product while it is in the cache.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/prepared.hpp"
#include "backend/cpu/product_epilogue.hpp"

namespace weft::cpu {

/// A product of two strided matrices, each of the product's type or of a narrower one. PackedProducts handles packed
/// weights.
class ProductProgram final : public Prepared {
 public:
  /// Throws DTypeError for products of bool or of mixed types.
  explicit ProductProgram(const kernel::MatmulKernel& kernel);
  void bind(const Memory& memory) override;
  void run() override;
  int stages() const override { return tasks_ > 0 ? 1 : 0; }
  Extent tasks(int) const override { return tasks_; }
  void start() override;
  void run_task(int, Extent task) override { started_->run(task); }
  std::string to_string() const override;
  std::size_t scratch_bytes() const override { return epilogue_.scratch_bytes() + packed_a_.size() + packed_b_.size(); }

 private:
  template <class T>
  GemmArgs<T> arguments() const;
  template <class T>
  void run_as();
  void run_bytes();

  kernel::MatmulKernel kernel_;  // or that of the transposed product
  ProductEpilogue epilogue_;
  std::vector<std::int64_t> a_offsets_, b_offsets_;
  std::vector<char> packed_a_, packed_b_;  // sources that lack a stride of 1
  const char *a_ = nullptr, *b_ = nullptr;
  char* c_ = nullptr;
  Extent tasks_ = 0;  // 0: only `run` can do it
  std::optional<GemmTasks<float>> started_;
};

}  // namespace weft::cpu
