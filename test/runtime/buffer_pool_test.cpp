// Buffers that are given back serve later requests of their size.
#include <gtest/gtest.h>

#include <memory>

#include "runtime/runtime_state.hpp"

namespace weft::runtime {
namespace {

struct SparseBuffer final : backend::Buffer {
  explicit SparseBuffer(std::size_t n) : size(n) {}
  std::size_t bytes() const override { return size; }
  std::size_t size;
};

constexpr std::size_t kHalf = BufferPool::kBytesMax / 2;

TEST(BufferPoolTest, TheLastBufferOfASizeComesFirst) {
  BufferPool pool;
  const auto first = std::make_shared<SparseBuffer>(8), second = std::make_shared<SparseBuffer>(8);
  pool.give(8, first);
  pool.give(8, second);
  EXPECT_EQ(pool.take(16), nullptr);
  EXPECT_EQ(pool.take(8), second);
  EXPECT_EQ(pool.take(8), first);
  EXPECT_EQ(pool.take(8), nullptr);
}

// Otherwise buffers of a finished phase would fill the pool for ever, and each later value would be allocated.
TEST(BufferPoolTest, AFullPoolFreesTheOldestForOtherSizes) {
  BufferPool pool;
  auto old = std::make_shared<SparseBuffer>(kHalf);
  const auto recent = std::make_shared<SparseBuffer>(kHalf), other = std::make_shared<SparseBuffer>(kHalf - 16);
  const std::weak_ptr<SparseBuffer> freed = old;
  pool.give(kHalf, std::move(old));
  pool.give(kHalf, recent);
  EXPECT_FALSE(freed.expired());
  pool.give(kHalf - 16, other);
  EXPECT_TRUE(freed.expired());
  EXPECT_EQ(pool.take(kHalf - 16), other);
  EXPECT_EQ(pool.take(kHalf), recent);
  EXPECT_EQ(pool.take(kHalf), nullptr);
}

TEST(BufferPoolTest, ABufferAboveTheLimitIsNotKept) {
  BufferPool pool;
  const auto small = std::make_shared<SparseBuffer>(8);
  pool.give(8, small);
  pool.give(BufferPool::kBytesMax + 1, std::make_shared<SparseBuffer>(BufferPool::kBytesMax + 1));
  EXPECT_EQ(pool.take(BufferPool::kBytesMax + 1), nullptr);
  EXPECT_EQ(pool.take(8), small);
  pool.give(8, small);
  pool.clear();
  EXPECT_EQ(pool.take(8), nullptr);
}

}  // namespace
}  // namespace weft::runtime
