// How much memory the host has left.
#pragma once

#include <cstdint>

namespace weft::llm {

/// Bytes of memory that are free, as far as the system tells, within the limits of the process and of its container; else no
/// limit.
std::uint64_t free_memory();

}  // namespace weft::llm
