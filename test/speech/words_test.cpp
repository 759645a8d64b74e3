// Times of words, against OpenAI's whisper with equal weights (make_words.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/message_of.hpp"
#include "runtime/devices.hpp"
#include "speech/alignment.hpp"
#include "speech/tiny_whisper.hpp"
#include "speech/word_times.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"
#include "weft/speech.hpp"

namespace weft::speech::words_test {
namespace {

const Json& golden() {
  static const Json json = read_json_file(WEFT_TEST_WORDS);
  return json;
}

/// Writes the tiny model with these heads of alignment.
void put_model(const test::TemporaryFolder& folder, const Json& heads) {
  test::put_whisper(folder);
  Json generation = test::whisper_golden().at("generation_config");
  if (!heads.is_null()) generation["alignment_heads"] = heads;
  folder.put("generation_config.json", generation.dump());
}

std::vector<float> values_of(const std::string& name, const Shape& shape) {
  return test::random_values(name, shape, 1.7 / std::sqrt(static_cast<double>(shape.numel() / shape[0]))).values;
}

TEST(Alignment, MediansAreThoseOfWhisper) {
  for (const Json& c : golden()["medians"]) {
    const auto size = c[0].get<Extent>();
    std::vector<float> row = values_of(fmt::format("row{}", size), {1, size});
    median_filter(row, 7);
    const auto wanted = c[1].get<std::vector<double>>();
    ASSERT_EQ(row.size(), wanted.size());
    for (std::size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], wanted[i], 1e-6) << size << " " << i;
  }
}

TEST(Alignment, PathsAreThoseOfWhisper) {
  for (const Json& c : golden()["begins"]) {
    const auto rows = c[0].get<Extent>(), columns = c[1].get<Extent>();
    EXPECT_EQ(path_begins(values_of(fmt::format("costs{}x{}", rows, columns), {rows, columns}), rows, columns),
              c[2].get<std::vector<Extent>>())
        << rows << " x " << columns;
  }
}

TEST(Alignment, WhatIsHeardIsThatOfWhisper) {
  std::vector<float> scores = values_of("scores", {2, 9, 40});
  for (float& score : scores) score *= 20;
  const std::vector<float> heard = heard_in(scores, 2, 9, 40, 33);
  const auto wanted = golden()["heard"].get<std::vector<double>>();
  ASSERT_EQ(heard.size(), wanted.size());
  for (std::size_t i = 0; i < heard.size(); ++i) EXPECT_NEAR(heard[i], wanted[i], 2e-4) << i;
  // A state that no token hears more than another is not a division by zero.
  EXPECT_EQ(heard_in(std::vector<float>(3 * 5, 1), 1, 3, 5, 5), std::vector<float>(3 * 5, 0));
}

void expect_words_of_whisper(const Json& model, Device device) {
  const test::TemporaryFolder folder;
  put_model(folder, model["alignment_heads"]);
  detail::WhisperEngine engine(folder.path(), {.device = device});
  const Transcriber face = load_transcriber(folder.path(), {.device = device});
  engine.encode(face.features(test::whisper_sound(0.98)));
  std::size_t count = 0;
  for (const Json& c : model["windows"]) {
    SCOPED_TRACE(c["name"].get<std::string>());
    std::vector<std::vector<std::int32_t>> tokens;
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < c["tokens"].size(); ++i) tokens.push_back(c["tokens"][i]);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      pieces.push_back({c["pieces"][i][0].get<Extent>(), c["pieces"][i][1].get<Extent>(), tokens[i]});
    WordTimes times(engine, face.prompt_tokens("de", Task::transcribe, false), true);
    const std::vector<SpokenPiece> spoken = times.find(pieces, c["first"].get<Extent>(), c["frames"].get<Extent>());
    ASSERT_EQ(spoken.size(), pieces.size());
    for (std::size_t p = 0; p < spoken.size(); ++p) {
      EXPECT_NEAR(spoken[p].begin, c["segments"][p][0].get<double>(), 1e-6);
      EXPECT_NEAR(spoken[p].end, c["segments"][p][1].get<double>(), 1e-6);
      const Json& words = c["words"][p];
      ASSERT_EQ(spoken[p].words.size(), words.size());
      for (std::size_t w = 0; w < words.size(); ++w, ++count) {
        const Word& word = spoken[p].words[w];
        EXPECT_EQ(word.text, words[w][2].get<std::string>());
        EXPECT_NEAR(word.begin, words[w][0].get<double>(), 0.0051) << word.text;
        EXPECT_NEAR(word.end, words[w][1].get<double>(), 0.0051) << word.text;
        EXPECT_NEAR(word.probability / words[w][3].get<double>(), 1, 0.01) << word.text;
      }
    }
  }
  EXPECT_GT(count, 20u);
}

TEST(Words, HaveTheTimesOfWhisper) {
  for (const Json& model : golden()["words"]) expect_words_of_whisper(model, kCpu);
}

TEST(Words, HaveTheirTimesOnWebGpu) {
  if (test::choose_driver().empty()) GTEST_SKIP() << "no driver";
  const Device gpu = parse_device("webgpu:0");
  runtime::backend_of(gpu);
  expect_words_of_whisper(golden()["words"][0], gpu);
}

TEST(Words, AreWholeCharacters) {
  const test::TemporaryFolder folder;
  put_model(folder, nullptr);
  const llm::Tokenizer tokenizer = load_transcriber(folder.path()).tokenizer();
  const auto tokens_of = [](std::string_view text) {
    std::vector<std::int32_t> tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  };
  std::vector<std::int32_t> all;
  for (const Json& word : golden()["by_characters"])
    for (const Json& token : word[1]) all.push_back(token.get<std::int32_t>());
  const std::vector<TimedWord> words = split_words(all, tokenizer, false);
  ASSERT_EQ(words.size(), golden()["by_characters"].size());
  for (std::size_t i = 0; i < words.size(); ++i) {
    EXPECT_EQ(words[i].text, golden()["by_characters"][i][0].get<std::string>());
    EXPECT_EQ(words[i].tokens, golden()["by_characters"][i][1].get<std::vector<std::int32_t>>());
  }
  // Bytes that are no characters, inside and at the end: no token is lost.
  for (const std::string_view text : {" \xC3"
                                      "A\xE4\xBD \xBF\x80"
                                      "B",
                                      "AB\xE4\xBD", "\xE4", " \xF0\x9F\x98"}) {
    const std::vector<std::int32_t> given = tokens_of(text);
    std::vector<std::int32_t> found;
    for (const TimedWord& word : split_words(given, tokenizer, true))
      found.insert(found.end(), word.tokens.begin(), word.tokens.end());
    EXPECT_EQ(found, given);
  }
  EXPECT_TRUE(split_words({}, tokenizer, true).empty());
  EXPECT_TRUE(is_written_without_spaces("ja"));
  EXPECT_FALSE(is_written_without_spaces("de"));
}

TEST(Words, LongOnesAreCut) {
  const auto word = [](double begin, double end, const char* text) { return TimedWord{text, {}, begin, end, 0}; };
  // A word that is 3 s long at the end of a sentence, and one that begins the next.
  std::vector<TimedWord> words = {word(0, 0.2, " a"), word(0.2, 0.4, " b"), word(0.4, 3.4, "."), word(3.4, 6.4, " c")};
  const WordLengths lengths = lengths_of(words);
  EXPECT_DOUBLE_EQ(lengths.median, 0.7);  // of 0.2, 0.2, 3 and 3 it is 1.6, which is too much
  cut_at_sentences(words, lengths);
  EXPECT_DOUBLE_EQ(words[2].end, 0.4 + 1.4);
  EXPECT_DOUBLE_EQ(words[3].begin, 6.4 - 1.4);
  EXPECT_EQ(lengths_of({}).median, 0);
  EXPECT_EQ(lengths_of(std::vector{word(1, 1, "a")}).most, 0);

  // A pause before a segment is no part of its first words.
  const WordLengths short_words{0.2, 0.4};
  std::vector<TimedWord> late = {word(0, 4, " a"), word(4, 8, " b"), word(8, 8.2, " c")};
  double begin = 0, end = 8.2;
  fit_segment(late, begin, end, 0, short_words);
  EXPECT_DOUBLE_EQ(late[1].begin, 7.6);
  EXPECT_DOUBLE_EQ(late[0].end, 7.6);
  EXPECT_DOUBLE_EQ(late[0].begin, 7.2);
  EXPECT_DOUBLE_EQ(begin, 7.2);
  // A segment's own times hold against words that are far outside of it.
  std::vector<TimedWord> wide = {word(0, 3, " a"), word(3, 9, " b")};
  begin = 2.5, end = 4;
  fit_segment(wide, begin, end, 3, short_words);
  EXPECT_DOUBLE_EQ(wide[0].begin, 2.5);
  EXPECT_DOUBLE_EQ(wide[1].end, 4);
  EXPECT_DOUBLE_EQ(begin, 2.5);
  EXPECT_DOUBLE_EQ(end, 4);
}

TEST(Words, OfAWholeSound) {
  const test::TemporaryFolder folder;
  put_model(folder, golden()["words"][0]["alignment_heads"]);
  const Transcriber model = load_transcriber(folder.path());
  TranscribeOptions options{.language = "de", .temperatures = {0}, .log_probability_min = -100, .max_tokens = 12};
  const audio::Sound sound = test::whisper_sound(2.9);
  const Transcript plain = model.transcribe(sound, options);
  options.words = true;
  const Transcript timed = model.transcribe(sound, options);
  // The text is the same as without.
  ASSERT_EQ(timed.segments.size(), plain.segments.size());
  EXPECT_EQ(timed.text, plain.text);
  ASSERT_GE(timed.segments.size(), 2u);
  for (std::size_t i = 0; i < timed.segments.size(); ++i) {
    const Segment& s = timed.segments[i];
    EXPECT_EQ(s.tokens, plain.segments[i].tokens);
    EXPECT_TRUE(plain.segments[i].words.empty());
    for (const Word& word : s.words) {
      EXPECT_LE(word.begin, word.end);
      EXPECT_FALSE(word.text.empty());
      EXPECT_TRUE(word.probability > 0 && word.probability <= 1);
    }
    if (s.words.empty()) continue;
    EXPECT_DOUBLE_EQ(s.begin, s.words.front().begin);
    EXPECT_LE(s.words.back().begin, s.end);
  }
  // With texts that are as long as the model has positions, there is no room for the token of the end.
  options.max_tokens = model.positions();
  options.timestamps = false;
  EXPECT_FALSE(model.transcribe(test::whisper_sound(0.98), options).segments.at(0).words.empty());
}

TEST(Words, OnlySpeechIsHeard) {
  const test::TemporaryFolder folder;
  put_model(folder, nullptr);
  const Transcriber model = load_transcriber(folder.path());
  TranscribeOptions options{.language = "de", .temperatures = {0}, .log_probability_min = -100, .max_tokens = 8};
  audio::Sound sound = test::whisper_sound(2.9);
  options.speech = {{{1.2, 2}}};
  const Transcript heard = model.transcribe(sound, options);
  ASSERT_FALSE(heard.segments.empty());
  EXPECT_GE(heard.segments.front().begin, 1.19);
  // The same as a sound that is silent elsewhere, heard from there on.
  std::fill(sound.samples.begin(), sound.samples.begin() + 19200, 0.0f);
  std::fill(sound.samples.begin() + 32000, sound.samples.end(), 0.0f);
  options.speech = {{{1.2, 2.9}}};
  const Transcript same = model.transcribe(sound, options);
  EXPECT_EQ(same.segments.front().tokens, heard.segments.front().tokens);
  EXPECT_EQ(same.segments.front().begin, heard.segments.front().begin);
  options.speech = {{{1.2, 1e300}}};  // longer than the sound
  EXPECT_EQ(model.transcribe(sound, options).segments.size(), same.segments.size());
  options.speech.emplace();  // no speech at all
  EXPECT_TRUE(model.transcribe(sound, options).segments.empty());
  options.speech = {{{1, 2}, {1.5, 3}}};
  EXPECT_NE(
      test::message_of<UsageError>([&] {
        model.transcribe(sound, options);
      }).find("speech from 1.5 s to 3 s; spans have lengths and follow each other, and the one before ends at 2 s"),
      std::string::npos);
}

TEST(Words, HeadsThatTheModelLacksAreRefused) {
  const auto refusal = [](const Json& heads) {
    const test::TemporaryFolder folder;
    put_model(folder, heads);
    return test::message_of<FileError>([&] { load_transcriber(folder.path()); });
  };
  EXPECT_NE(refusal({{3, 0}}).find("alignment_heads has the layer 3; the model has 3 of them"), std::string::npos);
  EXPECT_NE(refusal({{0, -1}}).find("has the head -1; the model has 2 of them"), std::string::npos);
  EXPECT_NE(refusal({{0, 1, 2}}).find("is not a list of pairs [layer, head]"), std::string::npos);
  EXPECT_NE(refusal("all").find("is not a list of pairs [layer, head]"), std::string::npos);
}

TEST(Words, AreShownInSubtitles) {
  Transcript t;
  t.segments = {{.begin = 1, .end = 3, .text = "One & two", .tokens = {}},
                {.begin = 3, .end = 4, .text = "three", .tokens = {}}};
  t.segments[0].words = {{1, 1.5, " One", 1}, {1.5, 1.75, " &", 1}, {2.25, 3, " two", 1}};
  EXPECT_EQ(to_vtt(t, WordCues::marks),
            "WEBVTT\n\n00:00:01.000 --> 00:00:03.000\nOne <00:00:01.500>&amp; <00:00:02.250>two\n\n");
  EXPECT_EQ(to_srt(t, WordCues::each),
            "1\n00:00:01,000 --> 00:00:01,500\nOne\n\n2\n00:00:01,500 --> 00:00:01,750\n&\n\n"
            "3\n00:00:02,250 --> 00:00:03,000\ntwo\n\n");
  EXPECT_EQ(to_srt(t, WordCues::marks), to_srt(t));
  EXPECT_NE(to_vtt(t, WordCues::each).find("00:00:02.250 --> 00:00:03.000\ntwo\n"), std::string::npos);
  // Without words, segments are shown.
  Transcript plain = t;
  plain.segments[0].words.clear();
  EXPECT_EQ(to_vtt(plain, WordCues::marks), to_vtt(t));
  EXPECT_EQ(to_srt(plain, WordCues::each), to_srt(t));
  // Times that do not rise, or lie outside of the cue, are not marked.
  t.segments[0].words = {{1, 1, " a", 1}, {1, 1, "b", 1}, {0.5, 5, " c", 1}, {3, 3, " d", 1}};
  EXPECT_NE(to_vtt(t, WordCues::marks).find("\nab c d\n"), std::string::npos);
}

}  // namespace
}  // namespace weft::speech::words_test
