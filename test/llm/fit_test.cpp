// What a report of memory says, against what is allocated.
#include "weft/llm_fit.hpp"

#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "io/gguf.hpp"
#include "llm/convert.hpp"
#include "llm/engine.hpp"
#include "llm/transformers_cases.hpp"
#include "vision/vision_cases.hpp"
#include "weft/error.hpp"
#include "weft/memory_limit.hpp"

namespace weft::llm {
namespace {

using test::message_of;
using test::TemporaryFolder;

void put_case(const std::string& name, const TemporaryFolder& folder, Extent context) {
  for (test::TransformersCase& c : test::transformers_cases())
    if (c.name == name) {
      c.json["config"]["max_position_embeddings"] = context;
      return test::put(c.model(), folder);
    }
  throw std::runtime_error(name);
}

TEST(Fit, BytesAreThoseThatAreAllocated) {
  for (const char* name : {"llama", "mistral", "gemma3", "mixtral", "bamba", "mamba", "qwen3.5"})
    for (const CacheType cache : {CacheType::f32, CacheType::f16}) {
      SCOPED_TRACE(name);
      const TemporaryFolder folder;
      put_case(name, folder, 2048);
      const LoadOptions options{.context = 1024, .sequences = 2, .cache = cache};
      const FitReport report = fit(folder.path(), options);
      const std::uint64_t before = device_memory_used(kCpu);
      detail::Engine engine(folder.path(), options);
      // Beside weights and caches a model holds tables of frequencies, and buffers have at least some bytes.
      const std::uint64_t held = device_memory_used(kCpu) - before;
      std::uint64_t shared = 0;  // packed matrices, which are not counted among values
      for (const auto& [tensor, weight] : engine.stages()[0]->weights().weights)
        if (is_packed_matrix(weight)) shared += packed_bytes(weight).size();
      EXPECT_GE(held + shared, report.need.weights + report.need.cache + report.need.states);
      EXPECT_LE(held + shared, report.need.weights + report.need.cache + report.need.states + 4096);
      EXPECT_GT(report.largest.bytes, 0u);
      EXPECT_LE(report.largest.bytes, std::max(report.need.weights, report.need.cache + report.need.states));
      EXPECT_EQ(report.largest.limit, 0u);  // the CPU has none
      EXPECT_EQ(engine.weight_bytes(), report.need.weights);
      EXPECT_EQ(engine.cache_bytes(), report.need.cache + report.need.states);
      std::vector<detail::PositionedToken> batch;
      for (Extent i = 0; i < 256; ++i) batch.push_back({static_cast<std::int32_t>(i % 48), i, 0});
      engine.last_logits(batch);
      batch = {{7, 256, 0}};
      engine.last_logits(batch);
      EXPECT_EQ(engine.scratch_bytes() + 2 * 48 * sizeof(float), report.need.passes);
    }
}

TEST(Fit, TheTowerOfAModelThatSeesCounts) {
  for (const char* name :
       {"llava", "llava-next", "internvl-rms", "idefics3", "gemma3-images", "qwen2-5-vl", "qwen3-vl", "mistral3"})
    for (const char* type : {"F32", "F16"}) {
      SCOPED_TRACE(std::string(name) + " " + type);
      const TemporaryFolder folder;
      test::VisionCase{name, read_json_file(std::filesystem::path(WEFT_TEST_IMAGES) / (std::string(name) + ".json"))}
          .put_into(folder, {}, type);
      const std::uint64_t before = device_memory_used(kCpu);
      const FitReport report = fit(folder.path(), {.context = 64});
      EXPECT_LE(device_memory_used(kCpu), before);
      const detail::Engine engine(folder.path(), {.context = 64});
      EXPECT_EQ(report.tower, engine.image_reader()->bytes());
      EXPECT_GT(report.tower, 4096u);
      EXPECT_EQ(report.need.weights, engine.weight_bytes());
      EXPECT_NE(report.to_string().find("of them see images"), std::string::npos);
    }
  // And of a file beside the model, unless it is left out.
  const TemporaryFolder folder;
  test::VisionCase{"mistral3", read_json_file(std::filesystem::path(WEFT_TEST_IMAGES) / "mistral3.json")}.put_into(
      folder);
  const auto model = folder / "model.gguf";
  (void)convert_to_gguf(io::TensorSource::open(folder.path()), model);
  EXPECT_EQ(fit(model, {.context = 64}).tower, fit(folder.path(), {.context = 64}).tower);
  EXPECT_EQ(fit(model, {.context = 64, .mmproj = "none"}).tower, 0u);
}

TEST(Fit, NothingIsAllocatedForTheReport) {
  const TemporaryFolder folder;
  put_case("llama", folder, 1 << 20);
  const std::uint64_t before = device_memory_used(kCpu);
  const FitReport report = fit(folder.path(), {.context = 1 << 20});
  EXPECT_GT(report.need.cache, std::uint64_t{300} << 20);  // more than a test should take
  EXPECT_LE(device_memory_used(kCpu), before);
}

TEST(Fit, WhatDoesNotFitHasChangesThatMakeItFit) {
  const TemporaryFolder folder;
  put_case("llama", folder, 8192);
  LoadOptions options{.context = 8192};
  const FitReport whole = fit(folder.path(), options);
  EXPECT_TRUE(fit(folder.path(), {.context = 8192, .device_memory = whole.need.total()}).fits);
  options.device_memory = whole.need.total() - 1;
  const FitReport report = fit(folder.path(), options);
  EXPECT_FALSE(report.fits);
  EXPECT_EQ(report.available, options.device_memory);
  ASSERT_FALSE(report.changes.empty());
  std::map<std::string, FitChange> changes;
  for (const FitChange& each : report.changes) changes[each.change] = each;
  // As if it had been asked for; plans with other caches differ by some scratch.
  ASSERT_TRUE(changes.contains("--cache f16"));
  const FitReport half = fit(folder.path(), {.context = 8192, .cache = CacheType::f16});
  EXPECT_EQ(changes["--cache f16"].bytes - report.need.passes, half.need.total() - half.need.passes);
  EXPECT_TRUE(changes["--cache f16"].fits);
  EXPECT_FALSE(changes.contains("--cache q8"));  // rows of 16 elements do not divide into its blocks
  ASSERT_TRUE(changes.contains("--context 7936"));
  EXPECT_TRUE(changes["--context 7936"].fits);
  EXPECT_LE(fit(folder.path(), {.context = 7936}).need.total(), options.device_memory);
  ASSERT_TRUE(changes.contains("weft quantize --type Q8_0"));
  EXPECT_TRUE(changes["weft quantize --type Q8_0"].fits);
  const std::string text = report.to_string();
  for (const char* part :
       {"the model does not fit", "fits with", "--context 7936", "8192 positions of 1 sequence, f32"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Fit, TooLittleForAnyChangeIsSaid) {
  const TemporaryFolder folder;
  put_case("llama", folder, 8192);
  const FitReport report = fit(folder.path(), {.context = 8192, .device_memory = 1000});
  EXPECT_FALSE(report.fits);
  for (const FitChange& each : report.changes) EXPECT_FALSE(each.fits) << each.change;
}

TEST(Fit, BrokenModelsAreRefusedAsWhenTheyAreLoaded) {
  const TemporaryFolder folder;
  EXPECT_THROW((void)fit(folder.path()), FileError);
  put_case("llama", folder, 64);
  EXPECT_NE(message_of<UsageError>([&] { (void)fit(folder.path(), {.sequences = 0}); }).find("0 sequences"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { (void)fit(folder.path(), {.context = -1}); }).find("context -1"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::llm
