#include "weft/train/text.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "weft/error.hpp"

namespace weft::train {
namespace {

std::filesystem::path write(const std::string& name, const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / ("weft_text_test_" + name);
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string error_of(const std::filesystem::path& path, Extent context = 8) {
  try {
    TextData::load(path, Alphabet::Kind::characters, context);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Alphabet, CharactersAscendAndGoRound) {
  const Alphabet v = Alphabet::characters_of("naïve – 日本\n");
  EXPECT_EQ(v.size(), 10);
  EXPECT_EQ(v.decode(v.encode("日ïn")), "日ïn");
  EXPECT_EQ(v.encode("\n")[0], 0);
  EXPECT_EQ(Alphabet::characters_of(v.characters()), v);
  EXPECT_EQ(v.characters(), "\n aenvï–日本");
  EXPECT_THROW(v.encode("z"), UsageError);
  EXPECT_THROW(v.piece(10), UsageError);
  EXPECT_THROW(v.piece(-1), UsageError);
  EXPECT_THROW(v.encode("\xFF"), FileError);
}

TEST(Alphabet, BytesTakeAnything) {
  const Alphabet v = Alphabet::bytes();
  EXPECT_EQ(v.size(), 256);
  const std::string odd("\x00\xFFz", 3);
  EXPECT_EQ(v.encode(odd), (std::vector<Token>{0, 255, 122}));
  EXPECT_EQ(v.decode(v.encode(odd)), odd);
  EXPECT_EQ(alphabet_kind("byte"), Alphabet::Kind::bytes);
  EXPECT_THROW(alphabet_kind("word"), UsageError);
}

TEST(TextData, LastTenthOfCharactersIsForValidation) {
  std::string text;
  for (int i = 0; i < 1009; ++i) text += i % 2 ? "é" : "a";
  const auto path = write("split", text);
  const TextData data = TextData::load(path, Alphabet::Kind::characters, 8);
  EXPECT_EQ(data.tokens.size(), 1009u);
  EXPECT_EQ(data.validation().size(), 100u);
  EXPECT_EQ(data.training().size(), 909u);
  const TextData bytes = TextData::load(path, Alphabet::Kind::bytes, 8);
  EXPECT_EQ(bytes.tokens.size(), text.size());
  EXPECT_EQ(bytes.content_hash, data.content_hash);
  std::filesystem::remove(path);
}

TEST(TextData, BadFilesAreNamed) {
  const auto empty = write("empty", ""), latin = write("latin", "abc\ndef\xE9ghi"),
             small = write("short", std::string(80, 'a'));
  EXPECT_NE(error_of("/nowhere/text.txt").find("/nowhere/text.txt"), std::string::npos);
  EXPECT_NE(error_of(empty).find("empty"), std::string::npos);
  const std::string utf8 = error_of(latin);
  EXPECT_NE(utf8.find("7"), std::string::npos) << utf8;  // the byte
  EXPECT_NE(error_of(small).find("at least 90"), std::string::npos) << error_of(small);
  EXPECT_NE(error_of(std::filesystem::temp_directory_path()), "no error");
  EXPECT_EQ(error_of(write("enough", std::string(90, 'a'))), "no error");
  for (const char* name : {"empty", "latin", "short", "enough"})
    std::filesystem::remove(std::filesystem::temp_directory_path() / (std::string("weft_text_test_") + name));
}

TEST(Batches, AreAFunctionOfSeedAndStep) {
  std::vector<Token> tokens(50);
  for (int i = 0; i < 50; ++i) tokens[i] = i;
  const std::vector<Token> batch = draw_batch(tokens, 1, 7, 4, 9);
  EXPECT_EQ(batch, draw_batch(tokens, 1, 7, 4, 9));
  EXPECT_NE(batch, draw_batch(tokens, 1, 8, 4, 9));
  EXPECT_NE(batch, draw_batch(tokens, 2, 7, 4, 9));
  for (int row = 0; row < 4; ++row)
    for (int i = 1; i < 9; ++i) EXPECT_EQ(batch[row * 9 + i], batch[row * 9] + i);
  std::set<Token> starts;
  for (int step = 0; step < 500; ++step) starts.insert(draw_batch(tokens, 1, step, 1, 9)[0]);
  EXPECT_EQ(starts.size(), 42u);  // every place, the first and the last included
  EXPECT_EQ(*starts.begin(), 0);
  EXPECT_EQ(*starts.rbegin(), 41);
  EXPECT_THROW(draw_batch(tokens, 1, 0, 1, 51), UsageError);
}

}  // namespace
}  // namespace weft::train
