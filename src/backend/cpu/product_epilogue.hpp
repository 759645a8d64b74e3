// Applies the epilogue to each block of a matrix product while the block is in the cache.
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

  /// Sets the operands, and returns the memory for the product in this run; null if it is not stored: the epilogue then reads
  /// each block from the memory where it was made.
  char* bind(const Memory& memory);
  /// Whether nothing is left to do once the product is stored.
  bool is_empty() const { return plain_; }
  /// Like GemmArgs::after_block.
  void operator()(std::int64_t batch, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                  std::int64_t column_end) const;
  /// Like QuantProduct::after_tile.
  void operator()(const float* y, std::int64_t y_row, std::int64_t row_begin, std::int64_t row_end,
                  std::int64_t column_begin, std::int64_t column_end) const;
  /// The place of the product, and the bytecode.
  std::string to_string() const;
  std::size_t scratch_bytes() const { return scratch_.size(); }

 private:
  /// The product of the epilogue.
  struct Product {
    const kernel::LoopKernel& epilogue;
    Extent batch, m, n;
    DType type;
    const kernel::Operand &a, &b;
    bool gives_tiles;  // passes on each tile when it is made, instead of storing the whole product
  };
  explicit ProductEpilogue(const Product& product);
  static int output_for(const Product& product, Extent* offset);

  Extent m_;
  std::size_t element_bytes_;
  Extent offset_ = 0;  // in elements; the initialiser of the next member sets it, so it comes first
  int output_;         // the output where the product is stored before the epilogue; -1: none
  bool plain_;         // the epilogue is that store alone
  LoopProgram program_;
  bool in_tiles_;  // the product is not stored: each block goes to the epilogue as it is made
  LoopOperands operands_;
  std::vector<char> scratch_;  // the product, if it is stored and has no output
  LoopBinding binding_;        // of this run
};

}  // namespace weft::cpu
