// Damage done to small files: every truncation and every flipped bit, or a spread of them where time is short; and a
// limit on memory, so that a size that a file only claims is seen when somebody believes it.
#pragma once

#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/sanitized.hpp"

namespace weft::test {

/// Whether the long tier runs: all mutations, not a spread of them.
inline bool every_mutation() { return std::getenv("WEFT_TEST_EVERY_MUTATION") != nullptr; }

/// Visits truncations of bytes [0, end) and flips of each of their bits: visit(mutated, what). All of them in the long
/// tier, otherwise about `few` of each, other bits of other bytes.
template <class Visit>
void for_each_mutation(const std::string& good, std::size_t end, std::size_t few, const Visit& visit) {
  const auto step = [&](std::size_t count) {
    const std::size_t wanted = every_mutation() || count <= few ? 1 : count / few;
    return wanted > 1 && wanted % 2 == 0 ? wanted + 1 : wanted;  // odd: bits of every weight are met
  };
  for (std::size_t length = 0; length < end; length += step(end))
    visit(good.substr(0, length), "cut at byte " + std::to_string(length));
  std::string mutated = good;
  for (std::size_t bit = 0; bit < 8 * end; bit += step(8 * end)) {
    const char flip = static_cast<char>(1 << bit % 8);
    mutated[bit / 8] = static_cast<char>(mutated[bit / 8] ^ flip);
    visit(mutated, "bit " + std::to_string(bit % 8) + " of byte " + std::to_string(bit / 8));
    mutated[bit / 8] = static_cast<char>(mutated[bit / 8] ^ flip);
  }
}

/// While it lives the process gets no more than so much memory beyond what it has. Sanitizers need the address space for
/// themselves; script/test --sanitize limits single allocations instead.
class MemoryLimit {
 public:
  explicit MemoryLimit(std::size_t bytes) {
    if (kSanitized) return;
    std::size_t pages = 0;
    if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
      if (std::fscanf(file, "%zu", &pages) != 1) pages = 0;
      std::fclose(file);
    }
    if (pages == 0 || getrlimit(RLIMIT_AS, &before_) != 0) return;
    rlimit now = before_;
    now.rlim_cur = pages * 4096 + bytes;
    limited_ = setrlimit(RLIMIT_AS, &now) == 0;
  }
  ~MemoryLimit() {
    if (limited_) setrlimit(RLIMIT_AS, &before_);
  }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
  bool limited_ = false;
};

}  // namespace weft::test
