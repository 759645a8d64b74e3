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

const Case kMore[] = {
    {"exponential", Schedule::exponential(2, 0.5), 3, 0.25},
    {"polynomial", Schedule::polynomial(1, 0.2, 10, 2), 5, 0.4},
    {"polynomial stays", Schedule::polynomial(1, 0.2, 10, 2), 50, 0.2},
    {"restarts, middle", Schedule::restarts(1, 0, 4), 2, 0.5},
    {"restarts, second begins", Schedule::restarts(1, 0, 4), 4, 1},
    {"restarts that grow, third begins", Schedule::restarts(1, 0, 3, 2), 9, 1},
    {"restarts that grow, middle of the third", Schedule::restarts(1, 0, 3, 2), 15, 0.5},
    {"restarts that grow, far", Schedule::restarts(1, 0, 3, 2), 3 * 1023, 1},
    {"one cycle, first", Schedule::one_cycle(1, 21, 11, 0.1, 0), 0, 0.1},
    {"one cycle, top", Schedule::one_cycle(1, 21, 11, 0.1, 0), 10, 1},
    {"one cycle, way down", Schedule::one_cycle(1, 21, 11, 0.1, 0), 15, 0.5},
    {"one cycle, after", Schedule::one_cycle(1, 21, 11, 0.1, 0), 99, 0},
    {"cyclic, up", Schedule::cyclic(1, 3, 4, 8), 2, 2},
    {"cyclic, down", Schedule::cyclic(1, 3, 4, 8), 8, 2},
    {"cyclic, second cycle", Schedule::cyclic(1, 3, 4, 8, 0.5), 16, 2},
    {"then, before", Schedule::constant(1).then(5, Schedule::linear(2, 0, 10)).then(10, Schedule::constant(7)), 4.9, 1},
    {"then, inside", Schedule::constant(1).then(5, Schedule::linear(2, 0, 10)).then(10, Schedule::constant(7)), 7, 1.6},
    {"then, last", Schedule::constant(1).then(5, Schedule::linear(2, 0, 10)).then(10, Schedule::constant(7)), 10, 7},
};

TEST(Schedule, MoreKinds) {
  for (const Case& c : kMore) {
    c.schedule.check();
    EXPECT_NEAR(c.schedule.at(c.step), c.rate, 1e-12) << c.name;
  }
  EXPECT_THROW(Schedule::restarts(1, 0, 4, 0.5).check(), UsageError);
  EXPECT_THROW(Schedule::cyclic(0, 1, 4, 0).check(), UsageError);
  EXPECT_THROW(Schedule::one_cycle(1, 0, 0, 0, 0).check(), UsageError);
  EXPECT_THROW(Schedule::constant(1).then(0, Schedule::constant(2)).check(), UsageError);
  EXPECT_THROW(Plateau({.factor = 1}), UsageError);
  EXPECT_THROW(Plateau({.patience = -1}), UsageError);
}

TEST(Schedule, PlateauWaitsAndFalls) {
  Plateau plateau({.rate = 1, .factor = 0.5, .patience = 1, .cooldown = 1, .least_rate = 0.2});
  const std::pair<double, double> measures[] = {{3, 1},    {3, 1},    {3, 0.5},  {3, 0.5}, {3, 0.5},
                                                {3, 0.25}, {2, 0.25}, {2, 0.25}, {2, 0.2}, {2, 0.2}};
  for (const auto& [measure, rate] : measures) EXPECT_EQ(plateau.update(measure), rate) << measure;
}

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
