#include "text/unicode.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "base/utf8.hpp"

namespace weft::text {
namespace {

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Letters in circles and squares are alphabetic although their category is So.
bool is_alphabetic_symbol(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

bool recomposes(char32_t c) {
  utf8proc_int32_t parts[8];
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 8, UTF8PROC_DECOMPOSE, nullptr);
  if (count < 0 || count > 8) return false;
  const auto composed =
      utf8proc_normalize_utf32(parts, count, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  return composed == 1 && parts[0] == static_cast<utf8proc_int32_t>(c);
}

// Whether NFKD takes more of it apart than NFD.
bool has_compatible_parts(char32_t c) {
  utf8proc_int32_t parts[32], compatible[32];
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, UTF8PROC_DECOMPOSE, nullptr);
  const auto all =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), compatible, 32,
                              static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT), nullptr);
  return count != all || count < 0 || count > 32 || !std::equal(parts, parts + count, compatible);
}

std::uint32_t stability_of(char32_t c, const utf8proc_property_t& property) {
  std::uint32_t bits = 0;
  if (property.combining_class != 0) bits |= kUnstableNfd | kUnstableNfc | kUnstableNfkd | kUnstableNfkc;
  if (property.decomp_seqindex != UINT16_MAX) {
    if (property.decomp_type == 0) {
      bits |= kUnstableNfd | kUnstableNfkd;
      if (!recomposes(c)) bits |= kUnstableNfc | kUnstableNfkc;
      if (has_compatible_parts(c)) bits |= kUnstableNfkc;
    } else {
      bits |= kUnstableNfkd | kUnstableNfkc;
    }
  }
  if (property.comb_index != UINT16_MAX && property.comb_index >= 0x8000) bits |= kUnstableNfc | kUnstableNfkc;
  if (c >= 0xAC00 && c <= 0xD7A3) bits |= kUnstableNfd | kUnstableNfkd;  // Hangul syllables
  if ((c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2))
    bits |= kUnstableNfc | kUnstableNfkc;  // their parts
  return bits;
}

std::uint32_t classes_of(char32_t c) {
  const utf8proc_property_t& property = *utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  std::uint32_t bits = stability_of(c, property);
  switch (property.category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT: bits |= kLetter | kUpper | kWord; break;
    case UTF8PROC_CATEGORY_LL: bits |= kLetter | kLower | kWord; break;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: bits |= kLetter | kCaseless | kWord; break;
    case UTF8PROC_CATEGORY_MN: bits |= kMark | kNonspacing | kWord; break;
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: bits |= kMark | kWord; break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL: bits |= kNumber | kWord; break;
    case UTF8PROC_CATEGORY_NO: bits |= kNumber; break;
    case UTF8PROC_CATEGORY_PC: bits |= kPunctuation | kWord; break;
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: bits |= kPunctuation; break;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: bits |= kSymbol; break;
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: bits |= kOther; break;
    default: break;
  }
  if (is_space(c)) bits |= kSpace;
  if (c == '\r' || c == '\n') bits |= kLineEnd;
  if (is_alphabetic_symbol(c) || c == 0x200C || c == 0x200D) bits |= kWord;
  return bits;
}

// Length of the longest start of `text` that begins a well-formed sequence without being one; 1 for a byte that begins none.
std::size_t ill_formed_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  const std::size_t whole = lead >= 0xF0 && lead <= 0xF4  ? 4
                            : lead >= 0xE0 && lead < 0xF0 ? 3
                            : lead >= 0xC2 && lead < 0xE0 ? 2
                                                          : 1;
  std::size_t length = 1;
  while (length < whole && length < text.size()) {
    unsigned low = 0x80, high = 0xBF;
    if (length == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(length) < low || byte(length) > high) break;
    ++length;
  }
  return length;
}

}  // namespace

CharacterTable::CharacterTable() {
  std::vector<std::uint32_t> values;
  std::map<std::vector<std::uint32_t>, std::uint16_t> known;
  std::vector<std::uint32_t> page(256);
  std::uint16_t unassigned = 0;
  for (char32_t p = 0; p < 0x1100; ++p) {
    if (p == 0x401) unassigned = pages_[0x400];  // planes 4 to 13 hold nothing
    if (p > 0x400 && p < 0xE00) {
      pages_[p] = unassigned;
      continue;
    }
    for (char32_t i = 0; i < 256; ++i) page[i] = classes_of((p << 8) | i);
    const auto [at, added] = known.emplace(page, static_cast<std::uint16_t>(known.size()));
    if (added) values.insert(values.end(), page.begin(), page.end());
    pages_[p] = at->second;
  }
  values_ = std::make_unique<std::uint32_t[]>(values.size());
  std::copy(values.begin(), values.end(), values_.get());
}

const CharacterTable& CharacterTable::get() {
  static const CharacterTable table;
  return table;
}

void append_character(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else {
    append_utf8(out, c);
  }
}

std::size_t ascii_length(std::string_view text) {
  std::size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + at, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

void append_repaired(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const std::size_t good = find_invalid_utf8(text).value_or(text.size());
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return;
    out.append("\xEF\xBF\xBD");
    text.remove_prefix(ill_formed_length(text));
  }
}

std::size_t incomplete_tail(std::string_view text) {
  for (std::size_t length = 1; length <= 3 && length <= text.size(); ++length) {
    const std::string_view tail = text.substr(text.size() - length);
    const auto lead = static_cast<unsigned char>(tail[0]);
    if ((lead & 0xC0) == 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4 || utf8_sequence_length(tail) != 0) return 0;
    const std::size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    return length < whole && ill_formed_length(tail) == length ? length : 0;
  }
  return 0;
}

}  // namespace weft::text
