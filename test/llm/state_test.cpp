// Models whose layers keep states: what passes, batches and reused prompts leave in them, GGUF's form, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/message_of.hpp"
#include "io/gguf.hpp"
#include "llm/convert.hpp"
#include "llm/transformers_cases.hpp"
#include "weft/error.hpp"
#include "weft/llm.hpp"
#include "weft/ops.hpp"

namespace weft::llm {
namespace {

using test::message_of;
using test::TemporaryFolder;

const char* const kNames[] = {"mamba", "mamba2", "bamba", "granite-hybrid"};

std::vector<std::int32_t> drawn_tokens(std::size_t count, std::size_t step) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>((i * step + 3 * (i % 5)) % 48));
  return tokens;
}

std::vector<std::int32_t> drawn_ids(const Result& result) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : result.tokens) ids.push_back(token.id);
  return ids;
}

GenerateOptions most_probable_text(Extent tokens) { return {.max_tokens = tokens, .sampling = {.temperature = 0}}; }

/// The most probable token behind each token of a text, as one pass over the whole text tells.
std::vector<std::int32_t> next_of(const Model& model, const std::vector<std::int32_t>& text) {
  const std::vector<float> logits = model.forward(text);
  std::vector<std::int32_t> next;
  for (std::size_t t = 0; t < text.size(); ++t) {
    const float* row = logits.data() + t * 48;
    next.push_back(static_cast<std::int32_t>(std::max_element(row, row + 48) - row));
  }
  return next;
}

TEST(State, TokensOneByOneGiveWhatWholeTextsGive) {
  // 300 tokens are passes of 256 and 64, the last with padding, behind which tokens come one at a time.
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    test::TransformersCase c = test::transformers_case(name);
    c.json["config"]["max_position_embeddings"] = 512;
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const Model model = load(folder.path(), {.context = 512});
    const std::vector<std::int32_t> prompt = drawn_tokens(300, 29);
    const std::vector<std::int32_t> made = drawn_ids(model.generate(prompt, most_probable_text(20)).result());
    ASSERT_EQ(made.size(), 20u);
    std::vector<std::int32_t> text = prompt;
    text.insert(text.end(), made.begin(), made.end());
    const std::vector<std::int32_t> next = next_of(model, text);
    EXPECT_TRUE(std::equal(made.begin(), made.end(), next.begin() + 299));
  }
}

TEST(State, PromptsThatGoOnAreReusedAndOthersGoBackToACheckpoint) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model model = load(folder.path(), {.context = 64});
    std::vector<std::int32_t> text = drawn_tokens(20, 7);
    const Result first = model.generate(text, most_probable_text(6)).result();
    EXPECT_EQ(first.reused_tokens, 0);
    for (const std::int32_t id : drawn_ids(first)) text.push_back(id);
    text.push_back(5);
    const Result second = model.generate(text, most_probable_text(6)).result();
    EXPECT_EQ(second.reused_tokens, 25);  // all that the state has seen: the last drawn token is new to it
    // The same beginning, and then another text: the state goes back to the end of the first prompt, but for its last token.
    std::vector<std::int32_t> other(text.begin(), text.begin() + 22);
    other.push_back(40);
    const Result third = model.generate(other, most_probable_text(6)).result();
    EXPECT_EQ(third.reused_tokens, 19);
    const Model forgetful = load(folder.path(), {.context = 64, .state_memory = 0});
    (void)forgetful.generate(text, most_probable_text(1)).result();
    EXPECT_EQ(forgetful.generate(other, most_probable_text(6)).result().reused_tokens, 0);
    const Model fresh = load(folder.path(), {.context = 64});
    EXPECT_EQ(drawn_ids(fresh.generate(other, most_probable_text(6)).result()), drawn_ids(third));
    EXPECT_EQ(drawn_ids(load(folder.path(), {.context = 64}).generate(text, most_probable_text(6)).result()),
              drawn_ids(second));
  }
}

TEST(State, CheckpointsOfOneSequenceServeAnother) {
  // Keys and values of attention stay with their sequence, so hybrids read the prompt anew.
  for (const auto& [name, reused] : {std::pair("mamba", 29), {"mamba2", 29}, {"bamba", 0}}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model model = load(folder.path(), {.context = 64, .sequences = 2}),
                alone = load(folder.path(), {.context = 64});
    Batch batch(model);
    std::vector<std::int32_t> prompt = drawn_tokens(30, 7);
    const auto first = batch.add(prompt, most_probable_text(4));
    for (int i = 0; i < 2; ++i) (void)batch.step();
    prompt.back() = prompt.back() == 3 ? 4 : 3;
    const auto second = batch.add(prompt, most_probable_text(4));
    for (int i = 0; i < 8; ++i) (void)batch.step();
    EXPECT_EQ(batch.result(second).reused_tokens, reused);
    EXPECT_EQ(drawn_ids(batch.result(second)), drawn_ids(alone.generate(prompt, most_probable_text(4)).result()));
    EXPECT_EQ(drawn_ids(batch.result(first)),
              drawn_ids(alone.generate(drawn_tokens(30, 7), most_probable_text(4)).result()));
  }
}

TEST(State, CheckpointsTakeNoMoreMemoryThanAllowed) {
  const TemporaryFolder folder;
  test::put(test::transformers_case("mamba").model(), folder);
  std::uint64_t one = 0;  // of a checkpoint: a model without attention has nothing else in its cache
  (void)load(folder.path(), {.context = 64, .on_load = [&](const ModelLoad& loaded) { one = loaded.cache_bytes; }});
  for (const auto& [room, reused] : {std::pair(one - 1, 0), {one, 0}, {2 * one, 19}}) {
    const Model model = load(folder.path(), {.context = 64, .state_memory = room});
    std::vector<std::int32_t> text = drawn_tokens(20, 7);
    (void)model.generate(text, most_probable_text(1)).result();
    // A longer prompt leaves a second checkpoint, which takes the place of the first where there is one place.
    for (const std::int32_t id : {1, 2, 3, 4}) text.push_back(id);
    (void)model.generate(text, most_probable_text(1)).result();
    text.resize(20);
    text.push_back(9);
    EXPECT_EQ(model.generate(text, most_probable_text(1)).result().reused_tokens, reused) << room / one;
  }
}

TEST(State, SequencesSideBySideDoNotMix) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const Model model = load(folder.path(), {.context = 64, .sequences = 3});
    const Model alone = load(folder.path(), {.context = 64});
    Batch batch(model);
    std::vector<std::vector<std::int32_t>> prompts;
    std::vector<Batch::Id> ids;
    // Places are used again: five texts of several lengths in three sequences.
    for (std::size_t i = 0; i < 5; ++i) prompts.push_back(drawn_tokens(5 + 6 * i, 7 + 4 * i));
    std::size_t added = 0, ended = 0;
    std::map<Batch::Id, std::size_t> numbers;
    while (ended < prompts.size()) {
      for (; added < prompts.size() && batch.room() > 0; ++added)
        numbers[batch.add(prompts[added], most_probable_text(4 + static_cast<Extent>(added)))] = added;
      for (const Batch::Progress& progress : batch.step()) {
        if (!progress.has_ended) continue;
        ASSERT_EQ(progress.error, "");
        const std::size_t i = numbers.at(progress.id);
        EXPECT_EQ(drawn_ids(batch.result(progress.id)),
                  drawn_ids(alone.generate(prompts[i], most_probable_text(4 + static_cast<Extent>(i))).result()))
            << i;
        batch.remove(progress.id);
        ++ended;
      }
    }
  }
}

TEST(State, ADeviceGivesWhatTheCpuGives) {
  if (default_device().kind == Device::Kind::cpu) GTEST_SKIP() << "WEFT_DEVICE names no other device";
  for (const char* name : {"mamba", "bamba"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    test::put(test::transformers_case(name).model(), folder);
    const std::vector<std::int32_t> prompt = drawn_tokens(6, 7);
    const Model model = load(folder.path(), {.context = 64}),
                on_cpu = load(folder.path(), {.context = 64, .device = kCpu});
    const std::vector<float> logits = model.forward(prompt), wanted = on_cpu.forward(prompt);
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(logits[i], wanted[i], 1e-4) << i;
    EXPECT_EQ(drawn_ids(model.generate(prompt, most_probable_text(4)).result()),
              drawn_ids(on_cpu.generate(prompt, most_probable_text(4)).result()));
  }
}

TEST(State, EmbeddingsOfSeveralTextsAreThoseOfEach) {
  const TemporaryFolder folder;
  test::put(test::transformers_case("bamba").model(), folder);
  const Model model = load(folder.path(), {.context = 64, .sequences = 2});
  const std::vector<std::string> texts = {"w3 w4 w5 w6 w7", "w9 w1"};
  const std::vector<float> both = model.embed(texts).to_vector<float>();
  for (std::size_t i = 0; i < 2; ++i) {
    const std::vector<float> one = model.embed({&texts[i], 1}).to_vector<float>();
    EXPECT_TRUE(std::equal(one.begin(), one.end(), both.begin() + static_cast<std::ptrdiff_t>(i * one.size())));
  }
}

TEST(State, GuessesAreRefused) {
  const TemporaryFolder folder;
  test::put(test::transformers_case("mamba2").model(), folder);
  const Model model = load(folder.path(), {.context = 64});
  GenerateOptions options = most_probable_text(3);
  options.draft = 4;
  EXPECT_NE(message_of<UsageError>([&] {
              (void)model.generate(drawn_tokens(5, 3), options).result();
            }).find("draft is 4, not 0: the layers of this model keep states"),
            std::string::npos);
}

/// The tensors of the case as llama.cpp's converter writes them: its names, rates as -exp of their logarithms, and an axis more
/// or less.
void put_gguf(const test::TinyModel& model, const std::filesystem::path& file) {
  const bool second = model.config["model_type"] == "mamba2";
  const std::string kind = second ? "mamba2" : "mamba";
  io::GgufMetadata m;
  m.set("general.architecture", kind);
  const auto set = [&](const char* key, Extent value) { m.set(kind + "." + key, static_cast<std::uint32_t>(value)); };
  const Extent hidden = model.config["hidden_size"];
  set("embedding_length", hidden);
  set("block_count", model.config["num_hidden_layers"]);
  set("context_length", 1 << 20);
  set("feed_forward_length", 0);
  set("attention.head_count", 0);
  set("ssm.inner_size", 2 * hidden);
  set("ssm.state_size", model.config["state_size"]);
  set("ssm.conv_kernel", model.config["conv_kernel"]);
  set("ssm.time_step_rank", model.config[second ? "num_heads" : "time_step_rank"]);
  if (second) set("ssm.group_count", model.config["n_groups"]);
  if (model.config["model_type"] == "falcon_mamba") m.set("mamba.ssm.dt_b_c_rms", true);
  m.set(kind + ".attention.layer_norm_rms_epsilon", 1e-5f);
  m.set("tokenizer.ggml.model", std::string("llama"));
  std::vector<std::string> tokens;
  std::vector<float> scores(48, 0.0f);
  std::vector<std::int32_t> types(48, 1);
  for (int i = 0; i < 48; ++i) tokens.push_back("w" + std::to_string(i));
  m.set("tokenizer.ggml.tokens", io::GgufArray(tokens));
  m.set("tokenizer.ggml.scores", io::GgufArray(scores));
  m.set("tokenizer.ggml.token_type", io::GgufArray(types));

  const std::pair<std::string, std::string> names[] = {{"backbone.embeddings.weight", "token_embd.weight"},
                                                       {"backbone.norm_f.weight", "output_norm.weight"},
                                                       {"lm_head.weight", "output.weight"},
                                                       {"backbone.layers.", "blk."},
                                                       {".mixer.norm.weight", ".ssm_norm.weight"},
                                                       {".norm.weight", ".attn_norm.weight"},
                                                       {".mixer.in_proj", ".ssm_in"},
                                                       {".mixer.out_proj", ".ssm_out"},
                                                       {".mixer.conv1d", ".ssm_conv1d"},
                                                       {".mixer.x_proj", ".ssm_x"},
                                                       {".mixer.dt_proj", ".ssm_dt"},
                                                       {".mixer.dt_bias", ".ssm_dt.bias"},
                                                       {".mixer.A_log", ".ssm_a"},
                                                       {".mixer.D", ".ssm_d"}};
  std::map<std::string, test::TinyTensor> renamed;
  for (const auto& [key, tensor] : model.tensors) {
    std::string name = key;
    for (const auto& [from, to] : names)
      if (const auto at = name.find(from); at != std::string::npos) name.replace(at, from.size(), to);
    test::TinyTensor changed = tensor;
    if (name.ends_with("ssm_a"))
      for (float& value : changed.values) value = static_cast<float>(-std::exp(double{value}));
    if (name.ends_with("ssm_conv1d.weight")) changed.shape = {tensor.shape[0], tensor.shape[2]};
    if (second && (name.ends_with("ssm_a") || name.ends_with("ssm_d"))) changed.shape = {tensor.shape[0], 1};
    renamed[name] = changed;
  }
  std::vector<io::GgufTensor> all;
  for (const auto& [name, tensor] : renamed)
    all.push_back({name, tensor.shape, BlockType::f32, std::as_bytes(std::span(tensor.values))});
  io::write_gguf(file, m, all);
}

TEST(State, GgufFilesGiveTheSameLogits) {
  // In GGUF each group of Mamba-2 is normalised apart, so the case has one.
  for (const char* name : {"mamba", "mamba2-limits", "falcon-mamba"}) {
    SCOPED_TRACE(name);
    test::TransformersCase c = test::transformers_case(name);
    c.json["config"].erase("time_step_limit");
    if (name == std::string("falcon-mamba")) c.json["config"]["mixer_rms_eps"] = 1e-5;  // GGUF has one for all norms
    const TemporaryFolder folder;
    const test::TinyModel model = c.model();
    test::put(model, folder);
    put_gguf(model, folder / "model.gguf");
    const std::vector<std::int32_t> tokens = drawn_tokens(30, 11);
    const std::vector<float> wanted = load(folder.path(), {.context = 64}).forward(tokens),
                             found = load(folder / "model.gguf", {.context = 64}).forward(tokens);
    ASSERT_EQ(found.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(found[i], wanted[i], 2e-5) << i;
  }
}

TEST(State, ModelsThatGgufCannotExpressAreNotConverted) {
  const TemporaryFolder folder;
  test::put(test::transformers_case("qwen3.5").model(), folder);
  EXPECT_NE(message_of<FileError>([&] {
              convert_to_gguf(io::TensorSource::open(folder.path()), folder / "out.gguf");
            }).find("does not convert them between GGUF files and folders"),
            std::string::npos);
}

TEST(State, BadSettingsAreRefused) {
  const auto error = [](const char* name, const Json& changes) {
    test::TransformersCase c = test::transformers_case(name);
    c.json["config"].update(changes);
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    return message_of<FileError>([&] { (void)load(folder.path(), {.context = 64}); });
  };
  const auto expect = [&](const char* name, const Json& changes, const char* message) {
    const std::string found = error(name, changes);
    EXPECT_NE(found.find(message), std::string::npos) << found;
  };
  expect("mamba2", {{"n_groups", 3}}, "3 groups do not divide 8 heads");
  expect("mamba2", {{"num_heads", 7}}, "num_heads is 7; with heads of 8 that is not the inner size 64");
  expect("mamba2", {{"state_size", 0}}, "the number of states is 0, not from 1 to 4096");
  expect("mamba2", {{"time_step_limit", {1.0, 0.5}}}, "the steps are limited to 1 and 0.5");
  expect("mamba2", {{"time_step_limit", {0.0, "x"}}}, "time_step_limit ends with \"x\", not a number");
  expect("mamba2", {{"rms_norm", false}}, "rms_norm is false, which Weft does not support");
  expect("mamba", {{"conv_kernel", 100}}, "the convolution sees 100 inputs, not 2 to 64");
  expect("mamba2", {{"conv_kernel", 1}}, "the convolution sees 1 inputs, not 2 to 64");
  expect("mamba", {{"expand", -1}}, "expand is -1; it must be between 0 and 64");
  expect("mamba", {{"time_step_rank", 0}}, "the rank of steps is 0");
  expect("bamba", {{"attn_layer_indices", {9}}, {"layers_block_type", nullptr}, {"layer_types", nullptr}},
         "attn_layer_indices has 9, and the layers are 0 to 3");
  expect("granite-hybrid", {{"layer_types", {"mamba", "lstm", "mamba"}}}, "layer_types has \"lstm\"");
  expect("granite-hybrid", {{"layer_types", {"mamba"}}}, "layer_types is not a list of 3 types");
  expect("granite-hybrid", {{"num_local_experts", 4}}, "0 of 4 experts take part");
  expect("granite-hybrid", {{"logits_scaling", 0}}, "logits_scaling is 0; it must be above 0");
}

}  // namespace
}  // namespace weft::llm
