// The type of token ids.
#pragma once

#include <cstdint>

namespace weft::text {

using TokenId = std::int32_t;

inline constexpr TokenId kNoToken = -1;
inline constexpr TokenId kMaxTokenId = (1 << 22) - 1;  ///< ids index tables, so files may not choose them freely

}  // namespace weft::text
