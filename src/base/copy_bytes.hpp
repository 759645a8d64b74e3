// Copies of long ranges of bytes by several threads.
#pragma once

#include <cstddef>

namespace weft {

/// memcpy by the threads of this thread's session, where the range is long enough to gain from it: one core uses only a part
/// of the memory's bandwidth.
void copy_bytes(void* to, const void* from, std::size_t bytes);

}  // namespace weft
