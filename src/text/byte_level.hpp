// The alphabet of byte-level tokenizers: a printable character for each byte; printable ASCII is itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::text {

/// The character of a byte: itself for ! to ~, U+00A1 to U+00AC and U+00AE to U+00FF, else U+0100 and on.
char32_t character_of_byte(unsigned char byte);

/// Appends `bytes` in the alphabet.
void append_as_characters(std::string& out, std::string_view bytes);

/// Appends the bytes that `characters` stand for; false, with some of them appended, if one is not of the alphabet.
bool append_as_bytes(std::string& out, std::string_view characters);
/// The bytes that `characters` stand for; nothing if one is not of the alphabet.
std::optional<std::string> bytes_of_characters(std::string_view characters);

}  // namespace weft::text
