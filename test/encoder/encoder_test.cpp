// Tiny text encoders of every family against transformers and sentence-transformers (make.py).
#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "encoder/tiny_encoder.hpp"
#include "encoder/tiny_gguf.hpp"
#include "encoder/token_places.hpp"
#include "webgpu_driver.hpp"
#include "weft/error.hpp"

namespace weft::encoder {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::vector<std::string> strings(const Json& list) { return list.get<std::vector<std::string>>(); }

void expect_near(const Tensor& made, const Json& rows, double bound) {
  ASSERT_EQ(made.shape(), (Shape{static_cast<Extent>(rows.size()), static_cast<Extent>(rows[0].size())}));
  const std::vector<float> values = made.to_vector<float>();
  double worst = 0;
  for (std::size_t row = 0; row < rows.size(); ++row)
    for (std::size_t i = 0; i < rows[row].size(); ++i)
      worst = std::max(worst, std::abs(double{values[row * rows[row].size() + i]} - rows[row][i].get<double>()));
  EXPECT_LT(worst, bound);
}

Model tiny(const std::string& name, Device device = kCpu, DType precision = DType::f32) {
  const TemporaryFolder folder;
  test::put_encoder(test::encoder_case(name), name, folder.path());
  return load(folder.path(), {.device = device, .precision = precision});
}

void expect_as_golden(const Model& model, const Json& golden, double bound) {
  const std::vector<std::string> texts = strings(golden["texts"]);
  if (golden.contains("embeddings")) {
    // Where the files do not normalise, sentence-transformers does not either.
    bool normalizes = false;
    for (const auto& [file, contents] : golden["files"].items())
      if (file == "modules.json") normalizes = contents.dump().find("Normalize") != std::string::npos;
    expect_near(model.embed(texts, {.normalize = normalizes}), golden["embeddings"], bound);
    if (golden.contains("queries"))
      expect_near(model.embed(texts, {.prompt = "query", .normalize = normalizes}), golden["queries"], bound);
  }
  if (golden.contains("states")) expect_near(model.states(texts[0]), golden["states"], bound);
  switch (model.task()) {
    case Task::embed: break;
    case Task::classify: {
      expect_near(model.logits(texts), golden["logits"], bound);
      std::vector<std::string> firsts, seconds;
      for (const Json& pair : golden["pairs"]) {
        firsts.push_back(pair[0].get<std::string>());
        seconds.push_back(pair[1].get<std::string>());
      }
      expect_near(model.logits(firsts, seconds), golden["pair_logits"], bound);
      break;
    }
    case Task::label_tokens: {
      const std::vector<TokenLabel> labels = model.label_tokens(texts[0]);
      ASSERT_EQ(labels.size(), golden["logits"].size());
      for (std::size_t i = 0; i < labels.size(); ++i) {
        const auto scores = golden["logits"][i].get<std::vector<double>>();
        const auto best = std::max_element(scores.begin(), scores.end());
        double total = 0;
        for (const double score : scores) total += std::exp(score - *best);
        EXPECT_EQ(labels[i].label.index, best - scores.begin());
        EXPECT_EQ(labels[i].label.name, model.classes()[static_cast<std::size_t>(labels[i].label.index)]);
        EXPECT_NEAR(labels[i].label.probability, 1 / total, bound);
      }
      break;
    }
    case Task::answer: {
      const Json& wanted = golden["answers"];
      const AnswerOptions how{5, wanted["longest"], wanted["window"], wanted["stride"]};
      const std::string text = wanted["text"].get<std::string>();
      const std::vector<Answer> answers = model.answer(wanted["question"].get<std::string>(), text, how);
      ASSERT_EQ(answers.size(), wanted["best"].size());
      for (std::size_t i = 0; i < answers.size(); ++i) {
        EXPECT_EQ(answers[i].begin, wanted["best"][i]["begin"].get<std::size_t>());
        EXPECT_EQ(answers[i].end, wanted["best"][i]["end"].get<std::size_t>());
        EXPECT_EQ(answers[i].text, wanted["best"][i]["text"].get<std::string>());
        EXPECT_NEAR(answers[i].probability, wanted["best"][i]["probability"].get<double>(), bound);
      }
      break;
    }
    case Task::fill_masks: {
      const auto fills = model.fill_masks(golden["masked"].get<std::string>(), 48);
      ASSERT_EQ(fills.size(), golden["logits"].size());
      for (std::size_t mask = 0; mask < fills.size(); ++mask) {
        const auto scores = golden["logits"][mask].get<std::vector<double>>();
        double total = 0;
        for (const double score : scores) total += std::exp(score);
        ASSERT_EQ(fills[mask].size(), scores.size());
        for (std::size_t i = 0; i < scores.size(); ++i) {
          const Fill& fill = fills[mask][i];
          EXPECT_NEAR(fill.probability, std::exp(scores[static_cast<std::size_t>(fill.token)]) / total, bound);
          EXPECT_TRUE(i == 0 || fills[mask][i - 1].probability >= fill.probability);
        }
      }
    }
  }
}

TEST(Encoder, AllFamiliesGiveWhatTransformersGives) {
  const std::vector<std::string> names = test::encoder_names();
  EXPECT_GE(names.size(), 36u);
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Json golden = test::encoder_case(name);
    const Model model = tiny(name);
    const std::vector<std::string> texts = strings(golden["texts"]);
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(model.encode(texts[i]), golden["ids"][i].get<std::vector<std::int32_t>>());
    expect_as_golden(model, golden, 2e-5);
  }
}

TEST(Encoder, HalvesStayClose) {
  for (const char* name :
       {"bert", "mpnet", "t5-gated", "deberta-v3-classes", "modernbert-tokens", "bert-masks", "embeddinggemma"}) {
    SCOPED_TRACE(name);
    const Json golden = test::encoder_case(name);
    const std::vector<float> exact = tiny(name).states(golden["texts"][2].get<std::string>()).to_vector<float>();
    for (const auto& [type, bound] : {std::pair(DType::f16, 0.02), std::pair(DType::bf16, 0.15)}) {
      const Model model = tiny(name, kCpu, type);
      const std::vector<float> near = model.states(golden["texts"][2].get<std::string>()).to_vector<float>();
      double worst = 0;
      for (std::size_t i = 0; i < exact.size(); ++i)
        worst = std::max(worst, std::abs(double{near[i]} - double{exact[i]}));
      EXPECT_LT(worst, bound);
      EXPECT_GT(worst, 0);
      if (type == DType::f16 && model.task() != Task::label_tokens) expect_as_golden(model, golden, bound);
    }
  }
  EXPECT_NE(message_of([] { (void)tiny("bert", kCpu, DType::f64); }).find("f32, f16 or bf16"), std::string::npos);
}

TEST(Encoder, ADeviceGivesWhatTheCpuGives) {
  if (test::choose_driver().empty()) GTEST_SKIP() << "no driver";
  for (const char* name : {"mpnet", "deberta-v3-classes", "modernbert-masks", "embeddinggemma"}) {
    SCOPED_TRACE(name);
    Json golden = test::encoder_case(name);
    // Two texts of one length: software adapters take long to compile.
    for (const char* key : {"texts", "embeddings", "logits"})
      if (golden.contains(key) && golden[key].size() > 2) golden[key] = Json::array({golden[key][0], golden[key][1]});
    if (golden.contains("pairs"))
      golden["pairs"] = Json::array({golden["pairs"][1]}),
      golden["pair_logits"] = Json::array({golden["pair_logits"][1]});
    golden.erase("states");
    golden.erase("queries");
    expect_as_golden(tiny(name, Device{Device::Kind::webgpu, 0}), golden, 1e-4);
  }
}

TEST(Encoder, TextsOfManyLengthsGiveWhatEachGivesAlone) {
  const Model model = tiny("bert");
  std::vector<std::string> texts;
  for (int i = 0; i < 70; ++i) {
    std::string text;
    for (int word = 0; word < 1 + (i * 17) % 45; ++word) text += " w" + std::to_string(5 + (i * 7 + word * 11) % 43);
    texts.push_back(text);
  }
  const std::vector<float> all = model.embed(texts).to_vector<float>();
  for (std::size_t i = 0; i < texts.size(); i += 7) {
    const std::vector<float> alone = model.embed({texts[i]}).to_vector<float>();
    for (std::size_t k = 0; k < alone.size(); ++k) EXPECT_NEAR(all[i * alone.size() + k], alone[k], 1e-6) << i;
  }
}

TEST(Encoder, WidthsAreCutAndRowsNormalised) {
  const Model model = tiny("roberta");
  const std::vector<float> whole = model.embed({"w9 w8"}, {.normalize = false}).to_vector<float>(),
                           part = model.embed({"w9 w8"}, {.width = 8}).to_vector<float>();
  ASSERT_EQ(part.size(), 8u);
  double squares = 0;
  for (std::size_t i = 0; i < 8; ++i) squares += double{whole[i]} * whole[i];
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(part[i], whole[i] / std::sqrt(squares), 1e-6);
}

TEST(Encoder, ATextThatIsCutKeepsTheTokenThatClosesIt) {
  const Model model = tiny("distilbert");  // rows are the states of the last token
  std::string whole, longer;
  for (int i = 0; i < 48; ++i) whole += " w" + std::to_string(5 + i % 40);
  longer = whole + " w9 w9 w9";
  const std::vector<float> cut = model.embed({longer}, {.too_long = TooLong::cut}).to_vector<float>(),
                           wanted = model.embed({whole}).to_vector<float>();
  for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(cut[i], wanted[i], 1e-6);
}

TEST(Encoder, DocumentsAreOrderedByTheirScores) {
  const Json golden = test::encoder_case("roberta-classes");
  const Model model = tiny("roberta-classes");
  const std::vector<std::string> texts = strings(golden["texts"]);
  const std::vector<Ranked> order = model.rerank(texts[1], texts);
  ASSERT_EQ(order.size(), texts.size());
  std::vector<std::string> queries(texts.size(), texts[1]);
  const std::vector<float> scores = model.logits(queries, texts).to_vector<float>();
  for (std::size_t i = 0; i < order.size(); ++i) {
    EXPECT_NEAR(order[i].score, scores[order[i].index], 1e-6);
    EXPECT_NEAR(order[i].probability, 1 / (1 + std::exp(-order[i].score)), 1e-6);
    EXPECT_TRUE(i == 0 || order[i - 1].score >= order[i].score);
  }
  EXPECT_EQ(model.rerank(texts[1], texts, 2).size(), 2u);
}

TEST(Encoder, ClassesHaveProbabilities) {
  const Json golden = test::encoder_case("bert-classes");
  const Model model = tiny("bert-classes");
  const std::vector<Label> labels = model.classify(golden["texts"][2].get<std::string>());
  ASSERT_EQ(labels.size(), 3u);
  double total = 0;
  for (const Label& label : labels) total += label.probability;
  EXPECT_NEAR(total, 1, 1e-6);
  const auto scores = golden["logits"][2].get<std::vector<double>>();
  EXPECT_EQ(labels[0].index, std::max_element(scores.begin(), scores.end()) - scores.begin());
  EXPECT_EQ(model.classify("w9", 1).size(), 1u);
}

TEST(Encoder, NeighboursWithOneClassAreAnEntity) {
  const Model model = tiny("bert-tokens");
  const std::string text = "w9 w14 w15 w9 w22 w6 w5 w40 w41 w20";
  const std::vector<TokenLabel> labels = model.label_tokens(text);
  std::size_t named = 0, in_entities = 0, at = 0;
  for (const TokenLabel& label : labels) named += label.label.name != "O";
  for (const Entity& entity : model.entities(text)) {
    EXPECT_GE(entity.first_token, at);
    at = entity.first_token + entity.tokens;
    in_entities += entity.tokens;
    EXPECT_EQ(entity.name, "PER");
    for (std::size_t i = 1; i < entity.tokens; ++i) EXPECT_EQ(labels[entity.first_token + i].label.name, "I-PER");
    EXPECT_EQ(entity.text.substr(0, 1), "w");
  }
  EXPECT_GT(named, 0u);
  EXPECT_EQ(named, in_entities);
}

TEST(Encoder, BadCallsSayWhatToDo) {
  const Model model = tiny("bert"), classes = tiny("bert-classes"), masks = tiny("bert-masks");
  std::string long_text;
  for (int i = 0; i < 60; ++i) long_text += " w9";
  EXPECT_NE(message_of([&] { (void)model.embed({long_text}); }).find("has 62 tokens, and the model reads 50"),
            std::string::npos);
  EXPECT_EQ(model.embed({long_text}, {.too_long = TooLong::cut}).shape(), (Shape{1, 32}));
  EXPECT_NE(message_of([&] {
              (void)model.embed({"w9"}, {.prompt = "question"});
            }).find("no prompt \"question\"; it has document, query"),
            std::string::npos);
  EXPECT_NE(message_of([&] { (void)model.embed({"w9"}, {.width = 33}); }).find("embeddings of this model have 32"),
            std::string::npos);
  EXPECT_NE(message_of([&] { (void)model.embed(std::span<const std::string>()); }).find("no texts"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)model.classify("w9"); }).find("has no head to classify texts"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)classes.fill_masks("w9"); }).find("has no head to fill masks"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)masks.fill_masks("w9"); }).find("write [MASK]"), std::string::npos);
  const std::string texts[] = {"w9", "w8"}, one[] = {"w9"};
  EXPECT_NE(message_of([&] { (void)classes.logits(texts, one); }).find("one pair for each text"), std::string::npos);
}

/// The error of a case whose files were changed.
std::string error_of(const std::string& name, const std::string& file, const std::function<void(Json&)>& change) {
  Json c = test::encoder_case(name);
  change(c["files"][file]);
  const TemporaryFolder folder;
  test::put_encoder(c, name, folder.path());
  return message_of([&] { (void)load(folder.path(), {.device = kCpu}); });
}

TEST(Encoder, BadFilesAreRefusedWithTheirPlace) {
  const auto config = [](const std::string& name, const char* key, const Json& value) {
    return error_of(name, "config.json", [&](Json& json) { json[key] = value; });
  };
  EXPECT_NE(config("bert", "model_type", "gpt2").find("not a text encoder that Weft knows"), std::string::npos);
  EXPECT_NE(config("bert", "hidden_size", 33).find("heads do not divide"), std::string::npos);
  EXPECT_NE(config("bert", "hidden_size", 64).find("the configuration asks for"), std::string::npos);
  EXPECT_NE(config("bert", "hidden_act", "selu").find("hidden_act"), std::string::npos);
  EXPECT_NE(config("bert", "num_hidden_layers", 5).find("missing: encoder.layer.3"), std::string::npos);
  EXPECT_NE(config("bert", "position_embedding_type", "relative_key").find("position_embedding_type"),
            std::string::npos);
  EXPECT_NE(config("bert-classes", "id2label", Json::object({{"1", "x"}})).find("none for class 0"), std::string::npos);
  EXPECT_NE(config("bert-classes", "architectures", Json::array({"BertForMultipleChoice"}))
                .find("a head that Weft does not have"),
            std::string::npos);
  EXPECT_NE(config("embeddinggemma", "use_bidirectional_attention", false).find("llm::load"), std::string::npos);
  EXPECT_NE(
      config("nomic", "rope_parameters", Json::object({{"rope_type", "yarn"}, {"rope_theta", 10}})).find("rope_type"),
      std::string::npos);
  EXPECT_NE(error_of("bert", "modules.json", [](Json& json) { json[1]["type"] = "sentence_transformers.models.LSTM"; })
                .find("LSTM"),
            std::string::npos);
  EXPECT_NE(
      error_of("bert", "modules.json", [](Json& json) { json[1]["path"] = "../1_Pooling"; }).find("leaves the folder"),
      std::string::npos);
  EXPECT_NE(
      error_of("bert-mean", "2_Dense/config.json", [](Json& json) { json["in_features"] = 32; }).find("is 64 wide"),
      std::string::npos);
  EXPECT_NE(error_of("bert", "1_Pooling/config.json", [](Json& json) { json["pooling_mode_cls_token"] = false; })
                .find("no pooling mode"),
            std::string::npos);
}

TEST(Encoder, GgufFilesGiveWhatFoldersGive) {
  for (const auto& [name, architecture] : {std::pair("bert", "bert"), std::pair("nomic", "nomic-bert")}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const std::filesystem::path file = folder.path() / "model.gguf";
    test::put_gguf(name, architecture, file);
    EXPECT_TRUE(is_encoder(file));
    const Model model = load(file, {.device = kCpu});
    const Json golden = test::encoder_case(name);
    const std::vector<std::string> texts = strings(golden["texts"]);
    EXPECT_EQ(model.encode(texts[0]), golden["ids"][0].get<std::vector<std::int32_t>>());
    expect_near(model.embed(texts, {.normalize = std::string(name) == "bert"}), golden["embeddings"], 2e-5);
  }
}

TEST(Encoder, GgufFilesOfRerankersGiveTheirLogits) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "model.gguf";
  test::put_gguf("roberta-classes", "bert", file);
  const Model model = load(file, {.device = kCpu});
  EXPECT_EQ(model.task(), Task::classify);
  EXPECT_EQ(model.classes(), std::vector<std::string>{"LABEL_0"});
  expect_as_golden(model, test::encoder_case("roberta-classes"), 2e-5);
}

// transformers writes no names where classes have those of its default, nor the number where it is two.
TEST(Encoder, ClassesWithoutNames) {
  const TemporaryFolder folder;
  Json c = test::encoder_case("bert-classes");
  c["files"]["config.json"].erase("id2label");
  c["files"]["config.json"]["num_labels"] = 3;
  test::put_encoder(c, "bert-classes", folder.path());
  const Model model = load(folder.path(), {.device = kCpu});
  EXPECT_EQ(model.classes(), (std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"}));
  const std::vector<std::string> texts{"w5 w6", "w7"};
  EXPECT_EQ(model.logits(texts).to_vector<float>(), tiny("bert-classes").logits(texts).to_vector<float>());
  const auto without = [](Json& json) { json.erase("id2label"); };
  EXPECT_NE(error_of("bert-classes", "config.json", without).find("classifier.weight is [3, 32]"), std::string::npos)
      << error_of("bert-classes", "config.json", without);
}

TEST(Encoder, FoldersOfEncodersAreKnown) {
  const TemporaryFolder folder;
  const Json c = test::encoder_case("bert-classes");
  test::put_encoder(c, "bert-classes", folder.path());
  EXPECT_TRUE(is_encoder(folder.path()));
  EXPECT_FALSE(is_encoder(folder.path() / "nothing"));
  const Model model = load(folder.path(), {.device = kCpu, .length = 10});
  EXPECT_EQ(model.length(), 10);
  EXPECT_NE(model.describe().find("classify texts of 3 classes"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)load(folder.path(), {.device = kCpu, .length = 65}); }).find("at most 64"),
            std::string::npos);
}

// The text may have answers that are less probable than that it has none.
TEST(Encoder, AnAnswerMayBeNone) {
  const Json golden = test::encoder_case("bert-answers")["answers"];
  const Model model = tiny("bert-answers");
  const std::string question = golden["question"].get<std::string>(), text = golden["text"].get<std::string>();
  const AnswerOptions how{.count = 400,
                          .longest = golden["longest"],
                          .window = golden["window"],
                          .stride = golden["stride"],
                          .may_be_none = true};
  const std::vector<Answer> answers = model.answer(question, text, how);
  const auto none = std::find_if(answers.begin(), answers.end(), [](const Answer& each) { return each.text.empty(); });
  ASSERT_NE(none, answers.end());
  EXPECT_NEAR(none->probability, golden["none"].get<double>(), 2e-5);
  for (std::size_t i = 1; i < answers.size(); ++i) EXPECT_GE(answers[i - 1].probability, answers[i].probability);
  EXPECT_EQ(std::count_if(answers.begin(), answers.end(), [](const Answer& each) { return each.text.empty(); }), 1);
  const auto refused = [&](AnswerOptions wrong) {
    return message_of([&] { (void)model.answer(question, text, wrong); });
  };
  EXPECT_NE(refused({.window = 9}).find("leaves no room"), std::string::npos);
  EXPECT_NE(refused({.window = 28, .stride = 18}).find("give 0 to 17"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)model.answer(question, " "); }).find("has no tokens"), std::string::npos);
  EXPECT_NE(message_of([&] { (void)tiny("bert").answer(question, text); }).find("no head to find answers"),
            std::string::npos);
}

// Case, marks and unknown words are not in the tokens; places are those of the text itself.
TEST(Encoder, TokensAreFoundInTheirText) {
  const char* const file =
      R"({"version": "1.0", "added_tokens": [{"id": 0, "content": "[UNK]", "special": true, "single_word": false,
    "lstrip": false, "rstrip": false, "normalized": false}], "normalizer": {"type": "BertNormalizer", "clean_text": true,
    "handle_chinese_chars": true, "strip_accents": null, "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": null, "decoder": null, "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
    "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "cafe": 1, "par": 2, "##is": 3, ".": 4, "in": 5, "strasse": 6, ",": 7}}})";
  const text::Tokenizer tokenizer = text::Tokenizer::from_json(file);
  const std::string text = "In  Caf\u00e9,  Zebra PARIS.";
  const std::vector<text::TokenId> tokens = tokenizer.encode(text);
  EXPECT_EQ(tokens, (std::vector<text::TokenId>{5, 1, 7, 0, 2, 3, 4}));
  std::vector<std::string> parts;
  for (const auto& [begin, end] : places_of_tokens(tokenizer, text, tokens))
    parts.push_back(text.substr(begin, end - begin));
  EXPECT_EQ(parts, (std::vector<std::string>{"In", "Caf\u00e9", ",", "Zebra", "PAR", "IS", "."}));
  const auto places = places_of_tokens(tokenizer, text, tokens);
  const auto [begin, end] = whole_words(text, places[5]);
  EXPECT_EQ(text.substr(begin, end - begin), "PARIS");
}

}  // namespace
}  // namespace weft::encoder
