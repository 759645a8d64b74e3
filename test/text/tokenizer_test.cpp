// Tokenizers from tokenizer.json and GGUF vocabularies: what they give, what they refuse, and that hostile input ends soon.
// Equality with the official library is tokenizer_judge.py's part.
#include "text/tokenizer.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>
#include <time.h>

#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/sanitized.hpp"
#include "base/temporary_folder.hpp"
#include "text/added_tokens.hpp"
#include "text/load_tokenizer.hpp"
#include "text/model.hpp"
#include "text/tokenizer_exchange.hpp"
#include "weft/error.hpp"

namespace weft::text {
namespace {

using nlohmann::json;
using test::message_of;
using Ids = std::vector<TokenId>;

json scored(const std::vector<std::pair<std::string, double>>& pieces) { return pieces; }

json byte_pieces() {
  json vocabulary;
  for (int b = 0; b < 256; ++b) vocabulary[byte_piece(static_cast<unsigned char>(b))] = b;
  return vocabulary;
}

// Bytes, "ab", " ab", a special token <s>, and a BOS around texts.
json byte_level() {
  json vocabulary;
  TokenId next = 0;
  for (int b = 0; b < 256; ++b) {
    std::string piece;
    const char32_t c = b == ' ' ? U'Ġ' : b == '\n' ? U'Ċ' : char32_t(b);
    if (c > ' ' && c < 0x7F) piece = static_cast<char>(c);
    if (c == U'Ġ') piece = "Ġ";
    if (c == U'Ċ') piece = "Ċ";
    if (b == 0xC3) piece = "Ã";
    if (b == 0xA9) piece = "©";
    if (!piece.empty()) vocabulary[piece] = next++;
  }
  for (const char* piece : {"ab", "Ġab", "aa", "aaaa"}) vocabulary[piece] = next++;
  return {{"version", "1.0"},
          {"added_tokens", {{{"id", next}, {"content", "<s>"}, {"special", true}, {"normalized", false}}}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {next}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", "Ġ ab", "a a", "aa aa"}}}}};
}

Tokenizer made(const json& document) { return Tokenizer::from_json(document.dump(), "t.json"); }
std::string refusal(const json& document) {
  return message_of<FileError>([&] { made(document); });
}

TEST(Tokenizer, EncodesAndDecodes) {
  const Tokenizer t = made(byte_level());
  const Ids ids = t.encode("ab ab");
  EXPECT_EQ(ids, (Ids{t.id_of("<s>"), t.id_of("ab"), t.id_of("Ġab")}));
  EXPECT_EQ(t.decode(ids, true), "ab ab");
  EXPECT_EQ(t.decode(ids, false), "<s>ab ab");
  EXPECT_EQ(t.token_bytes(t.id_of("Ġab")), " ab");
  EXPECT_EQ(t.token_bytes(t.id_of("Ã")), "\xC3");
  EXPECT_EQ(t.piece(t.id_of("Ġab")), "Ġab");
  EXPECT_EQ(t.piece(t.vocabulary_size()), std::nullopt);
  EXPECT_EQ(t.token_bytes(-1), "");
  EXPECT_TRUE(t.is_special(t.id_of("<s>")));
  EXPECT_FALSE(t.is_special(t.id_of("ab")));
  EXPECT_EQ(t.id_of("missing"), kNoToken);
  EXPECT_EQ(t.encode("", {.add_special = false}), Ids{});
  EXPECT_EQ(t.encode_pair("a", "b"), (Ids{t.id_of("a"), t.id_of("b")}));
  EXPECT_EQ(t.decode(Ids{-5, 1 << 20}), "");
}

// The best pair joins first, of equal ones the leftmost; a pair whose piece was joined to another one is gone.
TEST(Tokenizer, JoinsTheBestPairFirst) {
  const json document = {{"version", "1.0"},
                         {"added_tokens", json::array()},
                         {"model",
                          {{"type", "BPE"},
                           {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"aa", 3}, {"ab", 4}, {"bc", 5}, {"abc", 6}}},
                           {"merges", {"a a", "a b", "b c", "ab c"}}}}};
  const Tokenizer t = made(document);
  EXPECT_EQ(t.encode("aaa"), (Ids{3, 0}));
  EXPECT_EQ(t.encode("aaaaa"), (Ids{3, 3, 0}));
  EXPECT_EQ(t.encode("aab"), (Ids{3, 1}));
  EXPECT_EQ(t.encode("abc"), (Ids{6}));
  EXPECT_EQ(t.encode("bcabc"), (Ids{5, 6}));
  EXPECT_EQ(t.encode("aabc"), (Ids{3, 5}));
}

TEST(Tokenizer, StripsTheSidesAskedFor) {
  const auto text_of = [](bool left, bool right) {
    json document = byte_level();
    document["normalizer"] = {{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
    const Tokenizer t = made(document);
    return t.decode(t.encode(" \n a b  "), true);
  };
  EXPECT_EQ(text_of(false, false), " \n a b  ");
  EXPECT_EQ(text_of(true, false), "a b  ");
  EXPECT_EQ(text_of(false, true), " \n a b");
  EXPECT_EQ(text_of(true, true), "a b");
}

TEST(Tokenizer, PiecesThatAreNoBytesKeepTheirIds) {
  json document = byte_level();
  document["model"]["vocab"]["日"] = 500;
  document["added_tokens"].push_back({{"id", 500}, {"content", "日"}, {"special", true}});
  const Tokenizer t = made(document);
  EXPECT_EQ(t.id_of("日"), 500);
  EXPECT_EQ(t.piece(500), "日");
  EXPECT_EQ(t.encode("日", {.add_special = false}), Ids{500});
  EXPECT_EQ(t.vocabulary_size(), 501);
}

TEST(Tokenizer, UsersCannotWriteSpecialTokens) {
  const Tokenizer t = made(byte_level());
  const TokenId s = t.id_of("<s>");
  const auto specials = [&](std::vector<TextSegment> segments) {
    const Ids ids = t.encode(segments, false);
    return std::count(ids.begin(), ids.end(), s);
  };
  EXPECT_EQ(specials({{"<s>", true}}), 1);
  EXPECT_EQ(specials({{"<s>", false}}), 0);
  EXPECT_EQ(specials({{"<", true}, {"s", false}, {">", true}}), 0);  // not in parts either
  EXPECT_EQ(specials({{"<", false}, {"s>", true}}), 0);
  EXPECT_EQ(specials({{"<s", false}, {"<s>", true}}), 1);  // nor can they spoil those of others
  EXPECT_EQ(specials({{"<", true}, {"s>", true}}), 1);     // parts of the template are one text
  EXPECT_EQ(t.encode(std::vector<TextSegment>{{"a", false}, {"b", true}}, false), Ids{t.id_of("ab")});
}

TEST(Tokenizer, ModelsDoNotMakeSpecialTokensOfPlainText) {
  const Tokenizer words =
      made({{"version", "1.0"},
            {"added_tokens", {{{"id", 0}, {"content", "[S]"}, {"special", true}}}},
            {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
            {"model", {{"type", "WordLevel"}, {"vocab", {{"[S]", 0}, {"[U]", 1}, {"a", 2}}}, {"unk_token", "[U]"}}}});
  EXPECT_EQ(words.encode("[S] a"), (Ids{0, 2}));
  EXPECT_EQ(words.encode("[S] a", {.parse_special = false}), (Ids{1, 2}));
  const Tokenizer unigram =
      made({{"version", "1.0"},
            {"added_tokens", {{{"id", 1}, {"content", "ab"}, {"special", true}}}},
            {"model",
             {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", scored({{"?", -9}, {"ab", 0}, {"a", -1}, {"b", -1}})}}}});
  EXPECT_EQ(unigram.encode("ab", {.parse_special = false}), (Ids{2, 3}));
  json bpe = byte_level();
  bpe["added_tokens"].push_back({{"id", 0}, {"content", "aa"}, {"special", true}});
  const Tokenizer t = made(bpe);
  EXPECT_EQ(t.encode("aa", {.add_special = false, .parse_special = false}), (Ids{t.id_of("a"), t.id_of("a")}));
}

TEST(Tokenizer, StreamsWholeCharacters) {
  const Tokenizer t = made(byte_level());
  StreamDecoder stream(t);
  EXPECT_EQ(stream.put(t.id_of("Ġab")), " ab");
  EXPECT_EQ(stream.put(t.id_of("Ã")), "");
  EXPECT_EQ(stream.put(t.id_of("©")), "é");
  EXPECT_EQ(stream.put(t.id_of("Ã")), "");
  EXPECT_EQ(stream.put(t.id_of("a")),
            "\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(stream.put(t.id_of("<s>")), "");
  EXPECT_EQ(stream.put(t.id_of("Ã")), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, ByteFallbackReplacesAndStreams) {
  json document{
      {"version", "1.0"},
      {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", byte_pieces()}, {"merges", json::array()}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 9}}}}}}};
  const Tokenizer t = made(document);
  EXPECT_EQ(t.encode("é"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(t.decode(Ids{0xC3, 0xA9}), "é");
  EXPECT_EQ(t.decode(Ids{0xC3, 0xA9, 0xC3}), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // one for each byte of the run
  EXPECT_EQ(t.decode(Ids{' ', ' ', 'a', ' ', ' '}), " a");  // stripped, and more than there is may be asked for
  EXPECT_EQ(t.decode(Ids{' '}), "");
  EXPECT_EQ(t.decode(Ids{}), "");
  StreamDecoder stream(t);
  EXPECT_EQ(stream.put(0xC3), "");
  EXPECT_EQ(stream.put(0xA9), "é");
  EXPECT_EQ(stream.put(' '), "");  // it may be the last
  EXPECT_EQ(stream.put('a'), " a");
  EXPECT_EQ(stream.put(' '), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, ReadsWhatIsNotUtf8AsReplacements) {
  const json document{
      {"version", "1.0"},
      {"model", {{"type", "WordLevel"}, {"vocab", {{"\xEF\xBF\xBD", 3}, {"<unk>", 0}}}, {"unk_token", "<unk>"}}}};
  EXPECT_EQ(made(document).encode("\xFF"), Ids{3});
}

TEST(Tokenizer, SaysWhatItCannotExpress) {
  const json unigram{{"version", "1.0"}, {"model", {{"type", "Unigram"}, {"vocab", scored({{"a", -1}})}}}};
  EXPECT_NE(message_of<UsageError>([&] {
              made(unigram).encode("b");
            }).find("no token for unknown ones; take another copy of its file"),
            std::string::npos);
  const json words{{"version", "1.0"}, {"model", {{"type", "WordLevel"}, {"vocab", {{"a", 0}}}}}};
  EXPECT_NE(message_of<UsageError>([&] { made(words).encode("b"); }).find("does not know a word"), std::string::npos);
}

struct Refusal {
  const char *path, *value, *said;
};
const Refusal kRefusals[] = {
    {"/version", R"("2.0")", "t.json: version: is \"2.0\", and Weft reads \"1.0\""},
    {"/model/type", R"("BPF")",
     "t.json: model.type: \"BPF\" is unknown; Weft knows BPE, Unigram, WordPiece, WordLevel"},
    {"/model/vocab", "17", "t.json: model.vocab: is 17, not an object"},
    {"/model/vocab/ab", "-1", "t.json: model.vocab: the id of \"ab\" is -1, not an integer in [0, 4194303]"},
    {"/model/vocab/ab", "4194304", "not an integer in [0, 4194303]"},
    {"/model/vocab/ab", "0", "have the same id 0; give one another"},
    {"/model/merges", "null", "t.json: model: \"merges\" is missing"},
    {"/model/merges/1", R"("a b c")", "t.json: model.merges[1]: is \"a b c\", not two pieces with a space between"},
    {"/model/merges/1", R"(["a", "b"])", "t.json: model.merges[1]: differs in form from the merges before"},
    {"/model/merges/1", R"("a q1")",
     "t.json: model.merges[1]: needs the piece \"q1\", which the vocabulary does not have"},
    {"/model/merges/0", "3", "t.json: model.merges[0]: is neither a string"},
    {"/model/unk_token", R"("?!")",
     "t.json: model.unk_token: the vocabulary has no piece \"?!\"; add it, or write null"},
    {"/model/dropout", "\"x\"", "t.json: model.dropout: is \"x\", not a number"},
    {"/pre_tokenizer/type", R"("Split")", "t.json: pre_tokenizer: \"pattern\" is missing"},
    {"/pre_tokenizer/type", R"("None")",
     "t.json: pre_tokenizer.type: \"None\" is unknown; Weft knows BertPreTokenizer, ByteLevel"},
    {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Removed"})",
     "t.json: pre_tokenizer.pattern.Regex: regular expression \"(a\""},
    {"/pre_tokenizer", R"({"type": "Split", "pattern": {"String": "a"}, "behavior": "Dropped"})",
     "pre_tokenizer.behavior: \"Dropped\" is unknown"},
    {"/pre_tokenizer", R"({"type": "Metaspace", "replacement": "ab"})",
     "t.json: pre_tokenizer.replacement: is \"ab\", not one character"},
    {"/pre_tokenizer",
     R"({"type": "Metaspace", "replacement": "_", "add_prefix_space": false, "prepend_scheme": "first"})",
     "keep one of the two"},
    {"/pre_tokenizer", R"({"type": "FixedLength", "length": 0})", "not an integer in [1, 1048576]"},
    {"/normalizer", R"({"type": "Sequence", "normalizers": [{"type": "NFX"}]})",
     "t.json: normalizer.normalizers[0].type: \"NFX\" is unknown"},
    {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "????"})",
     "t.json: normalizer.precompiled_charsmap: byte 0 is not a character of base64"},
    {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AQAAAA=="})",
     "the character map of 4 bytes is damaged"},
    {"/post_processor/type", R"("Later")", "t.json: post_processor.type: \"Later\" is unknown"},
    {"/post_processor/special_tokens", "{}",
     "t.json: post_processor.single[0].SpecialToken.id: special_tokens has no \"<s>\"; add it"},
    {"/post_processor/single/1/Sequence/id", R"("B")", "t.json: post_processor.single[1].Sequence.id: is \"B\", not A"},
    {"/decoder/type", R"("Undo")", "t.json: decoder.type: \"Undo\" is unknown"},
    {"/decoder", R"({"type": "Strip", "content": " ", "start": -1, "stop": 0})",
     "t.json: decoder.start: is -1, not an integer"},
    {"/added_tokens/0/content", "5", "t.json: added_tokens[0].content: is 5, not a string"},
    {"/added_tokens/0/special", "\"yes\"", "t.json: added_tokens[0].special: is \"yes\", not true or false"},
    {"/added_tokens/0/id", "1.5", "t.json: added_tokens[0].id: is 1.5, not an integer"},
    {"/model", R"({"type": "Unigram", "vocab": [["a", "b"]]})",
     "t.json: model.vocab[0]: is not a pair of a piece and its score"},
    {"/model", R"({"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1})",
     "t.json: model.unk_id: is 1, not an integer in [0, 0]"},
};

TEST(TokenizerJson, RefusalsNameFilePlaceAndCure) {
  for (const Refusal& r : kRefusals) {
    json document = byte_level();
    document[json::json_pointer(r.path)] = json::parse(r.value);
    EXPECT_NE(refusal(document).find(r.said), std::string::npos)
        << r.path << " = " << r.value << ": " << refusal(document);
  }
  EXPECT_NE(message_of<FileError>([] { Tokenizer::from_json("{\"a\": }", "t.json"); }).find("t.json: line 1, column 7"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([] { Tokenizer::from_json("", "t.json"); }).find("t.json: "), std::string::npos);
  EXPECT_NE(message_of<FileError>([] { Tokenizer::from_json(std::string(100, '['), "t.json"); }).find("deeper than 64"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([] { Tokenizer::from_json("{\"model\": \"\xFF\"}", "t.json"); }).find("not UTF-8"),
            std::string::npos);
  std::string twice = byte_level().dump();
  twice.replace(twice.find("\"aaaa\":"), 7, "\"aa\":");
  EXPECT_NE(message_of<FileError>([&] { Tokenizer::from_json(twice, "t.json"); }).find("\"aa\" occurs twice; keep one"),
            std::string::npos);
}

// Whatever happens to a file, it is refused or it works.
TEST(TokenizerJson, DamagedFilesAreRefusedOrWork) {
  json document = byte_level();
  document["normalizer"] = json::parse(
      R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}]})");
  const std::string whole = document.dump();
  int loaded = 0, refused = 0;
  const auto attempt = [&](const std::string& text) {
    try {
      const Tokenizer t = Tokenizer::from_json(text, "t.json");
      t.decode(t.encode("ab <s> é 12\n\xFF", {.parse_special = true}));
      ++loaded;
    } catch (const FileError&) {
      ++refused;
    } catch (const UsageError&) {  // a text that the changed vocabulary cannot express
      ++loaded;
    }
  };
  for (std::size_t length = 0; length < whole.size(); length += 3) attempt(whole.substr(0, length));
  for (std::size_t bit = 0; bit < 8 * whole.size(); bit += 2) {
    std::string text = whole;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    attempt(text);
  }
  EXPECT_GT(loaded, 100);
  EXPECT_GT(refused, 100);
}

double seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<std::pair<std::string, std::string>> hostile_texts() {
  const auto times = [](std::string_view part, std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += part;
    return text;
  };
  std::mt19937 draw(3);
  std::string bytes, letters, marks;
  for (int i = 0; i < 1'000'000; ++i) {
    bytes.push_back(static_cast<char>(draw()));
    letters.push_back("aAbB"[draw() % 4]);
    marks += draw() % 2 ? "\u0301" : "\u0323";
  }
  return {{"letters", times("a", 1'000'000)},
          {"capitals", times("A", 1'000'000)},
          {"mixed letters", letters},
          {"spaces", times(" ", 1'000'000)},
          {"spaces and a word", times(" ", 1'000'000) + "x"},
          {"lines", times("\n ", 500'000)},
          {"marks", marks},
          {"emoji", times("😀", 1'000'000)},
          {"bytes", bytes},
          {"digits", times("7", 1'000'000)},
          {"begun tokens", times("<s", 500'000)},
          {"apostrophes", times("'", 1'000'000)}};
}

// What is measured is the time of the thread, and of the best of three: others may be using the machine.
void expect_quick(const Tokenizer& t, const char* name, double limit) {
  for (const auto& [what, text] : hostile_texts()) {
    double best = 1e9;
    for (int run = 0; run < 3 && best > limit; ++run) {
      const double start = seconds();
      const Ids ids = t.encode(text);
      t.decode(ids);
      best = std::min(best, seconds() - start);
    }
    EXPECT_LT(best, limit) << name << ": " << what;
  }
}

constexpr double kLimit = test::kSlowdown;  // seconds

TEST(Tokenizer, HostileTextsTakeLessThanASecond) {
  json llama = byte_level();
  llama["normalizer"] = {{"type", "NFC"}};
  expect_quick(made(llama), "GPT-2 words", kLimit);
  for (
      const char* expression :
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       R"((?:'s|'t)|\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"}) {  // a scanner's, and one for PCRE2
    json split = byte_level();
    split["pre_tokenizer"] = {
        {"type", "Sequence"},
        {"pretokenizers",
         {{{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}},
          {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
    expect_quick(made(split), expression, kLimit);
  }
  json pieces = byte_pieces();
  for (const char* piece : {"▁", "a", "aa", "aaaa", "▁a", "▁▁"}) pieces[piece] = pieces.size();
  expect_quick(
      made({{"version", "1.0"},
            {"normalizer",
             {{"type", "Sequence"},
              {"normalizers",
               {{{"type", "Prepend"}, {"prepend", "▁"}},
                {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}}}}}},
            {"model",
             {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", pieces}, {"merges", {"a a", "aa aa", "▁ a", "▁ ▁"}}}},
            {"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}}}),
      "byte fallback", kLimit);
  const json unigram = scored({{"<unk>", -10}, {"▁", -2}, {"a", -1}, {"aa", -1.5}, {"▁a", -2}});
  expect_quick(made({{"version", "1.0"},
                     {"normalizer", {{"type", "NFKC"}}},
                     {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}}},
                     {"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", unigram}}}}),
               "Unigram", kLimit);
  expect_quick(made({{"version", "1.0"},
                     {"normalizer", {{"type", "BertNormalizer"}}},
                     {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                     {"model",
                      {{"type", "WordPiece"},
                       {"max_input_chars_per_word", 2'000'000},
                       {"vocab", {{"[UNK]", 0}, {"a", 1}, {"##a", 2}, {"##aa", 3}}}}}}),
               "WordPiece", kLimit);
}

TEST(Tokenizer, ServesThreadsAtOnce) {
  const Tokenizer t = made(byte_level()), other = made(byte_level());
  const Ids expected = t.encode("ab ab aaaa a");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 2000; ++n)
        wrong += t.encode("ab ab aaaa a") != expected || other.encode("ab ab aaaa a") != expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

GgufVocabulary sentence_piece() {
  GgufVocabulary v;
  v.model = "llama";
  v.tokens = {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a", "abab", "<0xC3>", "<0xA9>"};
  v.scores = {0, 0, 0, -9, -8, -7, -1, -2, -5, 0, 0};
  v.types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 6, 6};
  v.bos = 1, v.eos = 2, v.unknown = 0;
  return v;
}

TEST(Gguf, JoinsByScore) {
  const Tokenizer t = Tokenizer::from_gguf(sentence_piece());
  EXPECT_EQ(t.encode("abab"), (Ids{1, 3, 8}));  // "ab" scores above "▁a"
  EXPECT_EQ(t.encode("aé"), (Ids{1, 7, 9, 10}));
  EXPECT_EQ(t.encode("<s>a"), (Ids{1, 1, 7}));
  EXPECT_EQ(t.encode("</s>", {.add_special = false, .parse_special = false}).back(), 0);  // ">" is not a piece
  EXPECT_EQ(t.decode(t.encode("ab a é")), "ab a é");
  EXPECT_EQ(t.bos(), 1);
  EXPECT_EQ(t.eos(), 2);
  GgufVocabulary bare = sentence_piece();
  bare.add_bos = false, bare.add_eos = true, bare.add_space_prefix = false;
  EXPECT_EQ(Tokenizer::from_gguf(bare).encode("ab"), (Ids{6, 2}));
}

TEST(Gguf, JoinsMarkedPiecesByMerges) {
  GgufVocabulary v = sentence_piece();
  v.model = "gemma4";
  v.scores.clear();
  v.merges = {"▁ a", "a b", "ab ab"};
  const Tokenizer t = Tokenizer::from_gguf(v);
  EXPECT_EQ(t.encode("abab"), (Ids{1, 8}));
  EXPECT_EQ(t.encode("b aé"), (Ids{1, 5, 7, 9, 10}));
  EXPECT_EQ(t.decode(t.encode("ab a é")), "ab a é");
  EXPECT_EQ(Tokenizer::from_json(tokenizer_json_of(v, "m.gguf"), "tokenizer.json").encode("b abaé</s>"),
            t.encode("b abaé</s>"));
  v.merges = {"a c"};
  EXPECT_NE(message_of<FileError>([&] { Tokenizer::from_gguf(v); }).find("merges[0]: needs the piece \"c\", which"),
            std::string::npos);
}

TEST(Gguf, CutsWordsByName) {
  GgufVocabulary v;
  v.model = "gpt2";
  v.tokens = {"1", "2", "12", "a", "Ġ", "Ġa", "<|end|>"};
  v.types = {1, 1, 1, 1, 1, 1, 3};
  v.merges = {"1 2", "Ġ a"};
  v.pre = "smollm";
  EXPECT_EQ(Tokenizer::from_gguf(v).encode("12 a<|end|>"), (Ids{0, 1, 5, 6}));
  v.pre = "gpt-2";
  EXPECT_EQ(Tokenizer::from_gguf(v).encode("12 a"), (Ids{2, 5}));
}

TEST(Gguf, PiecesThatAreNoBytesKeepTheirIds) {
  GgufVocabulary v;
  v.model = "gpt2";
  v.pre = "gpt-2";
  v.tokens = {"a", "b", "ab", "日", "日a", "Ġ", "ab", "Ġb"};
  v.types = {1, 1, 1, 1, 1, 1, 5, 5};  // the last two are not in use
  v.merges = {"a b", "日 a", "Ġ b"};
  const Tokenizer t = Tokenizer::from_gguf(v);
  EXPECT_EQ(t.encode("ab b"), (Ids{2, 7}));  // what a merge makes is made
  EXPECT_EQ(t.encode("日a"), Ids{0});        // of no bytes that have pieces
  for (TokenId id = 0; id < 8; ++id) EXPECT_EQ(t.piece(id), v.tokens[static_cast<std::size_t>(id)]);
  EXPECT_EQ(t.id_of("日a"), 4);
  EXPECT_EQ(t.id_of("Ġb"), 7);
  EXPECT_EQ(t.id_of("ab"), 2);
  EXPECT_EQ(t.id_of("日b"), kNoToken);
  EXPECT_EQ(t.vocabulary_size(), 8);
  EXPECT_EQ(t.decode(Ids{3, 7, 0}), "日 ba");
  v.merges = {"日 b"};
  EXPECT_NE(
      message_of<FileError>([&] { Tokenizer::from_gguf(v); }).find("merges[0]: needs the piece \"日b\", which tokens"),
      std::string::npos);
}

TEST(Gguf, KnowsWordPiecesAndUnigrams) {
  GgufVocabulary bert;
  bert.model = "bert";
  bert.tokens = {"[UNK]", "[CLS]", "[SEP]", "▁play", "ing", "▁!"};
  bert.types = {2, 3, 3, 1, 1, 1};
  bert.unknown = 0, bert.bos = 1, bert.separator = 2;
  const Tokenizer b = Tokenizer::from_gguf(bert);
  EXPECT_EQ(b.encode("Playing! x"), (Ids{1, 3, 4, 5, 0, 2}));
  EXPECT_EQ(b.decode(b.encode("Playing!")), "playing!");
  GgufVocabulary t5;
  t5.model = "t5";
  t5.tokens = {"<pad>", "</s>", "<unk>", "▁", "a", "▁a"};
  t5.scores = {0, 0, 0, -3, -2, -4};
  t5.types = {3, 3, 2, 1, 1, 1};
  t5.eos = 1, t5.unknown = 2;
  EXPECT_EQ(Tokenizer::from_gguf(t5).encode("a  a"), (Ids{5, 5, 1}));
}

TEST(Gguf, Refuses) {
  const auto said = [](const std::function<void(GgufVocabulary&)>& change) {
    GgufVocabulary v = sentence_piece();
    change(v);
    return message_of<FileError>([&] { Tokenizer::from_gguf(v, "m.gguf"); });
  };
  EXPECT_EQ(said([](auto& v) { v.model = "rwkv"; }),
            "m.gguf: tokenizer.ggml.model: \"rwkv\" is unknown; Weft knows gpt2, llama, gemma4, bert, t5");
  EXPECT_NE(
      said([](auto& v) { v.model = "gpt2", v.pre = "gpt-9"; }).find("m.gguf: tokenizer.ggml.pre: \"gpt-9\" is unknown"),
      std::string::npos);
  EXPECT_NE(said([](auto& v) {
              v.model = "gpt2", v.merges = {"a q"};
            }).find("m.gguf: tokenizer.ggml.merges[0]: needs the piece \"q\""),
            std::string::npos);
  EXPECT_NE(said([](auto& v) { v.model = "gpt2", v.merges = {"ab"}; }).find("not two pieces"), std::string::npos);
  EXPECT_EQ(said([](auto& v) { v.scores.pop_back(); }),
            "m.gguf: tokenizer.ggml.scores: has 10 entries for 11 tokens; it needs one each");
  EXPECT_EQ(said([](auto& v) { v.types.pop_back(); }),
            "m.gguf: tokenizer.ggml.token_type: has 10 entries for 11 tokens; it needs one each");
  EXPECT_EQ(said([](auto& v) { v.scores[3] = NAN; }), "m.gguf: tokenizer.ggml.scores[3]: is not a finite number");
  EXPECT_EQ(said([](auto& v) { v.bos = 11; }),
            "m.gguf: tokenizer.ggml.bos_token_id: is 11, not the id of one of the 11 tokens");
  EXPECT_NE(said([](auto& v) { v.bos = kNoToken; }).find("m.gguf: tokenizer.ggml.bos_token_id: is missing"),
            std::string::npos);
  EXPECT_NE(said([](auto& v) { v.tokens[3] = "\xFF"; }).find("tokenizer.ggml.tokens[3]: \"\\xff\" is not UTF-8"),
            std::string::npos);
  EXPECT_NE(said([](auto& v) { v.tokens[3] = std::string(2000, 'a'); }).find("a token has at most 1024"),
            std::string::npos);
  EXPECT_NE(said([](auto& v) { v.tokens.clear(); }).find("tokenizer.ggml.tokens: is empty"), std::string::npos);
}

TEST(LoadTokenizer, FindsTheFile) {
  const test::TemporaryFolder folder;
  EXPECT_NE(message_of<FileError>([&] { load_tokenizer(folder.path()); }).find("holds no tokenizer.json"),
            std::string::npos);
  const auto file = folder.put("tokenizer.json", byte_level().dump());
  EXPECT_EQ(load_tokenizer(folder.path()).vocabulary_size(), load_tokenizer(file).vocabulary_size());
  EXPECT_NE(message_of<FileError>([&] { load_tokenizer(folder / "none"); }).find("none"), std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { load_tokenizer(folder.put("x", "GGUF")); }).find("x: "), std::string::npos);
}

TEST(AddedTokens, Flags) {
  const auto token = [](const char* content, json flags) {
    json all{{"id", 0}, {"content", content}, {"normalized", false}};
    all.update(flags);
    return all;
  };
  const Tokenizer t =
      made({{"version", "1.0"},
            {"normalizer", {{"type", "Lowercase"}}},
            {"added_tokens",
             {token("[L]", {{"lstrip", true}}), token("[R]", {{"rstrip", true}}), token("one", {{"single_word", true}}),
              token("Big", {{"normalized", true}}), token("[L][L]", json::object())}},
            {"model", {{"type", "WordLevel"}, {"vocab", {{"<unk>", 0}}}}}});
  const TokenId l = t.id_of("[L]"), r = t.id_of("[R]"), one = t.id_of("one"), big = t.id_of("Big"),
                longest = t.id_of("[L][L]");
  EXPECT_EQ(t.encode(" \n[L]"), Ids{l});
  EXPECT_EQ(t.encode("[R] \n"), Ids{r});
  EXPECT_EQ(t.encode("one"), Ids{one});
  EXPECT_EQ(t.encode("one_"), Ids{0});
  EXPECT_EQ(t.encode("xone"), Ids{0});
  EXPECT_EQ(t.encode("-one"), (Ids{0, one}));
  EXPECT_EQ(t.encode("BIG"), Ids{big});
  EXPECT_EQ(t.encode("[L][L][L]"), (Ids{longest, l}));
}

}  // namespace
}  // namespace weft::text
