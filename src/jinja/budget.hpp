// What one render may use: memory, time, depth. Values charge what they hold, so that no template can take more.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace weft::jinja {

/// A mistake of a template while it runs; the interpreter adds the place and turns it into a UsageError.
struct Fault {
  std::string fact;
  std::string cure;  ///< may be empty
};
/// A Fault that asks for a smaller template or input, not for a correction; never caught inside.
[[noreturn]] void fail(std::string fact, std::string cure = {});

class Budget {
 public:
  struct Limits {
    std::size_t memory_bytes;
    std::uint64_t iterations;
    int depth;
    std::chrono::milliseconds time;
  };
  /// Makes itself the current one of this thread until it ends.
  explicit Budget(const Limits& limits);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// The budget of the render that this thread is in, if it is in one.
  static Budget* current();

  void take(std::size_t bytes);
  void give(std::size_t bytes) { used_bytes_ -= bytes; }
  /// Counts work: a value evaluated, a kilobyte handled. Looks at the clock now and then.
  void work(std::uint64_t units);
  void iteration();
  void enter();
  void leave() { --depth_; }

 private:
  void look_at_clock() const;

  Limits limits_;
  Budget* outer_;
  std::size_t used_bytes_ = 0;
  std::uint64_t iterations_ = 0;
  std::uint64_t work_ = 0, next_look_ = 0;
  int depth_ = 0;
  std::chrono::steady_clock::time_point start_;
};

/// Work outside a render is free.
inline void work(std::uint64_t units = 1) {
  if (Budget* budget = Budget::current()) budget->work(units);
}

/// Bytes held by a value as long as it lives. Values must not outlive the render they were made in.
class Charge {
 public:
  Charge() : budget_(Budget::current()) {}
  explicit Charge(std::size_t bytes) : Charge() { add(bytes); }
  ~Charge() {
    if (budget_) budget_->give(bytes_);
  }
  Charge(Charge&& other) noexcept : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  void add(std::size_t bytes) {
    if (!budget_) return;
    budget_->take(bytes);
    bytes_ += bytes;
  }

 private:
  Budget* budget_;
  std::size_t bytes_ = 0;
};

/// One level of nested work.
class Level {
 public:
  Level() : budget_(Budget::current()) {
    if (budget_) budget_->enter();
  }
  ~Level() {
    if (budget_) budget_->leave();
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Budget* budget_;
};

}  // namespace weft::jinja
