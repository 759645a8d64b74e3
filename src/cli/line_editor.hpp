// Lines typed at a terminal, with editing and a history that outlives the run.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace weft::cli {

/// Where the history of a command is kept: $XDG_STATE_HOME/weft/NAME, or ~/.local/state/weft/NAME; empty if neither is
/// known.
std::filesystem::path state_file(const std::string& name);

class LineEditor {
 public:
  /// Reads from standard input and draws on standard output, which must be a terminal. A history that cannot be read or
  /// written is kept for this run only.
  explicit LineEditor(std::filesystem::path history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// The next line, without its end; nothing at the end of the input.
  std::optional<std::string> read(const std::string& prompt);

 private:
  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
};

}  // namespace weft::cli
