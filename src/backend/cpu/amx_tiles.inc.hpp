// The instructions of AMX, which compute on tiles: up to 16 rows of up to 64 bytes in one of eight registers. Everything here has
// internal linkage, like the kernels that use it.
#pragma once

#include <cstdint>

namespace weft::cpu {
namespace {

inline constexpr int kTileRows = 16;
inline constexpr int kTileWords = 16;  // of 32 bits in a row

/// The data that `ldtilecfg` reads.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// Instructions of all kinds of elements. The compilers' wrappers do not declare that a load reads memory.
struct AmxTiles {
  static void configure(const TileConfiguration& c) { asm volatile("ldtilecfg %0" : : "m"(c)); }
  static void release() { asm volatile("tilerelease"); }
  template <int kRegister>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kRegister));
  }
  template <int kRegister>
  static void load(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(kRegister) : "memory");
  }
  /// For what is read once: not kept in the first cache.
  template <int kRegister>
  static void load_once(const void* from, std::int64_t row_bytes) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(kRegister) : "memory");
  }
  template <int kRegister>
  static void store(void* to, std::int64_t row_bytes) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(kRegister) : "memory");
  }
};

}  // namespace
}  // namespace weft::cpu
