// Gemma 3n beside what transformers_test.cpp and convert_test.cpp ask of every family: tables of fewer tokens, layers without keys,
// batches, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/message_of.hpp"
#include "io/gguf.hpp"
#include "io/tensor_source.hpp"
#include "llm/config_gemma.hpp"
#include "llm/convert.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm::gemma3n_test {
namespace {

using test::message_of;
using test::TemporaryFolder;

const std::vector<std::int32_t> kWords = {3, 10, 17, 1, 8, 39, 22, 5, 9, 31, 14, 2, 7, 7, 28, 19, 6};

double largest_gap(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

TEST(Gemma3n, SharesOfNormalNumbers) {
  // From tables of the normal distribution.
  EXPECT_NEAR(deviations_of_share(0.95), 1.6448536269514722, 1e-12);
  EXPECT_NEAR(deviations_of_share(0.5), 0, 1e-12);
  EXPECT_NEAR(deviations_of_share(0.001), -3.090232306167813, 1e-10);
  EXPECT_NEAR(deviations_of_share(0.999999), 4.753424308822899, 1e-9);
  EXPECT_TRUE(std::isinf(deviations_of_share(0)));
  EXPECT_EQ(share_of_deviations(deviations_of_share(0)), 0);
}

TEST(Gemma3n, SequencesSideBySideWriteWhatTheyWriteAlone) {
  const TemporaryFolder folder;
  test::put(test::transformers_case("gemma3n").model(), folder);
  const std::vector<std::string> texts = {"w3 w14 w15 w9", "w1", "w2 w7 w1 w8 w2 w8 w1 w8 w2 w8 w4 w5 w9 w0 w4 w5 w2"};
  const GenerateOptions greedy{.max_tokens = 12, .sampling = {.temperature = 0}};
  for (const CacheType cache : {CacheType::f32, CacheType::f16}) {
    const Model side = load(folder.path(), {.context = 64, .sequences = 3, .cache = cache}),
                alone = load(folder.path(), {.context = 64, .cache = cache});
    const auto results = side.generate_batch(texts, greedy);
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(results[i].text, alone.generate(texts[i], greedy).result().text) << i;
  }
}

TEST(Gemma3n, FilesKeepKeysThatNothingReads) {
  const TemporaryFolder plain, whole;
  test::TinyModel model = test::transformers_case("gemma3n").model();
  test::put(model, plain);
  for (const char* part : {"k_proj.weight", "v_proj.weight", "k_norm.weight"})
    for (const char* layer : {"3", "4", "5"})
      model.tensors[fmt::format("model.layers.{}.self_attn.{}", layer, part)] =
          test::random_values("unread", {4, 4}, 1);
  test::put(model, whole);
  EXPECT_EQ(load(whole.path(), {.context = 64}).forward(kWords), load(plain.path(), {.context = 64}).forward(kWords));

  // Files of llama.cpp must have them.
  (void)convert_to_gguf(io::TensorSource::open(plain.path()), plain / "model.gguf");
  const auto file = io::TensorSource::open(plain / "model.gguf");
  ASSERT_TRUE(file.find("blk.5.attn_k.weight"));
  EXPECT_EQ(file.find("blk.5.attn_k.weight")->shape, (Shape{32, 32}));
  EXPECT_EQ(file.gguf()->metadata().flags("gemma3n.attention.sliding_window_pattern"),
            (std::vector<bool>{true, false, true, false, true, false}));

  // A layer with keys of its own needs them.
  model.tensors.erase("model.layers.2.self_attn.k_proj.weight");
  test::put(model, whole);
  EXPECT_NE(message_of<FileError>([&] { (void)load(whole.path()); }).find("missing: model.layers.2.self_attn.k_proj"),
            std::string::npos);
}

TEST(Gemma3n, TokensOfImagesAreLeftBehindInGguf) {
  const TemporaryFolder folder;
  test::TinyModel model = test::transformers_case("gemma3n").model();
  model.config["vocab_size_per_layer_input"] = 40;
  model.tensors["model.embed_tokens_per_layer.weight"] = test::random_values("per layer", {40, 48}, 0.3);
  test::put(model, folder);
  const Converted made = convert_to_gguf(io::TensorSource::open(folder.path()), folder / "model.gguf");
  EXPECT_EQ(made.notes.at(0), "the last 8 tokens, which stand for images and sounds, are left behind");
  const std::vector<float> all = load(folder.path(), {.context = 64}).forward(kWords),
                           first = load(folder / "model.gguf", {.context = 64}).forward(kWords);
  ASSERT_EQ(first.size(), kWords.size() * 40);
  for (std::size_t row = 0; row < kWords.size(); ++row)
    EXPECT_LT(largest_gap(std::span(first).subspan(row * 40, 40), std::span(all).subspan(row * 48, 40)), 5e-6);
}

TEST(Gemma3n, WhatDoesNotFitIsRefused) {
  const TemporaryFolder folder;
  const test::TinyModel model = test::transformers_case("gemma3n").model();
  test::put(model, folder);
  LoadOptions two{.context = 64};
  two.devices = {kCpu, kCpu};
  EXPECT_NE(message_of<UsageError>([&] { (void)load(folder.path(), two); }).find("is not divided between devices"),
            std::string::npos);
  const auto refuses = [&](const char* key, const Json& value, const char* fact) {
    test::TinyModel changed = model;
    changed.config[key] = value;
    test::put(changed, folder);
    const std::string message = message_of<FileError>([&] { (void)load(folder.path()); });
    EXPECT_NE(message.find(fact), std::string::npos) << key << ": " << message;
  };
  refuses("num_kv_shared_layers", 6, "6 of 6 layers read the keys of others");
  refuses("num_kv_shared_layers", 5, "layer 1 has no keys, and no layer of its kind before it has some");
  refuses("activation_sparsity_pattern", Json{0.5, 0.5}, "has 2 entries for 6 layers");
  refuses("activation_sparsity_pattern", Json{0.5, 0.5, 0.5, 0.5, 0.5, 1.0}, "has 1, not from 0 to 1");
  refuses("altup_active_idx", 4, "state 4 of 4 is active");
  refuses("vocab_size_per_layer_input", 49, "has 49 rows for 48 tokens");
  refuses("intermediate_size", Json{64, 64, 32, 64, 64, 64}, "intermediate_size");
}

}  // namespace
}  // namespace weft::llm::gemma3n_test
