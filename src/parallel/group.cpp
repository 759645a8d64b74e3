#include "parallel/group.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/copy_bytes.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::parallel {

Group::Group(int size) : parts_(static_cast<std::size_t>(size)) {}

void Group::meet(const std::function<void()>& then) {
  std::unique_lock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (++here_ == parts_.size()) {
    try {
      then();
    } catch (...) {
      failure_ = std::current_exception();
    }
    here_ = 0;
    ++meetings_;
    all_here_.notify_all();
    if (failure_) std::rethrow_exception(failure_);
    return;
  }
  all_here_.wait(lock, [this, meeting = meetings_] { return failure_ || meetings_ != meeting; });
  if (failure_) std::rethrow_exception(failure_);
}

void Group::barrier() {
  meet([] {});
}

std::exception_ptr Group::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void Group::fail(std::exception_ptr why) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::move(why);
  }
  all_here_.notify_all();
}

void Group::check_equal(const char* what) const {
  for (std::size_t rank = 1; rank < parts_.size(); ++rank)
    if (parts_[rank].count != parts_[0].count)
      throw UsageError(
          fmt::format("parallel: rank 0 gives {} {} and rank {} gives {}; all members must make the same calls with "
                      "values of the same shapes",
                      parts_[0].count, what, rank, parts_[rank].count));
}

std::span<float> Group::numbers(int rank, std::size_t count) {
  Part& part = parts_[static_cast<std::size_t>(rank)];
  if (part.numbers.size() < count) part.numbers.resize(count);
  part.count = count;
  return {part.numbers.data(), count};
}

std::span<const float> Group::mean(int rank) {
  const std::size_t count = parts_[static_cast<std::size_t>(rank)].count;
  // All have left the mean before this one when the last has come, so its memory may move now.
  meet([&] {
    check_equal("numbers");
    if (mean_.size() < count) mean_.resize(count);
  });
  // Each rank sums a part of the elements, from all ranks, in blocks that stay in the first cache.
  constexpr std::size_t kBlock = 4096;
  const std::size_t ranks = parts_.size(), blocks = (count + kBlock - 1) / kBlock;
  const std::size_t begin = blocks * static_cast<std::size_t>(rank) / ranks;
  const std::size_t end = blocks * (static_cast<std::size_t>(rank) + 1) / ranks;
  const float factor = 1.0f / static_cast<float>(ranks);
  parallel_for(static_cast<std::int64_t>(end - begin), [&](std::int64_t block) {
    const std::size_t at = (begin + static_cast<std::size_t>(block)) * kBlock, length = std::min(kBlock, count - at);
    float* sum = mean_.data() + at;
    std::copy_n(parts_[0].numbers.data() + at, length, sum);
    for (std::size_t other = 1; other < ranks; ++other) {
      const float* more = parts_[other].numbers.data() + at;
      for (std::size_t i = 0; i < length; ++i) sum[i] += more[i];
    }
    for (std::size_t i = 0; i < length; ++i) sum[i] *= factor;
  });
  barrier();
  return {mean_.data(), count};
}

void Group::broadcast(int rank, std::span<std::byte> bytes) {
  Part& part = parts_[static_cast<std::size_t>(rank)];
  part.bytes = bytes.data();
  part.count = bytes.size();
  meet([&] { check_equal("bytes"); });
  if (rank != 0) copy_bytes(bytes.data(), parts_[0].bytes, bytes.size());
  barrier();  // rank 0 may change its bytes after this
}

}  // namespace weft::parallel
