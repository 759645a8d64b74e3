#include "text/byte_level.hpp"

#include <array>

#include "text/unicode.hpp"

namespace weft::text {
namespace {

constexpr int kCharacters = 0x144;  // the alphabet is below

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<short, kCharacters> byte{};

  constexpr Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[static_cast<std::size_t>(b)] = prints ? static_cast<char32_t>(b) : next++;
      byte[character[static_cast<std::size_t>(b)]] = static_cast<short>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t character_of_byte(unsigned char byte) { return kAlphabet.character[byte]; }

void append_as_characters(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) append_character(out, character_of_byte(static_cast<unsigned char>(byte)));
}

bool append_as_bytes(std::string& out, std::string_view characters) {
  for (const char *at = characters.data(), *end = at + characters.size(); at < end;) {
    const Character c = character_at(at);
    at += c.length;
    if (c.value >= kCharacters || kAlphabet.byte[c.value] < 0) return false;
    out.push_back(static_cast<char>(kAlphabet.byte[c.value]));
  }
  return true;
}

std::optional<std::string> bytes_of_characters(std::string_view characters) {
  std::string bytes;
  bytes.reserve(characters.size());
  if (!append_as_bytes(bytes, characters)) return std::nullopt;
  return bytes;
}

}  // namespace weft::text
