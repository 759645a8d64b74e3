// How texts are cut into passes.
#include "encoder/passes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft::encoder {
namespace {

std::vector<TokenText> texts_of(const std::vector<Extent>& lengths) {
  std::vector<TokenText> texts;
  for (const Extent length : lengths)
    texts.push_back({std::vector<text::TokenId>(static_cast<std::size_t>(length)), {}});
  return texts;
}

Extent time_of(const std::vector<Pass>& passes, const PassNeeds& needs) {
  Extent time = 0;
  for (const Pass& pass : passes) time += pass.rows * pass.length + needs.pass_tokens;
  return time;
}

/// The least time of the texts from `at` on, of lengths that fall, of all cuts.
Extent least_time(const std::vector<Extent>& lengths, std::size_t at, const PassNeeds& needs) {
  if (at == lengths.size()) return 0;
  const Extent length = std::max(lengths[at], std::min((lengths[at] + 7) / 8 * 8, needs.length_max));
  Extent least = -1;
  for (const Extent rows : {1, 2, 3, 4, 6, 8, 12}) {
    if (rows > 1 && rows * length > needs.tokens_max) continue;
    const std::size_t next = std::min(lengths.size(), at + static_cast<std::size_t>(rows));
    const Extent time = rows * length + needs.pass_tokens + least_time(lengths, next, needs);
    least = least < 0 ? time : std::min(least, time);
  }
  return least;
}

TEST(EncoderPasses, TakeTheLeastTimeAndEveryTextOnce) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const PassNeeds needs{.tokens_max = 200, .pass_tokens = static_cast<Extent>(random() % 80), .length_max = 60};
    std::vector<Extent> lengths(1 + random() % 11);
    for (Extent& each : lengths) each = 1 + random() % 60;
    const std::vector<TokenText> texts = texts_of(lengths);
    const std::vector<Pass> passes = passes_of(texts, needs);
    std::vector<int> seen(lengths.size());
    for (const Pass& pass : passes) {
      EXPECT_LE(static_cast<Extent>(pass.texts.size()), pass.rows);
      EXPECT_LE(pass.length, 60);
      EXPECT_TRUE(pass.rows * pass.length <= needs.tokens_max || pass.rows == 1);
      for (const std::size_t i : pass.texts) {
        EXPECT_LE(lengths[i], pass.length);
        ++seen.at(i);
      }
    }
    EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
    std::sort(lengths.rbegin(), lengths.rend());
    EXPECT_EQ(time_of(passes, needs), least_time(lengths, 0, needs));
  }
}

// 64 texts of 10 to 129 tokens: padding is less than a third of the tokens, not nearly half as in one pass.
TEST(EncoderPasses, MixedLengthsAreNotFilledUpToTheLongest) {
  std::vector<Extent> lengths;
  for (Extent i = 0; i < 64; ++i) lengths.push_back(10 + (i * 37) % 120);
  const std::vector<Pass> passes =
      passes_of(texts_of(lengths), {.tokens_max = 16384, .pass_tokens = 512, .length_max = 512});
  EXPECT_LE(passes.size(), 3u);
  EXPECT_LE(time_of(passes, {}), 6656);
}

}  // namespace
}  // namespace weft::encoder
