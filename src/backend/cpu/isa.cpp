// Run-time choice of the instruction set.
#include "backend/cpu/isa.hpp"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "weft/error.hpp"

namespace weft::cpu {
namespace {

constexpr Isa kAll[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};

Isa isa_from_environment() {
  const char* text = std::getenv("WEFT_CPU_ISA");
  if (text == nullptr || *text == '\0') return best_isa();
  for (const Isa isa : kAll) {
    if (std::string_view(text) != name(isa)) continue;
    if (isa > best_isa())
      throw UsageError(
          fmt::format("WEFT_CPU_ISA: this processor does not run {}; its best is {}", text, name(best_isa())));
    return isa;
  }
  throw UsageError(
      fmt::format("WEFT_CPU_ISA: '{}' is not baseline, avx2, avx512, avx512_bf16 or amx; unset it for the best", text));
}

#if defined(__x86_64__)
/// Tiles are 8 KiB of state for each thread: Linux grants them once to a process that asks, for all its threads.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr unsigned kNeeded = 1u << 22 | 1u << 24 | 1u << 25;  // bf16, tiles, 8-bit integers
  constexpr unsigned kSavedState = 3u << 17;                    // the operating system keeps a thread's tiles
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kNeeded) != kNeeded) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kSavedState) == kSavedState && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
#endif

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa = isa_from_environment();
  return isa;
}

}  // namespace

Isa best_isa() {
#if defined(__x86_64__)
  static const Isa best = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
      return Isa::baseline;
    for (const bool has : {__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx512dq") != 0,
                           __builtin_cpu_supports("avx512bw") != 0, __builtin_cpu_supports("avx512vl") != 0})
      if (!has) return Isa::avx2;
    if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512bf16")) return Isa::avx512;
    return may_use_tiles() ? Isa::amx : Isa::avx512_bf16;
  }();
  return best;
#else
  return Isa::baseline;
#endif
}

Isa isa() { return chosen().load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
  if (isa > best_isa())
    throw UsageError(
        fmt::format("set_isa: this processor does not run {}; its best is {}", name(isa), name(best_isa())));
  chosen().store(isa, std::memory_order_relaxed);
}

const char* name(Isa isa) {
  switch (isa) {
    case Isa::baseline: return "baseline";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
    case Isa::amx: return "amx";
  }
  return "unknown";
}

}  // namespace weft::cpu
