// The numbers of workgroups of a dispatch.
#pragma once

#include <cstdint>

namespace weft::webgpu {

struct Workgroups {
  std::uint32_t x = 1, y = 1, z = 1;
};
/// Spreads `count` workgroups over dimensions of at most `dimension_max`: x * y * z >= count with as little excess as
/// x, y, z allow. Workgroup (i, j, k) has number (k * y + j) * x + i; kernels return for numbers >= count.
/// Throws DeviceError if even three dimensions are not enough.
Workgroups fold_workgroups(std::uint64_t count, std::uint32_t dimension_max = 65535);

}  // namespace weft::webgpu
