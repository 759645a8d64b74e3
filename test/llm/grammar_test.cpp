// Generation with a grammar: a random model makes noise, and what it writes must fit all the same.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "base/message_of.hpp"
#include "llm/byte_model.hpp"
#include "weft/llm.hpp"
#include "weft/schema.hpp"

namespace weft::llm {
namespace {

class GrammarOfModel : public testing::Test {
 protected:
  Model load_bytes(const LoadOptions& options = {}, const std::string& chat_template = {}) {
    test::put_byte_model(folder_, chat_template);
    return load(folder_.path(), options);
  }
  test::TemporaryFolder folder_;
};

constexpr const char* kPerson = R"({"type": "object", "required": ["name", "age", "tags"], "properties": {
  "name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
  "tags": {"type": "array", "items": {"enum": ["é", "b c", null]}, "maxItems": 3}, "when": {"type": "string", "format": "date-time"}}})";

GenerateOptions constrained(const Grammar& grammar, std::uint64_t seed, double temperature = 1.5) {
  return {.max_tokens = 300, .sampling = {.temperature = temperature, .top_k = 0, .seed = seed}, .grammar = grammar};
}

TEST_F(GrammarOfModel, NoiseIsValid) {
  const Model model = load_bytes();
  const Grammar grammar = Grammar::parse_json_schema(kPerson);
  const schema::Schema validator = schema::Schema::parse(kPerson, {.asserts_formats = true});
  std::set<std::string> texts;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const Result result = model.generate("x", constrained(grammar, seed, seed == 0 ? 0 : 1.5)).result();
    ASSERT_EQ(result.finish, Finish::end_of_text) << result.text;
    EXPECT_EQ(to_string(validator.check(Value::parse(result.text))), "") << result.text;
    texts.insert(result.text);
  }
  EXPECT_GT(texts.size(), 6u);
}

TEST_F(GrammarOfModel, NoiseFitsGbnf) {
  const Model model = load_bytes();
  const Grammar grammar = Grammar::parse("root ::= (\"yes\" | \"no\") \", \" [^\\x00-\\x7f]{3} \".\"");
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const Result result = model.generate("x", constrained(grammar, seed)).result();
    EXPECT_TRUE(grammar.accepts(result.text)) << result.text;
  }
}

TEST_F(GrammarOfModel, TheTextIsCutOnlyByItsLength) {
  const Model model = load_bytes();
  GenerateOptions options = constrained(Grammar::parse("root ::= [a-z]{200}"), 3);
  options.max_tokens = 10;
  const Result result = model.generate("x", options).result();
  EXPECT_EQ(result.finish, Finish::length);
  EXPECT_EQ(result.tokens.size(), 10u);
}

TEST_F(GrammarOfModel, GuessesChangeSpeedOnly) {
  const Model model = load_bytes();
  const Grammar grammar = Grammar::parse("root ::= (\"[\" [ab]{3} \"]\"){8}");
  GenerateOptions options = constrained(grammar, 5, 0.3);
  const Result wanted = model.generate("[aba][aba][aba]", options).result();
  options.draft = 5;
  const Result got = model.generate("[aba][aba][aba]", options).result();
  EXPECT_EQ(got.text, wanted.text);
  EXPECT_GT(got.drafted_tokens, 0);
  EXPECT_EQ(wanted.text.size(), 40u);
}

TEST_F(GrammarOfModel, ProbabilitiesAreThoseOfTheModel) {
  const Model model = load_bytes();
  GenerateOptions options = constrained(Grammar::parse("root ::= \"zq\""), 1);
  options.log_probabilities = true;
  const Result result = model.generate("x", options).result();
  ASSERT_EQ(result.text, "zq");
  std::vector<std::int32_t> tokens = model.encode("x");
  for (const GeneratedToken& token : result.tokens) {
    const std::vector<float> logits = model.forward(tokens);
    const auto row = std::span(logits).last(static_cast<std::size_t>(model.vocabulary()));
    double total = 0;
    for (const float l : row) total += std::exp(l);
    EXPECT_NEAR(token.log_probability, row[static_cast<std::size_t>(token.id)] - std::log(total), 1e-3);
    tokens.push_back(token.id);
  }
}

TEST_F(GrammarOfModel, TheReasoningBeforeTheAnswerIsFree) {
  const Model model = load_bytes({}, "{{ messages[0].content }}<think>");
  const Grammar grammar = Grammar::parse("root ::= \"yes\" | \"no\"");
  GenerateOptions options = constrained(grammar, 2);
  // The end of the reasoning is likely enough, and the end of the text must wait for it.
  const std::int32_t close = *model.tokenizer().id_of("</think>");
  options.sampling.logit_bias = {{close, 3.0}, {model.end_tokens()[0], 3.0}};
  const Result result = model.chat({{"user", "x"}}, options).result();
  ASSERT_EQ(result.finish, Finish::end_of_text);
  const std::size_t at = result.text.find("</think>");
  ASSERT_NE(at, std::string::npos);
  EXPECT_TRUE(grammar.accepts(result.text.substr(at + 8))) << result.text;
}

TEST_F(GrammarOfModel, AnOptionalGrammarBeginsBehindItsMark) {
  const Model model = load_bytes();
  GenerateOptions options = constrained(Grammar::parse("root ::= [0-9]{3}"), 4);
  options.grammar_after = "a";  // tokens such as " a" and "\"a\":1" hold it too
  options.grammar_is_optional = true;
  bool began = false, ended_before = false;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    options.sampling.seed = seed;
    options.sampling.logit_bias = {{'a', 2.0}, {model.end_tokens()[0], 3.0}};
    const Result result = model.generate("x", options).result();
    if (result.finish != Finish::end_of_text) continue;
    const std::size_t at = result.text.find('a');
    ended_before = ended_before || at == std::string::npos;
    if (at == std::string::npos) continue;
    began = true;
    const std::string rest = result.text.substr(at + 1);
    EXPECT_TRUE(rest.size() == 3 && rest.find_first_not_of("0123456789") == std::string::npos) << result.text;
  }
  EXPECT_TRUE(began);
  EXPECT_TRUE(ended_before);
}

TEST_F(GrammarOfModel, FailsClosed) {
  const Model model = load_bytes();
  // Biases that forbid all that the grammar allows.
  GenerateOptions options = constrained(Grammar::parse("root ::= \"z\""), 1);
  options.sampling.logit_bias = {{'z', -std::numeric_limits<double>::infinity()}};
  EXPECT_NE(test::message_of<UsageError>([&] { model.generate("x", options).result(); }).find("forbid all of them"),
            std::string::npos);
  options.sampling.logit_bias = {{'z', std::numeric_limits<double>::infinity()}};
  EXPECT_THROW(model.generate("x", options), UsageError);
  options.sampling.logit_bias.clear();
  EXPECT_EQ(model.generate("x", options).result().text, "z");  // the model is free again
  EXPECT_THROW(model.generate("x", {.grammar_after = "a"}), UsageError);
  // A vocabulary of words cannot write JSON.
  test::put(test::tiny_models()[0], folder_);
  const Model words = load(folder_.path());
  options.grammar = Grammar::json_object();
  EXPECT_NE(test::message_of<UsageError>([&] { words.generate("w1", options).result(); }).find("no token"),
            std::string::npos);
}

TEST_F(GrammarOfModel, ABatchGivesEachTextItsGrammar) {
  const Model model = load_bytes({.sequences = 3});
  const Grammar digits = Grammar::parse("root ::= [0-9]{4}"), letters = Grammar::parse("root ::= [a-z]+ \"!\""),
                broken = Grammar::parse("root ::= \"z\"");
  std::vector<std::string> alone;
  for (const Grammar& grammar : {digits, letters})
    alone.push_back(model.generate("x", constrained(grammar, 9)).result().text);
  Batch batch(model);
  const Batch::Id first = batch.add(model.encode("x"), constrained(digits, 9)),
                  second = batch.add(model.encode("x"), constrained(letters, 9));
  GenerateOptions failing = constrained(broken, 9);
  failing.sampling.logit_bias = {{'z', -std::numeric_limits<double>::infinity()}};
  const Batch::Id third = batch.add(model.encode("x"), failing);
  EXPECT_EQ(batch.room(), 0);
  EXPECT_THROW(batch.add(model.encode("x"), {}), UsageError);
  EXPECT_THROW(model.generate("x"), UsageError);
  std::map<Batch::Id, std::string> texts, errors;
  while (!batch.empty())
    for (const Batch::Progress& p : batch.step()) {
      texts[p.id] += p.piece;
      if (!p.has_ended) continue;
      errors[p.id] = p.error;
      EXPECT_EQ(batch.result(p.id).text, texts[p.id]);
      batch.remove(p.id);
    }
  EXPECT_EQ(texts[first], alone[0]);
  EXPECT_EQ(texts[second], alone[1]);
  EXPECT_EQ(errors[first] + errors[second], "");
  EXPECT_NE(errors[third], "");
}

TEST_F(GrammarOfModel, ABatchEmbedsBesideItsTexts) {
  const Model model = load_bytes({.sequences = 2});
  const std::vector<std::string> texts = {"abc", "d"};
  const std::vector<float> wanted = model.embed(texts).to_vector<float>();
  const std::string alone = model.generate("x", {.max_tokens = 12, .sampling = {.seed = 1}}).result().text;
  Batch batch(model);
  const Batch::Id id = batch.add(model.encode("x"), {.max_tokens = 12, .sampling = {.seed = 1}});
  for (int i = 0; i < 4; ++i) batch.step();
  const std::vector<float> got = batch.embed(texts).to_vector<float>();
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-4);
  for (bool ended = false; !ended;)
    for (const Batch::Progress& p : batch.step()) ended = ended || p.has_ended;
  EXPECT_EQ(batch.result(id).text, alone);
}

}  // namespace
}  // namespace weft::llm
