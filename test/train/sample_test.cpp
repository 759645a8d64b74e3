#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/philox.hpp"
#include "weft/error.hpp"
#include "weft/train/generate.hpp"

namespace weft::train {
namespace {

const std::vector<float> kLogits = {0, std::log(2.f), std::log(4.f), std::log(1.f)};  // probabilities 1/8 2/8 4/8 1/8

std::map<Token, double> frequencies(const SampleOptions& options, const std::vector<float>& logits = kLogits) {
  std::map<Token, double> counts;
  constexpr int n = 8000;
  for (int i = 0; i < n; ++i) counts[draw_token(logits, options, (i + 0.5) / n)] += 1.0 / n;
  return counts;
}

TEST(Sample, FollowsTheDistribution) {
  const auto plain = frequencies({.temperature = 1});
  EXPECT_NEAR(plain.at(0), 0.125, 1e-3);
  EXPECT_NEAR(plain.at(2), 0.5, 1e-3);
  const auto cold = frequencies({.temperature = 0.5});  // squares: 1 4 16 1
  EXPECT_NEAR(cold.at(2), 16.0 / 22, 1e-3);
}

TEST(Sample, TopKAndTopPCutTheTail) {
  EXPECT_EQ(frequencies({.temperature = 1, .top_k = 1}).size(), 1u);
  const auto two = frequencies({.temperature = 1, .top_k = 2});
  EXPECT_EQ(two.size(), 2u);
  EXPECT_NEAR(two.at(1), 1.0 / 3, 1e-3);
  EXPECT_EQ(frequencies({.temperature = 1, .top_p = 0.4}).size(), 1u);
  EXPECT_EQ(frequencies({.temperature = 1, .top_p = 0.7}).size(), 2u);
  EXPECT_EQ(frequencies({.temperature = 1, .top_k = 100}).size(), 4u);
}

TEST(Sample, EdgesAreDefined) {
  EXPECT_EQ(draw_token(kLogits, {.temperature = 0}, 0.99), 2);
  EXPECT_EQ(draw_token(std::vector<float>{1, 1}, {.temperature = 0}, 0.5), 0);
  EXPECT_EQ(draw_token(std::vector<float>{0, INFINITY, 0}, {.temperature = 1}, 0.999), 1);
  EXPECT_NE(draw_token(std::vector<float>{0, -INFINITY, 0}, {.temperature = 1}, 0.999), 1);
  EXPECT_EQ(draw_token(kLogits, {.temperature = 1e-9}, 0.9999), 2);
}

TEST(Sample, BadNumbersAreErrors) {
  EXPECT_THROW(draw_token({}, {}, 0), UsageError);
  EXPECT_THROW(draw_token(std::vector<float>{0, NAN}, {}, 0), UsageError);
  for (const SampleOptions& bad : {SampleOptions{.temperature = -1}, SampleOptions{.temperature = NAN},
                                   SampleOptions{.top_k = -1}, SampleOptions{.top_p = 0}, SampleOptions{.top_p = 1.5}})
    EXPECT_THROW(bad.check(), UsageError);
}

}  // namespace
}  // namespace weft::train
