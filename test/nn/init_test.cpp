#include "weft/nn/init.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

#include "base/threads.hpp"
#include "nn/draw_elements.hpp"

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

// The edges of words, of quarters of a turn and of the logarithm's fractions, and random ones, against the library's functions.
TEST(Init, NormalElementsAreThoseOfTheFormula) {
  std::vector<std::uint32_t> edges{0, 1, 2, 3, 0x5A827999, 0xB504F333, 0xFFFFFFFE, 0xFFFFFFFF};
  for (std::uint32_t eighth = 0; eighth < 8; ++eighth)
    for (const std::uint32_t step : {0xFFFFFFFFu, 0u, 1u}) edges.push_back((eighth << 29) + step);
  std::vector<std::uint32_t> words;
  for (const std::uint32_t w : edges)
    for (const std::uint32_t v : edges) words.insert(words.end(), {w, v});
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) words.push_back(static_cast<std::uint32_t>(random()));
  std::vector<float> got(words.size());
  normal_elements(words, 0.25, 3, got.data());
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const double radius = 3 * std::sqrt(-2 * std::log((words[i] + 0.5) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * words[i + 1] * 0x1p-32;
    const double wanted[] = {0.25 + radius * std::cos(angle), 0.25 + radius * std::sin(angle)};
    for (int e = 0; e < 2; ++e)
      ASSERT_NEAR(got[i + e], wanted[e], 0x1p-24 * std::abs(wanted[e]) + 1e-14) << words[i] << " " << words[i + 1];
  }
}

}  // namespace
}  // namespace weft::nn
