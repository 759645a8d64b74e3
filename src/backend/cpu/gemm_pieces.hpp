// Products with a small C and a deep k, computed in pieces of k.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm.hpp"
#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu::blocked {

/// The number of pieces of k: a small C with a deep k, as for weight gradients, has too few blocks for many threads, and each
/// would read nearly all of A and B.
/// `tiles`: the blocks of C that the product can be split into. Defined for float and double.
template <class T>
std::int64_t pieces_of(const GemmArgs<T>& args, std::int64_t tiles);

/// The product as a batch of `pieces` products over parts of k, which are then added in their order.
template <class T>
void run_in_pieces(const GemmArgs<T>& args, const GemmKernels<T>& kernels, std::int64_t pieces);

}  // namespace weft::cpu::blocked
