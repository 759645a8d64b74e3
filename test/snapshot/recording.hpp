// Backends that write down what they are given to compile, and compute nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/contract.hpp"

namespace weft::snapshot {

/// Of one plan: its kernels, and the program made from it.
struct Recorded {
  std::string plan, program;
};
/// Everything compiled in this process so far, in order.
std::vector<Recorded>& recorded();

enum class Gpu : std::uint8_t { desktop, small };

/// Programs as the CPU compiles them.
std::unique_ptr<backend::Backend> recording_cpu();
/// The WGSL of a GPU with fixed properties; no adapter is opened.
std::unique_ptr<backend::Backend> recording_webgpu(Gpu gpu);

}  // namespace weft::snapshot
