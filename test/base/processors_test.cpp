#include "base/processors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <thread>

#include "base/background.hpp"

namespace weft {
namespace {

TEST(ProcessorsTest, ThisThreadRunsOnAnAllowedOne) {
  const std::vector<int> allowed = allowed_cpus();
  ASSERT_FALSE(allowed.empty());
  EXPECT_NE(std::find(allowed.begin(), allowed.end(), current_cpu()), allowed.end());
  EXPECT_GE(physical_cores(), 1);
  EXPECT_LE(physical_cores(), static_cast<int>(allowed.size()));
}

TEST(ProcessorsTest, FreeMemoryIsAPartOfTheMachines) {
  EXPECT_GT(free_memory(), 0u);
  EXPECT_LE(free_memory(), physical_memory());
}

TEST(BackgroundTest, WorkRunsOnAnotherThreadAndGivesItsResult) {
  ASSERT_TRUE(starts_threads());
  const auto caller = std::this_thread::get_id();
  EXPECT_NE(run_beside([] { return std::this_thread::get_id(); }).get(), caller);
  EXPECT_THROW(run_beside([] { throw std::runtime_error("mine"); }).get(), std::runtime_error);
}

}  // namespace
}  // namespace weft
