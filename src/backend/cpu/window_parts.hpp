// What products with windows share.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/scratch_block.hpp"

namespace weft::cpu {

inline constexpr std::int64_t kWindowCopyBytes =
    256 * 1024;  // of a block's copy, which stays in an L2 cache of 1 MiB beside a strip of A
inline constexpr std::int64_t kWindowPositions = 1024;  // of a block
inline constexpr std::int64_t kWindowTasks = 16;        // at least, if there is so much to share

constexpr std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Coordinates of element `i` of the space of these extents.
template <class Dims>
std::vector<std::int64_t> coordinates(const Dims& dims, std::int64_t i) {
  std::vector<std::int64_t> at(dims.size());
  for (std::size_t d = dims.size(); d-- > 0; i /= dims[d].extent) at[d] = i % dims[d].extent;
  return at;
}

struct WindowScratch {
  ScratchBlock a, copies, sums, taps;
};
inline thread_local WindowScratch window_scratch;

}  // namespace weft::cpu
