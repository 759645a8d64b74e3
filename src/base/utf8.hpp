// Strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// Bytes of the well-formed sequence that `text` begins with (1 to 4), or 0 if there is none.
std::size_t utf8_sequence_length(std::string_view text);

/// Position of the first byte that does not begin a well-formed sequence, if there is one.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

/// Throws FileError that names `source`, the byte position and its line unless `text` is UTF-8.
void require_utf8(std::string_view text, std::string_view source);

/// Code points of `text`. FileError, as `require_utf8`, if it is not UTF-8.
std::u32string decode_utf8(std::string_view text, std::string_view source = "text");

/// Appends one code point. UsageError for a surrogate or a value above U+10FFFF.
void append_utf8(std::string& out, char32_t code_point);
/// UTF-8 of `code_points`. Errors as `append_utf8`.
std::string encode_utf8(std::u32string_view code_points);

}  // namespace weft
