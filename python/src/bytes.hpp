// Bytes of Python and bytes in memory.
#pragma once

#include <cstddef>
#include <span>

#include "handle.hpp"

namespace weft::python {

inline nb::bytes bytes_of_span(std::span<const std::byte> bytes) { return nb::bytes(bytes.data(), bytes.size()); }
/// Valid as long as the object.
inline std::span<const std::byte> span_of_bytes(const nb::bytes& bytes) {
  return {reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size()};
}

}  // namespace weft::python
