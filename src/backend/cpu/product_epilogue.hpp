// What happens to each block of a matrix product while it is in the cache.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/cpu/prepared.hpp"

namespace weft::cpu {

class ProductEpilogue {
 public:
  explicit ProductEpilogue(const kernel::MatmulKernel& kernel);
  explicit ProductEpilogue(const kernel::PackedMatmulKernel& kernel);

  /// Takes the operands, and says where the product is to be stored in this run; null: nowhere, the epilogue
  /// sees each block where it was made.
  char* bind(const Memory& memory);
  /// Whether there is anything to be done once the product is stored.
  bool is_empty() const { return plain_; }
  /// As GemmArgs::after_block.
  void operator()(std::int64_t batch, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                  std::int64_t column_end) const;
  /// As QuantProduct::after_tile.
  void operator()(const float* y, std::int64_t y_row, std::int64_t row_begin, std::int64_t row_end,
                  std::int64_t column_begin, std::int64_t column_end) const;
  /// Where the product goes, and the bytecode.
  std::string to_string() const;
  std::size_t scratch_bytes() const { return scratch_.size(); }

 private:
  /// The product that the epilogue is of.
  struct Product {
    const kernel::LoopKernel& epilogue;
    Extent batch, m, n;
    DType type;
    const kernel::Operand &a, &b;
    bool gives_tiles;  // as it is made, instead of storing it whole
  };
  explicit ProductEpilogue(const Product& product);
  static int output_for(const Product& product, Extent* offset);

  Extent m_;
  std::size_t element_bytes_;
  Extent offset_ = 0;  // in elements; set while the next is initialised, so it comes first
  int output_;         // the output that the product itself goes to, before the epilogue passes over it; -1: none
  bool plain_;         // the epilogue is that store alone
  LoopProgram program_;
  bool in_tiles_;  // the product is not stored: each block goes to the epilogue as it is made
  LoopOperands operands_;
  std::vector<char> scratch_;  // the product, where it has no output and is stored
  LoopBinding binding_;        // of this run
};

}  // namespace weft::cpu
