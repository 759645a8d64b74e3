// The pool's contract: each task once, nested and concurrent callers, exceptions, resizing, parked workers.
#include "base/threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/keep_thread_count.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

TEST(Threads, EachTaskRunsExactlyOnce) {
  const KeepThreadCount keep;
  for (const int threads : {1, 2, 3, 8}) {
    set_thread_count(threads);
    EXPECT_EQ(thread_count(), threads);
    for (const int count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(count);
      parallel_for(count, [&](std::int64_t i) { ++runs[i]; });
      for (const auto& run : runs) ASSERT_EQ(run, 1);
    }
  }
}

TEST(Threads, ManySmallJobsInARow) {
  const KeepThreadCount keep;
  for (const int threads : {2, 4}) {
    set_thread_count(threads);
    std::int64_t sum = 0;
    std::vector<std::int64_t> part(5);
    for (int job = 0; job < 20000; ++job) {
      parallel_for(5, [&](std::int64_t i) { part[i] = job + i; });
      sum += std::accumulate(part.begin(), part.end(), std::int64_t{0});
    }
    EXPECT_EQ(sum, 5LL * (20000LL * 19999 / 2) + 20000 * 10);
  }
}

TEST(Threads, TwoTasksRunAtTheSameTime) {
  const KeepThreadCount keep;
  set_thread_count(2);
  // Each task waits for the other, so this ends only if both are in flight; a late worker still has to come.
  for (int job = 0; job < 50; ++job) {
    std::atomic<int> arrived = 0;
    std::set<int> indices;
    std::mutex mutex;
    parallel_for(2, [&](std::int64_t) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
      const std::lock_guard lock(mutex);
      indices.insert(thread_index());
    });
    EXPECT_EQ(indices, (std::set<int>{0, 1}));
    if (job % 10 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // now the worker is parked
  }
}

TEST(Threads, NestedCallsRunSerially) {
  const KeepThreadCount keep;
  set_thread_count(3);
  std::atomic<int> inner = 0;
  std::atomic<int> strayed = 0;
  parallel_for(6, [&](std::int64_t) {
    const auto thread = std::this_thread::get_id();
    const int index = thread_index();
    parallel_for(10, [&](std::int64_t) {
      ++inner;
      if (std::this_thread::get_id() != thread || thread_index() != index) ++strayed;
    });
  });
  EXPECT_EQ(inner, 60);
  EXPECT_EQ(strayed, 0);
  EXPECT_EQ(thread_index(), 0);
}

TEST(Threads, SeveralCallersAtOnce) {
  const KeepThreadCount keep;
  set_thread_count(3);
  std::vector<std::thread> callers;
  std::atomic<std::int64_t> sum = 0;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int job = 0; job < 500; ++job) parallel_for(20, [&](std::int64_t i) { sum += i; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 500 * 190);
}

TEST(Threads, FirstExceptionIsRethrownAndThePoolLivesOn) {
  const KeepThreadCount keep;
  for (const int threads : {1, 4}) {
    set_thread_count(threads);
    for (int job = 0; job < 100; ++job) {
      try {
        parallel_for(50, [](std::int64_t i) {
          if (i >= 3) throw std::runtime_error("task failed");
        });
        FAIL() << "no exception came out";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "task failed");
      }
      std::atomic<int> runs = 0;
      parallel_for(50, [&](std::int64_t) { ++runs; });
      ASSERT_EQ(runs, 50);
    }
  }
}

TEST(Threads, WrongUseIsNamed) {
  EXPECT_THROW(set_thread_count(0), UsageError);
  EXPECT_THROW(set_thread_count(-2), UsageError);
  const KeepThreadCount keep;
  set_thread_count(2);
  EXPECT_THROW(parallel_for(4, [](std::int64_t) { set_thread_count(2); }), UsageError);
}

TEST(Threads, EnvironmentSetsTheCount) {
  if (std::getenv("WEFT_TEST_EMULATED")) GTEST_SKIP() << "in an emulator a program cannot start itself";
  // The count is read once per process, so a fresh one has to read it.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("WEFT_THREADS", "3", 1);
        std::exit(thread_count());
      },
      testing::ExitedWithCode(3), "");
  EXPECT_EXIT(
      {
        setenv("WEFT_THREADS", "many", 1);
        try {
          thread_count();
        } catch (const UsageError& error) {
          std::fputs(error.what(), stderr);
          std::exit(7);
        }
      },
      testing::ExitedWithCode(7), "WEFT_THREADS: 'many' is not a number from 1 to");
}

}  // namespace
}  // namespace weft
