// Limits of one call of a tokenizer: its file may be hostile, and a few kilobytes can ask for any time and memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace weft::text {

/// The limits of the call that this thread is in, from the construction of one until its end. An inner one changes nothing,
/// so that the parts of a call share one deadline. Outside of a call nothing is limited.
class CallLimits {
 public:
  static constexpr std::chrono::seconds kTime{20};
  static constexpr std::size_t kBytesFloor = std::size_t{64} << 20, kGrowth = 16;

  /// A call on `bytes` of text. What any step makes of it may have `floor` bytes, or kGrowth times the text if that is more.
  explicit CallLimits(std::size_t bytes, std::size_t floor = kBytesFloor, std::chrono::milliseconds time = kTime);
  ~CallLimits();
  CallLimits(const CallLimits&) = delete;
  CallLimits& operator=(const CallLimits&) = delete;

  /// Counts work of about a microsecond a thousand units, and looks at the clock now and then. UsageError after kTime.
  static void work(std::uint64_t units) {
    if (CallLimits* limits = current_; limits && (limits->work_ += units) >= limits->next_look_)
      limits->look_at_clock();
  }
  /// UsageError if a step made too many bytes.
  static void check_bytes(std::size_t bytes) {
    if (const CallLimits* limits = current_; limits && bytes > limits->bytes_max_) limits->refuse_bytes();
  }

 private:
  void look_at_clock();
  [[noreturn]] void refuse_bytes() const;

  static constinit thread_local CallLimits* current_;
  CallLimits* const outer_;
  std::size_t bytes_, bytes_max_;
  std::uint64_t work_ = 0, next_look_;
  std::chrono::milliseconds time_;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace weft::text
