// Files of a few kilobytes that ask for more time or memory than a call may use, and texts that look like added tokens.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/message_of.hpp"
#include "text/call_limits.hpp"
#include "text/pattern.hpp"
#include "text/tokenizer.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using nlohmann::json;
using Ids = std::vector<TokenId>;

json words_of(const std::vector<std::string>& words) {
  json vocabulary = json::object();
  for (const std::string& word : words) vocabulary[word] = vocabulary.size();
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
          {"post_processor", nullptr},
          {"decoder", nullptr},
          {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "?"}}}};
}
json added(int id, const char* content, bool special, bool normalized) {
  return {{"id", id}, {"content", content}, {"special", special}, {"normalized", normalized}};
}
json repeated(int count, const json& part) { return json(std::vector<json>(static_cast<std::size_t>(count), part)); }
const json kDoubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};

std::string refusal(const json& document, std::string_view text) {
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  return test::message_of<UsageError>([&] { t.encode(text); });
}

TEST(Limits, NormalizersThatMultiplyTheText) {
  json document = words_of({"?", "a"});
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", repeated(40, kDoubling)}};
  EXPECT_NE(refusal(document, "a").find("makes more than 67108864 bytes of a text of 1"), std::string::npos);
  const json thousand = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1000, 'a')}};
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", repeated(8, thousand)}};
  EXPECT_NE(refusal(document, "a").find("makes more than"), std::string::npos);
  // An added token is put into its normal form when the file is read.
  document["added_tokens"].push_back(added(2, "a", false, true));
  EXPECT_NE(
      test::message_of<FileError>([&] { Tokenizer::from_json(document.dump(), "t.json"); }).find("makes more than"),
      std::string::npos);
}

TEST(Limits, OrdinaryGrowthIsFree) {
  json document = words_of({"?", "a"});
  document["normalizer"] = {{"type", "Sequence"}, {"normalizers", repeated(4, kDoubling)}};
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_EQ(t.encode("a b a").size(), 3u);
}

TEST(Limits, PreTokenizersThatMultiplyTheText) {
  json document = words_of({"?", "a"});
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", repeated(40, bytes)}};
  EXPECT_NE(refusal(document, "\xC3\xA9").find("makes more than"), std::string::npos);
}

TEST(Limits, PostProcessorsThatMultiplyTokens) {
  json document = words_of({"?", "a"});
  const json twice = {{"type", "TemplateProcessing"},
                      {"single", {{{"Sequence", {{"id", "A"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                      {"pair", json::array()}};
  document["post_processor"] = {{"type", "Sequence"}, {"processors", repeated(60, twice)}};
  EXPECT_NE(refusal(document, "a").find("make more than 65540 tokens of 1"), std::string::npos);
}

TEST(Limits, DecodersThatMultiplyTheText) {
  json document = words_of({"?", "a"});
  document["decoder"] = {{"type", "Sequence"}, {"decoders", repeated(60, kDoubling)}};
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_NE(test::message_of<UsageError>([&] { t.decode(Ids{1}); }).find("makes more than"), std::string::npos);
}

// One deadline for a call, however many words its text has.
TEST(Limits, PatternsShareADeadline) {
  json document = words_of({"?", "a"});
  document["pre_tokenizer"] = {{"type", "Sequence"},
                               {"pretokenizers",
                                {{{"type", "WhitespaceSplit"}},
                                 {{"type", "Split"},
                                  {"pattern", {{"Regex", "(?:a|a)*c|[a-z]"}}},
                                  {"behavior", "Isolated"},
                                  {"invert", false}}}}};
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += std::string(17, 'a') + " ";
  const CallLimits limits(text.size(), CallLimits::kBytesFloor, std::chrono::milliseconds(50));
  EXPECT_NE(test::message_of<UsageError>([&] { t.encode(text); }).find("takes more than 50 ms"), std::string::npos);
}

TEST(Limits, LongPiecesOfUnigrams) {
  const std::vector<std::pair<std::string, double>> pieces = {{"?", 0}, {"a", -1}, {std::string(60000, 'a'), -2}};
  const json document = {{"version", "1.0"}, {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}}};
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  const CallLimits limits(0, CallLimits::kBytesFloor, std::chrono::milliseconds(50));
  EXPECT_NE(test::message_of<UsageError>([&] { t.encode(std::string(200000, 'a')); }).find("takes more than 50 ms"),
            std::string::npos);
}

// ---- Added tokens in plain text ----------------------------------------------------------------------------------------

TEST(PlainText, BecomesNoAddedToken) {
  json document = words_of({"?", "a", "b"});
  for (const bool special : {false, true})
    for (const bool normalized : {false, true}) {
      SCOPED_TRACE(testing::Message() << special << normalized);
      document["added_tokens"] = {added(3, "<tool_call>", special, normalized)};
      const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
      EXPECT_EQ(t.encode("a<tool_call>b"), (Ids{1, 3, 2}));
      EXPECT_EQ(t.encode("a <tool_call> b", {.parse_special = false}), (Ids{1, 0, 2}));
      const TextSegment segments[] = {{"a", false}, {"<tool_call>", true}, {"<tool_call>", false}};
      EXPECT_EQ(t.encode(segments), (Ids{1, 3, 0}));
    }
  // With a normalizer too.
  document["normalizer"] = {{"type", "Lowercase"}};
  document["added_tokens"] = {added(3, "<tool_call>", false, true)};
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_EQ(t.encode("<TOOL_CALL>"), Ids{3});
  EXPECT_EQ(t.encode("<TOOL_CALL>", {.parse_special = false}), Ids{0});
}

// Models were trained to see runs of white space as such tokens.
TEST(PlainText, KeepsTokensOfWhiteSpace) {
  json document = words_of({"?", "a"});
  document["added_tokens"] = {added(2, "    ", false, false)};
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_EQ(t.encode("a    a", {.parse_special = false}), (Ids{1, 2, 1}));
}

// Nor by merges of pieces.
TEST(PlainText, MergesMakeNoMarkedWords) {
  const json document = {{"version", "1.0"},
                         {"added_tokens", {added(3, "<t>", false, false)}},
                         {"model",
                          {{"type", "BPE"},
                           {"vocab", {{"<", 0}, {"t", 1}, {">", 2}, {"<t>", 3}, {"<t", 4}}},
                           {"merges", {"< t", "<t >"}}}}};
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_EQ(t.encode("<t>"), Ids{3});
  EXPECT_EQ(t.encode("<t>", {.parse_special = false}), (Ids{4, 2}));
}

TEST(PlainText, OfGgufFiles) {
  GgufVocabulary v{.model = "llama",
                   .pre = "",
                   .tokens = {"<unk>", "<s>", "</s>", "a", "<think>", "<", ">", "t", "\xE2\x96\x81"},
                   .scores = std::vector<float>(9, 0),
                   .types = {2, 3, 3, 1, 4, 1, 1, 1, 1},
                   .merges = {},
                   .bos = 1,
                   .eos = 2,
                   .unknown = 0,
                   .add_bos = false,
                   .add_space_prefix = false,
                   .precompiled_charsmap = ""};
  const Tokenizer t = Tokenizer::from_gguf(v, "x.gguf");
  EXPECT_EQ(t.encode("a<think>"), (Ids{3, 4}));
  const Ids plain = t.encode("a<think>", {.parse_special = false});
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 4), 0);
}

// ---- Patterns as Oniguruma reads them ----------------------------------------------------------------------------------

std::vector<std::string> parts(std::string_view expression, std::string_view text) {
  std::vector<std::string> found;
  make_pcre(expression)->for_each(text, [&](std::size_t begin, std::size_t end) {
    found.emplace_back(text.substr(begin, end - begin));
  });
  return found;
}
using Parts = std::vector<std::string>;

TEST(Patterns, NamesOfScriptsAreScripts) {
  // Common punctuation has Han among its Script_Extensions.
  EXPECT_EQ(parts(R"(\p{Han}+)", "你好。世界、ok"), (Parts{"你好", "世界"}));
  EXPECT_EQ(parts(R"([\p{Katakana}]+)", "カーナ"), (Parts{"カ", "ナ"}));
  EXPECT_EQ(parts(R"(\P{Han}+)", "你。"), Parts{"。"});
  EXPECT_EQ(parts(R"(\p{^Han}+)", "你。"), Parts{"。"});
  EXPECT_EQ(parts(R"(\p{L}+\p{Lu})", "abC"), Parts{"abC"});
}

TEST(Patterns, Classes) {
  EXPECT_EQ(parts(R"(\w+)", "a₂b"), (Parts{"a", "b"}));                  // \p{No} is not part of words
  EXPECT_EQ(parts(R"(\w+)", "Ⓐ"), Parts{"Ⓐ"});                           // a letter in a circle is alphabetic
  EXPECT_EQ(parts(R"([^\S\n]+)", " \xE1\xA0\x8E "), (Parts{" ", " "}));  // U+180E is not white space
  EXPECT_EQ(parts(R"([[:space:]]+)", " \xE1\xA0\x8E"), Parts{" "});
  EXPECT_EQ(parts(R"([^\W_]+)", "ab_c²"), (Parts{"ab", "c"}));
  EXPECT_EQ(parts(R"([\W]+)", "a²€b"), Parts{"²€"});
  EXPECT_EQ(parts(R"([[:punct:]]+)", "a€→b"), Parts{"€→"});  // symbols too
  EXPECT_EQ(parts(R"([[:alpha:]]+)", "aⒶ1"), Parts{"aⒶ"});
  EXPECT_EQ(parts(R"([[:alnum:]]+)", "aⒶ1²"), Parts{"aⒶ1"});
  EXPECT_EQ(parts(R"([[:upper:]]+)", "Ⓐa"), Parts{"Ⓐ"});
  EXPECT_EQ(parts(R"([\H]+)", "a-b"), Parts{"-"});
}

TEST(Patterns, AnEmptyTextSplitsEverywhere) {
  json document = words_of({"?", "h", "e"});
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"String", ""}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Tokenizer t = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_EQ(t.encode("hex"), (Ids{1, 2, 0}));
}

}  // namespace
}  // namespace weft::text
