// The rules of texts with times, the cut into segments, and subtitles.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "speech/decoding.hpp"
#include "speech/windows.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech {
namespace {

// Text 0 to 4, end 5, times off 6, times 7 to 11.
const WhisperTokens kTokens{.start = 5,
                            .end = 5,
                            .no_timestamps = 6,
                            .first_time = 7,
                            .languages = {},
                            .suppressed = {3},
                            .suppressed_at_first = {4},
                            .latest_first_time = 2};

/// The tokens that may come after those written, where all logits are equal but for a bonus of times.
std::vector<int> allowed(const std::vector<std::int32_t>& written, float bonus, bool timestamps = true) {
  std::vector<float> logits(12, 0);
  for (std::size_t i = 7; i < 12; ++i) logits[i] = bonus;
  apply_rules(logits, written, kTokens, timestamps);
  std::vector<int> list;
  for (int i = 0; i < 12; ++i)
    if (std::isfinite(logits[static_cast<std::size_t>(i)])) list.push_back(i);
  return list;
}
using Ids = std::vector<int>;

TEST(Rules, OfTimes) {
  EXPECT_EQ(allowed({}, -9), (Ids{7, 8, 9}));                       // the text begins with a time, not too late
  EXPECT_EQ(allowed({8}, 9), (Ids{0, 1, 2, 4, 5}));                 // then words, whatever times are worth
  EXPECT_EQ(allowed({8, 1}, -9), (Ids{0, 1, 2, 4, 5, 9, 10, 11}));  // a segment is not empty
  EXPECT_EQ(allowed({8, 1}, 0), (Ids{9, 10, 11}));                  // three times together beat any word
  EXPECT_EQ(allowed({8, 1, 10}, -9), (Ids{5, 10, 11}));             // the next segment begins, or the text ends
  EXPECT_EQ(allowed({8, 1, 10, 10}, 9), (Ids{0, 1, 2, 4, 5}));
  EXPECT_EQ(allowed({8, 1, 10, 10, 2}, 9), (Ids{11}));
}

TEST(Rules, WithoutTimes) {
  EXPECT_EQ(allowed({}, 0, false), (Ids{0, 1, 2, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(allowed({1}, 0, false), (Ids{0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(Choose, GreedyAndDraws) {
  const std::vector<float> logits = {1, 3, 3, -std::numeric_limits<float>::infinity()};
  EXPECT_EQ(choose(logits, 0, 0).token, 1);
  EXPECT_NEAR(choose(logits, 0, 0).log_probability, -std::log(2 + std::exp(-2.0)), 1e-6);
  int counts[4] = {};
  for (int i = 0; i < 1000; ++i) ++counts[choose(logits, 2, (i + 0.5) / 1000).token];
  const double total = std::exp(-1.0) + 2;
  EXPECT_NEAR(counts[0], 1000 * std::exp(-1.0) / total, 2);
  EXPECT_NEAR(counts[1], 1000 / total, 2);
  EXPECT_EQ(counts[3], 0);
  EXPECT_EQ(choose(logits, 1, 1).token, 2);  // a rest of rounding is not a token that never comes
  EXPECT_THROW(choose(std::vector<float>{1, NAN}, 0, 0), FileError);
  EXPECT_THROW(choose(std::vector<float>(3, -std::numeric_limits<float>::infinity()), 0, 0), FileError);
  EXPECT_NEAR(probability_of(logits, 1), 1 / (2 + std::exp(-2.0)), 1e-6);
}

struct CutCase {
  const char* name;
  std::vector<std::int32_t> tokens;
  std::vector<std::pair<Extent, Extent>> pieces;
  Extent advance;
};

TEST(Cut, AtTimes) {
  const CutCase cases[] = {
      {"nothing", {}, {}, 100},
      {"no times", {1, 2}, {{0, 100}}, 100},
      {"an end", {7, 1, 2, 9}, {{0, 4}}, 100},
      {"two segments", {7, 1, 8, 8, 2, 10, 10}, {{0, 2}, {2, 6}}, 6},
      {"the last one is not whole", {7, 1, 8, 9, 2, 2}, {{0, 2}}, 2},
      {"the last one ends the text", {7, 1, 8, 9, 2, 11}, {{0, 2}, {4, 8}}, 100},
      {"the first one has no begin", {1, 8, 9, 2, 11}, {{0, 2}, {4, 8}}, 100},
  };
  for (const CutCase& c : cases) {
    SCOPED_TRACE(c.name);
    const Cut cut = cut_at_times(c.tokens, kTokens, 100, 2);
    std::vector<std::pair<Extent, Extent>> pieces;
    for (const Piece& p : cut.pieces) pieces.emplace_back(p.begin, p.end);
    EXPECT_EQ(pieces, c.pieces);
    EXPECT_EQ(cut.advance, c.advance);
  }
}

TEST(Compression, FindsRepetitions) {
  EXPECT_EQ(compression_ratio(""), 0);
  EXPECT_LT(compression_ratio("The quick brown fox jumps over the lazy dog."), 1);
  std::string loop;
  for (int i = 0; i < 50; ++i) loop += "and so on ";
  EXPECT_GT(compression_ratio(loop), 10);
}

TEST(Languages, ByNameAndCode) {
  EXPECT_EQ(language_code("German"), "de");
  EXPECT_EQ(language_code("DE"), "de");
  EXPECT_EQ(language_code("haitian creole"), "ht");
  EXPECT_EQ(language_code("klingon"), "");
  EXPECT_EQ(language_name("yue"), "cantonese");
  EXPECT_EQ(language_name("xx"), "xx");
}

TEST(Subtitles, HaveTheirFormats) {
  Transcript t;
  t.segments = {{.begin = 0, .end = 1.5, .text = "One <b>", .tokens = {}},
                {.begin = 3661.0415, .end = 3662, .text = "two\n\n--> & three", .tokens = {}}};
  EXPECT_EQ(to_srt(t),
            "1\n00:00:00,000 --> 00:00:01,500\nOne <b>\n\n2\n01:01:01,042 --> 01:01:02,000\ntwo  -> & three\n\n");
  EXPECT_EQ(
      to_vtt(t),
      "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nOne &lt;b>\n\n01:01:01.042 --> 01:01:02.000\ntwo  -> &amp; three\n\n");
}

}  // namespace
}  // namespace weft::speech
