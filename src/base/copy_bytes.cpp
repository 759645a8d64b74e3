#include "base/copy_bytes.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/threads.hpp"

namespace weft {

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  constexpr std::size_t kPart = 512 << 10;  // takes far longer than handing out a task
  if (bytes < 4 * kPart) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  parallel_for(static_cast<std::int64_t>((bytes + kPart - 1) / kPart), [&](std::int64_t part) {
    const std::size_t begin = static_cast<std::size_t>(part) * kPart;
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                std::min(kPart, bytes - begin));
  });
}

}  // namespace weft
