#include "encoder/token_places.hpp"

#include <algorithm>
#include <string>

#include "base/utf8.hpp"
#include "text/normalization.hpp"
#include "text/normalizer.hpp"
#include "text/unicode.hpp"

namespace weft::encoder {
namespace {

using text::CharacterTable;

/// Bytes of the character at `at`, of a text that may be ill-formed.
std::size_t character_length(std::string_view text, std::size_t at) {
  return std::max<std::size_t>(utf8_sequence_length(text.substr(at)), 1);
}

std::uint32_t class_at(std::string_view text, std::size_t at) {
  if (utf8_sequence_length(text.substr(at)) == 0) return 0;
  return CharacterTable::get()[text::character_at(text.data() + at).value];
}

/// Characters decomposed, in lower case, without marks and white space.
std::string folded(std::string_view part) {
  if (find_invalid_utf8(part)) return std::string(part);
  std::string made;
  const std::string plain = text::lowercase(text::normalize(part, text::NormalizationForm::kNfkd));
  for (std::size_t at = 0; at < plain.size();) {
    const text::Character c = text::character_at(plain.data() + at);
    const std::uint32_t kind = CharacterTable::get()[c.value];
    at += c.length;
    if ((kind & (text::kMark | text::kSpace)) != 0) continue;
    append_utf8(made, c.value);
  }
  return made;
}

bool is_word(std::uint32_t kind) { return (kind & text::kWord) != 0; }

/// Behind the word that begins at `at`: as far as characters of words go, or one other character.
std::size_t end_of_word(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_word(class_at(text, end))) end += character_length(text, end);
  return end > at ? end : at + character_length(text, at);
}

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> places_of_tokens(const text::Tokenizer& tokenizer,
                                                                  std::string_view text,
                                                                  const std::vector<text::TokenId>& tokens) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  std::size_t at = 0;
  std::string pending;  // bytes of a character that several tokens make
  for (const text::TokenId token : tokens) {
    while (at < text.size() && pending.empty() && (class_at(text, at) & text::kSpace) != 0)
      at += character_length(text, at);
    pending += tokenizer.token_bytes(token);
    const bool is_part = find_invalid_utf8(pending).has_value() && pending.size() < 4;
    const std::string wanted = is_part ? "" : folded(pending);
    std::size_t end = at;
    std::string read;
    while (end < text.size() && read.size() < wanted.size()) {
      const std::size_t next = end + character_length(text, end);
      read += folded(text.substr(end, next - end));
      end = next;
    }
    if (read != wanted) end = at < text.size() ? end_of_word(text, at) : at;
    // Marks that were left out belong to the character before them.
    while (end > at && end < text.size() && (class_at(text, end) & text::kMark) != 0)
      end += character_length(text, end);
    places.emplace_back(at, end);
    at = end;
    if (!is_part) pending.clear();
  }
  return places;
}

std::pair<std::size_t, std::size_t> whole_words(std::string_view text, std::pair<std::size_t, std::size_t> place) {
  auto [begin, end] = place;
  const auto before = [&](std::size_t at) {
    std::size_t start = at - 1;
    while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0U) == 0x80U) --start;
    return start;
  };
  if (begin < text.size() && is_word(class_at(text, begin)))
    while (begin > 0 && is_word(class_at(text, before(begin)))) begin = before(begin);
  if (end > begin && is_word(class_at(text, before(end))))
    while (end < text.size() && is_word(class_at(text, end))) end += character_length(text, end);
  return {begin, end};
}

}  // namespace weft::encoder
