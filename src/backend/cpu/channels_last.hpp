// Copies of images with the channels of a place side by side.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_kernels.hpp"

namespace weft::cpu {

/// Places [0, size), of which those outside [begin, end) are zeros.
struct PaddedLine {
  std::int64_t begin, end, size;
};

/// to[p * pitch + c] = from[c * channel_stride + (p - begin) * step], or 0. The pitch is a multiple of a vector's lanes; what
/// follows the channels of a place is not used.
void copy_channels_last(const GemmKernels<float>& kernels, const float* from, std::int64_t step,
                        std::int64_t channel_stride, std::int64_t channels, PaddedLine line, float* to,
                        std::int64_t pitch);

}  // namespace weft::cpu
