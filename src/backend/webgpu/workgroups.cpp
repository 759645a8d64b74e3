#include "backend/webgpu/workgroups.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::webgpu {

Workgroups fold_workgroups(std::uint64_t count, std::uint32_t dimension_max) {
  const auto divide_up = [](std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0); };
  if (count <= dimension_max) return {static_cast<std::uint32_t>(count), 1, 1};
  const std::uint64_t rows = divide_up(count, dimension_max);
  const std::uint64_t z = divide_up(rows, dimension_max);
  if (z > dimension_max)
    throw DeviceError(fmt::format("webgpu: {} workgroups are more than a device dispatches at once ({} cubed)", count,
                                  dimension_max));
  const std::uint64_t y = divide_up(rows, z);
  const std::uint64_t x = divide_up(count, y * z);
  return {static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(y), static_cast<std::uint32_t>(z)};
}

}  // namespace weft::webgpu
