// Stages: each task once, order where it is asked for, exceptions, any number of threads.
#include "base/stages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "base/keep_thread_count.hpp"
#include "base/threads.hpp"

namespace weft {
namespace {

TEST(Stages, EachTaskRunsOnceAndAfterWhatItNeeds) {
  const KeepThreadCount keep;
  std::vector<Stage> list;
  for (int s = 0; s < 40; ++s) list.push_back({1 + s * 7 % 19, s % 3 == 0 ? s - 1 : s - 1 - s % 5 % (s + 1)});
  for (Stage& stage : list) stage.after = std::max(stage.after, -1);
  Stages stages(list);
  for (const int threads : {1, 2, 4, 12}) {
    set_thread_count(threads);
    for (int run = 0; run < 200; ++run) {
      std::vector<std::atomic<int>> runs(40 * 20), left(40);
      for (int s = 0; s < 40; ++s) left[s] = static_cast<int>(list[s].tasks);
      std::atomic<int> early = 0;
      stages.run([&](int s, std::int64_t i) {
        for (int before = 0; before <= list[s].after; ++before) early += left[before] != 0;
        ++runs[s * 20 + i];
        --left[s];
      });
      ASSERT_EQ(early, 0) << threads << " threads";
      for (int s = 0; s < 40; ++s)
        for (int i = 0; i < 20; ++i) ASSERT_EQ(runs[s * 20 + i], i < list[s].tasks) << s << ' ' << i;
    }
  }
}

TEST(Stages, AStageThatNeedsNoneMayRunBesideTheOneBefore) {
  const KeepThreadCount keep;
  set_thread_count(2);
  Stages stages({{2, -1}, {2, -1}});
  // Tasks of both stages are in flight together: the first of stage 0 ends only when one of stage 1 has begun.
  std::atomic<bool> begun = false;
  stages.run([&](int s, std::int64_t i) {
    if (s == 1) begun = true;
    while (s == 0 && i == 0 && !begun) {
    }
  });
  EXPECT_TRUE(begun);
}

TEST(Stages, WhoWaitsAsksAheadForTheNextStreamedStage) {
  const KeepThreadCount keep;
  set_thread_count(2);
  // The only task of stage 0 ends when the other thread, which waits for it, has asked for three pieces.
  Stages stages({{1, -1}, {2, 0}, {4, 1, true}, {2, 2, true}});
  for (int run = 0; run < 50; ++run) {
    std::atomic<int> asked = 0, wrong = 0, begun = 0;
    stages.run(
        [&](int s, std::int64_t) {
          begun += s == 2;
          while (s == 0 && asked < 3) {
          }
        },
        [&](int s, std::int64_t task, int piece) {
          if (asked < 3) wrong += s != 2 || (task != 0 && task != 2) || piece != asked || begun > 0;
          ++asked;
          return piece < 7;
        });
    ASSERT_GE(asked, 3);
    ASSERT_EQ(wrong, 0);
  }
}

TEST(Stages, TheFirstExceptionComesOutAndTheListRunsAgain) {
  const KeepThreadCount keep;
  Stages stages({{8, -1}, {8, 0}, {8, 1}});
  for (const int threads : {1, 2, 4}) {
    set_thread_count(threads);
    for (int run = 0; run < 50; ++run) {
      std::atomic<int> last = 0;
      EXPECT_THROW(stages.run([&](int s, std::int64_t i) {
        if (s == 1 && i == 3) throw std::runtime_error("task");
        last += s == 2;
      }),
                   std::runtime_error);
      EXPECT_EQ(last, 0);
      stages.run([&](int s, std::int64_t) { last += s == 2; });
      EXPECT_EQ(last, 8);
    }
  }
}

TEST(Stages, InsideATaskTheyRunInThatTask) {
  const KeepThreadCount keep;
  set_thread_count(4);
  std::atomic<int> runs = 0;
  std::vector<Stages> lists;
  for (int i = 0; i < 4; ++i) lists.emplace_back(std::vector<Stage>{{3, -1}, {3, 0}});
  parallel_for(4, [&](std::int64_t t) { lists[static_cast<std::size_t>(t)].run([&](int, std::int64_t) { ++runs; }); });
  EXPECT_EQ(runs, 24);
}

TEST(Stages, NoStagesAndNoTasksAreDoneAtOnce) {
  Stages none({});
  none.run([](int, std::int64_t) { FAIL(); });
  Stages empty({{0, -1}, {0, 0}, {2, 1}});
  std::atomic<int> runs = 0;
  empty.run([&](int s, std::int64_t) { runs += s; });
  EXPECT_EQ(runs, 4);
}

}  // namespace
}  // namespace weft
