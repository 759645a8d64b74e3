// What differs for tests that measure time or memory when the build runs under a sanitizer.
#pragma once

#include <cstddef>

namespace weft::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// How many times as long a limit of time is: instrumented code takes about ten times as long, hash tables more.
inline constexpr int kSlowdown = kSanitized ? 20 : 1;
/// Freed memory that a sanitizer keeps for a while, to find its uses, and what it knows of other memory: bytes.
inline constexpr std::size_t kFreedMemoryKept = kSanitized ? std::size_t{300} << 20 : 0;

}  // namespace weft::test
