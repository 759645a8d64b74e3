// Ctrl-C and SIGTERM as a request to end cleanly.
#pragma once

#include <csignal>

namespace weft::train {

/// While one lives, the first SIGINT or SIGTERM only sets a flag; the second has its usual effect. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  /// The signal that came, or 0.
  int signal() const;

 private:
  struct sigaction old_interrupt_, old_terminate_;
};

}  // namespace weft::train
