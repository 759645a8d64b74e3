// Tones at other rates are the same tones; what the new rate cannot hold goes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "audio/signals.hpp"
#include "weft/audio/sound.hpp"
#include "weft/error.hpp"

namespace weft::audio {
namespace {

/// The largest difference away from the ends, where the filter meets silence.
double worst_inside(const std::vector<float>& x, const std::vector<float>& y, std::size_t margin) {
  double worst = 0;
  for (std::size_t i = margin; i + margin < std::min(x.size(), y.size()); ++i)
    worst = std::max(worst, std::abs(double{x[i]} - y[i]));
  return worst;
}

TEST(Resample, TonesStayWhatTheyAre) {
  struct Case {
    int from, to;
  };
  for (const Case& c : {Case{44100, 16000}, Case{48000, 16000}, Case{8000, 16000}, Case{16000, 44100},
                        Case{22050, 24000}, Case{16000, 15999}, Case{11025, 96000}}) {
    const double half = std::min(c.from, c.to) / 2.0;
    for (const double share : {0.01, 0.3, 0.84}) {
      SCOPED_TRACE(std::to_string(c.from) + " to " + std::to_string(c.to) + ", " + std::to_string(share));
      const std::size_t frames = static_cast<std::size_t>(c.from) / 8;
      const Sound y = resample({test::tone(frames, c.from, share * half), 1, c.from}, c.to);
      EXPECT_EQ(y.rate, c.to);
      EXPECT_EQ(y.frames(), (frames * static_cast<std::size_t>(c.to) + static_cast<std::size_t>(c.from) - 1) /
                                static_cast<std::size_t>(c.from));
      const auto margin = static_cast<std::size_t>(60.0 * c.to / (2 * half));
      EXPECT_LT(worst_inside(y.samples, test::tone(y.frames(), c.to, share * half), margin), 5e-5);
    }
  }
}

TEST(Resample, WhatTheNewRateCannotHoldGoes) {
  for (const double hz : {8010.0, 9000.0, 15000.0, 21000.0}) {
    const Sound y = resample({test::tone(8820, 44100, hz), 1, 44100}, 16000);
    EXPECT_LT(worst_inside(y.samples, std::vector<float>(y.frames()), 100), 1e-4) << hz;
  }
}

TEST(Resample, ChannelsStayApart) {
  const std::vector<float> left = test::tone(4000, 8000, 500), right = test::tone(4000, 8000, 900);
  Sound both{{}, 2, 8000};
  for (std::size_t i = 0; i < left.size(); ++i) both.samples.insert(both.samples.end(), {left[i], right[i]});
  const Sound y = resample(both, 16000), one = resample({right, 1, 8000}, 16000);
  ASSERT_EQ(y.channels, 2);
  for (std::size_t i = 0; i < y.frames(); ++i) ASSERT_EQ(y.samples[2 * i + 1], one.samples[i]);
}

TEST(Resample, Edges) {
  const Sound same{{1, 2, 3}, 1, 8000};
  EXPECT_EQ(resample(same, 8000).samples, same.samples);
  EXPECT_EQ(resample({{}, 1, 8000}, 16000).frames(), 0u);
  const Sound constant = resample({std::vector<float>(2000, 0.5f), 1, 8000}, 11025);
  EXPECT_NEAR(constant.samples[1000], 0.5, 1e-6);
  EXPECT_THROW(resample(same, 0), UsageError);
  EXPECT_THROW(resample(same, kRateMax + 1), UsageError);
  EXPECT_THROW(resample({std::vector<float>(10000), 1, 1}, kRateMax), UsageError);
}

TEST(ToMono, IsTheMean) {
  const Sound mono = to_mono({{1, 0, 0.5f, -0.5f}, 2, 8000});
  EXPECT_EQ(mono.channels, 1);
  EXPECT_EQ(mono.samples, (std::vector<float>{0.5f, 0}));
  EXPECT_THROW(to_mono({{1, 0, 0}, 2, 8000}), UsageError);
}

TEST(ToTensor, HasChannelsAsRows) {
  const Tensor x = to_tensor({{1, 2, 3, 4, 5, 6}, 2, 8000}, kCpu);
  EXPECT_EQ(x.shape(), (Shape{2, 3}));
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{1, 3, 5, 2, 4, 6}));
}

}  // namespace
}  // namespace weft::audio
