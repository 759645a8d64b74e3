#include "cli/interrupt.hpp"

#include <atomic>

namespace weft::cli {
namespace {

// Any thread may run the handler, and another one looks.
std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler may touch nothing else");

void remember(int signal) { received = signal; }

}  // namespace

InterruptScope::InterruptScope() {
  received = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESETHAND | SA_RESTART;  // files being written finish; the second signal ends the process
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &old_[i]);
    if (old_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptScope::~InterruptScope() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
}

int InterruptScope::signal() const { return received; }

}  // namespace weft::cli
