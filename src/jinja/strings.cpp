// String functions of Python that several filters and methods share. They keep the marks of user data.
#include <algorithm>
#include <cstring>
#include <set>

#include "jinja/arguments.hpp"
#include "jinja/library.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {
namespace {

void append_mapped(const Mapped& mapped, bool from_user, TextBuilder& out) {
  for (int i = 0; i < mapped.count; ++i) out.append(mapped.code_points[i], from_user);
}

constexpr char32_t kSigma = 0x3A3, kSmallSigma = 0x3C3, kFinalSigma = 0x3C2;

// Whether a capital sigma at `at` is final: after a cased letter, and not before one; some characters are ignored.
bool is_final_sigma(const std::string& bytes, std::size_t begin, std::size_t at, std::size_t end) {
  bool letter_before = false;
  for (std::size_t i = at; i > begin;) {
    i = previous(bytes, i);
    const auto flags = flags_of(decode(bytes, i).code_point);
    if (flags & kIgnoredBySigma) continue;
    letter_before = flags & kCased;
    break;
  }
  if (!letter_before) return false;
  for (std::size_t i = at + decode(bytes, at).bytes; i < end; i += decode(bytes, i).bytes) {
    const auto flags = flags_of(decode(bytes, i).code_point);
    if (flags & kIgnoredBySigma) continue;
    return !(flags & kCased);
  }
  return true;
}

void append_lower_character(const Text& text, std::size_t begin, std::size_t at, std::size_t end, TextBuilder& out) {
  const char32_t c = decode(text.bytes, at).code_point;
  if (c == kSigma) {
    out.append(is_final_sigma(text.bytes, begin, at, end) ? kFinalSigma : kSmallSigma, text.from_user_at(at));
  } else {
    append_mapped(to_lower(c), text.from_user_at(at), out);
  }
}

}  // namespace

void append_lower(const Text& text, std::size_t begin, std::size_t end, TextBuilder& out) {
  for (std::size_t at = begin; at < end; at += decode(text.bytes, at).bytes)
    append_lower_character(text, begin, at, end, out);
}

void append_upper(const Text& text, std::size_t begin, std::size_t end, TextBuilder& out) {
  for (std::size_t at = begin; at < end;) {
    const auto [c, bytes] = decode(text.bytes, at);
    append_mapped(to_upper(c), text.from_user_at(at), out);
    at += bytes;
  }
}

void append_title(const Text& text, TextBuilder& out) {
  bool inside_word = false;
  for (std::size_t at = 0; at < text.bytes.size();) {
    const auto [c, bytes] = decode(text.bytes, at);
    if (inside_word) {
      append_lower_character(text, 0, at, text.bytes.size(), out);
    } else {
      append_mapped(to_title(c), text.from_user_at(at), out);
    }
    inside_word = flags_of(c) & kCased;
    at += bytes;
  }
}

void append_capitalized(const Text& text, TextBuilder& out) {
  if (text.bytes.empty()) return;
  const auto [c, bytes] = decode(text.bytes, 0);
  append_mapped(to_title(c), text.from_user_at(0), out);
  for (std::size_t at = bytes; at < text.bytes.size(); at += decode(text.bytes, at).bytes)
    append_lower_character(text, 0, at, text.bytes.size(), out);
}

TextPointer lowered(const TextPointer& text) {
  TextBuilder out;
  append_lower(*text, 0, text->bytes.size(), out);
  return out.take(text->markup);
}

std::vector<TextPointer> lines_of(const TextPointer& text, bool keep_ends) {
  std::vector<TextPointer> lines;
  const std::string& bytes = text->bytes;
  for (std::size_t begin = 0; begin < bytes.size();) {
    std::size_t end = begin;
    while (end < bytes.size() && !is_line_end(decode(bytes, end).code_point)) end += decode(bytes, end).bytes;
    std::size_t next = end;
    if (end < bytes.size()) next += bytes.compare(end, 2, "\r\n") == 0 ? 2 : decode(bytes, end).bytes;
    lines.push_back(slice(text, begin, keep_ends ? next : end));
    begin = next;
  }
  return lines;
}

TextPointer stripped(const TextPointer& text, const Text* characters, bool at_front, bool at_back) {
  std::set<char32_t> wanted;
  if (characters)
    for (std::size_t at = 0; at < characters->bytes.size(); at += decode(characters->bytes, at).bytes)
      wanted.insert(decode(characters->bytes, at).code_point);
  const auto goes = [&](char32_t c) { return characters ? wanted.contains(c) : is_space(c); };
  const std::string& bytes = text->bytes;
  std::size_t begin = 0, end = bytes.size();
  while (at_front && begin < end && goes(decode(bytes, begin).code_point)) begin += decode(bytes, begin).bytes;
  while (at_back && end > begin && goes(decode(bytes, previous(bytes, end)).code_point)) end = previous(bytes, end);
  return slice(text, begin, end);
}

TextPointer replaced(const TextPointer& text, const Text& before, const Text& after, std::int64_t count) {
  TextBuilder out;
  const std::string& bytes = text->bytes;
  std::size_t at = 0;
  if (before.bytes.empty()) {
    // `after` goes before every character, and after the last one.
    for (; count != 0; --count) {
      work();
      out.append(after);
      if (at == bytes.size()) break;
      const std::size_t end = at + decode(bytes, at).bytes;
      out.append(*text, at, end);
      at = end;
    }
  } else {
    for (; count != 0; --count) {
      work();
      const void* found = memmem(bytes.data() + at, bytes.size() - at, before.bytes.data(), before.bytes.size());
      if (!found) break;
      const auto begin = static_cast<std::size_t>(static_cast<const char*>(found) - bytes.data());
      out.append(*text, at, begin);
      out.append(after);
      at = begin + before.bytes.size();
    }
  }
  out.append(*text, at, bytes.size());
  return out.take(text->markup);
}

TextPointer joined(const Text& separator, const std::vector<TextPointer>& parts) {
  TextBuilder out;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(*parts[i]);
  }
  return out.take(separator.markup);
}

TextPointer padded(const TextPointer& text, std::int64_t width, const Text& fill, Side side) {
  if (fill.characters != 1) fail("the fill is not one character long", "give one character");
  const auto length = static_cast<std::int64_t>(text->characters);
  if (width <= length) return text;
  const std::int64_t padding = width - length;
  // An odd space goes to the same side as in Python.
  const std::int64_t front = side == Side::left    ? padding
                             : side == Side::right ? 0
                                                   : padding / 2 + (padding & width & 1);
  TextBuilder out;
  out.repeat(fill, static_cast<std::size_t>(front));
  out.append(*text);
  out.repeat(fill, static_cast<std::size_t>(padding - front));
  return out.take(text->markup);
}

}  // namespace weft::jinja
