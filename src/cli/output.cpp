#include "cli/output.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

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
    // The lowest free number is this one; what would read or write there fails as before.
    [[maybe_unused]] const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

bool put_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return std::ferror(stdout) == 0;
}

void put_message(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
}

int finish_output(int code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  if (code != kOk || reader_has_gone()) return code;
  return fail("standard output: not all of the text could be written; is there space left on the disk?", kFile);
}

int fail(std::string_view message, int code) {
  const char* no_colour = std::getenv("NO_COLOR");
  const bool colour = isatty(STDERR_FILENO) && !(no_colour && *no_colour);
  put_message(fmt::format("{}error:{} {}", colour ? "\033[1;31m" : "", colour ? "\033[0m" : "", message));
  return code;
}

}  // namespace weft::cli
