// Ctrl-C while C++ works or waits.
#pragma once

#include <chrono>
#include <utility>

namespace weft::python {

/// How often a wait looks for signals.
inline constexpr auto kSignalPause = std::chrono::milliseconds(50);

/// On the main thread: runs the handlers of signals that came. Needs no GIL. Throws nb::python_error, as for Ctrl-C.
void check_signals();
/// Whether `check_signals`, or a function of Python that `note_interrupt` names, has ended work on this thread since the last call.
/// Whoever catches all exceptions and returns an error of its own learns from this that the error was Ctrl-C.
bool take_interrupt();
void note_interrupt();

/// Calls look(time of the clock), which waits until then, until it gives something, and looks for Ctrl-C in between; `abort` then ends what is waited
/// for. Needs no GIL.
template <class Clock, class Look, class Abort>
auto wait_for(const Look& look, const Abort& abort) {
  for (;;) {
    if (auto found = look(Clock::now() + kSignalPause)) return std::move(*found);
    try {
      check_signals();
    } catch (...) {
      abort();
      throw;
    }
  }
}

}  // namespace weft::python
