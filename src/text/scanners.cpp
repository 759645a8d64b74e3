#include "text/scanners.hpp"

#include "text/unicode.hpp"

namespace weft::text {
namespace {

// A text with the class of the character at any place. Places are pointers; `end` has the class 0.
struct Text {
  const CharacterTable& table;
  const char* end;

  struct At {
    std::uint32_t classes;
    unsigned length;
    char32_t value;
  };
  At operator[](const char* at) const {
    if (at >= end) return {0, 0, 0};
    const Character c = character_at(at);
    return {table[c.value], c.length, c.value};
  }
  // The end of the longest run of characters from `at` that have one of the classes `any` and none of `none`.
  const char* skip(const char* at, std::uint32_t any) const {
    while (at < end) {
      const Character c = character_at(at);
      if (!(table[c.value] & any)) break;
      at += c.length;
    }
    return at;
  }
  const char* skip_without(const char* at, std::uint32_t none) const {
    while (at < end) {
      const Character c = character_at(at);
      if (table[c.value] & none) break;
      at += c.length;
    }
    return at;
  }
  const char* skip_line_ends(const char* at) const {
    while (at < end && (*at == '\r' || *at == '\n')) ++at;
    return at;
  }
};

// 's 't 're 've 'm 'll 'd after an apostrophe at `at`: the end, or null.
const char* contraction(const Text& text, const char* at) {
  if (at + 1 >= text.end || *at != '\'') return nullptr;
  const char first = at[1], second = at + 2 < text.end ? at[2] : '\0';
  switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd': return at + 2;
    case 'r':
    case 'v': return second == 'e' ? at + 3 : nullptr;
    case 'l': return second == 'l' ? at + 3 : nullptr;
    default: return nullptr;
  }
}

// The same in capitals too; the long s is an s then.
const char* contraction_any_case(const Text& text, const char* at) {
  if (at + 1 >= text.end || *at != '\'') return nullptr;
  const auto lower = [&](const char* place) { return place < text.end ? static_cast<char>(*place | 0x20) : '\0'; };
  switch (lower(at + 1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return at + 2;
    case 'r':
    case 'v': return lower(at + 2) == 'e' ? at + 3 : nullptr;
    case 'l': return lower(at + 2) == 'l' ? at + 3 : nullptr;
    default: return text.end - at >= 3 && at[1] == '\xC5' && at[2] == '\xBF' ? at + 3 : nullptr;
  }
}

// \s+(?!\S)|\s+ on a run of spaces [at, stop): all of it at the end of the text, else all but its last character.
const char* spaces(const Text& text, const char* at, const char* stop) {
  if (stop == text.end) return stop;
  const char* last = stop - character_before(stop).length;
  return last > at ? last : stop;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ at a space.
const char* spaces_with_lines(const Text& text, const char* at) {
  const char* stop = text.skip(at, kSpace);
  for (const char* place = stop; place > at; --place)
    if (place[-1] == '\n' || place[-1] == '\r') return place;
  return spaces(text, at, stop);
}

// Each scanner gives the end of the match that begins at `at`, or null where there is none.

const char* match_gpt2(const Text& text, const char* at) {
  if (const char* stop = contraction(text, at)) return stop;
  const char* word = *at == ' ' ? at + 1 : at;
  const auto [classes, length, value] = text[word];
  if (classes & kLetter) return text.skip(word + length, kLetter);
  if (classes & kNumber) return text.skip(word + length, kNumber);
  if (length && !(classes & kSpace)) return text.skip_without(word + length, kSpace | kLetter | kNumber);
  return spaces(text, at, text.skip(at, kSpace));
}

template <int kDigits>
const char* match_numbers(const Text& text, const char* at) {
  for (int i = 0; i < kDigits; ++i) {
    const auto [classes, length, value] = text[at];
    if (!(classes & kNumber)) break;
    at += length;
  }
  return at;
}

template <int kDigits>
const char* match_llama3(const Text& text, const char* at) {
  if (const char* stop = contraction_any_case(text, at)) return stop;
  const auto [classes, length, value] = text[at];
  if (classes & kLetter) return text.skip(at + length, kLetter);
  if (classes & kNumber) return match_numbers<kDigits>(text, at);
  const auto [next_classes, next_length, next_value] = text[at + length];
  if (!(classes & kLineEnd) && (next_classes & kLetter)) return text.skip(at + length + next_length, kLetter);
  const char* stop = nullptr;
  if (!(classes & kSpace)) {
    stop = at + length;
  } else if (value == ' ' && next_length && !(next_classes & (kSpace | kNumber))) {
    stop = at + length + next_length;
  } else {
    return spaces_with_lines(text, at);
  }
  return text.skip_line_ends(text.skip_without(stop, kSpace | kLetter | kNumber));
}

// A word of o200k: capitals, then small letters, where marks and letters without case are both.
const char* match_cased_word(const Text& text, const char* at) {
  constexpr std::uint32_t kCapital = kUpper | kCaseless | kMark, kSmall = kLower | kCaseless | kMark;
  const auto with_contraction = [&](const char* stop) {
    const char* behind = contraction_any_case(text, stop);
    return behind ? behind : stop;
  };
  const auto [classes, length, value] = text[at];
  const bool prefixed = !(classes & (kLineEnd | kLetter | kNumber));
  // First alternative, with the optional character in front and then without: at least one small letter.
  for (int with = prefixed ? 1 : 0; with >= 0; --with) {
    const char* place = with ? at + length : at;
    const char* small = nullptr;  // after the last character of the run of capitals that can count as small
    for (;;) {
      const auto [c, n, v] = text[place];
      if (!(c & kCapital)) break;
      place += n;
      if (c & kSmall) small = place;
    }
    if (text[place].classes & kSmall) return with_contraction(text.skip(place, kSmall));
    if (small) return with_contraction(small);
  }
  for (int with = prefixed ? 1 : 0; with >= 0; --with) {
    const char* begin = with ? at + length : at;
    const char* place = text.skip(begin, kCapital);
    if (place > begin) return with_contraction(text.skip(place, kSmall));
  }
  return nullptr;
}

const char* match_o200k(const Text& text, const char* at) {
  if (const char* stop = match_cased_word(text, at)) return stop;
  const auto [classes, length, value] = text[at];
  if (classes & kNumber) return match_numbers<3>(text, at);
  const auto [next_classes, next_length, next_value] = text[at + length];
  const char* stop = nullptr;
  if (!(classes & kSpace)) {
    stop = at + length;
  } else if (value == ' ' && next_length && !(next_classes & (kSpace | kLetter | kNumber))) {
    stop = at + length + next_length;
  } else {
    return spaces_with_lines(text, at);
  }
  stop = text.skip_without(stop, kSpace | kLetter | kNumber);
  while (stop < text.end && (*stop == '\r' || *stop == '\n' || *stop == '/')) ++stop;
  return stop;
}

bool is_ascii_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

const char* match_deepseek(const Text& text, const char* at) {
  const auto [classes, length, value] = text[at];
  if (length == 1 && (classes & (kPunctuation | kSymbol)) && at + 1 < text.end && is_ascii_letter(at[1])) {
    const char* stop = at + 2;
    while (stop < text.end && is_ascii_letter(*stop)) ++stop;
    return stop;
  }
  if (classes & (kLetter | kMark)) return text.skip(at + length, kLetter | kMark);
  const auto [next_classes, next_length, next_value] = text[at + length];
  if (!(classes & (kLineEnd | kPunctuation | kSymbol)) && (next_classes & (kLetter | kMark)))
    return text.skip(at + length + next_length, kLetter | kMark);
  if ((classes & (kPunctuation | kSymbol)) || (value == ' ' && (next_classes & (kPunctuation | kSymbol))))
    return text.skip_line_ends(text.skip(at + length, kPunctuation | kSymbol));
  if (classes & kSpace) return spaces_with_lines(text, at);
  return nullptr;
}

const char* match_han(const Text& text, const char* at) {
  const char* stop = at;
  for (;;) {
    const auto [classes, length, c] = text[stop];
    if (!((c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF))) break;
    stop += length;
  }
  return stop > at ? stop : nullptr;
}

template <int kDigits>
const char* match_digits(const Text& text, const char* at) {
  const char* stop = match_numbers<kDigits>(text, at);
  return stop > at ? stop : nullptr;
}

template <const char* (*match)(const Text&, const char*)>
class Scanner final : public Pattern {
 public:
  void for_each(std::string_view text, OnMatch on_match) const override {
    const char* const begin = text.data();
    const Text source{table_, begin + text.size()};
    for (const char* at = begin; at < source.end;) {
      const char* stop = match(source, at);
      if (stop) {
        on_match(static_cast<std::size_t>(at - begin), static_cast<std::size_t>(stop - begin));
        at = stop;
      } else {
        at += character_at(at).length;
      }
    }
  }

 private:
  const CharacterTable& table_ = CharacterTable::get();
};

constexpr std::string_view kExpressions[] = {
    kGpt2Expression,        kLlama3Expression,   kQwen2Expression, kO200kExpression, kDeepSeekNumbersExpression,
    kDeepSeekHanExpression, kDeepSeekExpression, kDigitExpression};

}  // namespace

std::span<const std::string_view> scanned_expressions() { return kExpressions; }

std::unique_ptr<Pattern> make_scanner(std::string_view expression) {
  if (expression == kGpt2Expression) return std::make_unique<Scanner<match_gpt2>>();
  if (expression == kLlama3Expression) return std::make_unique<Scanner<match_llama3<3>>>();
  if (expression == kQwen2Expression) return std::make_unique<Scanner<match_llama3<1>>>();
  if (expression == kO200kExpression) return std::make_unique<Scanner<match_o200k>>();
  if (expression == kDeepSeekNumbersExpression) return std::make_unique<Scanner<match_digits<3>>>();
  if (expression == kDeepSeekHanExpression) return std::make_unique<Scanner<match_han>>();
  if (expression == kDeepSeekExpression) return std::make_unique<Scanner<match_deepseek>>();
  if (expression == kDigitExpression) return std::make_unique<Scanner<match_digits<1>>>();
  return nullptr;
}

}  // namespace weft::text
