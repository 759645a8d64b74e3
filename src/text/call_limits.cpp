#include "text/call_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "weft/error.hpp"

namespace weft::text {
namespace {

constexpr std::uint64_t kWorkBetweenLooks = 1 << 16;

}  // namespace

constinit thread_local CallLimits* CallLimits::current_ = nullptr;

CallLimits::CallLimits(std::size_t bytes, std::size_t floor, std::chrono::milliseconds time)
    : outer_(current_),
      bytes_(bytes),
      bytes_max_(std::max(floor, bytes > std::numeric_limits<std::size_t>::max() / kGrowth ? bytes : bytes * kGrowth)),
      next_look_(kWorkBetweenLooks),
      time_(time),
      end_(std::chrono::steady_clock::now() + time) {
  if (!outer_) current_ = this;
}
CallLimits::~CallLimits() {
  if (!outer_) current_ = nullptr;
}

void CallLimits::look_at_clock() {
  next_look_ = work_ + kWorkBetweenLooks;
  if (std::chrono::steady_clock::now() > end_)
    throw UsageError(
        fmt::format("the tokenizer takes more than {} ms for one text, its limit; give less text at a time, or take "
                    "another copy of its file",
                    time_.count()));
}

void CallLimits::refuse_bytes() const {
  throw UsageError(
      fmt::format("the tokenizer makes more than {} bytes of a text of {}, its limit; take another copy of its file",
                  bytes_max_, bytes_));
}

}  // namespace weft::text
