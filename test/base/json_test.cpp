// JSON from hostile files: what is refused, where, and in which words.
#include "base/json.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft {
namespace {

using test::message_of;

TEST(Json, ParsesEveryKindOfValue) {
  const Json value = parse_json(
      R"({"a": [1, -2, 2.5, true, false, null, "x\u00e9", {}, []], "b": {"c": {"d": [[1]]}}, "": 18446744073709551615})",
      "t");
  EXPECT_EQ(
      value,
      Json::parse(
          R"({"a": [1, -2, 2.5, true, false, null, "x\u00e9", {}, []], "b": {"c": {"d": [[1]]}}, "": 18446744073709551615})"));
  EXPECT_TRUE(value[""].is_number_unsigned());
  EXPECT_EQ(parse_json(" 3 \n", "t"), Json(3));
}

TEST(Json, NulDoesNotEndTheText) {
  for (const std::string& text : {std::string("{}\0{", 4), std::string("\0", 1), std::string("\"\0\"", 3)})
    EXPECT_NE(message_of<FileError>([&] { parse_json(text, "t"); }).find("is NUL"), std::string::npos);
}

struct BadCase {
  const char* text;
  const char* message;
};

TEST(Json, BadTextNamesLineColumnAndFact) {
  const BadCase cases[] = {
      {"", "t.json: line 1, column 1: not valid JSON: unexpected end of input"},
      {"{", "line 1, column 2: not valid JSON: unexpected end of input; expected string literal"},
      {"{\n  \"a\": 1,\n  \"b\": tru\n}", "line 3, column 11: not valid JSON: invalid literal"},
      {"{\"a\" 1}", "line 1, column 6: not valid JSON: unexpected number literal; expected ':', near \"1\""},
      {"[1, 2", "line 1, column 6: not valid JSON: unexpected end of input; expected ']'"},
      {"[1,]", "line 1, column 4: not valid JSON: unexpected ']'"},
      {"[1] x", "line 1, column 5: not valid JSON: invalid literal; expected end of input"},
      {"{\"a\": 1, \"é\": 2, \"a\": 3}", "line 1, column 20: key \"a\" occurs twice; keep one"},
      {"{\"x\": [{\"k\": 1,\n\"k\": 2}]}", "line 2, column 3: key \"k\" occurs twice"},
      {"{\"a\\u0062\": 1, \"ab\": 2}", "key \"ab\" occurs twice"},
      {"[1e999]", "not valid JSON: number overflow, near \"1e999\""},
      {"[01]", "not valid JSON: unexpected number literal"},
      {"[NaN]", "not valid JSON: invalid literal"},
      {"['a']", "not valid JSON: invalid literal"},
      {"\"a\nb\"", "control character"},
      {"\"\\ud800\"", "surrogate"},
      {"/* c */ 1", "not valid JSON: invalid literal"},
      {"\"\xff\"", "t.json: byte 1 (0xff, line 1) is not UTF-8"},
      {"\xEF\xBB\xBF{}", "must not begin with a byte order mark"},
  };
  for (const BadCase& c : cases) {
    const std::string message = message_of<FileError>([&] { parse_json(c.text, "t.json"); });
    EXPECT_NE(message.find(c.message), std::string::npos) << c.text << "\n" << message;
  }
}

TEST(Json, SameKeyInDifferentObjectsIsFine) {
  EXPECT_EQ(parse_json(R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})", "t")["b"][1]["a"], Json(3));
}

TEST(Json, LimitsHold) {
  const std::string deep = std::string(64, '[') + std::string(64, ']');
  EXPECT_TRUE(parse_json(deep, "t").is_array());
  EXPECT_NE(message_of<FileError>([&] {
              parse_json("[" + deep + "]", "t");
            }).find("t: line 1, column 65: arrays and objects are nested deeper than 64"),
            std::string::npos);
  const std::string bomb(10'000'000, '[');  // must neither recurse nor allocate
  EXPECT_NE(message_of<FileError>([&] { parse_json(bomb, "t"); }).find("nested deeper than 64"), std::string::npos);
  EXPECT_NE(message_of<FileError>([] { parse_json("[1, 2, 3]", "t", {.max_values = 3}); }).find("more than 3 values"),
            std::string::npos);
  EXPECT_EQ(parse_json("[1, 2]", "t", {.max_values = 3}).size(), 2u);
  EXPECT_NE(message_of<FileError>([] {
              parse_json("[1, 2]", "t", {.max_bytes = 5});
            }).find("holds 6 bytes, over the limit of 5"),
            std::string::npos);
}

TEST(Json, LongTokensAreCutInMessages) {
  const std::string message = message_of<FileError>([] { parse_json("\"" + std::string(1'000'000, 'x'), "t"); });
  EXPECT_NE(message.find("missing closing quote"), std::string::npos) << message.substr(0, 300);
  EXPECT_LT(message.size(), 300u);
}

TEST(Json, FileErrorsNameThePath) {
  const test::TemporaryFolder folder;
  const auto path = folder.put("c.json", "{\"a\": }");
  EXPECT_NE(message_of<FileError>([&] { read_json_file(path); }).find("c.json: line 1, column 7: not valid JSON"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { read_json_file(folder / "none"); }).find("there is no such file"),
            std::string::npos);
  EXPECT_EQ(read_json_file(folder.put("d.json", "[1]"))[0], Json(1));
}

}  // namespace
}  // namespace weft
