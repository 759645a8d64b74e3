// What a run says while it works: one line that redraws on a terminal, plain lines every few seconds elsewhere.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

namespace weft::cli {

class Console {
 public:
  enum class Style { automatic, terminal, plain, silent };
  /// `automatic`: a terminal if `out` is one and TERM is not "dumb".
  explicit Console(std::FILE* out, Style style = Style::automatic);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  bool is_terminal() const { return style_ == Style::terminal; }
  /// Columns of the terminal; 100 elsewhere.
  int columns() const;
  /// Text that stays.
  void print(std::string_view text);
  /// Shows the status. On a terminal it replaces the previous one, at most ten times a second; elsewhere it prints a line
  /// every five seconds. `must_show` overrides both limits.
  void status(std::string_view text, bool must_show = false);
  /// Keeps the last status on the screen.
  void end_status();

 private:
  using Clock = std::chrono::steady_clock;
  void clear_status();

  std::FILE* out_;
  Style style_;
  std::string shown_;
  std::string waiting_;
  Clock::time_point last_{};
};

/// "1:05", "2:03:04".
std::string clock_text(double seconds);
/// "12,345".
std::string grouped(std::int64_t value);
/// "850", "41.2k", "2.79M".
std::string short_count(double value);
/// Memory of this process in bytes, where the system tells it; else 0.
std::size_t resident_bytes();

}  // namespace weft::cli
