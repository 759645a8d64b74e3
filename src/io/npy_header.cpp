#include "io/npy_header.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/quote.hpp"
#include "io/array.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

class LiteralParser {
 public:
  LiteralParser(std::string_view text, std::string_view source) : text_(text), source_(source) {}

  NpyHeader parse() {
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      bool& has = key == "descr"           ? has_descr
                  : key == "fortran_order" ? has_order
                  : key == "shape"         ? has_shape
                                           : unknown(key);
      if (has) fail(fmt::format("key '{}' occurs twice", key));
      has = true;
      if (key == "descr") header_.descr = descr();
      if (key == "fortran_order") header_.fortran_order = boolean();
      if (key == "shape") shape();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("something follows the dictionary");
    if (!has_descr) fail("key 'descr' is missing");
    if (!has_order) fail("key 'fortran_order' is missing");
    if (!has_shape) fail("key 'shape' is missing");
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw FileError(
        fmt::format("{}: header character {}: {}; save the array again with numpy.save", source_, at_ + 1, what));
  }
  [[noreturn]] bool& unknown(const std::string& key) const {
    fail(fmt::format("unknown key {}; a header has descr, fortran_order and shape", quote(key)));
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c))
      fail(at_ == text_.size() ? fmt::format("expected '{}', found the end of the header", c)
                               : fmt::format("expected '{}', found {}", c, quote(text_.substr(at_, 1))));
  }
  bool accept_word(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  std::string string() {
    skip_space();
    const char mark = at_ < text_.size() ? text_[at_] : '\0';
    if (mark != '\'' && mark != '"') fail("a text in quotes is expected");
    const std::size_t end = text_.find(mark, at_ + 1);
    if (end == std::string_view::npos) fail("a text lacks its closing quote");
    const std::string_view inner = text_.substr(at_ + 1, end - at_ - 1);
    if (inner.find('\\') != std::string_view::npos) fail("a text holds an escape");
    at_ = end + 1;
    return std::string(inner);
  }
  std::string descr() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[')
      fail("descr is a list: structured arrays are not read; save each field as an array of its own");
    return string();
  }
  bool boolean() {
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail("fortran_order is neither True nor False");
  }
  Extent extent() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '-') fail("an extent of shape is negative");
    const std::size_t begin = at_;
    Extent value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      const auto times_ten = try_multiply<Extent>(value, 10);
      const auto next = times_ten ? try_add<Extent>(*times_ten, text_[at_] - '0') : std::nullopt;
      if (!next) fail("an extent of shape overflows 64 bits");
      value = *next;
    }
    if (at_ == begin) fail("shape holds something other than whole numbers");
    return value;
  }
  void shape() {
    if (!accept('(')) fail("shape is not a tuple");
    bool comma = true;  // (3) is a number in Python, (3,) a tuple
    while (!accept(')')) {
      if (!comma) fail("shape lacks a comma");
      header_.shape.push_back(extent());
      if (static_cast<int>(header_.shape.size()) > kMaxRank)
        fail(fmt::format("the rank is over the limit of {}", kMaxRank));
      comma = accept(',');
    }
    if (header_.shape.size() == 1 && !comma) fail("shape is a number, not a tuple");
  }

  std::string_view text_;
  std::string_view source_;
  std::size_t at_ = 0;
  NpyHeader header_;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, std::string_view source) {
  return LiteralParser(text, source).parse();
}

}  // namespace weft::io
