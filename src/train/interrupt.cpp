#include "train/interrupt.hpp"

#include <atomic>

namespace weft::train {
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
  sigaction(SIGINT, &action, &old_interrupt_);
  sigaction(SIGTERM, &action, &old_terminate_);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

int InterruptScope::signal() const { return received; }

}  // namespace weft::train
