// The largest batch that memory has room for.
#pragma once

#include <cstdint>
#include <functional>

#include "weft/shape.hpp"

namespace weft::train {

/// The most rows whose plans take at most `room` bytes; 0: none. `bytes` plans a number of rows, and `of_rows` is what it gives for `rows`.
Extent most_rows(const std::function<std::uint64_t(Extent)>& bytes, Extent rows, std::uint64_t of_rows,
                 std::uint64_t room);

}  // namespace weft::train
