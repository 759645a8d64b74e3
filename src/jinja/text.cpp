#include "jinja/text.hpp"

#include <algorithm>

#include "base/utf8.hpp"
#include "jinja/unicode.hpp"

namespace weft::jinja {

bool Text::from_user_at(std::size_t position) const {
  const auto after = std::upper_bound(user.begin(), user.end(), position,
                                      [](std::size_t at, const ByteRange& range) { return at < range.begin; });
  return after != user.begin() && position < after[-1].end;
}

std::size_t byte_of_character(const Text& text, std::size_t character) {
  if (text.ascii() || character == 0) return character;
  if (character >= text.characters) return text.bytes.size();
  std::size_t at = 0;
  for (; character > 0; --character) at += decode(text.bytes, at).bytes;
  work(at / 1024);
  return at;
}

void TextBuilder::grow(std::size_t bytes) {
  charge_.add(bytes);
  work(bytes / 1024);
}

void TextBuilder::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!user_.empty() && user_.back().end == begin) {
    user_.back().end = end;
    return;
  }
  charge_.add(sizeof(ByteRange));
  user_.push_back({begin, end});
}

void TextBuilder::append(std::string_view bytes, bool from_user) {
  grow(bytes.size());
  if (from_user) mark(bytes_.size(), bytes_.size() + bytes.size());
  bytes_ += bytes;
}

void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
  grow(end - begin);
  put(text, begin, end);
}

void TextBuilder::put(const Text& text, std::size_t begin, std::size_t end) {
  const std::size_t start = bytes_.size();
  auto range = std::upper_bound(text.user.begin(), text.user.end(), begin,
                                [](std::size_t at, const ByteRange& r) { return at < r.end; });
  for (; range != text.user.end() && range->begin < end; ++range)
    mark(start + std::max(range->begin, begin) - begin, start + std::min(range->end, end) - begin);
  bytes_.append(text.bytes, begin, end - begin);
}

void TextBuilder::append(char32_t code_point, bool from_user) {
  const std::size_t start = bytes_.size();
  grow(1);
  append_utf8(bytes_, code_point);
  if (from_user) mark(start, bytes_.size());
}

void TextBuilder::repeat(const Text& text, std::size_t count) {
  if (text.bytes.empty()) return;
  // All memory is requested at once, so that too much is refused before any is used.
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(text.bytes.size(), count, &bytes)) bytes = SIZE_MAX / 2;
  grow(bytes);
  for (std::size_t i = 0; i < count; ++i) put(text, 0, text.bytes.size());
}

TextPointer TextBuilder::take(bool markup) {
  auto text = std::make_shared<Text>();
  text->charge.add(sizeof(Text) + bytes_.size() + user_.size() * sizeof(ByteRange));
  text->characters = count_characters(bytes_);
  text->bytes = std::move(bytes_);
  text->user = std::move(user_);
  text->markup = markup;
  bytes_.clear();
  user_.clear();
  return text;
}

TextPointer make_text(std::string_view bytes, bool from_user, bool markup) {
  TextBuilder builder;
  builder.append(bytes, from_user);
  return builder.take(markup);
}

TextPointer slice(const TextPointer& text, std::size_t begin, std::size_t end) {
  if (begin >= end) return make_text("", false, text->markup);
  if (begin == 0 && end == text->bytes.size()) return text;
  TextBuilder builder;
  builder.append(*text, begin, end);
  return builder.take(text->markup);
}

TextPointer with_markup(const TextPointer& text, bool markup) {
  if (text->markup == markup) return text;
  TextBuilder builder;
  builder.append(*text);
  return builder.take(markup);
}

}  // namespace weft::jinja
