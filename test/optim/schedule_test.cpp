#include "weft/optim/schedule.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "weft/error.hpp"

namespace weft::optim::schedule_test {
namespace {

struct Case {
  const char* name;
  Schedule schedule;
  double step, rate;
};
const Case kCases[] = {
    {"constant", Schedule::constant(0.5), 1e6, 0.5},
    {"linear begins", Schedule::linear(1, 0.2, 100), 0, 1},
    {"linear half way", Schedule::linear(1, 0.2, 100), 50, 0.6},
    {"linear stays at the end", Schedule::linear(1, 0.2, 100), 500, 0.2},
    {"cosine begins", Schedule::cosine(2, 0, 100), 0, 2},
    {"cosine quarter", Schedule::cosine(2, 0, 100), 25, 1 + std::cos(std::acos(-1.0) / 4)},
    {"cosine half way", Schedule::cosine(2, 1, 100), 50, 1.5},
    {"cosine ends", Schedule::cosine(2, 1, 100), 100, 1},
    {"fraction of a step", Schedule::linear(1, 0, 2), 0.5, 0.75},
    {"rise, first step", Schedule::cosine(2, 0, 100).with_warm_up(10), 0, 0.2},
    {"rise, last step", Schedule::cosine(2, 0, 100).with_warm_up(10), 9, 2},
    {"after the rise", Schedule::cosine(2, 0, 110).with_warm_up(10), 10, 2},
    {"fall counts from the rise", Schedule::linear(2, 0, 110).with_warm_up(10), 60, 1},
    {"staircase, first tread", Schedule::staircase(1, 0.5, 10), 9.9, 1},
    {"staircase, third", Schedule::staircase(1, 0.5, 10), 20, 0.25},
    {"milestones, before", Schedule::multi_step(1, 0.1, {5, 7}), 4, 1},
    {"milestones, at the first", Schedule::multi_step(1, 0.1, {5, 7}), 5, 0.1},
    {"milestones, after both", Schedule::multi_step(1, 0.1, {5, 7}), 100, 0.01},
};

TEST(Schedule, Values) {
  for (const Case& c : kCases) EXPECT_NEAR(c.schedule.at(c.step), c.rate, 1e-12) << c.name;
}

TEST(Schedule, BadNumbersAreErrors) {
  EXPECT_THROW(Schedule::constant(-1).check(), UsageError);
  EXPECT_THROW(Schedule::constant(NAN).check(), UsageError);
  EXPECT_THROW(Schedule::cosine(1, 0, 0).check(), UsageError);
  EXPECT_THROW(Schedule::staircase(1, 0.5, 0).check(), UsageError);
  EXPECT_THROW(Schedule::multi_step(1, 0.5, {3, 2}).check(), UsageError);
  Schedule::cosine(1, 0.1, 10).with_warm_up(3).check();
}

}  // namespace
}  // namespace weft::optim::schedule_test
