// Transposition of 32-bit words, which move as floats do.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu {

/// to[c * to_row + r] = from[r * from_row + c] for r < rows, c < columns. Whole vectors are written, so rows of `to` have room for
/// a number of words that is a multiple of 16.
template <class Word>
void turn_words(const Word* from, std::int64_t from_row, std::int64_t rows, std::int64_t columns, Word* to,
                std::int64_t to_row) {
  static_assert(sizeof(Word) == sizeof(float));
  gemm_kernels_in_use<float>().pack_transposed(columns, static_cast<int>(rows), reinterpret_cast<const float*>(from),
                                               from_row, reinterpret_cast<float*>(to), static_cast<int>(to_row));
}

}  // namespace weft::cpu
