// Transposition of blocks of elements, by the vectors that matrix products pack their operands with.
#pragma once

#include <cstring>
#include <type_traits>

#include "backend/cpu/access.hpp"
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu {

/// to[k * to_row + j] = from[j * from_row + k] for k < depth, j < count.
template <class Word>
void transpose(const Word* from, Extent from_row, Word* to, Extent to_row, Extent depth, Extent count) {
  Extent done = 0;
  if constexpr (sizeof(Word) >= 4) {
    using Number = std::conditional_t<sizeof(Word) == 4, float, double>;
    const GemmKernels<Number>& kernels = gemm_kernels_in_use<Number>();
    constexpr Extent kRowMax = 1 << 30;
    if (to_row <= kRowMax) {
      done = count / kernels.lanes * kernels.lanes;
      kernels.pack_transposed(depth, static_cast<int>(done), reinterpret_cast<const Number*>(from), from_row,
                              reinterpret_cast<Number*>(to), static_cast<int>(to_row));
    }
  }
  for (; done < count; ++done) copy_strided(from + done * from_row, 1, to + done, to_row, depth);
}

}  // namespace weft::cpu
