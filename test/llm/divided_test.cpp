// Models divided over several devices, played by parts on the CPU (and by a GPU beside it, test/backend/webgpu/language). What
// one device gives is the judge.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/message_of.hpp"
#include "llm/divide.hpp"
#include "llm/engine.hpp"
#include "llm/tiny_model.hpp"
#include "llm/transformers_cases.hpp"
#include "parallel/contiguous_parts.hpp"
#include "weft/llm_fit.hpp"

namespace weft::llm {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::vector<Device> cpu_parts(std::size_t count) { return std::vector<Device>(count, kCpu); }

LoadOptions over_parts(LoadOptions options, std::vector<Extent> layers) {
  options.devices = cpu_parts(layers.size());
  options.layers = std::move(layers);
  return options;
}

std::vector<std::int32_t> mixed_tokens(std::size_t count, std::int32_t vocabulary = 41) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(i * i * 7 + 3 * i) % vocabulary);
  return tokens;
}

GenerateOptions greedy_text(Extent tokens, Extent draft = 0) {
  return {.max_tokens = tokens, .sampling = {.temperature = 0}, .draft = draft};
}

std::vector<std::int32_t> token_ids(const Result& result) {
  std::vector<std::int32_t> ids;
  for (const GeneratedToken& token : result.tokens) ids.push_back(token.id);
  return ids;
}

/// A text, one that goes on from it, and one that goes back: all ids with their log-probabilities, whose bits show what greedy
/// tokens hide, and how much of each prompt was in the cache.
std::vector<float> conversation(const Model& model, std::size_t prompt, Extent draft) {
  std::vector<std::int32_t> text = mixed_tokens(prompt);
  std::vector<float> all;
  for (const std::size_t keep : {prompt, prompt + 5, prompt / 2}) {
    text.resize(std::min(text.size(), keep));
    text.push_back(5);
    GenerateOptions options = greedy_text(8, draft);
    options.log_probabilities = true;
    const Result result = model.generate(text, options).result();
    all.push_back(static_cast<float>(result.reused_tokens));
    for (const GeneratedToken& token : result.tokens) {
      text.push_back(token.id);
      all.push_back(static_cast<float>(token.id));
      all.push_back(token.log_probability);
    }
  }
  return all;
}

TEST(Divided, EveryFamilyGivesTheBitsOfOneDevice) {
  bool in_single_layers = false;
  for (const test::TinyModel& tiny : test::tiny_models()) {
    SCOPED_TRACE(tiny.name);
    const TemporaryFolder folder;
    test::put(tiny, folder);
    const LoadOptions options{.context = 64, .sequences = 2};
    const auto count = static_cast<std::size_t>(load(folder.path(), options).parts()[0].layers);
    in_single_layers = !in_single_layers;
    const std::vector<Extent> layers =
        in_single_layers ? std::vector<Extent>(count, 1) : std::vector<Extent>{static_cast<Extent>(count) - 1, 1};
    const Model whole = load(folder.path(), options), parts = load(folder.path(), over_parts(options, layers));
    ASSERT_EQ(parts.parts().size(), layers.size());
    EXPECT_EQ(parts.forward(mixed_tokens(30)), whole.forward(mixed_tokens(30)));
    for (const Extent draft : {0, 3}) EXPECT_EQ(conversation(parts, 20, draft), conversation(whole, 20, draft));
    const std::vector<std::string> texts = {"w3 w14 w15 w9", "w1",
                                            "w2 w7 w1 w8 w2 w8 w1 w8 w2 w8 w4 w5 w9 w0 w4 w5 w2"};
    EXPECT_EQ(parts.embed(texts).to_vector<float>(), whole.embed(texts).to_vector<float>());
    const auto results = parts.generate_batch(texts, greedy_text(12)),
               wanted = whole.generate_batch(texts, greedy_text(12));
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(results[i].text, wanted[i].text) << i;
  }
}

TEST(Divided, StatesAndHybridsGiveTheBitsOfOneDevice) {
  for (test::TransformersCase& c : test::transformers_cases()) {
    if (c.name != "mamba" && c.name != "mamba2" && c.name != "bamba" && c.name != "granite-hybrid" &&
        c.name != "qwen3.5-moe")
      continue;
    SCOPED_TRACE(c.name);
    c.json["config"]["max_position_embeddings"] = 1024;
    const TemporaryFolder folder;
    test::put(c.model(), folder);
    const Extent layers = c.json["config"]["num_hidden_layers"];
    const Model whole = load(folder.path(), {.context = 700}),
                parts = load(folder.path(), over_parts({.context = 700}, {1, layers - 1}));
    EXPECT_EQ(conversation(parts, 600, 0), conversation(whole, 600, 0));  // several passes, the last with padding
    EXPECT_EQ(parts.forward(mixed_tokens(40)), whole.forward(mixed_tokens(40)));
  }
}

TEST(Divided, LongPromptsOnTheirWayGiveTheBitsOfOneDevice) {
  const TemporaryFolder folder;
  test::put(test::tiny_with_window("gemma3_text", {{"num_hidden_layers", 4}}), folder);
  for (const CacheType cache : {CacheType::f32, CacheType::f16, CacheType::q8}) {
    const LoadOptions options{.context = 2048, .sequences = 2, .cache = cache};
    const Model whole = load(folder.path(), options),
                parts =
                    load(folder.path(), over_parts(options, cache == CacheType::f16 ? std::vector<Extent>{2, 2}
                                                                                    : std::vector<Extent>{1, 1, 1, 1}));
    EXPECT_EQ(conversation(parts, 1500, 0), conversation(whole, 1500, 0));  // six passes, over the end of rings
    // While one sequence reads its prompt, the other writes: passes of both are on their way at the same time.
    const std::vector<std::string> texts = {whole.decode(mixed_tokens(9)), whole.decode(mixed_tokens(1400))};
    const auto results = parts.generate_batch(texts, greedy_text(20)),
               wanted = whole.generate_batch(texts, greedy_text(20));
    for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(results[i].text, wanted[i].text) << i;
  }
}

/// WEFT_DEVICE names a GPU: states go to it and from it, in every order of devices.
TEST(Divided, AGpuWithItselfAndWithTheCpu) {
  const Device gpu = default_device();
  if (gpu.kind != Device::Kind::webgpu) GTEST_SKIP() << "WEFT_DEVICE names no GPU";
  const TemporaryFolder folder;
  test::put(test::tiny_models()[0], folder);
  const auto tokens = mixed_tokens(6);
  const Model whole = load(folder.path(), {.context = 64}),
              on_host = load(folder.path(), {.context = 64, .device = kCpu});
  const std::vector<float> logits = whole.forward(tokens), wanted = on_host.forward(tokens);
  const auto text = token_ids(whole.generate(tokens, greedy_text(6)).result());
  for (const std::vector<Device>& devices :
       {std::vector{gpu, gpu}, std::vector{gpu, kCpu}, std::vector{kCpu, gpu}, std::vector{gpu, kCpu, gpu}}) {
    LoadOptions options{.context = 64};
    options.devices = devices;
    const Model parts = load(folder.path(), options);
    const std::vector<float> got = parts.forward(tokens);
    const bool is_one_kind = devices == std::vector{gpu, gpu};
    if (is_one_kind) {
      EXPECT_EQ(got, logits);
    }
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-4) << i;
    EXPECT_EQ(token_ids(parts.generate(tokens, greedy_text(6)).result()), text);
  }
}

TEST(Divided, ACancelledPromptLeavesThingsInOrder) {
  const TemporaryFolder folder;
  test::put(test::tiny_with_window("mistral", {{"num_hidden_layers", 3}}), folder);
  const Model whole = load(folder.path(), {.context = 2048}),
              parts = load(folder.path(), over_parts({.context = 2048}, {1, 1, 1}));
  const auto text = mixed_tokens(1200);
  {
    Batch batch(parts);  // the prompt is read in three steps; the generation is removed behind the first
    const Batch::Id id = batch.add(text, greedy_text(5));
    batch.step();
    batch.remove(id);
  }
  EXPECT_EQ(token_ids(parts.generate(text, greedy_text(20)).result()),
            token_ids(whole.generate(text, greedy_text(20)).result()));
  EXPECT_THROW((void)parts.forward(std::vector<std::int32_t>{3, 1 << 20}), UsageError);
  EXPECT_EQ(conversation(parts, 700, 0), conversation(load(folder.path(), {.context = 2048}), 700, 0));
}

TEST(Divided, LayersAreChosenByBytes) {
  // The loads of parts are numbers of layers, weighed; the cheapest largest load wins, and each part has a layer.
  const auto chosen = [](Extent layers, const std::vector<double>& weights) {
    return parallel::choose_layers(layers, weights.size(), [&](std::size_t part, Extent first, Extent last) {
      return static_cast<double>(last - first) / weights[part];
    });
  };
  EXPECT_EQ(chosen(8, {1, 1}), (std::vector<Extent>{4, 4}));
  EXPECT_EQ(chosen(8, {3, 1}), (std::vector<Extent>{6, 2}));
  EXPECT_EQ(chosen(3, {1, 100, 1}), (std::vector<Extent>{1, 1, 1}));
  EXPECT_EQ(chosen(10, {1, 2, 2}), (std::vector<Extent>{2, 4, 4}));
  EXPECT_EQ(chosen(5, {1}), (std::vector<Extent>{5}));
  // Every division of up to 9 layers over 3 parts with odd loads: none is better.
  const std::vector<double> bytes = {5, 1, 4, 1, 5, 9, 2, 6, 5};
  const auto load = [&](std::size_t part, Extent first, Extent last) {
    return std::accumulate(bytes.begin() + first, bytes.begin() + last, part == 0 ? 3.0 : 0.0) / (part == 1 ? 2 : 1);
  };
  const auto largest = [&](Extent a, Extent b) { return std::max({load(0, 0, a), load(1, a, b), load(2, b, 9)}); };
  double best = 1e9;
  for (Extent a = 1; a < 8; ++a)
    for (Extent b = a + 1; b < 9; ++b) best = std::min(best, largest(a, b));
  const std::vector<Extent> found = parallel::choose_layers(9, 3, load);
  EXPECT_EQ(largest(found[0], found[0] + found[1]), best);
  EXPECT_EQ(std::accumulate(found.begin(), found.end(), Extent{0}), 9);
}

TEST(Divided, SharesAndLimitsDecideWhoHasWhat) {
  const TemporaryFolder folder;
  test::put(test::tiny_with_window("mistral", {{"num_hidden_layers", 12}, {"vocab_size", 48}}), folder);
  const auto layers_by = [&](LoadOptions options) {
    options.context = 256;
    std::vector<Extent> layers;
    Extent next = 0;
    for (const FitPart& part : fit(folder.path(), options).parts) {
      EXPECT_EQ(part.first_layer, next);
      next += part.layers;
      layers.push_back(part.layers);
    }
    EXPECT_EQ(next, 12);
    return layers;
  };
  LoadOptions two;
  two.devices = cpu_parts(2);
  EXPECT_EQ(layers_by(two), (std::vector<Extent>{6, 6}));
  two.split = {3, 1};
  EXPECT_EQ(layers_by(two), (std::vector<Extent>{9, 3}));
  two.split = {1, 1000};
  EXPECT_EQ(layers_by(two), (std::vector<Extent>{1, 11}));
  two.split = {};
  two.layers = {7};
  EXPECT_EQ(layers_by(two), (std::vector<Extent>{7, 5}));
  two.layers = {5, 7};
  EXPECT_EQ(layers_by(two), (std::vector<Extent>{5, 7}));
  // A device that records programs plays a GPU: it takes the layers that fit, wherever it is, and the CPU the rest.
  const auto bytes_of = [](const FitPart& part) { return part.need.weights + part.need.cache; };
  const Device gpu = parse_device("trace");
  LoadOptions mixed{.context = 256};
  mixed.devices = {gpu, kCpu};
  mixed.layers = {4};
  const std::uint64_t four = bytes_of(fit(folder.path(), mixed).parts[0]);
  mixed.layers = {};
  mixed.device_memory = four;
  EXPECT_EQ(layers_by(mixed), (std::vector<Extent>{4, 8}));
  mixed.device_memory = four - 1;
  EXPECT_EQ(layers_by(mixed), (std::vector<Extent>{3, 9}));
  mixed.devices = {kCpu, gpu};
  mixed.layers = {9};
  mixed.device_memory = 0;
  mixed.device_memory = bytes_of(fit(folder.path(), mixed).parts[1]);
  mixed.layers = {};
  EXPECT_EQ(layers_by(mixed), (std::vector<Extent>{9, 3}));
}

TEST(Divided, BytesOfPartsAreThoseThatAreAllocated) {
  const TemporaryFolder folder;
  test::put(test::tiny_models()[1], folder);  // a tied head: both parts have the table
  LoadOptions options = over_parts({.context = 64, .sequences = 2}, {1, 2});
  const FitReport report = fit(folder.path(), options);
  const Model model = load(folder.path(), options);
  const std::vector<ModelPart> parts = model.parts();
  ASSERT_EQ(report.parts.size(), 2u);
  std::uint64_t weights = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(report.parts[i].layers, parts[i].layers);
    EXPECT_EQ(report.parts[i].first_layer, parts[i].first_layer);
    EXPECT_EQ(report.parts[i].need.weights, parts[i].weight_bytes);
    EXPECT_EQ(report.parts[i].need.cache, parts[i].cache_bytes);
    weights += parts[i].weight_bytes;
  }
  EXPECT_EQ(report.need.weights, weights);
  const FitReport whole = fit(folder.path(), {.context = 64, .sequences = 2});
  EXPECT_EQ(weights - whole.need.weights, 48 * 32 * sizeof(float));
  EXPECT_EQ(report.need.cache, whole.need.cache);
  const std::string text = report.to_string(), described = model.describe();
  EXPECT_NE(text.find("layers 0-0"), std::string::npos) << text;
  EXPECT_NE(text.find("layers 1-2"), std::string::npos) << text;
  EXPECT_NE(described.find("layers 1 to 2 on cpu"), std::string::npos) << described;
  options.device_memory = 1000;
  const FitReport little = fit(folder.path(), options);
  EXPECT_FALSE(little.fits);
  EXPECT_NE(little.to_string().find("the part does not fit"), std::string::npos) << little.to_string();
  EXPECT_THROW((void)load(folder.path(), options), UsageError);
}

TEST(Divided, WrongDivisionsAreRefusedWithTheCure) {
  const TemporaryFolder folder;
  test::put(test::tiny_models()[0], folder);
  struct Case {
    LoadOptions options;
    const char* part;
  };
  const auto with = [](std::size_t devices, std::vector<double> split, std::vector<Extent> layers) {
    LoadOptions options;
    options.devices = cpu_parts(devices);
    options.split = std::move(split);
    options.layers = std::move(layers);
    return options;
  };
  const Case cases[] = {{with(4, {}, {}), "4 devices for a model of 3 layers"},
                        {with(1, {1}, {}), "there is one device; name several"},
                        {with(0, {}, {3}), "there is one device; name several"},
                        {with(2, {1}, {}), "1 shares for 2 devices"},
                        {with(2, {1, 0}, {}), "a number above 0"},
                        {with(2, {1, -1}, {}), "a number above 0"},
                        {with(2, {1, std::nan("")}, {}), "a number above 0"},
                        {with(2, {1, 1}, {2, 1}), "leave one of them out"},
                        {with(2, {}, {3}), "3 layers in all, and the model has 3"},
                        {with(2, {}, {0}), "at least one layer"},
                        {with(2, {}, {-1, 4}), "at least one layer"},
                        {with(2, {}, {2, 2}), "4 layers in all, and the model has 3"},
                        {with(3, {}, {1}), "numbers of layers for 3 devices"}};
  for (const Case& c : cases) {
    const std::string message = message_of<UsageError>([&] { (void)load(folder.path(), c.options); });
    EXPECT_NE(message.find(c.part), std::string::npos) << message;
    EXPECT_EQ(message_of<UsageError>([&] { (void)fit(folder.path(), c.options); }).substr(0, 60),
              message.substr(0, 60));
  }
}

TEST(Divided, PartsKeepTheNamesOfTheWholeGraph) {
  const TemporaryFolder folder;
  test::put(test::tiny_models()[0], folder);
  detail::Engine engine(folder.path(), over_parts({}, {1, 1, 1}));
  const auto& stages = engine.stages();
  std::size_t nodes = 0;
  for (const auto& stage : stages) nodes += stage->graph().nodes.size();
  EXPECT_EQ(nodes, engine.graph().nodes.size());
  EXPECT_EQ(stages[0]->graph().input, "tokens");
  EXPECT_EQ(stages[0]->graph().output, "layer0_resid2");
  EXPECT_EQ(stages[1]->graph().input, "layer0_resid2");
  EXPECT_EQ(stages[2]->graph().output, engine.graph().output);
  EXPECT_THROW((void)divide(engine.graph(), std::vector<Extent>{1, 1}), InternalError);
}

}  // namespace
}  // namespace weft::llm
