// Numbers that tests compute with.
#pragma once

#include <cstdint>
#include <vector>

#include "base/philox.hpp"
#include "weft/shape.hpp"

namespace weft::test {

/// `count` numbers between -1 and 1, others for each stream and seed.
inline std::vector<float> noise(std::uint32_t stream, Extent count, std::uint32_t seed = 5) {
  std::vector<float> values;
  for (Extent i = 0; i < count; ++i)
    values.push_back(
        2 * philox::to_unit_float(philox::block({seed, stream}, {static_cast<std::uint32_t>(i), 0, 0, 0})[0]) - 1);
  return values;
}

}  // namespace weft::test
