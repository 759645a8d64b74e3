// Products of eight-bit integers with sums of 32 bits.
#pragma once

#include <cstdint>

#include "base/function_ref.hpp"
#include "compile/kernel.hpp"

namespace weft::cpu {

/// A batch of matrices of i8 or u8, which the view describes, counted from `data`.
struct IntegerSource {
  const void* data = nullptr;
  bool is_signed = true;
  const kernel::MatrixView* view = nullptr;
};

/// C[m, n] = A[m, k] B[k, n] for each matrix of the batch, exactly modulo 2^32, in rows of `n` one after another. `after_block`
/// as in GemmArgs.
struct IntegerGemm {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  IntegerSource a, b;
  std::int32_t* c = nullptr;
  FunctionRef<void(std::int64_t batch, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin,
                   std::int64_t column_end)>
      after_block;
};
struct IntegerKernels;
/// `kernels`: those of the instruction set in use unless given.
void integer_gemm(const IntegerGemm& product, const IntegerKernels* kernels = nullptr);

}  // namespace weft::cpu
