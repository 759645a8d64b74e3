// The place of a draw in the session's random numbers, for kernels that compute the numbers themselves.
#pragma once

#include "weft/tensor.hpp"

namespace weft::runtime {

/// u32 [2], the seed and the stream of a draw of its own, as `dropout` makes one. Kernels number the words of the stream.
Tensor next_random_key();

}  // namespace weft::runtime
