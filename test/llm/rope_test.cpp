// Frequencies of rotary positions under yarn: as the paper has them (Peng et al. 2023, arXiv:2309.00071), pair by pair.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "llm/config.hpp"

namespace weft::llm {
namespace {

ModelConfig yarn(double base, Extent original, double beta_slow, bool truncate) {
  ModelConfig config;
  config.context = original * 8;
  config.rope_base = base;
  config.rope_dims = 16;
  config.rope_scaling = {.kind = RopeScaling::Kind::yarn,
                         .factor = 8,
                         .beta_slow = beta_slow,
                         .truncate = truncate,
                         .original_context = original};
  return config;
}

TEST(Rope, YarnTurnsFastPairsAsTheyWereAndSlowOnesByTheFactor) {
  struct Case {
    double base;
    Extent original;
    double beta_slow;
    bool truncate;
  };
  const Case cases[] = {{10000, 2048, 1, true},
                        {10000, 2048, 1, false},
                        {50, 4096, 1, true},  // even the slowest pair turns often: the ramp ends beyond the last
                        {50, 4096, 1, false},
                        {20, 8192, 0.1, false}};
  for (const Case& c : cases) {
    const ModelConfig config = yarn(c.base, c.original, c.beta_slow, c.truncate);
    const RopeTable table = rope_table(config, config.context, false);
    ASSERT_EQ(table.frequencies.size(), 8u);
    // The pair that turns `beta` times within the original context.
    const auto pair_of = [&](double beta) {
      return 16 * std::log(static_cast<double>(c.original) / (beta * 2 * M_PI)) / (2 * std::log(c.base));
    };
    double low = pair_of(config.rope_scaling.beta_fast), high = pair_of(c.beta_slow);
    if (c.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, 15.0);
    for (int i = 0; i < 8; ++i) {
      const double plain = std::pow(c.base, -i / 8.0),
                   ramp = std::clamp((i - low) / std::max(high - low, 0.001), 0.0, 1.0);
      EXPECT_NEAR(table.frequencies[static_cast<std::size_t>(i)], plain * (1 - ramp) + plain / 8 * ramp, 1e-6 * plain)
          << "base " << c.base << ", pair " << i;
    }
  }
}

}  // namespace
}  // namespace weft::llm
