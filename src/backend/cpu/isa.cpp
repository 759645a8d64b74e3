// Run-time choice of the instruction set.
#include "backend/cpu/isa.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fmt/format.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "weft/error.hpp"

namespace weft::cpu {
namespace {

#if defined(__aarch64__)
constexpr Isa kAll[] = {Isa::baseline, Isa::neon_dot, Isa::neon_bf16};
#elif defined(__x86_64__)
constexpr Isa kAll[] = {Isa::baseline, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx};
#else
constexpr Isa kAll[] = {Isa::baseline};
#endif

std::string names() {
  std::string all;
  for (const Isa isa : kAll)
    all += fmt::format("{}{}", all.empty() ? "" : isa == std::end(kAll)[-1] ? " or " : ", ", name(isa));
  return all;
}

Isa isa_from_environment() {
  const char* text = std::getenv("WEFT_CPU_ISA");
  if (text == nullptr || *text == '\0') return best_isa();
  for (const Isa isa : kAll) {
    if (std::string_view(text) != name(isa)) continue;
    if (!runs(isa))
      throw UsageError(
          fmt::format("WEFT_CPU_ISA: this processor does not run {}; its best is {}", text, name(best_isa())));
    return isa;
  }
  throw UsageError(fmt::format("WEFT_CPU_ISA: '{}' is not {}; unset it for the best", text, names()));
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
#elif defined(__aarch64__) && defined(__linux__)
  static const Isa best = [] {
    constexpr unsigned long kDotProducts = 1ul << 20, kBf16 = 1ul << 14;  // HWCAP_ASIMDDP, HWCAP2_BF16
    if ((getauxval(AT_HWCAP) & kDotProducts) == 0) return Isa::baseline;
    return (getauxval(AT_HWCAP2) & kBf16) == 0 ? Isa::neon_dot : Isa::neon_bf16;
  }();
  return best;
#else
  return Isa::baseline;
#endif
}

bool runs(Isa isa) { return isa <= best_isa() && std::ranges::find(kAll, isa) != std::end(kAll); }

Isa isa() { return chosen().load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
  if (!runs(isa))
    throw UsageError(
        fmt::format("set_isa: this processor does not run {}; its best is {}", name(isa), name(best_isa())));
  chosen().store(isa, std::memory_order_relaxed);
}

const char* name(Isa isa) {
  switch (isa) {
    case Isa::baseline: return "baseline";
    case Isa::neon_dot: return "neon_dot";
    case Isa::neon_bf16: return "neon_bf16";
    case Isa::avx2: return "avx2";
    case Isa::avx512: return "avx512";
    case Isa::avx512_bf16: return "avx512_bf16";
    case Isa::amx: return "amx";
  }
  return "unknown";
}

}  // namespace weft::cpu
