// Texts of many lengths in passes of one.
#pragma once

#include <cstddef>
#include <vector>

#include "encoder/network.hpp"
#include "text/token.hpp"

namespace weft::encoder {

/// The tokens of a text, or of two, and of which of the two each is.
struct TokenText {
  std::vector<text::TokenId> tokens;
  std::vector<std::int32_t> types;
};

/// Texts that are computed together.
struct Pass {
  std::vector<std::size_t> texts;  ///< their numbers
  Extent length = 0;               ///< that all are filled up to
  Extent rows = 0;                 ///< texts with those that are empty, a power of two
};

/// All texts in passes of at most `tokens_max` tokens, if one text has no more. Texts of like lengths go together; lengths and rows
/// are rounded up, so that few plans are compiled. `length_max`: lengths are not rounded beyond.
std::vector<Pass> passes_of(const std::vector<TokenText>& texts, Extent tokens_max, Extent length_max);

/// The tensors of a pass on the device.
Padded padded(const Pass& pass, const std::vector<TokenText>& texts, bool with_types, Device device);

}  // namespace weft::encoder
