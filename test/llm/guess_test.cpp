// Models without a config.json: what tensors tell of them, what hints must tell, and what is refused.
#include "llm/guess.hpp"

#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"

namespace weft::llm {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct GuessCase {
  const char* name;
  ModelHints hints;
};

std::vector<float> logits_of(const std::filesystem::path& path, const ModelHints& hints) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 30; ++i) tokens.push_back((i * 11 + 3) % 48);
  return load(path, {.context = 64, .hints = hints}).forward(tokens);
}

TEST(Guess, ModelsWithoutAConfigurationGiveTheSameLogits) {
  // Hints where the tensors leave something open: heads, the base of positions, experts of a token, groups.
  const GuessCase cases[] = {{"llama", {.heads = 4}},
                             {"qwen2", {.heads = 4, .rope_base = 10000}},
                             {"qwen3", {.rope_base = 10000}},
                             {"gpt2", {.heads = 4}},
                             {"mixtral", {.heads = 4, .experts_per_token = 2}},
                             {"phi3", {.heads = 4}},
                             {"bloom", {.heads = 4}},
                             {"mpt", {.heads = 4}},
                             {"gpt-oss", {.experts_per_token = 2}},
                             {"deepseek-v2", {.experts_per_token = 2}},
                             {"deepseek-v3", {.experts_per_token = 3}},
                             {"mamba", {}},
                             {"mamba2", {.groups = 2}}};
  for (const GuessCase& c : cases) {
    SCOPED_TRACE(c.name);
    const TemporaryFolder folder;
    for (test::TransformersCase& each : test::transformers_cases()) {
      if (each.name != c.name) continue;
      // No tensor tells the epsilon of norms, so the case has its family's.
      Json& config = each.json["config"];
      if (config.contains("rms_norm_eps")) config["rms_norm_eps"] = each.name == "gpt-oss" ? 1e-5 : 1e-6;
      if (each.name == "gpt-oss")
        config.update({{"sliding_window", 128},
                       {"rope_parameters",
                        {{"rope_type", "yarn"},
                         {"rope_theta", 150000.0},
                         {"factor", 32.0},
                         {"truncate", false},
                         {"original_max_position_embeddings", 4096}}}});
      if (each.name.starts_with("deepseek")) {
        const double mscale = each.name == "deepseek-v3" ? 1 : 0.707;
        config.update({{"n_group", 1},
                       {"topk_group", 1},
                       {"rope_parameters",
                        {{"rope_type", "yarn"},
                         {"rope_theta", 10000.0},
                         {"factor", 40.0},
                         {"mscale", mscale},
                         {"mscale_all_dim", mscale},
                         {"original_max_position_embeddings", 4096}}}});
      }
      test::put(each.model(), folder);
    }
    const std::vector<float> wanted = logits_of(folder.path(), {});
    // A lone file, with its tokenizer beside it.
    std::filesystem::remove(folder / "config.json");
    EXPECT_EQ(logits_of(folder / "model.safetensors", c.hints), wanted);
    EXPECT_EQ(logits_of(folder.path(), c.hints), wanted);
  }
}

TEST(Guess, WhatTensorsDoNotTellIsAskedFor) {
  const auto error = [](const char* name, const ModelHints& hints) {
    const TemporaryFolder folder;
    for (const test::TransformersCase& c : test::transformers_cases())
      if (c.name == name) test::put(c.model(), folder);
    return message_of<Error>([&] { (void)load(folder / "model.safetensors", {.context = 64, .hints = hints}); });
  };
  const auto expect = [](const std::string& found, const char* message) {
    EXPECT_NE(found.find(message), std::string::npos) << found;
  };
  expect(error("llama", {}),
         "do not tell into how many heads the 32 rows of queries are divided; give it as the number of heads");
  expect(error("llama", {.heads = 5}), "5 heads do not divide the 32 rows of queries");
  expect(error("llama", {.heads = 1}), "with 1 heads of 32 channels the 16 rows of keys are not whole heads");
  expect(error("qwen3", {.heads = 3}), "3 heads are given, and norms of 16 channels make 4 heads of 64 rows");
  expect(error("mixtral", {.heads = 4}),
         "how many of the experts a token uses; give it as the number of experts of a token");
  expect(error("deepseek-v2", {}), "how many of the experts a token uses");
  expect(error("deepseek-v3", {.heads = 3}), "3 heads are given, and the shapes make 4");
  expect(error("mamba2", {}), "how many groups the 16 channels of b have; give it as the number of groups");
  expect(error("mamba2", {.groups = 3}), "3 groups do not divide the 16 channels of b");
  expect(error("llama", {.architecture = "lama", .heads = 4}), "does not know the architecture \"lama\"");
  // Another family's hint: its tensors are missing, and one error lists them.
  expect(error("llama", {.architecture = "qwen3", .heads = 4}), "missing: model.layers.0.self_attn.q_norm.weight");
  const TemporaryFolder folder;
  const std::vector<float> values(4);
  const std::vector<io::TensorView> views = {{"weight", "F32", {2, 2}, std::as_bytes(std::span(values))}};
  io::write_safetensors(folder / "model.safetensors", views);
  expect(message_of<FileError>([&] { (void)load(folder / "model.safetensors"); }), "do not tell what family it is of");
  expect(message_of<FileError>([&] { (void)load(folder / "model.safetensors", {.hints = {.architecture = "llama"}}); }),
         "without the tensor model.embed_tokens.weight the sizes of the model are not known");
}

TEST(Guess, ALoadIsTold) {
  const TemporaryFolder folder;
  test::put(test::tiny_models()[0], folder);
  int calls = 0;
  const Model model = load(folder.path(), {.context = 64, .on_load = [&](const ModelLoad& load) {
                                             ++calls;
                                             EXPECT_GT(load.seconds, 0);
                                             EXPECT_FALSE(load.was_packed);
                                             EXPECT_GT(load.weight_bytes, 0u);
                                             EXPECT_EQ(load.cache_bytes, 3u * 2 * 16 * 64 * 4);
                                           }});
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace weft::llm
