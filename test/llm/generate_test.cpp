// Generation on a tiny model: streams, ends, caches that are reused, batches, guesses, errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "base/message_of.hpp"
#include "llm/reasoning.hpp"
#include "llm/stop_texts.hpp"
#include "llm/tiny_model.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

class Generate : public testing::Test {
 protected:
  Model load_tiny(const LoadOptions& options = {}) {
    test::put(test::tiny_models()[0], folder_);
    return load(folder_.path(), options);
  }
  test::TemporaryFolder folder_;
};

constexpr const char* kPrompt = "w3 w14 w15 w9 w2 w6 w5";
GenerateOptions greedy(Extent tokens) { return {.max_tokens = tokens, .sampling = {.temperature = 0}}; }
GenerateOptions seeded(Extent tokens) { return {.max_tokens = tokens, .sampling = {.temperature = 1.5, .seed = 42}}; }
std::vector<std::int32_t> ids_of(const Result& result) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : result.tokens) ids.push_back(token.id);
  return ids;
}

TEST_F(Generate, GreedyTakesTheLargestLogitOfEachPass) {
  const Model model = load_tiny();
  std::vector<std::int32_t> tokens = model.encode(kPrompt);
  const Result result = model.generate(kPrompt, greedy(12)).result();
  ASSERT_EQ(result.tokens.size(), 12u);
  for (const GeneratedToken& token : result.tokens) {
    const std::vector<float> logits = model.forward(tokens);
    const auto last = logits.end() - 48;
    EXPECT_EQ(token.id, std::max_element(last, logits.end()) - last);
    tokens.push_back(token.id);
  }
  EXPECT_EQ(result.finish, Finish::length);
  EXPECT_EQ(result.prompt_tokens, 7);
}

TEST_F(Generate, PiecesJoinToTheText) {
  const Model model = load_tiny();
  std::string joined;
  Generation g = model.generate(kPrompt, seeded(20));
  for (const std::string_view piece : g) {
    EXPECT_FALSE(piece.empty());
    joined += piece;
  }
  EXPECT_EQ(joined, g.result().text);
  EXPECT_EQ(g.result().tokens.size(), 20u);
}

TEST_F(Generate, TheSeedDecides) {
  const Model model = load_tiny();
  const auto first = ids_of(model.generate(kPrompt, seeded(20)).result());
  EXPECT_EQ(ids_of(model.generate(kPrompt, seeded(20)).result()), first);
  GenerateOptions other = seeded(20);
  other.sampling.seed = 43;
  EXPECT_NE(ids_of(model.generate(kPrompt, other).result()), first);
}

TEST_F(Generate, ACachedPromptIsNotComputedAgain) {
  const Model model = load_tiny();
  const Result fresh = model.generate(kPrompt, greedy(8)).result();
  EXPECT_EQ(fresh.reused_tokens, 0);
  const Result again = model.generate(kPrompt, greedy(8)).result();
  EXPECT_EQ(again.reused_tokens, 6);  // all but the last
  EXPECT_EQ(ids_of(again), ids_of(fresh));
  const std::string longer = std::string(kPrompt) + " w7 w8 w9";
  const Result other = model.generate(longer, greedy(8)).result();
  EXPECT_GE(other.reused_tokens, 7);
  EXPECT_EQ(ids_of(other), ids_of(load_tiny().generate(longer, greedy(8)).result()));
}

TEST_F(Generate, GuessesChangeSpeedOnly) {
  const Model model = load_tiny();
  // A text that repeats itself invites guesses.
  const std::string repeated = "w1 w2 w3 w4 w5 w1 w2 w3 w4 w5 w1 w2 w3";
  for (const GenerateOptions& plain : {greedy(30), seeded(30)}) {
    const Result wanted = model.generate(repeated, plain).result();
    GenerateOptions guessing = plain;
    guessing.draft = 5;
    const Result got = model.generate(repeated, guessing).result();
    EXPECT_EQ(ids_of(got), ids_of(wanted));
    EXPECT_GT(got.drafted_tokens, 0);
    EXPECT_LE(got.accepted_tokens, got.drafted_tokens);
    EXPECT_EQ(wanted.drafted_tokens, 0);
  }
}

// Longrope turns a text of more than 16 tokens by other factors than a shorter one: all of it.
TEST_F(Generate, TextsThatOutgrowTheShortFactorsAreTurnedAnew) {
  const std::vector<test::TinyModel> all = test::tiny_models();
  const auto tiny = std::find_if(all.begin(), all.end(), [](const auto& m) { return m.name == "phi3 longrope"; });
  ASSERT_NE(tiny, all.end());
  test::put(*tiny, folder_);
  const Model model = load(folder_.path(), {.context = 64, .sequences = 3});
  const std::vector<std::string> prompts = {
      kPrompt, "w1 w2 w3", "w1 w2 w3 w4 w5 w6 w7 w8 w9 w8 w7 w6 w5 w4 w3 w2 w1 w9", "w5 w6 w5 w6 w5 w6 w5 w6 w5 w6"};
  std::vector<std::vector<std::int32_t>> alone;
  for (const std::string& prompt : prompts) {
    std::vector<std::int32_t> tokens = model.encode(prompt);
    for (int i = 0; i < 20; ++i) {
      const std::vector<float> logits = model.forward(tokens);
      tokens.push_back(
          static_cast<std::int32_t>(std::max_element(logits.end() - 48, logits.end()) - (logits.end() - 48)));
    }
    alone.emplace_back(tokens.end() - 20, tokens.end());
  }
  for (const Extent draft : {0, 5})
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      GenerateOptions options = greedy(20);
      options.draft = draft;
      EXPECT_EQ(ids_of(model.generate(prompts[i], options).result()), alone[i]) << prompts[i];
    }
  const std::vector<Result> together = model.generate_batch(prompts, greedy(20));
  for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(ids_of(together[i]), alone[i]) << prompts[i];
  // Keys that were turned by the long factors are of no use to a short text.
  EXPECT_EQ(model.generate(prompts[0], greedy(4)).result().tokens.size(), 4u);
  EXPECT_EQ(model.generate(prompts[0], greedy(20)).result().reused_tokens, 6);
  EXPECT_EQ(model.generate(prompts[0], greedy(4)).result().reused_tokens, 0);
}

TEST_F(Generate, BatchesGiveWhatEachPromptGivesAlone) {
  const Model model = load_tiny({.sequences = 3});
  const std::vector<std::string> prompts = {"w1 w2", kPrompt, "w9", "w5 w4 w3 w2 w1", "w1 w2"};
  const std::vector<Result> results = model.generate_batch(prompts, greedy(9));
  ASSERT_EQ(results.size(), prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(ids_of(results[i]), ids_of(model.generate(prompts[i], greedy(9)).result())) << i;
    EXPECT_EQ(results[i].text, model.generate(prompts[i], greedy(9)).result().text);
  }
}

// Prompts of a batch draw with seeds of their own, so that equal prompts go on differently.
TEST_F(Generate, EachPromptOfABatchHasASeedOfItsOwn) {
  const Model model = load_tiny({.sequences = 2});
  const std::vector<std::string> prompts = {kPrompt, kPrompt, kPrompt};
  const std::vector<Result> results = model.generate_batch(prompts, seeded(12));
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    GenerateOptions alone = seeded(12);
    alone.sampling.seed = batch_seed(*alone.sampling.seed, i);
    EXPECT_EQ(ids_of(results[i]), ids_of(model.generate(kPrompt, alone).result())) << i;
  }
  EXPECT_NE(ids_of(results[0]), ids_of(results[1]));
  // Batches of neighbouring seeds share no text.
  GenerateOptions next = seeded(12);
  ++*next.sampling.seed;
  for (const Result& other : model.generate_batch(prompts, next))
    for (const Result& result : results) EXPECT_NE(ids_of(other), ids_of(result));
}

TEST_F(Generate, AFinishedGenerationFreesTheModel) {
  const Model model = load_tiny();
  Generation first = model.generate("w1", greedy(3));
  const std::string text = first.result().text;
  Generation second = model.generate("w2", greedy(3));
  EXPECT_FALSE(second.result().text.empty());
  EXPECT_EQ(first.result().text, text);
  // After its loop, and twice in one expression.
  for (Generation loop = model.generate("w1", greedy(3)); const std::string_view piece : loop) (void)piece;
  EXPECT_EQ(model.generate("w1", greedy(3)).result().text + model.generate("w1", greedy(3)).result().text, text + text);
  // The end of the first leaves the second alone.
  std::optional<Generation> ended = model.generate("w1", greedy(2));
  ended->result();
  Generation open = model.generate("w1", greedy(2));
  ended.reset();
  EXPECT_NE(test::message_of<UsageError>([&] { (void)model.generate("w2"); }).find("another generation"),
            std::string::npos);
}

TEST_F(Generate, TokenizersStandAlone) {
  const Model model = load_tiny();
  const Tokenizer tokenizer = Tokenizer::load(folder_.path());
  EXPECT_EQ(tokenizer.encode("w1 w2"), model.encode("w1 w2"));
  EXPECT_EQ(model.tokenizer().encode("w1 w2"), model.encode("w1 w2"));
  const std::int32_t w2 = tokenizer.id_of("w2").value();
  EXPECT_EQ(tokenizer.piece(w2), "w2");
  EXPECT_FALSE(tokenizer.id_of("nothing"));
  EXPECT_FALSE(tokenizer.piece(1000));
  EXPECT_EQ(tokenizer.size(), 48);
  EXPECT_FALSE(tokenizer.is_special(w2));
  EXPECT_EQ(tokenizer.decode(std::vector<std::int32_t>{w2}), "w2");
}

TEST_F(Generate, SpecialTokensOfAPromptMayBeText) {
  test::put(test::tiny_models()[0], folder_);
  Json tokenizer = read_json_file(folder_ / "tokenizer.json");
  tokenizer["added_tokens"] =
      parse_json(R"([{"id": 5, "content": "w5", "special": true, "normalized": false}])", "test");
  folder_.put("tokenizer.json", tokenizer.dump());
  const Model model = load(folder_.path());
  EXPECT_EQ(model.generate("w5", greedy(1)).result().prompt_tokens, 1);
  const std::string both[] = {"w5"};
  GenerateOptions plain = greedy(1);
  plain.parse_special = false;
  EXPECT_NE(model.generate("w5", plain).result().tokens[0].log_probability, 1);  // it runs
  EXPECT_EQ(model.tokenizer().encode("w5", {.parse_special = true}), std::vector<std::int32_t>{5});
  EXPECT_NE(model.tokenizer().encode("w5", {.parse_special = false}), std::vector<std::int32_t>{5});
  EXPECT_EQ(model.generate_batch(both, plain).size(), 1u);
}

TEST_F(Generate, TemplatesSeeToolsReasoningAndDocuments) {
  const Model model =
      load_tiny({.chat_template =
                     "{% for m in messages %}{{ m.role }}:{{ m.content }}|{{ m.reasoning_content }}|"
                     "{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}|{{ m.name }}|{{ m.tool_call_id }};"
                     "{% endfor %}{{ tools | length if tools }} {{ documents[0].title if documents }} {{ mood }}"
                     "{{ ' ask' if add_generation_prompt }}"});
  const std::vector<Message> messages = {
      {"user", "w1"},
      {.role = "assistant",
       .content = "",
       .reasoning = "hm",
       .tool_calls = R"([{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}])"},
      {.role = "tool", .content = "2", .name = "add", .tool_call_id = "7"}};
  EXPECT_EQ(model.render(messages), "user:w1||||;assistant:|hm|add||;tool:2|||add|7;   ask");
  EXPECT_EQ(model.render({{"user", "w1"}}, {.tools = R"([{"name": "add"}])",
                                            .documents = R"([{"title": "T"}])",
                                            .variables = R"({"mood": "good"})",
                                            .add_generation_prompt = false}),
            "user:w1||||;1 T good");
  EXPECT_EQ(model.chat_tokens(messages).size(),
            static_cast<std::size_t>(model.chat(messages, greedy(0)).result().prompt_tokens));
  EXPECT_NE(test::message_of<UsageError>([&] {
              model.render({{"user", "w1"}}, {.tools = "{"});
            }).find("tools"),
            std::string::npos);
  EXPECT_NE(test::message_of<UsageError>([&] {
              model.render({{"user", "w1"}}, {.tools = "{}"});
            }).find("not a list"),
            std::string::npos);
}

TEST_F(Generate, TheContextIsWhatMemoryAllows) {
  EXPECT_EQ(load_tiny().context(), 64);  // the model's own
  const Model model = load_tiny({.context = 16});
  const auto message = [&](const LoadOptions& options) {
    return test::message_of<UsageError>([&] { (void)load_tiny(options); });
  };
  EXPECT_NE(message({.device_memory = 100}).find("the weights take"), std::string::npos);
  EXPECT_NE(message({.context = 64, .sequences = 200, .device_memory = 400'000}).find("does not fit into 400000 bytes"),
            std::string::npos)
      << message({.context = 64, .sequences = 200, .device_memory = 400'000});
  EXPECT_EQ(load_tiny({.device_memory = 100'000'000}).context(), 64);
}

// Tokens that a bias makes certain are drawn again once they are before the window that penalties look at.
TEST_F(Generate, PenaltiesLookAtTheLastTokens) {
  const Model model = load_tiny();
  GenerateOptions options = greedy(1);
  options.sampling.presence_penalty = 1000;
  options.sampling.penalty_window = 3;
  const auto next_of = [&](std::vector<std::int32_t> prompt) {
    return model.generate(prompt, options).result().tokens.at(0).id;
  };
  options.sampling.logit_bias = {{7, 100}};
  EXPECT_EQ(next_of({7, 7, 7, 1, 2, 3}), 7);
  EXPECT_NE(next_of({1, 2, 3, 7, 4, 5}), 7);
  EXPECT_NE(next_of({1, 2, 3, 4, 5, 7}), 7);
  options.sampling.penalty_window = 6;
  EXPECT_NE(next_of({7, 7, 7, 1, 2, 3}), 7);
}

TEST_F(Generate, StopTextsEndItAndAreNoPartOfIt) {
  const Model model = load_tiny();
  const Result whole = model.generate(kPrompt, greedy(12)).result();
  const std::string stop = whole.text.substr(whole.text.size() / 2, 4);
  GenerateOptions options = greedy(12);
  options.stop = {"never there", stop};
  const Result result = model.generate(kPrompt, options).result();
  EXPECT_EQ(result.finish, Finish::stop_text);
  EXPECT_EQ(result.stop_text, stop);
  EXPECT_EQ(result.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(whole.stop_text, "");
}

TEST_F(Generate, CancellingEndsItBeforeTheNextToken) {
  const Model model = load_tiny();
  std::stop_source source;
  GenerateOptions options = greedy(50);
  options.cancel = source.get_token();
  Generation g = model.generate(kPrompt, options);
  int pieces = 0;
  for (const std::string_view piece : g) {
    EXPECT_FALSE(piece.empty());
    if (++pieces == 3) source.request_stop();
  }
  EXPECT_EQ(g.result().finish, Finish::cancelled);
  EXPECT_LE(g.result().tokens.size(), 5u);
}

TEST_F(Generate, ABatchThatIsCancelledSaysSoOfEachPrompt) {
  const Model model = load_tiny({.sequences = 2});
  std::stop_source source;
  source.request_stop();
  GenerateOptions options = greedy(50);
  options.cancel = source.get_token();
  const std::vector<std::string> prompts = {"w1 w2", "w3", "w4 w5"};
  const std::vector<Result> results = model.generate_batch(prompts, options);
  ASSERT_EQ(results.size(), 3u);
  for (const Result& result : results) {
    EXPECT_EQ(result.finish, Finish::cancelled);
    EXPECT_TRUE(result.tokens.empty());
  }
}

TEST_F(Generate, LogProbabilitiesAreThoseOfTheModel) {
  const Model model = load_tiny();
  GenerateOptions options = greedy(3);
  options.log_probabilities = true;
  const Result result = model.generate(kPrompt, options).result();
  std::vector<std::int32_t> tokens = model.encode(kPrompt);
  for (const GeneratedToken& token : result.tokens) {
    const std::vector<float> logits = model.forward(tokens);
    double total = 0;
    for (std::size_t i = logits.size() - 48; i < logits.size(); ++i) total += std::exp(logits[i]);
    EXPECT_NEAR(token.log_probability,
                logits[logits.size() - 48 + static_cast<std::size_t>(token.id)] - std::log(total), 1e-4);
    tokens.push_back(token.id);
  }
}

/// What `forward` says of the token after each of a text's last ones, and what the generation listed.
void expect_top(const Model& model, std::vector<std::int32_t> tokens, const Result& result, std::size_t top) {
  for (const GeneratedToken& token : result.tokens) {
    const std::vector<float> all = model.forward(tokens);
    const auto v = static_cast<std::size_t>(model.vocabulary());
    const std::span<const float> logits = std::span(all).last(v);
    double total = 0;
    for (const float l : logits) total += std::exp(l);
    std::vector<std::int32_t> order(v);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    ASSERT_EQ(token.top.size(), top);
    for (std::size_t i = 0; i < top; ++i) {
      EXPECT_EQ(token.top[i].id, order[i]);
      EXPECT_NEAR(token.top[i].log_probability, logits[static_cast<std::size_t>(order[i])] - std::log(total), 1e-4);
      if (token.top[i].id == token.id) {
        EXPECT_EQ(token.top[i].log_probability, token.log_probability);
      }
    }
    EXPECT_NEAR(token.log_probability, logits[static_cast<std::size_t>(token.id)] - std::log(total), 1e-4);
    tokens.push_back(token.id);
  }
}

TEST_F(Generate, TheMostProbableTokensAreThoseOfForward) {
  const Model model = load_tiny({.sequences = 2});
  GenerateOptions options{.max_tokens = 6, .sampling = {.temperature = 1.5, .logit_bias = {{3, 4.0}}, .seed = 5}};
  const Result without = model.generate(kPrompt, options).result();
  EXPECT_TRUE(without.tokens[0].top.empty());
  for (const Extent top : {1, 20}) {
    options.top_log_probabilities = top;
    const Result result = model.generate(kPrompt, options).result();
    EXPECT_EQ(result.text, without.text);
    expect_top(model, model.encode(kPrompt), result, static_cast<std::size_t>(top));
  }
  options.top_log_probabilities = 3;
  const std::vector<std::string> prompts = {"w1 w2", "w3", "w4 w5 w6"};
  const std::vector<Result> results = model.generate_batch(prompts, options);
  for (std::size_t i = 0; i < prompts.size(); ++i) expect_top(model, model.encode(prompts[i]), results[i], 3);
  // With guesses, which are checked several at once.
  GenerateOptions guessing = greedy(20);
  guessing.draft = 4;
  guessing.top_log_probabilities = 2;
  const Result guessed = model.generate(kPrompt, guessing).result();
  EXPECT_GT(guessed.accepted_tokens, 0);
  expect_top(model, model.encode(kPrompt), guessed, 2);

  for (const Extent wrong : {-1, 21}) {
    options.top_log_probabilities = wrong;
    EXPECT_NE(test::message_of<UsageError>([&] { model.check(options); }).find("top_log_probabilities is"),
              std::string::npos);
  }
}

TEST_F(Generate, CachesOfOtherTypesStayClose) {
  const std::vector<std::int32_t> tokens = load_tiny().encode(kPrompt);
  const std::vector<float> wanted = load_tiny().forward(tokens);
  const std::vector<float> half = load_tiny({.cache = CacheType::f16}).forward(tokens);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(half[i], wanted[i], 1e-2);
}

TEST_F(Generate, PerplexityIsOfTheSecondHalves) {
  const Model model = load_tiny();
  std::string text;
  for (int i = 0; i < 40; ++i) text += "w" + std::to_string(i * 7 % 48) + " ";
  const Perplexity p = model.perplexity(text, {.window = 16});
  EXPECT_EQ(p.tokens, 2 * 7);
  const std::vector<std::int32_t> tokens = model.encode(text, false);
  double loss = 0;
  for (std::size_t w = 0; w < 2; ++w) {
    const std::vector<float> logits = model.forward(std::span(tokens).subspan(w * 16, 16));
    for (std::size_t t = 8; t < 15; ++t) {
      double total = 0;
      for (std::size_t i = 0; i < 48; ++i) total += std::exp(logits[t * 48 + i]);
      loss -= logits[t * 48 + static_cast<std::size_t>(tokens[w * 16 + t + 1])] - std::log(total);
    }
  }
  EXPECT_NEAR(p.value, std::exp(loss / 14), 1e-3);
  EXPECT_EQ(model.perplexity(text, {.window = 16, .windows_max = 1}).tokens, 7);
}

TEST_F(Generate, WindowsOfAPerplexityBeginAsTheTokenizerBeginsTexts) {
  test::put(test::tiny_models()[0], folder_);
  Json tokenizer = read_json_file(folder_ / "tokenizer.json");
  tokenizer["post_processor"] = parse_json(
      R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "w0", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
          "special_tokens": {"w0": {"id": "w0", "ids": [0], "tokens": ["w0"]}}})",
      "test");
  folder_.put("tokenizer.json", tokenizer.dump());
  const Model model = load(folder_.path());
  const std::vector<std::int32_t> begin = model.encode("");
  ASSERT_EQ(begin.size(), 1u);
  std::string text;
  for (int i = 0; i < 15; ++i) text += "w" + std::to_string(i * 7 % 48) + " ";
  // The window is that token and the text, as if the text were a prompt.
  const std::vector<std::int32_t> tokens = model.encode(text);
  ASSERT_EQ(tokens.size(), 16u);
  const std::vector<float> logits = model.forward(tokens);
  double loss = 0;
  for (std::size_t t = 8; t < 15; ++t) {
    double total = 0;
    for (std::size_t i = 0; i < 48; ++i) total += std::exp(logits[t * 48 + i]);
    loss -= logits[t * 48 + static_cast<std::size_t>(tokens[t + 1])] - std::log(total);
  }
  EXPECT_NEAR(model.perplexity(text, {.window = 16}).value, std::exp(loss / 7), 1e-3);
}

TEST_F(Generate, ErrorsSayWhatToDo) {
  const Model model = load_tiny({.context = 16});
  const auto message = [&](const GenerateOptions& options, const char* prompt = kPrompt) {
    return test::message_of<UsageError>([&] { model.generate(prompt, options).result(); });
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(message({.max_tokens = -1}), "max_tokens is -1");
  expect(message({.sampling = {.temperature = -1}}), "temperature is -1, not 0 or more");
  expect(message({.sampling = {.top_p = 0}}), "top_p is 0");
  expect(message({.sampling = {.logit_bias = {{99, 1.0}}}}), "the token of a logit bias is 99");
  expect(message({.stop = {""}}), "a stop text is empty");
  expect(message({}, ""), "the prompt has no tokens");
  expect(message({}, "w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1 w1"),
         "the prompt has 16 tokens, and the context 16");
  expect(test::message_of<UsageError>([&] { (void)model.chat({{"user", "w1"}}); }), "no chat template");
  expect(test::message_of<UsageError>([&] {
           Generation one = model.generate(kPrompt);
           (void)model.generate(kPrompt);
         }),
         "another generation");
  expect(test::message_of<UsageError>([&] { (void)model.perplexity("w1 w2"); }), "fewer than a window");
  const std::int32_t wrong[] = {3, 48};
  expect(test::message_of<UsageError>([&] { (void)model.forward(wrong); }),
         "token 48 is outside of the vocabulary of 48");
  expect(test::message_of<UsageError>([&] { (void)load_tiny({.sequences = 0}); }), "0 sequences");
  // The context ends it without an error.
  EXPECT_EQ(model.generate(kPrompt, greedy(100)).result().tokens.size(), 9u);
}

// The first in the text counts, not the first or the last of the list.
TEST(StopTexts, TheFirstInTheTextEndsIt) {
  StopTexts both({"bb", "cc"});
  EXPECT_EQ(both.put("a bb cc"), "a ");
  StopTexts other({"cc", "bb"});
  EXPECT_EQ(other.put("a bb cc"), "a ");
  StopTexts third({"bb", "cc", "zz"});
  EXPECT_EQ(third.put("a cc bb"), "a ");
  EXPECT_EQ(third.found(), "cc");
}

TEST(StopTexts, HoldBackWhatMayBeOne) {
  StopTexts stop({"END", "\n\n"});
  EXPECT_EQ(stop.put("a E"), "a ");
  EXPECT_EQ(stop.put("N"), "");
  EXPECT_EQ(stop.put("X E\n"), "ENX E");
  EXPECT_EQ(stop.put("b"), "\nb");
  EXPECT_EQ(stop.put("c\n\nEND"), "c");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.put("more"), "");
  StopTexts open({"END"});
  EXPECT_EQ(open.put("EN"), "");
  EXPECT_EQ(open.finish(), "EN");
}

TEST(Reasoning, IsToldApartAcrossPieces) {
  ReasoningSplitter splitter;
  std::vector<ReasoningSplitter::Part> parts;
  for (const char* piece : {"<th", "ink>let me", " see</thi", "nk>", "It is <", "b>4"})
    for (auto& part : splitter.put(piece)) parts.push_back(part);
  for (auto& part : splitter.finish()) parts.push_back(part);
  std::string reasoning, answer;
  for (const auto& part : parts) (part.reasoning ? reasoning : answer) += part.text;
  EXPECT_EQ(reasoning, "let me see");
  EXPECT_EQ(answer, "It is <b>4");
  EXPECT_EQ(without_reasoning("<think>\nx\n</think>\n\nyes"), "yes");
  EXPECT_EQ(without_reasoning(" plain"), " plain");
  EXPECT_EQ(without_reasoning("hm\n</think>\n\nyes", true), "yes");
  EXPECT_EQ(without_reasoning("hm", true), "");
  EXPECT_TRUE(opens_reasoning("<|assistant|><think>\n"));
  EXPECT_FALSE(opens_reasoning("<think>\n\n</think>\n\n"));
  EXPECT_FALSE(opens_reasoning(""));
}

}  // namespace
}  // namespace weft::llm
