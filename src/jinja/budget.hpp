// The memory, time and depth that one render may use. Values charge their memory, so no template can take more.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace weft::jinja {

/// A mistake of a running template; the interpreter adds the place and turns it into a UsageError.
struct Fault {
  std::string fact;
  std::string cure;  ///< may be empty
};
/// Throws a Fault with a fact and a cure, which only the end of the render catches.
[[noreturn]] void fail(std::string fact, std::string cure = {});

class Budget {
 public:
  struct Limits {
    std::size_t memory_bytes;
    std::uint64_t iterations;
    int depth;
    std::chrono::milliseconds time;
  };
  /// Becomes the current budget of this thread until it is destroyed.
  explicit Budget(const Limits& limits);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  /// The budget of this thread's render, or null.
  static Budget* current();

  void take(std::size_t bytes);
  void give(std::size_t bytes) { used_bytes_ -= bytes; }
  /// Counts work: a value evaluated, a kilobyte handled. Checks the clock from time to time.
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

/// Work outside of a render is not counted.
inline void work(std::uint64_t units = 1) {
  if (Budget* budget = Budget::current()) budget->work(units);
}

/// The bytes that a value holds while it exists. Values must not outlive their render.
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
