// Models with sinks, slopes, latent rows in the cache, and experts in some layers: types of caches, batches, guesses and devices;
// experts in MXFP4; and the tensors of GGUF files as llama.cpp lays them out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "io/gguf.hpp"
#include "io/quantised_folder.hpp"
#include "io/tensor_source.hpp"
#include "llm/convert.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::mixture_test {
namespace {

using test::message_of;
using test::TemporaryFolder;

const char* const kNames[] = {"gpt-oss",     "gpt-oss-clamped", "qwen2-moe-some", "deepseek-v2-groups",
                              "deepseek-v3", "bloom-six-heads", "mpt-six-heads"};

std::vector<std::int32_t> drawn_tokens(std::size_t count, std::size_t step) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * step + 3 * (i % 5)) % 48));
  return tokens;
}

std::vector<std::int32_t> ids_of(const Result& result) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : result.tokens) ids.push_back(token.id);
  return ids;
}

GenerateOptions most_probable(Extent tokens, Extent draft = 0) {
  return {.max_tokens = tokens, .sampling = {.temperature = 0}, .draft = draft};
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

TEST(Mixtures, TokensOneByOneAndGuessesGiveTheTextOfThePass) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model model = load(folder.path(), {.context = 64});
    const std::vector<std::int32_t> prompt = drawn_tokens(11, 7);
    const std::vector<std::int32_t> text = ids_of(model.generate(prompt, most_probable(20)).result());
    EXPECT_EQ(ids_of(model.generate(prompt, most_probable(20, 6)).result()), text);
    std::vector<std::int32_t> whole = prompt;
    whole.insert(whole.end(), text.begin(), text.end());
    const std::vector<float> logits = model.forward(whole);
    for (std::size_t t = prompt.size() - 1; t + 1 < whole.size(); ++t) {
      const float* row = logits.data() + t * 48;
      EXPECT_EQ(whole[t + 1], std::max_element(row, row + 48) - row) << t;
    }
  }
}

TEST(Mixtures, SequencesOfABatchAreThoseOfEach) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model model = load(folder.path(), {.context = 64, .sequences = 3});
    std::vector<std::string> prompts;
    for (const std::size_t length : {std::size_t{9}, std::size_t{2}, std::size_t{17}, std::size_t{5}})
      prompts.push_back(model.decode(drawn_tokens(length, length + 4)));
    const std::vector<Result> results = model.generate_batch(prompts, most_probable(12));
    for (std::size_t i = 0; i < prompts.size(); ++i)
      EXPECT_EQ(ids_of(results[i]), ids_of(model.generate(prompts[i], most_probable(12)).result())) << i;
  }
}

TEST(Mixtures, SmallerCachesAreNearTheWholeOnes) {
  const std::vector<std::int32_t> text = drawn_tokens(40, 11);
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const std::vector<float> wanted = load(folder.path(), {.context = 64}).forward(text);
    const auto off = [&](CacheType type) {
      return largest_difference(load(folder.path(), {.context = 64, .cache = type}).forward(text), wanted);
    };
    const double half = off(CacheType::f16);
    EXPECT_LT(half, 4e-3);
    EXPECT_GT(half, 0);
  }
  // Heads of q8 are multiples of 32. All experts take part here, because rounding may choose others.
  for (const auto& [name, changes] : {std::pair<const char*, Json>("gpt-oss", {{"num_experts_per_tok", 5}}),
                                      {"deepseek-v3", {{"num_experts_per_tok", 8}, {"topk_group", 4}}}}) {
    SCOPED_TRACE(name);
    test::TinyModel model = test::transformers_case(name).model();
    model.config.update(changes);
    const TemporaryFolder folder;
    test::put(model, folder);
    const std::vector<float> wanted = load(folder.path(), {.context = 64}).forward(text);
    const double off =
        largest_difference(load(folder.path(), {.context = 64, .cache = CacheType::q8}).forward(text), wanted);
    EXPECT_LT(off, 0.1);
    EXPECT_GT(off, 0);
  }
}

TEST(Mixtures, ALatentCacheKeepsOneSmallRowForAllHeads) {
  const test::TransformersCase c = test::transformers_case("deepseek-v3");
  const TemporaryFolder folder;
  test::put(c.model(), folder);
  const Json& config = c.json["config"];
  const Extent row = config["kv_lora_rank"].get<Extent>() + config["qk_rope_head_dim"].get<Extent>();
  const std::string graph = load(folder.path(), {.context = 64}).describe(true);
  EXPECT_NE(graph.find("tensor layer0.k_cache cache [L, " + std::to_string(row) + "] kv_cache"), std::string::npos);
  EXPECT_EQ(graph.find("layer0.v_cache"), std::string::npos);
}

TEST(Mixtures, ADeviceGivesWhatTheCpuGives) {
  if (default_device().kind == Device::Kind::cpu) GTEST_SKIP() << "WEFT_DEVICE names no other device";
  for (const char* name : {"gpt-oss", "deepseek-v3", "bloom-six-heads"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const std::vector<std::int32_t> prompt = drawn_tokens(8, 7);  // more than the window of gpt-oss
    const Model model = load(folder.path(), {.context = 64}),
                on_cpu = load(folder.path(), {.context = 64, .device = kCpu});
    EXPECT_LT(largest_difference(model.forward(prompt), on_cpu.forward(prompt)), 1e-4);
    EXPECT_EQ(ids_of(model.generate(prompt, most_probable(4)).result()),
              ids_of(on_cpu.generate(prompt, most_probable(4)).result()));
  }
}

// ---- Experts in MXFP4 --------------------------------------------------------------------------------------------------

/// The case with experts in blocks as OpenAI's files have them, and the same values in its own layout.
struct InBlocks {
  test::TinyModel dense;
  std::map<std::string, std::pair<Shape, std::vector<std::uint8_t>>> bytes;
};
InBlocks in_blocks() {
  constexpr float kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};
  InBlocks made{test::transformers_case("gpt-oss").model(), {}};
  for (auto& [name, tensor] : made.dense.tensors) {
    if (!name.ends_with("gate_up_proj") && !name.ends_with("down_proj")) continue;
    // [experts, in, out] becomes [experts, out, in / 32, 16], two neighbours in a byte.
    const Extent experts = tensor.shape[0], in = tensor.shape[1], out = tensor.shape[2], groups = in / 32;
    std::vector<std::uint8_t> blocks(static_cast<std::size_t>(experts * out * in / 2)),
        scales(static_cast<std::size_t>(experts * out * groups));
    const test::TinyTensor drawn = test::random_values(name + " bits", {experts * out * in}, 8, 8);
    for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::uint8_t>(121 + i % 3);
    for (Extent e = 0; e < experts; ++e)
      for (Extent o = 0; o < out; ++o)
        for (Extent i = 0; i < in; ++i) {
          const auto at = static_cast<std::size_t>((e * out + o) * in + i);
          const auto code = static_cast<unsigned>(std::clamp(drawn.values[at], 0.0f, 15.0f));
          blocks[at / 2] = static_cast<std::uint8_t>(blocks[at / 2] | code << (at % 2 * 4));
          const int exponent = scales[at / 32] - 127;
          tensor.values[static_cast<std::size_t>((e * in + i) * out + o)] = std::ldexp(kValues[code], exponent);
        }
    made.bytes[name + "_blocks"] = {{experts, out, groups, 16}, std::move(blocks)};
    made.bytes[name + "_scales"] = {{experts, out, groups}, std::move(scales)};
  }
  return made;
}

void put_blocks(const InBlocks& made, const TemporaryFolder& folder) {
  test::TinyModel rest = made.dense;
  rest.config["quantization_config"] = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"lm_head"}}};
  test::put(rest, folder);
  std::vector<io::TensorView> views;
  for (const auto& [name, tensor] : rest.tensors)
    if (!made.bytes.contains(name + "_blocks"))
      views.push_back({name, "F32", tensor.shape, std::as_bytes(std::span(tensor.values))});
  for (const auto& [name, tensor] : made.bytes)
    views.push_back({name, "U8", tensor.first, std::as_bytes(std::span(tensor.second))});
  io::write_safetensors(folder / "model.safetensors", views);
}

TEST(Mixtures, ExpertsInMxfp4AreReadInTheirBlocks) {
  const InBlocks made = in_blocks();
  const TemporaryFolder dense, blocks;
  test::put(made.dense, dense);
  put_blocks(made, blocks);
  const std::vector<std::int32_t> text = drawn_tokens(30, 7);
  const LoadOptions exact{.context = 64, .exact = true};
  const std::vector<float> wanted = load(dense.path(), exact).forward(text);
  EXPECT_LT(largest_difference(load(blocks.path(), exact).forward(text), wanted), 2e-5);
  EXPECT_LT(largest_difference(load(blocks.path(), {.context = 64}).forward(text), wanted), 0.1);

  // GGUF keeps the blocks, with elements i and i + 16 in a byte; a folder of that file has their values.
  (void)convert_to_gguf(io::with_quantised_layers(io::TensorSource::open(blocks.path())), blocks / "model.gguf");
  const auto gguf = io::TensorSource::open(blocks / "model.gguf");
  EXPECT_EQ(gguf.at("blk.1.ffn_up_exps.weight").type_name, "MXFP4");
  EXPECT_LT(largest_difference(load(blocks / "model.gguf", exact).forward(text), wanted), 2e-5);
  (void)convert_to_folder(gguf, blocks / "back");
  const auto back = io::TensorSource::open(blocks / "back");
  for (const char* name : {"model.layers.2.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.down_proj"})
    EXPECT_EQ(back.read_f32(name), made.dense.tensors.at(name).values) << name;
}

TEST(Mixtures, BrokenBlocksAreRefusedByName) {
  struct Case {
    const char* part;
    std::function<void(InBlocks&)> change;
  };
  const std::string blocks = "model.layers.0.mlp.experts.gate_up_proj_blocks",
                    scales = "model.layers.0.mlp.experts.gate_up_proj_scales";
  const Case cases[] = {
      {"there is no", [&](InBlocks& m) { m.bytes.erase(scales); }},
      {"not [experts, rows, groups, 16]",
       [&](InBlocks& m) {
         m.bytes[blocks].first = {5, 64, 32};
       }},
      {"is [5, 64, 2], not [5, 128, 1]",
       [&](InBlocks& m) {
         m.bytes[scales].first = {5, 64, 2};
       }},
  };
  for (const Case& c : cases) {
    InBlocks made = in_blocks();
    c.change(made);
    const TemporaryFolder folder;
    put_blocks(made, folder);
    const std::string message = message_of<FileError>([&] { (void)load(folder.path(), {.context = 64}); });
    EXPECT_NE(message.find(c.part), std::string::npos) << message;
    EXPECT_NE(message.find(blocks), std::string::npos) << message;
  }
}

// ---- GGUF files --------------------------------------------------------------------------------------------------------

/// The tensors of the case in a GGUF file, and its own.
struct InGguf {
  explicit InGguf(const std::string& name) : own(test::transformers_case(name).model()) {
    test::put(own, folder);
    (void)convert_to_gguf(io::TensorSource::open(folder.path()), folder / "model.gguf");
    file.emplace(io::TensorSource::open(folder / "model.gguf"));
  }
  const std::vector<float>& given(const std::string& name) const { return own.tensors.at(name).values; }
  std::vector<float> written(const std::string& name, const Shape& shape) const {
    EXPECT_EQ(file->at(name).shape, shape) << name;
    return file->read_f32(name);
  }
  TemporaryFolder folder;
  test::TinyModel own;
  std::optional<io::TensorSource> file;
};

TEST(Mixtures, GgufHasGatesAndUpsApart) {
  const InGguf c("gpt-oss");
  const std::vector<float> both = c.given("model.layers.1.mlp.experts.gate_up_proj"),  // [5, 32, 128]
      biases = c.given("model.layers.1.mlp.experts.gate_up_proj_bias"),
                           down = c.given("model.layers.1.mlp.experts.down_proj");
  const char* const names[] = {"blk.1.ffn_gate_exps", "blk.1.ffn_up_exps"};
  for (std::size_t part = 0; part < 2; ++part) {
    const std::vector<float> weight = c.written(std::string(names[part]) + ".weight", {5, 64, 32}),
                             bias = c.written(std::string(names[part]) + ".bias", {5, 64});
    for (std::size_t e = 0; e < 5; ++e)
      for (std::size_t o = 0; o < 64; ++o) {
        ASSERT_EQ(bias[e * 64 + o], biases[e * 128 + 2 * o + part]);
        for (std::size_t i = 0; i < 32; ++i)
          ASSERT_EQ(weight[(e * 64 + o) * 32 + i], both[(e * 32 + i) * 128 + 2 * o + part]);
      }
  }
  const std::vector<float> downs = c.written("blk.1.ffn_down_exps.weight", {5, 32, 64});
  for (std::size_t e = 0; e < 5; ++e)
    for (std::size_t o = 0; o < 32; ++o)
      for (std::size_t i = 0; i < 64; ++i) ASSERT_EQ(downs[(e * 32 + o) * 64 + i], down[(e * 64 + i) * 32 + o]);
  EXPECT_EQ(c.written("blk.0.attn_sinks.weight", {4}), c.given("model.layers.0.self_attn.sinks"));
  const io::GgufMetadata& m = c.file->gguf()->metadata();
  EXPECT_EQ(m.get<std::string>("general.architecture"), "gpt-oss");
  EXPECT_EQ(m.get<std::int64_t>("gpt-oss.expert_feed_forward_length"), 64);
  EXPECT_EQ(m.get<std::string>("gpt-oss.rope.scaling.type"), "yarn");
}

TEST(Mixtures, GgufHasTheProductsOfEachHeadApart) {
  const InGguf c("deepseek-v3");
  constexpr std::size_t kHeads = 4, kStill = 8, kValues = 12, kRank = 28;
  const std::vector<float> both = c.given("model.layers.2.self_attn.kv_b_proj.weight"),  // [4 (8 + 12), 28]
      keys = c.written("blk.2.attn_k_b.weight", {4, 28, 8}), values = c.written("blk.2.attn_v_b.weight", {4, 12, 28});
  for (std::size_t h = 0; h < kHeads; ++h)
    for (std::size_t r = 0; r < kRank; ++r) {
      for (std::size_t i = 0; i < kStill; ++i)
        ASSERT_EQ(keys[(h * kRank + r) * kStill + i], both[(h * (kStill + kValues) + i) * kRank + r]);
      for (std::size_t i = 0; i < kValues; ++i)
        ASSERT_EQ(values[(h * kValues + i) * kRank + r], both[(h * (kStill + kValues) + kStill + i) * kRank + r]);
    }
  const io::GgufMetadata& m = c.file->gguf()->metadata();
  const auto number = [&](const char* key) { return m.get<std::int64_t>(std::string("deepseek2.") + key); };
  EXPECT_EQ(number("attention.head_count_kv"), 1);
  EXPECT_EQ(number("attention.key_length"), 32);
  EXPECT_EQ(number("attention.value_length"), 28);
  EXPECT_EQ(number("attention.key_length_mla"), 12);
  EXPECT_EQ(number("attention.value_length_mla"), 12);
  EXPECT_EQ(number("leading_dense_block_count"), 1);
  EXPECT_EQ(number("expert_gating_func"), 2);
  EXPECT_NEAR(m.get<double>("deepseek2.rope.scaling.yarn_log_multiplier"), 0.1, 1e-6);
}

TEST(Mixtures, OlderGgufFilesOfLatentAttentionHaveOneTensorForBothProducts) {
  const InGguf c("deepseek-v2-groups");
  io::GgufMetadata m = c.file->gguf()->metadata();
  io::GgufMetadata old(m.source());
  for (const auto& [key, value] : m.entries())
    if (!key.ends_with("_mla")) old.set(key, value);
  old.set("deepseek2.attention.head_count_kv", 4u);
  old.set("deepseek2.attention.key_length", 12u);
  old.set("deepseek2.attention.value_length", 12u);
  std::vector<io::GgufTensorInfo> infos;
  std::vector<std::vector<float>> data;
  for (const io::SourceTensor& tensor : c.file->tensors()) {
    std::string name = tensor.name;
    std::vector<float> values = c.file->read_f32(name);
    Shape shape = tensor.shape;
    if (name.ends_with("attn_v_b.weight")) continue;
    if (const auto at = name.find("attn_k_b"); at != std::string::npos) {
      values = c.given("model.layers." + name.substr(4, 1) + ".self_attn.kv_b_proj.weight");
      shape = {80, 16};
      name.replace(at, 8, "attn_kv_b");
    }
    infos.push_back({name, shape, BlockType::f32});
    data.push_back(std::move(values));
  }
  io::GgufWriter writer(c.folder / "old.gguf", old, std::move(infos));
  for (const auto& values : data) writer.write(std::as_bytes(std::span(values)));
  writer.commit();
  const std::vector<std::int32_t> text = drawn_tokens(30, 7);
  EXPECT_EQ(load(c.folder / "old.gguf", {.context = 64}).forward(text),
            load(c.folder / "model.gguf", {.context = 64}).forward(text));
}

TEST(Mixtures, GgufHasQueriesKeysAndValuesInTurn) {
  const InGguf c("bloom-six-heads");
  constexpr std::size_t kHeads = 6, kWidth = 8, kHidden = 48;
  const std::vector<float> by_head = c.given("transformer.h.1.self_attention.query_key_value.weight"),
                           in_turn = c.written("blk.1.attn_qkv.weight", {144, 48});
  const std::vector<float> biases = c.given("transformer.h.1.self_attention.query_key_value.bias"),
                           written = c.written("blk.1.attn_qkv.bias", {144});
  for (std::size_t part = 0; part < 3; ++part)
    for (std::size_t h = 0; h < kHeads; ++h)
      for (std::size_t d = 0; d < kWidth; ++d) {
        const std::size_t from = (h * 3 + part) * kWidth + d, to = (part * kHeads + h) * kWidth + d;
        ASSERT_EQ(written[to], biases[from]);
        for (std::size_t i = 0; i < kHidden; ++i) ASSERT_EQ(in_turn[to * kHidden + i], by_head[from * kHidden + i]);
      }
}

TEST(Mixtures, OlderFilesOfBloomLeaveOutAPrefixAndNameTheirWidthOtherwise) {
  const test::TinyModel model = test::transformers_case("bloom").model();
  test::TinyModel older{"older", model.config, {}};
  older.config["n_embed"] = older.config["hidden_size"];
  older.config.erase("hidden_size");
  for (const auto& [name, tensor] : model.tensors) older.tensors[name.substr(name.find('.') + 1)] = tensor;
  ASSERT_TRUE(older.tensors.contains("word_embeddings.weight"));
  const TemporaryFolder folder, other;
  test::put(model, folder);
  test::put(older, other);
  const std::vector<std::int32_t> text = drawn_tokens(20, 7);
  EXPECT_EQ(load(other.path(), {.context = 64}).forward(text), load(folder.path(), {.context = 64}).forward(text));
}

TEST(Mixtures, SettingsThatDoNotFitAreRefused) {
  struct Case {
    const char *name, *part;
    Json changes;
  };
  const Case cases[] = {
      {"deepseek-v3", "experts of a token are chosen in 1 of 4 groups of 8", {{"topk_group", 1}}},
      {"deepseek-v3", "topk_method", {{"topk_method", "greedy"}}},
      {"deepseek-v3", "topk_method is \"best\"", {{"topk_method", "best"}}},
      {"deepseek-v2", "norm_topk_prob is true", {{"norm_topk_prob", true}}},
      {"deepseek-v2", "moe_layer_freq is 0", {{"moe_layer_freq", 0}}},
      {"qwen2-moe-some", "mlp_only_layers names the layer 9 of 5", {{"mlp_only_layers", {9}}}},
      {"qwen2-moe-some", "decoder_sparse_step is 0", {{"decoder_sparse_step", 0}}},
      {"bloom",
       "apply_residual_connection_post_layernorm is true",
       {{"apply_residual_connection_post_layernorm", true}}},
      {"mpt", "attn_config.alibi is false", {{"attn_config", {{"alibi", false}}}}},
      {"gpt-oss", "swiglu_limit", {{"swiglu_limit", 0}}},
  };
  for (const Case& c : cases) {
    test::TinyModel model = test::transformers_case(c.name).model();
    model.config.update(c.changes);
    const TemporaryFolder folder;
    test::put(model, folder);
    const std::string message = message_of<FileError>([&] { (void)load(folder.path(), {.context = 64}); });
    EXPECT_NE(message.find(c.part), std::string::npos) << c.part << "\n" << message;
  }
}

}  // namespace
}  // namespace weft::llm::mixture_test
