// The families of 2025 beyond the logits of transformers_test.cpp: texts in pieces, batches, caches of every type, and settings
// that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::newer {
namespace {

using test::message_of;
using test::TemporaryFolder;

const char* const kNewer[] = {
    "qwen3-next", "qwen3.5",    "qwen3.5-moe", "glm4-moe",     "ernie4_5-moe",       "hunyuan-dense", "hunyuan-moe",
    "falcon-h1",  "nemotron-h", "jamba",       "falcon-mamba", "granite-moe-hybrid", "minimax-m2",    "apertus",
    "ministral3", "llama4",     "gemma3n",     "lfm2-moe",     "nemotron-h-moe",     "gemma4",        "gemma4-experts"};

std::vector<std::int32_t> text_of(std::size_t count, std::size_t step) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * step + 3 * (i % 5)) % 48));
  return tokens;
}
GenerateOptions greedily(Extent tokens) { return {.max_tokens = tokens, .sampling = {.temperature = 0}}; }
std::vector<std::int32_t> ids_of(const Result& result) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : result.tokens) ids.push_back(token.id);
  return ids;
}
double apart(const std::vector<float>& a, const std::vector<float>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(double{a[i]} - double{b[i]}));
  return worst;
}

TEST(NewerFamilies, TokensOneByOneGiveWhatWholeTextsGive) {
  for (const char* name : kNewer) {
    SCOPED_TRACE(name);
    test::TransformersCase c = test::transformers_case(name);
    c.json["config"]["max_position_embeddings"] = 512;
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const Model model = load(folder.path(), {.context = 512});
    // Passes of 256 and 44 tokens, and then single ones.
    std::vector<std::int32_t> text = text_of(300, 29);
    const std::vector<std::int32_t> made = ids_of(model.generate(text, greedily(20)).result());
    ASSERT_EQ(made.size(), 20u);
    text.insert(text.end(), made.begin(), made.end());
    const std::vector<float> logits = model.forward(text);
    for (std::size_t t = 0; t < made.size(); ++t) {
      const float* row = logits.data() + (299 + t) * 48;
      EXPECT_EQ(std::max_element(row, row + 48) - row, made[t]) << t;
    }
  }
}

TEST(NewerFamilies, FoldersWithOneTensorForManyExpertsAreRead) {
  test::TransformersCase c = test::transformers_case("gemma4-experts");
  constexpr Extent kExperts = 64;  // 384 in all layers, of which the file has 12 tensors
  c.json["config"]["num_experts"] = kExperts;
  for (auto& [key, extents] : c.json["tensors"].items())
    if (key.find(".router.p") != key.npos || key.find(".experts.") != key.npos) extents[0] = kExperts;
  const TemporaryFolder folder;
  test::put(c.model(), folder);
  EXPECT_EQ(load(folder.path(), {.context = 64}).forward(text_of(5, 7)).size(), 5u * 48u);
}

TEST(NewerFamilies, BatchesGiveTheTextsOfEachPromptAlone) {
  for (const char* name : kNewer) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model model = load(folder.path(), {.context = 64, .sequences = 3}),
                alone = load(folder.path(), {.context = 64});
    Batch batch(model);
    std::vector<std::vector<std::int32_t>> prompts = {text_of(9, 7), text_of(1, 5), text_of(21, 11)};
    std::vector<Batch::Id> ids;
    for (const auto& prompt : prompts) ids.push_back(batch.add(prompt, greedily(8)));
    for (int i = 0; i < 12; ++i) (void)batch.step();
    for (std::size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(ids_of(batch.result(ids[i])), ids_of(alone.generate(prompts[i], greedily(8)).result())) << i;
  }
}

TEST(NewerFamilies, CachesOfEveryTypeGiveNearlyTheSameLogits) {
  for (const char* name : kNewer) {
    SCOPED_TRACE(name);
    const test::TransformersCase c = test::transformers_case(name);
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const std::vector<std::int32_t> text = text_of(40, 11);
    const std::vector<float> exact = load(folder.path(), {.context = 64}).forward(text);
    EXPECT_LT(apart(load(folder.path(), {.context = 64, .cache = CacheType::f16}).forward(text), exact), 0.02);
    const Json& config = c.json["config"];
    const Extent heads = config.value("num_key_value_heads", 0), width = config.value("head_dim", 0);
    if (heads > 0 && width > 0 && width % 32 == 0) {
      EXPECT_LT(apart(load(folder.path(), {.context = 64, .cache = CacheType::q8}).forward(text), exact), 0.3);
    }
  }
}

// Files of Qwen3.5 have the gates and ups of all experts in one tensor.
TEST(NewerFamilies, ExpertsInOneTensorAreThoseApart) {
  test::TinyModel model = test::transformers_case("qwen3.5-moe").model();
  const TemporaryFolder apart_folder, joined_folder;
  test::put(model, apart_folder);
  const Extent experts = model.config["num_experts"];
  for (Extent layer = 0; layer < model.config["num_hidden_layers"].get<Extent>(); ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".mlp.experts.";
    test::TinyTensor both, down;
    for (Extent e = 0; e < experts; ++e) {
      const auto take = [&](const char* part, test::TinyTensor& to) {
        const auto found = model.tensors.find(prefix + std::to_string(e) + "." + part + "_proj.weight");
        to.values.insert(to.values.end(), found->second.values.begin(), found->second.values.end());
        const Shape shape = found->second.shape;
        model.tensors.erase(found);
        return shape;
      };
      const Shape gate = take("gate", both);
      (void)take("up", both);
      both.shape = {experts, 2 * gate[0], gate[1]};
      const Shape back = take("down", down);
      down.shape = {experts, back[0], back[1]};
    }
    model.tensors[prefix + "gate_up_proj"] = both;
    model.tensors[prefix + "down_proj"] = down;
  }
  test::put(model, joined_folder);
  const std::vector<std::int32_t> text = text_of(30, 11);
  EXPECT_EQ(load(joined_folder.path(), {.context = 64}).forward(text),
            load(apart_folder.path(), {.context = 64}).forward(text));
}

// Folders of Qwen3.5 have the keys of the language model in an object of their own, and tensors of a tower and of layers that guess.
TEST(NewerFamilies, LanguageModelsAreReadFromFoldersOfModelsThatSee) {
  const test::TinyModel plain = test::transformers_case("qwen3.5").model();
  test::TinyModel whole = plain;
  whole.config = {{"model_type", "qwen3_5"}, {"text_config", plain.config}, {"vision_config", {{"depth", 1}}}};
  whole.tensors.clear();
  for (const auto& [key, tensor] : plain.tensors)
    whole.tensors[key.starts_with("model.") ? "model.language_model." + key.substr(6) : key] = tensor;
  for (const char* name : {"model.visual.patch_embed.proj.weight", "mtp.layers.0.input_layernorm.weight"})
    whole.tensors[name] = {{2, 2}, std::vector<float>(4)};
  const TemporaryFolder one, other;
  test::put(plain, one);
  test::put(whole, other);
  const std::vector<std::int32_t> text = text_of(20, 11);
  EXPECT_EQ(load(other.path(), {.context = 64}).forward(text), load(one.path(), {.context = 64}).forward(text));
}

TEST(NewerFamilies, BadSettingsAreRefused) {
  struct Case {
    const char* name;
    Json changes;
    const char* part;
  };
  const Case cases[] = {
      {"qwen3-next", {{"linear_num_value_heads", 5}}, "2 groups do not divide 5 heads"},
      {"qwen3-next",
       {{"layer_types", nullptr}, {"full_attention_interval", 0}},
       "full_attention_interval is 0; it must be above 0"},
      {"qwen3-next",
       {{"layer_types", {"full_attention", "sliding", "full_attention", "full_attention"}}},
       "has \"sliding\"; known are"},
      {"glm4-moe", {{"n_group", 4}}, "2 experts of a token are chosen in 1 of 4 groups of 6 experts"},
      {"ernie4_5-moe", {{"moe_layer_interval", 0}}, "moe_layer_interval is 0; it must be above 0"},
      {"hunyuan-moe", {{"moe_topk", {2, 1, 2}}}, "moe_topk differs from layer to layer"},
      {"hunyuan-dense-alpha",
       {{"rope_parameters", {{"rope_type", "dynamic"}, {"factor", 2.0}}}},
       "rope_type is \"dynamic\""},
      {"minimax-m2", {{"scoring_func", "softmax"}}, "scoring_func is not \"sigmoid\""},
      {"jamba", {{"attn_layer_period", 0}}, "attn_layer_period is 0; it must be above 0"},
      {"jamba", {{"expert_layer_period", 0}}, "expert_layer_period is 0; it must be above 0"},
      {"nemotron-h",
       {{"layers_block_type", {"mamba", "gru", "attention", "mlp", "mamba"}}},
       "has \"gru\"; Weft runs Nemotron-H of layers"},
      {"nemotron-h-moe", {{"moe_latent_size", 16}}, "moe_latent_size is given; Weft runs Nemotron-H whose experts"},
      {"nemotron-h-moe", {{"n_group", 4}}, "3 experts of a token are chosen in 2 of 4 groups of 6 experts"},
      {"gemma4", {{"enable_moe_block", true}}, "num_experts is missing; without it"},
      {"lfm2-moe", {{"num_experts_per_tok", 6}}, "6 of 5 experts take part"},
      {"falcon-h1", {{"ssm_multipliers", {1.0, 2.0}}}, "ssm_multipliers is not a list of 5 numbers"},
      {"apertus", {{"hidden_act", "silu"}}, "hidden_act is \"silu\", and Weft runs Apertus with xielu"},
      {"llama4", {{"moe_layers", {1, 7}}}, "moe_layers names the layer 7 of 4"},
  };
  for (const Case& each : cases) {
    test::TransformersCase c = test::transformers_case(each.name);
    c.json["config"].update(each.changes);
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const std::string message = message_of<FileError>([&] { (void)load(folder.path(), {.context = 64}); });
    EXPECT_NE(message.find(each.part), std::string::npos) << each.name << ": " << message;
  }
}

/// WEFT_DEVICE names a GPU: prompts, and tokens one by one.
TEST(NewerFamilies, ADeviceGivesWhatTheCpuGives) {
  const Device device = default_device();
  if (device.kind == Device::Kind::cpu) GTEST_SKIP() << "WEFT_DEVICE names no GPU";
  for (const char* name : {"qwen3.5", "llama4"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model there = load(folder.path(), {.context = 64, .device = device}),
                here = load(folder.path(), {.context = 64, .device = kCpu});
    const std::vector<std::int32_t> text = text_of(12, 11);
    EXPECT_LT(apart(there.forward(text), here.forward(text)), 2e-4);
    EXPECT_EQ(ids_of(there.generate(text, greedily(3)).result()), ids_of(here.generate(text, greedily(3)).result()));
  }
}

}  // namespace
}  // namespace weft::llm::newer
