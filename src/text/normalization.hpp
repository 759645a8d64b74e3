// The normalization forms of Unicode (UAX 15), in linear time.
#pragma once

#include <string>
#include <string_view>

namespace weft::text {

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

/// `text`, which must be UTF-8, in the form. Only the neighbourhoods of characters that may change are worked on.
std::string normalize(std::string_view text, NormalizationForm form);

}  // namespace weft::text
