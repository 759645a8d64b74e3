// Run-time choice of the instruction set.
#include "backend/cpu/isa.hpp"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::cpu {
namespace {

constexpr Isa kAll[] = {Isa::baseline, Isa::avx2, Isa::avx512};

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
  throw UsageError(fmt::format("WEFT_CPU_ISA: '{}' is not baseline, avx2 or avx512; unset it for the best", text));
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa = isa_from_environment();
  return isa;
}

}  // namespace

Isa best_isa() {
#if defined(__x86_64__)
  static const Isa best = [] {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::baseline;
    for (const bool has : {__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx512dq") != 0,
                           __builtin_cpu_supports("avx512bw") != 0, __builtin_cpu_supports("avx512vl") != 0})
      if (!has) return Isa::avx2;
    return Isa::avx512;
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
  }
  return "unknown";
}

}  // namespace weft::cpu
