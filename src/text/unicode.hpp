// Characters: their classes, UTF-8 that is known to be well-formed, and the repair of UTF-8 that is not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace weft::text {

/// Bits of the class of a character; general categories in the names of the Unicode standard.
enum CharacterClass : std::uint32_t {
  kLetter = 1 << 0,        // L
  kNumber = 1 << 1,        // N
  kSpace = 1 << 2,         // the property White_Space
  kMark = 1 << 3,          // M
  kPunctuation = 1 << 4,   // P
  kSymbol = 1 << 5,        // S
  kUpper = 1 << 6,         // Lu, Lt
  kLower = 1 << 7,         // Ll
  kCaseless = 1 << 8,      // Lm, Lo
  kLineEnd = 1 << 9,       // \r, \n
  kWord = 1 << 10,         // \w of UTS 18: alphabetic, M, Nd, Pc, joiners
  kOther = 1 << 11,        // Cc, Cf, Co
  kNonspacing = 1 << 12,   // Mn
  kUnstableNfd = 1 << 13,  // a text with none of these is in the form already
  kUnstableNfc = 1 << 14,
  kUnstableNfkd = 1 << 15,
  kUnstableNfkc = 1 << 16,
};

/// Classes of all characters; made once, 4 ms. `table[c]` for any c up to U+10FFFF.
class CharacterTable {
 public:
  static const CharacterTable& get();
  std::uint32_t operator[](char32_t c) const { return values_[(std::size_t{pages_[c >> 8]} << 8) | (c & 0xFF)]; }

 private:
  CharacterTable();
  std::uint16_t pages_[0x1100];
  std::unique_ptr<std::uint32_t[]> values_;
};

/// A character and its bytes.
struct Character {
  char32_t value;
  unsigned length;
};

/// The character at `at`, which must begin one of a well-formed text.
inline Character character_at(const char* at) {
  const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F), 3};
  return {((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) | (byte(3) & 0x3F), 4};
}

/// The character that ends just before `end`, in a well-formed text that begins at or before it.
inline Character character_before(const char* end) {
  const char* at = end - 1;
  while ((static_cast<unsigned char>(*at) & 0xC0) == 0x80) --at;
  return character_at(at);
}

/// Appends a character; like `append_utf8` without the check.
void append_character(std::string& out, char32_t c);

/// Bytes before the first that is not ASCII.
std::size_t ascii_length(std::string_view text);

/// Appends `text` with U+FFFD instead of each ill-formed part (the longest start of a sequence that could have
/// become well-formed, else one byte), as the Unicode standard recommends.
void append_repaired(std::string& out, std::string_view text);

/// Bytes at the end of `text` that begin a sequence which more bytes could complete: 0 to 3.
std::size_t incomplete_tail(std::string_view text);

}  // namespace weft::text
