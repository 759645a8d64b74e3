#include "parallel/group.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/copy_bytes.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"
#include "weft/half.hpp"

namespace weft::parallel {
namespace {

constexpr std::size_t kBlock = 2048;  // elements

void read_block(DType type, const std::byte* from, std::size_t count, float* to) {
  if (type == DType::f32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  std::array<std::uint16_t, kBlock> halves;
  std::memcpy(halves.data(), from, count * sizeof halves[0]);
  if (type == DType::f16)
    for (std::size_t i = 0; i < count; ++i) to[i] = f32_from_f16(halves[i]);
  else
    for (std::size_t i = 0; i < count; ++i) to[i] = f32_from_bf16(halves[i]);
}

void write_block(DType type, const float* from, std::size_t count, std::byte* to) {
  if (type == DType::f32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  std::array<std::uint16_t, kBlock> halves;
  if (type == DType::f16)
    for (std::size_t i = 0; i < count; ++i) halves[i] = f16_from_f32(from[i]);
  else
    for (std::size_t i = 0; i < count; ++i) halves[i] = bf16_from_f32(from[i]);
  std::memcpy(to, halves.data(), count * sizeof halves[0]);
}

}  // namespace

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
  has_come_.notify_all();
}

void Group::check_equal(const char* what) const {
  for (std::size_t rank = 1; rank < parts_.size(); ++rank)
    if (parts_[rank].count != parts_[0].count)
      throw UsageError(
          fmt::format("parallel: rank 0 gives {} {} and rank {} gives {}; all members must make the same calls with "
                      "values of the same shapes",
                      parts_[0].count, what, rank, parts_[rank].count));
}

std::span<std::byte> Group::numbers(int rank, DType type, std::size_t count) {
  Part& part = parts_[static_cast<std::size_t>(rank)];
  const std::size_t bytes = bytes_of(type, count);
  if (part.numbers.size() < bytes) part.numbers.resize(bytes);
  part.count = count;
  part.type = type;
  return {part.numbers.data(), bytes};
}

std::span<const std::byte> Group::mean(int rank) {
  const std::size_t count = parts_[static_cast<std::size_t>(rank)].count;
  const DType type = parts_[static_cast<std::size_t>(rank)].type;
  const std::size_t bytes = bytes_of(type, count), width = bytes_of(type, 1);
  // All have left the mean before this one when the last has come, so its memory may move now.
  meet([&] {
    check_equal("numbers");
    for (std::size_t other = 1; other < parts_.size(); ++other)
      if (parts_[other].type != parts_[0].type)
        throw UsageError(fmt::format("parallel: rank 0 gives {} and rank {} gives {}; cast them to one type",
                                     name_of(parts_[0].type), other, name_of(parts_[other].type)));
    if (mean_.size() < bytes) mean_.resize(bytes);
  });
  // Each rank sums a part of the elements, from all ranks, in blocks that stay in the first cache.
  const std::size_t ranks = parts_.size(), blocks = (count + kBlock - 1) / kBlock;
  const std::size_t begin = blocks * static_cast<std::size_t>(rank) / ranks;
  const std::size_t end = blocks * (static_cast<std::size_t>(rank) + 1) / ranks;
  const float factor = 1.0f / static_cast<float>(ranks);
  parallel_for(static_cast<std::int64_t>(end - begin), [&](std::int64_t block) {
    const std::size_t at = (begin + static_cast<std::size_t>(block)) * kBlock, length = std::min(kBlock, count - at);
    std::array<float, kBlock> sum, more;
    read_block(type, parts_[0].numbers.data() + at * width, length, sum.data());
    for (std::size_t other = 1; other < ranks; ++other) {
      read_block(type, parts_[other].numbers.data() + at * width, length, more.data());
      for (std::size_t i = 0; i < length; ++i) sum[i] += more[i];
    }
    for (std::size_t i = 0; i < length; ++i) sum[i] *= factor;
    write_block(type, sum.data(), length, mean_.data() + at * width);
  });
  barrier();
  return {mean_.data(), bytes};
}

void Group::broadcast(int rank, std::span<std::byte> bytes) {
  Part& part = parts_[static_cast<std::size_t>(rank)];
  part.bytes = bytes.data();
  part.count = bytes.size();
  meet([&] { check_equal("bytes"); });
  if (rank != 0) copy_bytes(bytes.data(), parts_[0].bytes, bytes.size());
  barrier();  // rank 0 may change its bytes after this
}

void Group::send(int from, int to, Sent value) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    sent_[{from, to}].push_back(std::move(value));
  }
  has_come_.notify_all();
}

Group::Sent Group::receive(int from, int to) {
  std::unique_lock lock(mutex_);
  std::deque<Sent>& values = sent_[{from, to}];
  has_come_.wait(lock, [&] { return failure_ || !values.empty(); });
  if (failure_) std::rethrow_exception(failure_);
  Sent value = std::move(values.front());
  values.pop_front();
  return value;
}

}  // namespace weft::parallel
