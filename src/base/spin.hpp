// Waits for a short time without giving up the processor.
#pragma once

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft {

inline void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until `done()` is true, or for about `limit`; returns whether `done()` became true.
template <class Done>
bool spin_until(std::chrono::steady_clock::duration limit, Done done) {
  constexpr int kLooksPerClock = 32;
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int look = 0; look < kLooksPerClock; ++look) {
      if (done()) return true;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() - start < limit);
  return done();
}

}  // namespace weft
