// The adjoint of a convolution with steps (graph/convolution.hpp).
#pragma once

#include <span>

#include "compile/kernel.hpp"

namespace weft::graph {
class Call;
}

namespace weft::cpu {

/// f32, with up to two axes of space.
bool accepts_conv_adjoint(const graph::Call& call);
void run_conv_adjoint(const kernel::CallKernel& kernel, std::span<char* const> reads, std::span<char* const> outs);

}  // namespace weft::cpu
