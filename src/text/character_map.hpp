// The normalizer that SentencePiece models carry: a double array that maps pieces of text, with the texts they become.
#pragma once

#include <string_view>

#include "text/normalizer.hpp"

namespace weft::text {

/// `bytes` as SentencePiece stores them: u32 size of the trie in bytes, the trie, the texts with a NUL after each.
/// UsageError if they are damaged.
NormalizerPtr make_character_map(std::string_view bytes);

/// The bytes of standard base64. UsageError if `text` is not base64.
std::string decode_base64(std::string_view text);

}  // namespace weft::text
