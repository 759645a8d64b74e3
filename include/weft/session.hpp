// Sessions: all state that exists while a program runs. A program may have several.
#pragma once

#include <memory>
#include <optional>

#include "weft/device.hpp"
#include "weft/tensor.hpp"

namespace weft {

class SessionState;

struct SessionOptions {
  /// Threads that the session's work on the CPU may use, including the caller's. 0: WEFT_THREADS, else all cores.
  int threads = 0;
  /// The device that new tensors are made on. None: WEFT_DEVICE, else the CPU.
  std::optional<Device> device = {};
};

/// A session owns devices and their memory, compiled plans and the compiler's settings, pending values of Variables, generators
/// of random numbers, the default device, and a share of the cores. A program that never names a session works in the default
/// one.
///
///     Session left({.threads = 1}), right({.threads = 1});
///     std::jthread a([&] { auto in = left.enter(); train(); });
///     std::jthread b([&] { auto in = right.enter(); train(); });
///
/// Sessions do not wait for each other, and each gives the same bits as when it runs alone. A tensor or Variable belongs to the
/// session that it was made in. Using it in another session is a UsageError; `copy` copies a value to a session. Elements that
/// are already computed may be read from any session.
///
/// Thread safety: any number of threads may work in one session at once. Different plans run side by side; one plan is run by
/// one thread at a time. A compiled function that updates a Variable makes others wait for the Variable until it is done.
class Session {
 public:
  /// Errors: UsageError unless 0 <= threads <= 1024.
  explicit Session(const SessionOptions& options = {});
  /// No thread may be in the session. Tensors that are still held keep their memory and stay readable.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// While this object exists, its thread works in the session. A thread must destroy these objects in reverse order.
  class Entered {
   public:
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

   private:
    friend class Session;
    explicit Entered(std::shared_ptr<SessionState> state);
    std::shared_ptr<SessionState> state_;
    SessionState* before_;
  };
  [[nodiscard]] Entered enter() const;

  /// The value as a tensor of this session, on the device of the same name. The value is computed in its own session first.
  Tensor copy(const Tensor& value) const;
  /// Number of threads that the session's work on the CPU uses.
  int threads() const;

 private:
  std::shared_ptr<SessionState> state_;
};

}  // namespace weft
