// What speech models are loaded with.
#pragma once

#include <cstdint>
#include <functional>

#include "weft/device.hpp"

namespace weft::speech {

struct LoadOptions {
  Device device = default_device();
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};  ///< bytes of weights
};

}  // namespace weft::speech
