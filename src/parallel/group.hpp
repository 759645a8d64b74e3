// The place where the threads of several devices meet and exchange bytes.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "weft/dtype.hpp"
#include "weft/shape.hpp"

namespace weft::parallel {

/// `size` threads, each with a rank, that make the same calls in the same order. Every call returns when all have made it, but for
/// `send` and `receive`, and throws as soon as the group has failed.
class Group {
 public:
  explicit Group(int size);
  Group(const Group&) = delete;

  int size() const { return static_cast<int>(parts_.size()); }
  void barrier();
  /// Memory for what a rank gives to the next mean: `count` elements of f32, f16 or bf16. It is kept, because new memory takes
  /// longer to touch than to copy to.
  std::span<std::byte> numbers(int rank, DType type, std::size_t count);
  /// The mean of `numbers` over ranks in their type: sums in f32, in the order of ranks, rounded once. Valid until this rank's next
  /// call. The group fails with a UsageError if the ranks give different counts or types.
  std::span<const std::byte> mean(int rank);
  /// Copies the bytes of rank 0 to the others. The group fails with a UsageError if their numbers differ.
  void broadcast(int rank, std::span<std::byte> bytes);
  /// Puts a value behind those that `from` has sent to `to`, and takes the first of them, for which it waits.
  struct Sent {
    DType type = DType::f32;
    Shape shape;
    std::vector<std::byte> bytes;
  };
  void send(int from, int to, Sent value);
  Sent receive(int from, int to);
  /// Ends the group: calls that wait, and all later ones, throw `why`. The first reason stays.
  void fail(std::exception_ptr why);
  /// Null while all is well.
  std::exception_ptr failure();

 private:
  /// Returns when all are here. The last one to come does `then`, before any leaves; what it throws fails the group.
  void meet(const std::function<void()>& then);
  void check_equal(const char* what) const;

  /// What a rank gives to the call at hand.
  struct Part {
    std::size_t count = 0;
    DType type = DType::f32;
    std::vector<std::byte> numbers;  // at least `count`; never shortened, because growing again would write zeros
    std::byte* bytes = nullptr;
  };
  std::mutex mutex_;
  std::condition_variable all_here_, has_come_;
  std::exception_ptr failure_;
  std::size_t here_ = 0;
  std::uint64_t meetings_ = 0;
  std::vector<Part> parts_;  // by rank
  std::vector<std::byte> mean_;
  std::map<std::pair<int, int>, std::deque<Sent>> sent_;  // by sender and receiver
};

}  // namespace weft::parallel
