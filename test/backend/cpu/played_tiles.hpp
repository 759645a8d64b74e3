// The tile instructions of AMX as plain loops, so that kernels on tiles run on any processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "backend/cpu/amx_tiles.inc.hpp"

namespace weft::cpu {
namespace {

/// Registers of 16 rows of 64 bytes, and what the processor would refuse. A and B: how the product reads bytes of its
/// operands.
template <class A, class B>
struct PlayedTiles {
  inline static thread_local TileConfiguration shape;
  inline static thread_local bool configured = false;
  inline static thread_local std::uint8_t registers[8][16][64];

  static void require(bool good, const char* what) {
    if (good) return;
    std::fprintf(stderr, "tile instruction: %s\n", what);
    std::abort();
  }
  static void configure(const TileConfiguration& c) {
    require(c.palette == 1 && c.start_row == 0, "palette");
    for (int i = 0; i < 16; ++i)
      require(i < 8 ? c.rows[i] <= 16 && c.row_bytes[i] <= 64 : c.rows[i] == 0 && c.row_bytes[i] == 0, "shape");
    shape = c;
    configured = true;
    std::memset(registers, 0, sizeof registers);
  }
  static void release() { configured = false; }
  template <int r>
  static void zero() {
    require(configured, "not configured");
    std::memset(registers[r], 0, sizeof registers[r]);
  }
  template <int r>
  static void load(const void* from, std::int64_t row_bytes) {
    require(configured, "not configured");
    std::memset(registers[r], 0, sizeof registers[r]);
    for (int i = 0; i < shape.rows[r]; ++i)
      std::memcpy(registers[r][i], static_cast<const std::byte*>(from) + i * row_bytes, shape.row_bytes[r]);
  }
  template <int r>
  static void load_once(const void* from, std::int64_t row_bytes) {
    load<r>(from, row_bytes);
  }
  template <int r>
  static void store(void* to, std::int64_t row_bytes) {
    require(configured, "not configured");
    for (int i = 0; i < shape.rows[r]; ++i)
      std::memcpy(static_cast<std::byte*>(to) + i * row_bytes, registers[r][i], shape.row_bytes[r]);
  }
  template <int c, int a, int b>
  static void require_meeting_shapes() {
    require(shape.rows[c] == shape.rows[a] && shape.row_bytes[a] == 4 * shape.rows[b] &&
                shape.row_bytes[c] == shape.row_bytes[b],
            "shapes that do not meet");
  }
  template <int c, int a, int b>
  static void multiply() {
    require_meeting_shapes<c, a, b>();
    for (int m = 0; m < shape.rows[c]; ++m)
      for (int n = 0; n < shape.row_bytes[c] / 4; ++n) {
        std::int32_t sum;
        std::memcpy(&sum, registers[c][m] + 4 * n, 4);
        for (int k = 0; k < shape.row_bytes[a]; ++k)
          sum += static_cast<A>(registers[a][m][k]) * static_cast<B>(registers[b][k / 4][4 * n + k % 4]);
        std::memcpy(registers[c][m] + 4 * n, &sum, 4);
      }
  }
};

}  // namespace
}  // namespace weft::cpu
