#include "weft/nn/init.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/threads.hpp"

namespace weft::nn {
namespace {

TEST(Init, ElementsDependOnNeitherCountNorThreads) {
  const Init init = Init::normal(1);
  const std::vector<float> whole = draw(init, 100'003, 7, "a.weight");
  const std::vector<float> part = draw(init, 1'001, 7, "a.weight");
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin()));
  const int before = thread_count();
  set_thread_count(1);
  EXPECT_EQ(draw(init, 100'003, 7, "a.weight"), whole);
  set_thread_count(before);
}

TEST(Init, SeedAndNameChooseTheStream) {
  const Init init = Init::uniform(0, 1);
  const std::vector<float> a = draw(init, 64, 7, "a");
  EXPECT_NE(a, draw(init, 64, 8, "a"));
  EXPECT_NE(a, draw(init, 64, 7, "b"));
  EXPECT_NE(a, draw(init, 64, 7 + (std::uint64_t{1} << 32), "a"));
  EXPECT_EQ(a, draw(init, 64, 7, "a"));
}

struct MomentsCase {
  const char* name;
  Init init;
  double mean, deviation, least, largest;
};
const MomentsCase kMoments[] = {
    {"normal", Init::normal(0.02), 0, 0.02, -0.2, 0.2},
    {"shifted normal", Init::normal(2, 5), 5, 2, -10, 20},
    {"uniform", Init::uniform(-3, 1), -1, 4 / std::sqrt(12.0), -3, 1},
    {"kaiming uniform is 1 / sqrt(fan in)", Init::kaiming_uniform(100), 0, 0.2 / std::sqrt(12.0), -0.1, 0.1},
    {"kaiming normal", Init::kaiming_normal(50), 0, 0.2, -2, 2},
    {"xavier uniform", Init::xavier_uniform(100, 50), 0, 0.4 / std::sqrt(12.0), -0.2, 0.2},
    {"constant", Init::constant(3), 3, 0, 3, 3},
};

TEST(Init, MomentsAndRange) {
  for (const MomentsCase& c : kMoments) {
    SCOPED_TRACE(c.name);
    const std::vector<float> values = draw(c.init, 200'000, 3, c.name);
    double sum = 0, squares = 0;
    for (const float v : values) {
      EXPECT_GE(v, c.least);
      EXPECT_LE(v, c.largest);
      sum += v;
      squares += static_cast<double>(v) * v;
    }
    const double n = static_cast<double>(values.size()), mean = sum / n;
    EXPECT_NEAR(mean, c.mean, 0.01 * (c.deviation + 1e-12));
    EXPECT_NEAR(std::sqrt(std::max(0.0, squares / n - mean * mean)), c.deviation, 0.01 * c.deviation + 1e-6);
  }
}

TEST(Init, RefusesNoInputs) { EXPECT_THROW(Init::kaiming_uniform(0), ShapeError); }

}  // namespace
}  // namespace weft::nn
