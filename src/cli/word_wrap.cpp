#include "cli/word_wrap.hpp"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "base/utf8.hpp"

namespace weft::cli {
namespace {

/// Columns of a character: two for most East Asian characters and emoji, none for combining marks.
int width_of(std::string_view character) {
  utf8proc_int32_t code = 0;
  const auto read = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(character.data()),
                                     static_cast<utf8proc_ssize_t>(character.size()), &code);
  return read > 0 ? utf8proc_charwidth(code) : 1;
}

}  // namespace

std::string WordWrap::put(std::string_view piece) {
  // A full line would leave the cursor between two lines.
  const int limit = std::max(columns_() - 1, 4);
  std::string out;
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_sequence_length(piece.substr(at)), 1);
    const std::string_view character = piece.substr(at, length);
    at += length;
    if (character == "\n") {
      out += '\n';
      restart();
    } else if (character == "\t") {
      for (int stop = (column_ / 8 + 1) * 8; column_ < stop;) {
        const int before = column_;
        put_character(" ", 1, limit, out);
        if (column_ <= before) break;  // the line has ended
      }
    } else {
      put_character(character, width_of(character), limit, out);
    }
  }
  return out;
}

void WordWrap::restart() {
  column_ = word_width_ = 0;
  word_.clear();
  wrapped_ = false;
}

void WordWrap::put_character(std::string_view character, int width, int limit, std::string& out) {
  const bool space = character == " ";
  if (space && wrapped_ && column_ == 0) return;
  if (column_ + width > limit) {
    const bool moves = !space && word_width_ > 0 && word_width_ < column_ && word_width_ + width <= limit;
    if (moves) {
      out += fmt::format("\033[{}D\033[K\n{}", word_width_, word_);
      column_ = word_width_;
    } else {
      out += '\n';
      column_ = word_width_ = 0;
      word_.clear();
    }
    wrapped_ = true;
    if (space) return;
  }
  out += character;
  column_ += width;
  // Wide characters may be broken apart anywhere.
  if (space || width > 1) {
    word_.clear();
    word_width_ = 0;
  } else {
    word_ += character;
    word_width_ += width;
  }
}

}  // namespace weft::cli
