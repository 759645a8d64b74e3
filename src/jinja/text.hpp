// The strings of a render: UTF-8, with marks on bytes from user data, which every operation keeps.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/budget.hpp"

namespace weft::jinja {

/// Bytes [begin, end).
struct ByteRange {
  std::size_t begin, end;
};

/// An immutable string. Positions are bytes unless a name says characters.
struct Text {
  std::string bytes;
  std::vector<ByteRange> user;  // ranges from user data: sorted, neither empty nor adjacent
  bool markup = false;          // went through the filters safe or escape: Python's markupsafe.Markup
  std::size_t characters = 0;
  Charge charge;

  bool ascii() const { return characters == bytes.size(); }
  std::string_view view() const { return bytes; }
  bool from_user_at(std::size_t position) const;
};
using TextPointer = std::shared_ptr<const Text>;

/// Byte position of a character (at most `characters`).
std::size_t byte_of_character(const Text& text, std::size_t character);

/// Builds a Text. Refuses to grow over the budget.
class TextBuilder {
 public:
  void append(std::string_view bytes, bool from_user = false);
  void append(const Text& text) { append(text, 0, text.bytes.size()); }
  void append(const Text& text, std::size_t begin, std::size_t end);
  void append(char32_t code_point, bool from_user);
  /// `count` times.
  void repeat(const Text& text, std::size_t count);
  std::size_t size() const { return bytes_.size(); }
  TextPointer take(bool markup = false);
  /// The text so far, in pieces of one origin each.
  const std::string& bytes() const { return bytes_; }
  const std::vector<ByteRange>& user() const { return user_; }

 private:
  void mark(std::size_t begin, std::size_t end);
  void grow(std::size_t bytes);
  void put(const Text& text, std::size_t begin, std::size_t end);  // into memory that `grow` has reserved

  std::string bytes_;
  std::vector<ByteRange> user_;
  Charge charge_;
};

TextPointer make_text(std::string_view bytes, bool from_user = false, bool markup = false);
/// Bytes [begin, end) of `text`, markup if it is.
TextPointer slice(const TextPointer& text, std::size_t begin, std::size_t end);
TextPointer with_markup(const TextPointer& text, bool markup);

}  // namespace weft::jinja
