// The kernels for bf16 on tiles, with tile instructions that are played by plain loops.
#pragma once

#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu {

/// Null if this processor cannot run the vector instructions around the tiles.
const GemmKernels<float>* played_bf16_tiles();

}  // namespace weft::cpu
