#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <thread>

#include "serve/mcp_client.hpp"

extern char** environ;

namespace weft::serve {
namespace {

using namespace std::chrono_literals;
constexpr auto kWritePatience = 10s, kEndPatience = 2s;
constexpr int kLookMs = 50;
constexpr std::string_view kEnded = "the MCP server has ended";

[[noreturn]] void unavailable(std::string_view doing, int error) {
  throw operations::OperationError("UNAVAILABLE", fmt::format("MCP: cannot {}: {}", doing, std::strerror(error)));
}

class McpProgram : public McpTransport {
 public:
  McpProgram(const std::string& command, std::size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {
    int to[2], from[2];
    if (::pipe2(to, O_CLOEXEC) != 0) unavailable("make a pipe", errno);
    if (::pipe2(from, O_CLOEXEC) != 0) {
      const int error = errno;
      ::close(to[0]);
      ::close(to[1]);
      unavailable("make a pipe", error);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    // A group of its own, so that what it starts ends with it; and SIGPIPE as programs expect it.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    std::string shell = "sh", flag = "-c", text = command;
    char* const arguments[] = {shell.data(), flag.data(), text.data(), nullptr};
    const int error = ::posix_spawn(&program_, "/bin/sh", &actions, &attributes, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    ::close(to[0]);
    ::close(from[1]);
    to_ = to[1];
    from_ = from[0];
    if (error != 0) {
      ::close(to_);
      ::close(from_);
      unavailable("start the shell", error);
    }
    ::fcntl(to_, F_SETFL, O_NONBLOCK);
  }

  ~McpProgram() override {
    {
      const std::lock_guard lock(writing_);
      ::close(std::exchange(to_, -1));  // the end of its input tells the program to end
    }
    if (!ended_within(kEndPatience)) {
      ::kill(-program_, SIGTERM);
      ended_within(kEndPatience);
    }
    ::kill(-program_, SIGKILL);
    ::waitpid(program_, nullptr, 0);
    ending_ = true;
    if (reading_.joinable()) reading_.join();
    ::close(from_);
  }

  void start(McpReports reports) override {
    reading_ = std::thread([this, reports = std::move(reports)] { reports.gone(read(reports)); });
  }

  void send(const std::string& message, std::int64_t /*request*/) override {
    const std::string line = message + "\n";
    const std::lock_guard lock(writing_);
    const auto end = std::chrono::steady_clock::now() + kWritePatience;
    for (std::size_t done = 0; done < line.size();) {
      if (to_ < 0) unavailable("send", EBADF);
      const ssize_t count = ::write(to_, line.data() + done, line.size() - done);
      if (count > 0) {
        done += static_cast<std::size_t>(count);
      } else if (errno == EAGAIN) {
        pollfd ready{to_, POLLOUT, 0};
        ::poll(&ready, 1, kLookMs);
        if (std::chrono::steady_clock::now() > end) unavailable("send", ETIMEDOUT);
      } else if (errno == EPIPE) {
        throw operations::OperationError("UNAVAILABLE", std::string(kEnded));
      } else if (errno != EINTR) {
        unavailable("send", errno);
      }
    }
  }

 private:
  // Until there is nothing more to read; says why.
  std::string read(const McpReports& reports) {
    std::string text;
    std::string buffer(64 << 10, '\0');
    while (!ending_) {
      pollfd ready{from_, POLLIN, 0};
      if (::poll(&ready, 1, kLookMs) <= 0) continue;
      const ssize_t count = ::read(from_, buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return std::string(kEnded);
      text.append(buffer.data(), static_cast<std::size_t>(count));
      std::size_t begin = 0;
      for (auto end = text.find('\n', text.size() - static_cast<std::size_t>(count)); end != std::string::npos;
           end = text.find('\n', begin)) {
        reports.take(std::string_view(text).substr(begin, end - begin));
        begin = end + 1;
      }
      text.erase(0, begin);
      if (text.size() > message_bytes_max_)
        return fmt::format("the MCP server sent a message of more than {} bytes", message_bytes_max_);
    }
    return "the connection was closed";
  }

  bool ended_within(std::chrono::milliseconds time) {
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;) {
      // Waits without taking the status: the group must exist until it has been killed.
      siginfo_t info{};
      if (::waitid(P_PID, static_cast<id_t>(program_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0)
        return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }

  const std::size_t message_bytes_max_;
  pid_t program_ = 0;
  int to_ = -1, from_ = -1;
  std::mutex writing_;
  std::atomic<bool> ending_ = false;
  std::thread reading_;
};

}  // namespace

std::unique_ptr<McpTransport> mcp_program(const std::string& command, std::size_t message_bytes_max) {
  return std::make_unique<McpProgram>(command, message_bytes_max);
}

}  // namespace weft::serve
