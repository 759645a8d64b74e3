// Lines typed at a terminal, with editing and a history that outlives the run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

/// Where the history of a command is kept: $XDG_STATE_HOME/weft/NAME, or ~/.local/state/weft/NAME; empty if neither is
/// known.
std::filesystem::path state_file(const std::string& name);

/// A line without its end, which may hold several pasted lines; or Ctrl-C, with the text that it cleared; or
/// the end of the input.
struct TypedLine {
  enum class Kind { text, interrupted, end };
  Kind kind = Kind::end;
  std::string text;
};

class LineEditor {
 public:
  /// Reads from standard input and draws on standard output, which must be a terminal. A history that cannot be read or
  /// written is kept for this run only.
  explicit LineEditor(std::filesystem::path history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// Reads the next line. Several pasted lines are shown as "[pasted #1: 3 lines]"; the returned text has them in full.
  TypedLine read(const std::string& prompt);

  /// Gives Tab a function from the line before the cursor to lines that may follow from it.
  void complete_with(std::function<std::vector<std::string>(std::string_view line)> candidates);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

/// While one lives, typed-ahead text is not echoed into an answer, and Ctrl-C does not discard it.
class QuietTyping {
 public:
  QuietTyping();
  ~QuietTyping();
  QuietTyping(const QuietTyping&) = delete;
  QuietTyping& operator=(const QuietTyping&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

}  // namespace weft::cli
