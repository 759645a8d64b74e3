// Caches of layers with windows, which keep the last positions in a ring: past its end, over steps back and forth, and in
// batches they give what caches of all positions give.
#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "llm/engine.hpp"
#include "llm/reference.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::ring_test {
namespace {

constexpr Extent kContext = 2048, kRing = 5 + 512;

std::vector<std::int32_t> some_tokens(std::size_t count, std::uint32_t stream = 0) {
  std::vector<std::int32_t> tokens;
  for (std::uint32_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(philox::block({9, stream}, {i, 0, 0, 0})[0] % 48));
  return tokens;
}

std::vector<std::int32_t> ids_of(const Result& result) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : result.tokens) ids.push_back(token.id);
  return ids;
}

/// The same model twice: with rings, and with all positions.
class Ring : public testing::Test {
 protected:
  void SetUp() override { put(test::tiny_with_window("gemma3_text")); }
  void put(const test::TinyModel& model) { test::put(model, folder_); }
  Model ring(LoadOptions options = {}) const {
    options.context = kContext;
    return load(folder_.path(), options);
  }
  Model whole(LoadOptions options = {}) const {
    options.whole_cache = true;
    return ring(options);
  }
  test::TemporaryFolder folder_;
};

GenerateOptions greedy(Extent tokens, Extent draft = 0) {
  return {.max_tokens = tokens, .sampling = {.temperature = 0}, .draft = draft};
}

TEST_F(Ring, LogitsFarPastItsEndAreThoseOfTheReference) {
  const auto tokens = some_tokens(2 * kRing + 100);
  for (const char* type : {"mistral", "gemma2", "gemma3_text"}) {
    SCOPED_TRACE(type);
    const test::TinyModel tiny = test::tiny_with_window(type);
    put(tiny);
    const std::vector<float> logits = ring().forward(tokens);
    const std::vector<test::Row> wanted = test::ReferenceModel(tiny).forward(tokens);
    for (std::size_t t = 0; t < tokens.size(); ++t)
      for (std::size_t i = 0; i < 48; ++i)
        ASSERT_NEAR(logits[t * 48 + i], wanted[t][i], 2e-4) << "token " << t << ", logit " << i;
  }
}

TEST_F(Ring, EveryTypeOfCacheGivesTheBitsOfTheWholeOne) {
  const auto tokens = some_tokens(kRing + 200);
  for (const CacheType type : {CacheType::f32, CacheType::f16, CacheType::q8}) {
    const Model short_one = ring({.cache = type}), long_one = whole({.cache = type});
    EXPECT_EQ(short_one.forward(tokens), long_one.forward(tokens));
    EXPECT_EQ(ids_of(short_one.generate(tokens, greedy(20)).result()),
              ids_of(long_one.generate(tokens, greedy(20)).result()));
  }
}

TEST_F(Ring, WhatItStillHoldsOfAPromptIsReusedAndTheRestReadAgain) {
  const Model short_one = ring(), long_one = whole();
  const auto text = some_tokens(1500), other = some_tokens(30, 1);
  // Each begins with so many tokens of the text, and 30 others. The longest has 1449 positions written, of which the ring
  // holds the last 517.
  struct Turn {
    const char* name;
    std::size_t same;
    bool lost = false;
  };
  const Turn turns[] = {{"fresh", 100},          {"over the end of the ring", 900},  {"once more", 1400},
                        {"a little back", 1390}, {"as far back as it holds", 936},   {"and no further", 935, true},
                        {"on again", 1400},      {"back to its first part", 3, true}};
  std::size_t before = 0;
  for (const Turn& turn : turns) {
    SCOPED_TRACE(turn.name);
    std::vector<std::int32_t> prompt(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(turn.same));
    prompt.insert(prompt.end(), other.begin(), other.end());
    const Result got = short_one.generate(prompt, greedy(20)).result(),
                 wanted = long_one.generate(prompt, greedy(20)).result();
    EXPECT_EQ(ids_of(got), ids_of(wanted));
    EXPECT_EQ(wanted.reused_tokens, static_cast<Extent>(std::min(before, turn.same)));
    EXPECT_EQ(got.reused_tokens, turn.lost ? 0 : wanted.reused_tokens);
    before = turn.same;
  }
}

TEST_F(Ring, APassOverWhatItLostIsRefused) {
  detail::Engine engine(folder_.path(), {.context = kContext});
  std::vector<detail::PositionedToken> steps;
  for (const std::int32_t token : some_tokens(1000)) steps.push_back({token, static_cast<Extent>(steps.size()), 0});
  (void)engine.last_logits(steps);
  const auto from = [&](std::size_t position) { (void)engine.last_logits(std::span(steps).subspan(position, 1)); };
  from(1000 - 513);
  const std::string message = test::message_of<InternalError>([&] { from(1000 - 514); });
  EXPECT_NE(message.find("position 486 of a sequence whose ring was written up to 1000"), std::string::npos) << message;
  from(0);  // begins anew
  from(1);
}

TEST_F(Ring, GuessesAtItsEndChangeSpeedOnly) {
  const Model model = ring();
  const auto wanted_of = whole();
  std::vector<std::int32_t> text;
  while (text.size() < 2 * kRing) text.push_back(static_cast<std::int32_t>(text.size() % 7));
  // Passes of several tokens begin at each of the last rows, and go on at the first.
  for (Extent length = 2 * kRing - 22; length < 2 * kRing; length += 7) {
    const auto prompt = std::span(text).first(static_cast<std::size_t>(length));
    const Result wanted = wanted_of.generate(prompt, greedy(40)).result(),
                 got = model.generate(prompt, greedy(40, 15)).result();
    EXPECT_EQ(ids_of(got), ids_of(wanted)) << length;
    EXPECT_GT(got.drafted_tokens, got.accepted_tokens);  // some were taken back
  }
}

TEST_F(Ring, SequencesOfABatchHaveRingsOfTheirOwn) {
  const Model model = ring({.sequences = 3}), alone = whole();
  std::vector<std::string> prompts;
  for (const std::size_t length :
       {std::size_t{700}, std::size_t{4}, std::size_t{510}, std::size_t{1100}, std::size_t{517}})
    prompts.push_back(model.decode(some_tokens(length, static_cast<std::uint32_t>(length))));
  const std::vector<Result> results = model.generate_batch(prompts, greedy(30));
  for (std::size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(ids_of(results[i]), ids_of(alone.generate(prompts[i], greedy(30)).result())) << i;
}

TEST_F(Ring, KeepsWhatTheWindowCanReachOnly) {
  // The layers and heads of Gemma 3 1B.
  put(test::tiny_with_window("gemma3_text", {{"num_hidden_layers", 26},
                                             {"num_key_value_heads", 1},
                                             {"head_dim", 256},
                                             {"sliding_window", 512},
                                             {"sliding_window_pattern", 6},
                                             {"max_position_embeddings", 32768}}));
  const auto bytes = [&](Extent context, bool whole) {
    return detail::Engine(folder_.path(), {.context = context, .cache = CacheType::f16, .whole_cache = whole})
        .cache_bytes();
  };
  constexpr std::uint64_t row = std::uint64_t{2} * 256 * 2;
  EXPECT_EQ(bytes(32768, false), (4 * 32768 + 22 * 1024) * row);
  EXPECT_EQ(bytes(32768, true), 26 * 32768 * row);
  EXPECT_EQ(bytes(1025, false), (4 * 1025 + 22 * 1024) * row);
  EXPECT_EQ(bytes(1024, false), 26 * 1024 * row);  // never more than the context
}

}  // namespace
}  // namespace weft::llm::ring_test
