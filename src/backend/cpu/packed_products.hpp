// Products of one A with packed matrices, each with its epilogue.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/prepared.hpp"
#include "backend/cpu/product_epilogue.hpp"
#include "backend/cpu/quant/matmul.hpp"

namespace weft::cpu {

/// With experts, the rows of each are neighbours in scratch memory, and multiplied together.
class PackedProducts final : public Prepared {
 public:
  explicit PackedProducts(std::span<const kernel::PackedMatmulKernel* const> kernels);
  /// Whether the kernel is a product of the same rows as all of these, and none touches memory that another writes.
  static bool may_join(const kernel::PackedMatmulKernel& kernel,
                       std::span<const kernel::PackedMatmulKernel* const> others);

  void bind(const Memory& memory) override;
  void run() override { run_products(0, products_.size()); }
  void run_kernel(std::size_t index) override { run_products(index, 1); }
  int stages() const override { return tasks_ ? 1 : 0; }
  Extent tasks(int) const override { return tasks_->count(); }
  void start() override { tasks_->start(x_, x_row_); }
  void run_task(int, Extent task) override { tasks_->run(task); }
  bool is_streamed() const override { return tasks_.has_value(); }
  bool ask_ahead(Extent task, int piece) const override { return tasks_->ask_ahead(task, piece); }
  std::string to_string() const override;
  std::size_t scratch_bytes() const override;

 private:
  struct Member {
    explicit Member(const kernel::PackedMatmulKernel& kernel);
    std::string name;
    kernel::Operand weights;
    BlockType type;
    Extent n, k;
    ProductEpilogue epilogue;
    QuantisedMatrix matrix;
  };
  void run_products(std::size_t first, std::size_t count) const;

  kernel::Operand a_;
  Extent x_row_, m_;
  Activations activations_;
  std::optional<kernel::PackedMatmulKernel::Experts> experts_;
  std::deque<Member> members_;  // products refer to them
  std::vector<QuantProduct> products_;
  std::vector<std::int64_t> widths_;  // columns of each product
  std::optional<QuantTasks> tasks_;   // for few rows
  const float* x_ = nullptr;
  const std::int32_t* of_row_ = nullptr;
};

}  // namespace weft::cpu
