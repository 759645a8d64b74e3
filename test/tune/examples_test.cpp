// Examples from files, and rows of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "llm/byte_model.hpp"
#include "tune/talk_template.hpp"
#include "weft/error.hpp"
#include "weft/tune.hpp"

namespace weft::tune {
namespace {

class TuneExamples : public ::testing::Test {
 protected:
  TuneExamples() {
    test::put_byte_model(folder_, kTalkTemplate);
    model_.emplace(llm::load(folder_.path(), {.context = 128}));
  }
  Examples read(const std::string& name, const std::string& text, Extent context = 100) {
    folder_.put(name, text);
    return read_examples(folder_.path() / name, *model_, context);
  }
  /// The text whose tokens count.
  std::string counted(const Example& example) const {
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < example.tokens.size(); ++i)
      if (example.counts[i]) tokens.push_back(example.tokens[i]);
    std::string text;
    for (const std::int32_t token : tokens) text += model_->token_bytes(token);
    return text;
  }
  std::string error_of(const std::string& text) {
    try {
      read("bad.jsonl", text);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_;
  std::optional<llm::Model> model_;
};

TEST_F(TuneExamples, OfAConversationTheAnswersCount) {
  const Examples examples = read(
      "talks.jsonl",
      R"({"messages": [{"role": "user", "content": "ping"}, {"role": "assistant", "content": "pong"}, {"role": "user", "content": "again"}, {"role": "assistant", "content": "no"}]}

{"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
)");
  ASSERT_EQ(examples.all.size(), 2u);
  EXPECT_EQ(counted(examples.all[0]), "pong<|end|>no<|end|>");
  EXPECT_EQ(counted(examples.all[1]), "hello<|end|>");
  EXPECT_EQ(examples.cut, 0);
}

TEST_F(TuneExamples, CompletionsAndTextsEndWithTheTokenThatEndsTexts) {
  const Examples examples = read("pairs.jsonl", R"({"prompt": "1+1=", "completion": "2"}
{"text": "abc"})");
  ASSERT_EQ(examples.all.size(), 2u);
  EXPECT_EQ(counted(examples.all[0]), "2<|end|>");
  EXPECT_EQ(counted(examples.all[1]), "abc<|end|>");
}

TEST_F(TuneExamples, ATextIsCutIntoRowsThatPredictEachTokenOnce) {
  const Examples examples = read("prose.txt", std::string(25, 'x'), 10);
  ASSERT_EQ(examples.all.size(), 3u);
  std::size_t targets = 0;
  for (const Example& example : examples.all) targets += example.tokens.size() - 1;
  EXPECT_EQ(targets, 24u);
}

TEST_F(TuneExamples, LongExamplesLoseTheirEndAndAreCounted) {
  const Examples examples = read("long.jsonl", R"({"text": "0123456789abcdef"}
{"prompt": "0123456789", "completion": "x"}
{"text": "ab"})",
                                 8);
  EXPECT_EQ(examples.cut, 2);
  ASSERT_EQ(examples.all.size(), 2u);  // of the second, nothing that counts is left
  EXPECT_EQ(examples.all[0].tokens.size(), 9u);
}

TEST_F(TuneExamples, ErrorsNameTheLineAndWhatToDo) {
  EXPECT_NE(error_of("{\"text\": \"a\"}\n{\"text\": 3}").find("line 2: \"text\" is \"3\", not a text"),
            std::string::npos)
      << error_of("{\"text\": \"a\"}\n{\"text\": 3}");
  EXPECT_NE(error_of("[1]").find("line 1: the line is no object"), std::string::npos);
  EXPECT_NE(error_of("{\"txt\": \"a\"}").find("Weft reads \"messages\""), std::string::npos);
  EXPECT_NE(error_of("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}")
                .find("no message of the role \"assistant\""),
            std::string::npos);
  EXPECT_NE(error_of("{\"messages\": 3}").find("no list of messages"), std::string::npos);
  EXPECT_NE(error_of("{\"text\": \"a\"").find("line 1"), std::string::npos);
  EXPECT_NE(error_of("\n\n").find("no example"), std::string::npos);
  EXPECT_NE(error_of(std::string("{\"text\": \"\xff\"}")).find("UTF-8"), std::string::npos);
  EXPECT_THROW(read("a.txt", "abc", 1), UsageError);
}

TEST(TuneRows, EachEpochHasEveryExampleOnceInAnotherOrder) {
  std::vector<Example> examples;
  for (std::int32_t i = 0; i < 40; ++i) {
    Example example{std::vector<std::int32_t>(static_cast<std::size_t>(3 + i % 7), i), {}};
    example.counts.assign(example.tokens.size(), true);
    examples.push_back(std::move(example));
  }
  RowStream stream(examples, 12, 5), again(examples, 12, 5), other(examples, 12, 6);
  const std::int64_t rows = stream.rows_of_epochs(1);
  const auto seen = [](const Rows& batch) {
    std::vector<std::int32_t> numbers;
    for (std::size_t i = 0; i < batch.tokens.size(); ++i)
      if (batch.texts[i] >= 0 && batch.positions[i] == 0) numbers.push_back(batch.tokens[i]);
    return numbers;
  };
  const std::vector<std::int32_t> first = seen(stream.batch(0, rows)),
                                  second = seen(stream.batch(rows, stream.rows_of_epochs(2) - rows));
  EXPECT_EQ(std::set<std::int32_t>(first.begin(), first.end()).size(), 40u);
  EXPECT_EQ(first.size(), 40u);
  EXPECT_EQ(second.size(), 40u);
  EXPECT_NE(first, second);
  EXPECT_EQ(again.batch(3, 2).tokens, stream.batch(3, 2).tokens);
  EXPECT_NE(other.batch(0, rows).tokens, stream.batch(0, rows).tokens);
  EXPECT_LT(rows, 25);  // several share a row
}

TEST(TuneRows, LengthsPositionsAndTargetsBelongTogether) {
  std::vector<Example> examples = {{{1, 2, 3, 4}, {false, false, true, true}}, {{5, 6}, {true, true}}};
  RowStream stream(examples, 8, 1, false);
  const Rows rows = stream.batch(0, 1);
  EXPECT_EQ(rows.tokens, (std::vector<std::int32_t>{1, 2, 3, 5, 0, 0, 0, 0}));
  EXPECT_EQ(rows.positions, (std::vector<std::int32_t>{0, 1, 2, 0, 0, 0, 0, 0}));
  EXPECT_EQ(rows.texts, (std::vector<std::int32_t>{0, 0, 0, 1, -1, -1, -1, -1}));
  EXPECT_EQ(rows.targets, (std::vector<std::int32_t>{-100, 3, 4, 6, -100, -100, -100, -100}));
  EXPECT_EQ(rows.lengths[0], 3);
  EXPECT_EQ(rows.lengths[1], 1);
  EXPECT_EQ(rows.counted(), 3);
  EXPECT_THROW(RowStream(examples, 2, 1), UsageError);
  EXPECT_THROW(RowStream(std::vector<Example>{}, 8, 1), UsageError);
}

}  // namespace
}  // namespace weft::tune
