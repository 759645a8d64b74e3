#include "cli/console.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/quote.hpp"
#include "base/utf8.hpp"

namespace weft::cli {
Console::Console(std::FILE* out, Style style) : out_(out), style_(style) {
  if (style_ == Style::automatic) {
    const char* term = std::getenv("TERM");
    const bool dumb = term && std::strcmp(term, "dumb") == 0;
    style_ = isatty(fileno(out)) && !dumb ? Style::terminal : Style::plain;
  }
}

Console::~Console() { end_status(); }

int Console::columns() const {
  winsize size{};
  if (style_ == Style::terminal && ioctl(fileno(out_), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

void Console::clear_status() {
  if (shown_.empty()) return;
  std::fputs("\r\033[K", out_);
  shown_.clear();
}

void Console::print(std::string_view text) {
  if (style_ == Style::silent) return;
  clear_status();
  waiting_.clear();  // the pending status is older than this line
  const std::string shown = is_terminal() ? for_terminal(text) : std::string(text);
  std::fwrite(shown.data(), 1, shown.size(), out_);
  if (text.empty() || text.back() != '\n') std::fputc('\n', out_);
  std::fflush(out_);
}

void Console::status(std::string_view text, bool must_show) {
  if (style_ == Style::silent) return;
  const auto now = Clock::now();
  const double since = std::chrono::duration<double>(now - last_).count();
  if (!must_show && last_ != Clock::time_point{} && since < (style_ == Style::terminal ? 0.1 : 5.0)) {
    waiting_ = text;
    return;
  }
  last_ = now;
  waiting_.clear();
  if (style_ == Style::plain) return print(text);
  // A line that wraps cannot be redrawn.
  std::string line = for_terminal(text);
  std::size_t end = 0;
  for (int i = std::max(columns() - 1, 1); i > 0 && end < line.size() && line[end] != '\n'; --i)
    end += std::max<std::size_t>(utf8_sequence_length(std::string_view(line).substr(end)), 1);
  line.resize(end);
  std::fputs(("\r" + line + "\033[K").c_str(), out_);
  std::fflush(out_);
  shown_ = line;
}

void Console::end_status() {
  if (!waiting_.empty()) status(std::string(waiting_), true);
  if (shown_.empty()) return;
  std::fputc('\n', out_);
  std::fflush(out_);
  shown_.clear();
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds) || seconds > 359999) return "-";
  const auto s = static_cast<long>(std::max(seconds, 0.0) + 0.5);
  return s < 3600 ? fmt::format("{}:{:02}", s / 60, s % 60)
                  : fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string grouped(std::int64_t value) {
  std::string digits = std::to_string(value);
  for (int i = static_cast<int>(digits.size()) - 3; i > (value < 0 ? 1 : 0); i -= 3)
    digits.insert(static_cast<std::size_t>(i), ",");
  return digits;
}

std::string short_count(double value) {
  if (value >= 1e6) return fmt::format("{:.2f}M", value * 1e-6);
  if (value >= 1e3) return fmt::format("{:.1f}k", value * 1e-3);
  return fmt::format("{:.0f}", value);
}

std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (!file) return 0;
  unsigned long total = 0, resident = 0;
  const int read = std::fscanf(file, "%lu %lu", &total, &resident);
  std::fclose(file);
  return read == 2 ? resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

}  // namespace weft::cli
