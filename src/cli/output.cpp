#include "cli/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/quote.hpp"
#include "cli/commands.hpp"

namespace weft::cli {
namespace {

bool reader_has_gone() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

}  // namespace

void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() takes the lowest free number, which is this one; reads or writes there fail as before.
    [[maybe_unused]] const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

bool put_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return std::ferror(stdout) == 0;
}

bool put_foreign(std::string_view text) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  return put_text(terminal ? for_terminal(text) : std::string(text));
}

void put_message(std::string_view text) {
  const std::string line = for_terminal(text) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

std::string json_text(const nlohmann::ordered_json& json, int indent) {
  const std::string text = json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  // Characters below 0x20 are escaped already. The others can only be in strings.
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = [&](std::size_t k) { return i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0u; };
    const unsigned turns =
        byte(0) == 0xE2 && byte(1) == 0x80 && byte(2) >= 0xAA && byte(2) <= 0xAE   ? 0x2000 + byte(2) - 0x80
        : byte(0) == 0xE2 && byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9 ? 0x2040 + byte(2) - 0x80
                                                                                   : 0;
    if (byte(0) == 0x7F)
      out += "\\u007f";
    else if (byte(0) == 0xC2 && byte(1) < 0xA0)
      out += fmt::format("\\u{:04x}", byte(1)), ++i;
    else if (turns != 0)
      out += fmt::format("\\u{:04x}", turns), i += 2;
    else
      out += text[i];
  }
  return out;
}

int finish_output(int code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  if (code != kOk || reader_has_gone()) return code;
  return fail("standard output: not all of the text could be written; is there space left on the disk?", kFile);
}

int fail(std::string_view message, int code) {
  const char* no_colour = std::getenv("NO_COLOR");
  const bool colour = isatty(STDERR_FILENO) && !(no_colour && *no_colour);
  std::fputs(colour ? "\033[1;31merror:\033[0m " : "error: ", stderr);
  put_message(message);
  return code;
}

}  // namespace weft::cli
