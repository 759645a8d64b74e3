// Every family: tiny random models against plain f64 code that knows only the files; graphs that print and validate.
#include "llm/families.hpp"

#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "llm/reference.hpp"
#include "llm/weights.hpp"
#include "weft/llm.hpp"

namespace weft::llm::families_test {
namespace {

std::vector<std::int32_t> some_tokens(std::size_t count) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * 29 + 7 * (i % 3)) % 48));
  return tokens;
}

TEST(Families, LogitsAreThoseOfPlainCodeInF64) {
  const auto tokens = some_tokens(21);
  for (const test::TinyModel& tiny : test::tiny_models()) {
    SCOPED_TRACE(tiny.name);
    const test::TemporaryFolder folder;
    test::put(tiny, folder);
    const Model model = load(folder.path());
    const std::vector<float> logits = model.forward(tokens);
    const std::vector<test::Row> wanted = test::ReferenceModel(tiny).forward(tokens);
    ASSERT_EQ(logits.size(), tokens.size() * 48);
    double largest = 0;
    for (std::size_t t = 0; t < tokens.size(); ++t)
      for (std::size_t i = 0; i < 48; ++i) {
        largest = std::max(largest, std::abs(wanted[t][i]));
        ASSERT_NEAR(logits[t * 48 + i], wanted[t][i], 3e-5) << "token " << t << ", logit " << i;
      }
    EXPECT_GT(largest, 0.5);  // something was compared
  }
}

TEST(Families, PromptsInPartsGiveWhatOnePassGives) {
  const auto tokens = some_tokens(30);
  for (const test::TinyModel& tiny : test::tiny_models()) {
    SCOPED_TRACE(tiny.name);
    const test::TemporaryFolder folder;
    test::put(tiny, folder);
    const Model model = load(folder.path());
    const std::vector<float> logits = model.forward(tokens);
    // Greedy, token by token, with the prompt in the passes that a generation cuts it into.
    Generation g = model.generate(std::span(tokens).first(20), {.max_tokens = 1, .sampling = {.temperature = 0}});
    const std::int32_t drawn = g.result().tokens.at(0).id;
    const float* row = logits.data() + 19 * 48;
    EXPECT_EQ(drawn, std::max_element(row, row + 48) - row);
  }
}

TEST(Families, GraphsPrintTheirNodes) {
  const test::TemporaryFolder folder;
  test::put(test::tiny_models()[0], folder);
  const std::string text = load(folder.path()).describe(true);
  for (const char* part :
       {"tensor layer0.q.weight weight [32, 32] constant from model.layers.0.self_attn.q_proj.weight",
        "tensor layer2.k_cache cache [L, 16] kv_cache",
        "layer1_attn = attention(layer1_q_rope, layer1_k_rope, layer1_v",
        "layer0_resid2 = add(layer0_resid1, layer0_down)", "lm_head = matmul(picked, lm_head.weight) -> lm_head"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

TEST(Families, BrokenGraphsAreRefusedWithAllThatIsWrong) {
  ModelGraph graph;
  graph.family = "test";
  graph.tensors = {{"tokens", {Symbol::tokens}, Element::i32},
                   {"table", {48, 32}, Element::weight, TensorStorage::constant, {"t"}},
                   {"x", {Symbol::tokens, 32}},
                   {"y", {Symbol::tokens, 16}},
                   {"loose", {4, 4}, Element::weight, TensorStorage::constant}};
  graph.nodes = {{"embed", OpType::embedding, {"table", "tokens"}, "x"},
                 {"add", OpType::add, {"x", "y"}, "y"},
                 {"norm", OpType::rms_norm, {"x", "nothing"}, "x", {{"eps", 1e-5}}}};
  graph.output = "logits";
  try {
    graph.validate();
    FAIL();
  } catch (const InternalError& error) {
    const std::string text = error.what();
    for (const char* part :
         {"loose: constants, and only they, have keys", "add: y is read before it is made",
          "add: add of [T, 32] and [T, 16] is not [T, 16]", "norm: attribute width is missing",
          "norm: nothing is not a tensor of the graph", "norm: x is made twice", "logits: the output is never made"})
      EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

std::string load_error(const test::TinyModel& tiny, const Json& changes = Json::object()) {
  const test::TemporaryFolder folder;
  test::TinyModel changed = tiny;
  changed.config.update(changes);
  test::put(changed, folder);
  return test::message_of<FileError>([&] { (void)load(folder.path()); });
}

TEST(Families, SettingsThatChangeResultsAndAreNotRunAreRefused) {
  const auto tiny = [](const char* name) {
    for (test::TinyModel& model : test::tiny_models())
      if (model.name == name) return model;
    throw std::runtime_error(name);
  };
  const auto error = [&](const char* name, const Json& changes) { return load_error(tiny(name), changes); };
  EXPECT_NE(error("gpt2", {{"scale_attn_weights", false}}).find("scale_attn_weights is false"), std::string::npos);
  EXPECT_NE(error("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}).find("which Weft does not support"),
            std::string::npos);
  EXPECT_NE(error("gpt2", {{"num_key_value_heads", 2}}).find("do not make up the hidden size"), std::string::npos);
  EXPECT_NE(error("gemma3", {{"use_bidirectional_attention", true}}).find("which Weft does not support"),
            std::string::npos);
  EXPECT_NE(error("mixtral", {{"hidden_act", "gelu"}}).find("hidden_act is not \"silu\""), std::string::npos);
  EXPECT_NE(error("llama", {{"partial_rotary_factor", 1e300}}).find("must be between 0 and 1"), std::string::npos);
  const Json local = {{"full_attention", Json::object()}, {"sliding_attention", {{"rope_type", "linear"}}}};
  EXPECT_NE(error("gemma3", {{"rope_scaling", nullptr}, {"rope_parameters", local}})
                .find("rope_parameters.sliding_attention.rope_type is not \"default\""),
            std::string::npos);
}

TEST(Families, KeysThatFilesLeaveOutAreTheirClasses) {
  // A model that also sees names of its text model only what differs from the class.
  const ModelConfig gemma = config_from_json(
      {{"model_type", "gemma3"},
       {"text_config", {{"model_type", "gemma3_text"}, {"hidden_size", 2560}, {"num_hidden_layers", 34}}}},
      "config.json");
  EXPECT_EQ(gemma.architecture, "gemma3_text");
  EXPECT_EQ(gemma.vocabulary, 262208);
  EXPECT_EQ(gemma.hidden, 2560);
  EXPECT_EQ(gemma.heads, 8);
  EXPECT_EQ(gemma.kv_heads, 4);
  EXPECT_EQ(gemma.head_dim, 256);
  EXPECT_EQ(gemma.rope_base, 1e6);
  EXPECT_EQ(gemma.rope_local_base, 1e4);
  EXPECT_TRUE(gemma.tied);
  // Older files name no kinds of layers, but the first that has a window.
  Json json = test::base_config("qwen2");
  json.update({{"use_sliding_window", true}, {"sliding_window", 4}, {"max_window_layers", 2}});
  EXPECT_EQ(config_from_json(json, "config.json").local_layers, (std::vector<bool>{false, false, true}));
  json["model_type"] = "llama";
  EXPECT_EQ(config_from_json(json, "config.json").window, 0);
}

TEST(Families, TensorsThatDoNotFitAreListedTogether) {
  test::TinyModel tiny = test::tiny_models()[0];
  tiny.tensors.erase("model.layers.1.mlp.up_proj.weight");
  tiny.tensors["model.layers.0.self_attn.q_proj.weight"].shape = {16, 64};
  tiny.tensors["model.extra.weight"] = tiny.tensors["model.norm.weight"];
  const std::string text = load_error(tiny);
  for (const char* part :
       {"3 tensors do not fit the architecture llama", "missing: model.layers.1.mlp.up_proj.weight [64, 32]",
        "model.layers.0.self_attn.q_proj.weight is [16, 64], the configuration asks for [32, 32]",
        "unexpected: model.extra.weight [32]"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Families, ConfigurationsNameKeyAndCure) {
  const test::TinyModel tiny = test::tiny_models()[0];
  struct Case {
    Json changes;
    const char* part;
  };
  const Case cases[] = {
      {{{"model_type", "lama"}}, "Weft does not know the architecture \"lama\"; it knows mixtral, llama"},
      {{{"model_type", "qwen4"}}, "(nearest: qwen"},
      {{{"hidden_size", "big"}}, "config.json: hidden_size is \"big\", not a whole number"},
      {{{"hidden_size", -3}}, "hidden_size is -3"},
      {{{"num_hidden_layers", nullptr}}, "num_hidden_layers is missing"},
      {{{"num_attention_heads", 0}}, "number of heads is 0"},
      {{{"num_key_value_heads", 3}}, "4 heads are not a multiple of 3 key heads"},
      {{{"rms_norm_eps", 7}}, "epsilon is 7"},
      {{{"hidden_act", "relu"}}, "hidden_act is \"relu\"; known are silu"},
      {{{"rope_scaling", {{"rope_type", "spiral"}}}}, "rope_type is \"spiral\"; known are default, linear"},
      {{{"rope_scaling", 3}}, "rope_scaling is not an object"},
      {{{"layer_types", {"full_attention"}}}, "layer_types has 1 entries for 3 layers"},
      {{{"eos_token_id", "end"}}, "eos_token_id is not a whole number"},
      {{{"num_hidden_layers", 1 << 20}}, "number of layers is 1048576, not from 1 to 4096"},
  };
  for (const Case& c : cases) {
    const std::string text = load_error(tiny, c.changes);
    EXPECT_NE(text.find(c.part), std::string::npos) << c.part << "\n" << text;
    EXPECT_NE(text.find("while loading the model"), std::string::npos) << text;
  }
  EXPECT_NE(load_error(test::tiny_gpt2(), {{"n_embd", 33}}).find("do not make up the hidden size 33"),
            std::string::npos);
  EXPECT_NE(
      load_error(tiny, {{"num_hidden_layers", 100}}).find("100 layers are asked for, but the file has 30 tensors"),
      std::string::npos);
}

}  // namespace
}  // namespace weft::llm::families_test
