#include "base/utf8.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "weft/error.hpp"

namespace weft {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) { return static_cast<unsigned char>(text[at]); }

bool continues(std::string_view text, std::size_t at, unsigned low = 0x80, unsigned high = 0xBF) {
  return at < text.size() && byte_at(text, at) >= low && byte_at(text, at) <= high;
}

/// Length of the ASCII run at the start, in steps of eight bytes.
std::size_t ascii_prefix(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
  }
  return at;
}

char32_t code_point_of(std::string_view sequence) {
  const unsigned lead = byte_at(sequence, 0);
  if (sequence.size() == 1) return lead;
  char32_t value = lead & (0x7Fu >> sequence.size());
  for (std::size_t i = 1; i < sequence.size(); ++i) value = (value << 6) | (byte_at(sequence, i) & 0x3Fu);
  return value;
}

}  // namespace

// The table of well-formed sequences is table 3-7 of the Unicode standard.
std::size_t utf8_sequence_length(std::string_view text) {
  if (text.empty()) return 0;
  const unsigned lead = byte_at(text, 0);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return continues(text, 1) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80, high = lead == 0xED ? 0x9F : 0xBF;
    return continues(text, 1, low, high) && continues(text, 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80, high = lead == 0xF4 ? 0x8F : 0xBF;
    return continues(text, 1, low, high) && continues(text, 2) && continues(text, 3) ? 4 : 0;
  }
  return 0;
}

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (byte_at(text, at) < 0x80) {
      const std::size_t run = ascii_prefix(text.substr(at));
      at += run ? run : 1;
      continue;
    }
    const std::size_t length = utf8_sequence_length(text.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

void require_utf8(std::string_view text, std::string_view source) {
  const auto at = find_invalid_utf8(text);
  if (!at) return;
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*at), '\n');
  // By its mark at the begin, or the zero bytes of its ASCII characters.
  const bool is_wide = text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") ||
                       text.substr(0, 256).find('\0') != std::string_view::npos;
  throw FileError(
      fmt::format("{}: byte {} (0x{:02x}, line {}) is not UTF-8; convert the text first, for example with "
                  "iconv -f {} -t utf-8",
                  source, *at, byte_at(text, *at), line, is_wide ? "utf-16" : "latin1"));
}

std::u32string decode_utf8(std::string_view text, std::string_view source) {
  require_utf8(text, source);
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_sequence_length(text.substr(at));
    out.push_back(code_point_of(text.substr(at, length)));
    at += length;
  }
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
    throw UsageError(
        fmt::format("U+{:04X} is not a Unicode scalar value; UTF-8 holds U+0000 to U+10FFFF without the "
                    "surrogates U+D800 to U+DFFF",
                    static_cast<std::uint32_t>(c)));
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

std::string encode_utf8(std::u32string_view code_points) {
  std::string out;
  for (const char32_t c : code_points) append_utf8(out, c);
  return out;
}

}  // namespace weft
