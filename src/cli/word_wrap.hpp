// Text that streams to a terminal, broken between words at its width.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace weft::cli {

/// Words are shown as they come, piece by piece. One that turns out too long for its line is taken back and begins the next
/// line; one that is longer than a line is cut. The width is asked for at each piece, so that windows may change.
class WordWrap {
 public:
  /// `columns` gives the width of the terminal.
  explicit WordWrap(std::function<int()> columns) : columns_(std::move(columns)) {}

  /// What to print for the next piece of text, which holds whole characters and is already cleaned for terminals.
  std::string put(std::string_view piece);
  /// To be called where something else was printed, which ended its line.
  void restart();

 private:
  void put_character(std::string_view character, int width, int limit, std::string& out);

  std::function<int()> columns_;
  int column_ = 0;
  std::string word_;  // the part of the last word that is on this line
  int word_width_ = 0;
  bool wrapped_ = false;  // the line began here, and not in the text: spaces that follow are left out
};

}  // namespace weft::cli
