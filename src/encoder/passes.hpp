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
  Extent rows = 0;                 ///< texts with those that are empty
};

/// What a device wants of passes.
struct PassNeeds {
  Extent tokens_max = 1;        ///< of a pass, unless one text has more
  Extent pass_tokens = 0;       ///< a pass takes as much time as so many tokens, besides its own
  Extent length_max = 1 << 30;  ///< lengths are not rounded beyond
};

/// All texts in passes, of the least time by `needs`. Texts of like lengths go together. Lengths are rounded up to multiples of an
/// eighth of the power of two below, and of 8; rows to powers of two or to one and a half of these: so few plans are compiled.
std::vector<Pass> passes_of(const std::vector<TokenText>& texts, const PassNeeds& needs);

/// What a length is rounded up to, at most to `most` unless it is more itself.
Extent rounded_length(Extent length, Extent most);

/// The tensors of a pass on the device.
Padded padded(const Pass& pass, const std::vector<TokenText>& texts, bool with_types, Device device);

}  // namespace weft::encoder
