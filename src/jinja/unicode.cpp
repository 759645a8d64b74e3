#include "jinja/unicode.hpp"

#include <algorithm>

#include "jinja/unicode_table.hpp"

namespace weft::jinja {
namespace {

// The code point to which a table of stretches maps `c`, or 0 if it does not contain `c`.
char32_t mapped_by(std::span<const CaseStretch> stretches, char32_t c) {
  auto after = std::upper_bound(stretches.begin(), stretches.end(), c,
                                [](char32_t value, const CaseStretch& stretch) { return value < stretch.first; });
  // Stretches of step 2 may interleave, so the right one need not be the last that begins before `c`.
  for (int tries = 0; after != stretches.begin() && tries < 4; ++tries) {
    --after;
    if (c <= after->last && (c - after->first) % after->step == 0)
      return static_cast<char32_t>(static_cast<std::int64_t>(c) + after->delta);
  }
  return 0;
}

const SpecialCase* special_case(char32_t c) {
  const auto table = special_cases();
  const auto found = std::lower_bound(table.begin(), table.end(), c,
                                      [](const SpecialCase& row, char32_t value) { return row.code_point < value; });
  return found != table.end() && found->code_point == c ? &*found : nullptr;
}

Mapped mapped(std::uint32_t a, std::uint32_t b = 0, std::uint32_t c = 0) {
  return {{a, b, c}, 1 + (b != 0) + (c != 0)};
}

}  // namespace

std::uint16_t flags_of(char32_t c) {
  const auto runs = property_runs();
  const auto after = std::upper_bound(runs.begin(), runs.end(), c,
                                      [](char32_t value, const PropertyRun& run) { return value < run.first; });
  return after[-1].flags;  // the first run begins at 0
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

Mapped to_upper(char32_t c) {
  if (c < 0x80) return mapped(c >= 'a' && c <= 'z' ? c - 32 : c);
  if (const SpecialCase* special = special_case(c)) return mapped(special->upper0, special->upper1, special->upper2);
  const char32_t upper = mapped_by(upper_stretches(), c);
  return mapped(upper ? upper : c);
}
Mapped to_lower(char32_t c) {
  if (c < 0x80) return mapped(c >= 'A' && c <= 'Z' ? c + 32 : c);
  if (const SpecialCase* special = special_case(c)) return mapped(special->lower0, special->lower1, special->lower2);
  const char32_t lower = mapped_by(lower_stretches(), c);
  return mapped(lower ? lower : c);
}
Mapped to_title(char32_t c) {
  if (c < 0x80) return to_upper(c);
  if (const SpecialCase* special = special_case(c)) return mapped(special->title0, special->title1, special->title2);
  const char32_t title = mapped_by(title_stretches(), c);
  return title ? mapped(title) : to_upper(c);
}

Decoded decode(std::string_view text, std::size_t position) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const auto tail = [&](std::size_t i) { return static_cast<char32_t>(byte(i) & 0x3F); };
  if (first < 0xE0) return {(first & 0x1F) << 6 | tail(1), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | tail(1) << 6 | tail(2), 3};
  return {(first & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

std::size_t previous(std::string_view text, std::size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace weft::jinja
