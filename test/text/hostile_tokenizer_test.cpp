// Damaged tokenizer.json files of every kind: each cut and each flipped bit gives a tokenizer that works, or an error that
// names the file.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/mutations.hpp"
#include "text/tokenizer.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using nlohmann::json;

constexpr std::size_t kFew = 400;
constexpr std::size_t kMemory = std::size_t{128} << 20;

void damage(const json& document) {
  const std::string good = document.dump();
  ASSERT_NO_THROW(Tokenizer::from_json(good, "t.json"));
  int refused = 0;
  test::for_each_mutation(good, good.size(), kFew, [&](const std::string& mutated, const std::string& what) {
    bool loaded = false;
    try {
      const test::MemoryLimit limit(kMemory);
      const Tokenizer t = Tokenizer::from_json(mutated, "t.json");
      loaded = true;
      const auto ids = t.encode("ab <s>A\xC3\xA9 12! \xE6\x97\xA5\n");
      (void)t.decode(ids);
      StreamDecoder stream(t);
      for (const TokenId id : ids) (void)stream.put(id);
      (void)stream.finish();
    } catch (const FileError& error) {
      ++refused;
      EXPECT_NE(std::string_view(error.what()).find("t.json"), std::string_view::npos) << what << ": " << error.what();
    } catch (const UsageError& error) {  // the token for what is unknown has another name now
      EXPECT_TRUE(loaded) << what << ": " << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << ": " << error.what() << "\n" << mutated;
    }
  });
  EXPECT_GT(refused, 50);
}

json added(int id, const char* content) {
  return {{"id", id},        {"content", content}, {"special", true},     {"normalized", false},
          {"lstrip", false}, {"rstrip", false},    {"single_word", false}};
}

json template_around(int id, const char* token) {
  return {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", token}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
      {"special_tokens", {{token, {{"id", token}, {"ids", {id}}, {"tokens", {token}}}}}}};
}

TEST(HostileTokenizer, BytePairs) {
  json vocabulary = {{"a", 0}, {"b", 1}, {"ab", 2}, {"Ġ", 3}, {"Ġab", 4}, {"1", 5}, {"!", 6}, {"Ã", 7}, {"©", 8}};
  damage({{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added(9, "<s>")}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"},
               {"pattern", {{"Regex", "\\p{N}{1,3}|[^\\s\\p{N}]+|\\s+(?!\\S)"}}},
               {"behavior", "Isolated"},
               {"invert", false}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}}}}},
          {"post_processor", template_around(9, "<s>")},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"ignore_merges", false},
            {"byte_fallback", false},
            {"vocab", vocabulary},
            {"merges", {"a b", "Ġ ab"}}}}});
}

TEST(HostileTokenizer, Unigrams) {
  const std::vector<std::pair<std::string, double>> pieces = {{"<unk>", 0},  {"<s>", 0},   {"▁", -2.5}, {"a", -3},
                                                              {"▁ab", -1.5}, {"b", -3.25}, {"1", -4},   {"<0xC3>", -9}};
  damage(
      {{"version", "1.0"},
       {"added_tokens", {added(0, "<unk>"), added(1, "<s>")}},
       {"normalizer",
        {{"type", "Sequence"},
         {"normalizers",
          {{{"type", "Prepend"}, {"prepend", "▁"}},
           {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}},
           {{"type", "Strip"}, {"strip_left", false}, {"strip_right", true}},
           {{"type", "Lowercase"}}}}}},
       {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", true}}},
       {"post_processor", template_around(1, "<s>")},
       {"decoder",
        {{"type", "Sequence"},
         {"decoders",
          {{{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}},
           {{"type", "ByteFallback"}},
           {{"type", "Fuse"}},
           {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
       {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"byte_fallback", false}, {"vocab", pieces}}}});
}

TEST(HostileTokenizer, WordPieces) {
  damage({{"version", "1.0"},
          {"added_tokens", {added(0, "[UNK]"), added(1, "[CLS]")}},
          {"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", nullptr},
            {"lowercase", true}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", template_around(1, "[CLS]")},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", 100},
            {"vocab", {{"[UNK]", 0}, {"[CLS]", 1}, {"a", 2}, {"##b", 3}, {"##e", 4}, {"!", 5}, {"12", 6}}}}}});
}

}  // namespace
}  // namespace weft::text
