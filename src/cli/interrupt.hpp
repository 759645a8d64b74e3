// Ctrl-C, SIGTERM and the loss of the terminal as requests to end cleanly.
#pragma once

#include <array>
#include <csignal>

namespace weft::cli {

/// While one lives, the first SIGINT, SIGTERM or SIGHUP only sets a flag; the second of a kind has its usual effect. A
/// signal that was ignored stays ignored, as SIGHUP is under nohup. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  /// The signal that came, or 0.
  int signal() const;

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> old_;
};

}  // namespace weft::cli
