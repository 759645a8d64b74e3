// Which matrices of which layers a mixture gives which type.
#include "io/quantise_mixture.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "io/quantise_model.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct ModelOf {
  std::string family = "llama";
  int layers = 32, heads = 32, kv_heads = 8, experts = 0;
  Extent width = 256;
  bool tied = false, fused = false;
};

/// Type by name of tensor, and "file_type" of the file.
using Types = std::map<std::string, std::string>;

Types types_of(const ModelOf& model, const std::string& type, bool pure = false) {
  std::vector<std::pair<std::string, Shape>> named = {{"token_embd.weight", {2, model.width}}};
  if (!model.tied) named.push_back({"output.weight", {2, model.width}});
  for (int i = model.layers - 1; i >= 0; --i) {  // files may have their layers in any order
    const auto put = [&](const char* name, const Shape& shape) {
      named.emplace_back(fmt::format("blk.{}.{}.weight", i, name), shape);
    };
    for (const char* name : model.fused ? std::vector{"attn_qkv"} : std::vector{"attn_q", "attn_k", "attn_v"})
      put(name, {2, model.width});
    put("attn_output", {2, model.width});
    if (model.experts > 0) {
      put("ffn_up_exps", {2, 2, model.width});
      put("ffn_down_exps", {2, 2, model.width});
    } else {
      put("ffn_up", {2, model.width});
      put("ffn_down", {2, model.width});
    }
  }
  const std::vector<float> zeros(static_cast<std::size_t>(4 * model.width));
  std::vector<GgufTensor> tensors;
  for (const auto& [name, shape] : named)
    tensors.push_back(
        {name, shape, BlockType::f32, std::as_bytes(std::span(zeros).first(static_cast<std::size_t>(shape.numel())))});
  GgufMetadata metadata;
  metadata.set("general.architecture", model.family);
  metadata.set(model.family + ".attention.head_count", static_cast<std::uint32_t>(model.heads));
  metadata.set(model.family + ".attention.head_count_kv",
               GgufArray(std::vector<std::int32_t>(static_cast<std::size_t>(model.layers), model.kv_heads)));
  metadata.set(model.family + ".expert_count", static_cast<std::uint32_t>(model.experts));
  const TemporaryFolder folder;
  write_gguf(folder / "in.gguf", metadata, tensors);
  QuantiseOptions options;
  options.type = type;
  options.pure = pure;
  quantise_model(TensorSource::open(folder / "in.gguf"), folder / "out.gguf", options);
  const GgufFile out = GgufFile::open(folder / "out.gguf");
  Types types = {{"file_type", fmt::format("{}", out.metadata().get<int>("general.file_type"))}};
  for (const GgufTensor& tensor : out.tensors()) types[tensor.name] = std::string(file_name_of(tensor.type));
  return types;
}

/// The types that a matrix has from layer to layer, with how often: "Q6_K 4, Q4_K 2".
std::string along_layers(const Types& types, const char* name) {
  std::vector<std::pair<std::string, int>> runs;
  for (int i = 0; types.contains(fmt::format("blk.{}.{}.weight", i, name)); ++i) {
    const std::string& type = types.at(fmt::format("blk.{}.{}.weight", i, name));
    if (runs.empty() || runs.back().first != type) runs.emplace_back(type, 0);
    ++runs.back().second;
  }
  std::string text;
  for (const auto& [type, count] : runs) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", type, count);
  return text;
}

// As llama-quantize has them, for this very model.
TEST(QuantiseMixture, EachNameHasItsTypes) {
  const std::string thirds =
      "Q6_K 4, {0} 2, Q6_K 1, {0} 2, Q6_K 1, {0} 2, Q6_K 1, {0} 2, Q6_K 1, {0} 2, Q6_K 1, {0} 2, Q6_K 1, {0} 2, Q6_K "
      "1, "
      "{0} 2, Q6_K 5";
  const std::string of_q4 = fmt::format(fmt::runtime(thirds), "Q4_K"),
                    of_q5 = fmt::format(fmt::runtime(thirds), "Q5_K");
  struct Case {
    const char* name;
    int file_type;
    std::string up, values, down, attention_output, output;
  };
  for (const Case& c : {Case{"Q2_K", 10, "Q2_K 32", "Q4_K 32", "Q3_K 32", "Q3_K 32", "Q6_K"},
                        Case{"Q2_K_S", 21, "Q2_K 32", "Q4_K 32", "Q4_K 4, Q2_K 28", "Q2_K 32", "Q6_K"},
                        Case{"Q3_K_S", 11, "Q3_K 32", "Q3_K 32", "Q3_K 32", "Q3_K 32", "Q6_K"},
                        Case{"Q3_K_M", 12, "Q3_K 32", "Q5_K 2, Q4_K 30", "Q5_K 2, Q4_K 30", "Q4_K 32", "Q6_K"},
                        Case{"Q3_K", 12, "Q3_K 32", "Q5_K 2, Q4_K 30", "Q5_K 2, Q4_K 30", "Q4_K 32", "Q6_K"},
                        Case{"Q3_K_L", 13, "Q3_K 32", "Q5_K 32", "Q5_K 32", "Q5_K 32", "Q6_K"},
                        Case{"q4_k_s", 14, "Q4_K 32", "Q5_K 4, Q4_K 28", "Q5_K 4, Q4_K 28", "Q4_K 32", "Q6_K"},
                        Case{"q4_k_m", 15, "Q4_K 32", of_q4, of_q4, "Q4_K 32", "Q6_K"},
                        Case{"Q4_K", 15, "Q4_K 32", of_q4, of_q4, "Q4_K 32", "Q6_K"},
                        Case{"Q5_K_S", 16, "Q5_K 32", "Q5_K 32", "Q5_K 32", "Q5_K 32", "Q6_K"},
                        Case{"Q5_K_M", 17, "Q5_K 32", of_q5, of_q5, "Q5_K 32", "Q6_K"},
                        Case{"Q5_K", 17, "Q5_K 32", of_q5, of_q5, "Q5_K 32", "Q6_K"},
                        Case{"Q6_K", 18, "Q6_K 32", "Q6_K 32", "Q6_K 32", "Q6_K 32", "Q6_K"},
                        Case{"IQ4_NL", 25, "IQ4_NL 32", "Q5_K 32", "Q5_K 4, IQ4_NL 28", "IQ4_NL 32", "Q6_K"},
                        Case{"IQ4_XS", 30, "IQ4_XS 32", "Q5_K 32", "Q5_K 4, IQ4_XS 28", "IQ4_XS 32", "Q6_K"},
                        Case{"MXFP4_MOE", 38, "Q8_0 32", "Q8_0 32", "Q8_0 32", "Q8_0 32", "Q8_0"},
                        Case{"MXFP4", 38, "MXFP4 32", "MXFP4 32", "MXFP4 32", "MXFP4 32", "Q6_K"},
                        Case{"Q4_0", 2, "Q4_0 32", "Q4_0 32", "Q4_0 32", "Q4_0 32", "Q6_K"},
                        Case{"Q5_1", 9, "Q5_1 32", "Q5_1 32", "Q5_1 32", "Q5_1 32", "Q6_K"},
                        Case{"Q8_0", 7, "Q8_0 32", "Q8_0 32", "Q8_0 32", "Q8_0 32", "Q8_0"},
                        Case{"BF16", 32, "BF16 32", "BF16 32", "BF16 32", "BF16 32", "BF16"}}) {
    SCOPED_TRACE(c.name);
    const Types types = types_of({}, c.name);
    EXPECT_EQ(types.at("file_type"), std::to_string(c.file_type));
    for (const char* name : {"attn_q", "attn_k", "ffn_up"}) EXPECT_EQ(along_layers(types, name), c.up) << name;
    EXPECT_EQ(along_layers(types, "attn_v"), c.values);
    EXPECT_EQ(along_layers(types, "ffn_down"), c.down);
    EXPECT_EQ(along_layers(types, "attn_output"), c.attention_output);
    EXPECT_EQ(types.at("output.weight"), c.output);
    EXPECT_EQ(types.at("token_embd.weight") + " 32", c.up);
  }
}

TEST(QuantiseMixture, ModelsDiffer) {
  // Few heads share one of keys and values, and what embeds is the output matrix too.
  const Types tied = types_of({.layers = 8, .kv_heads = 32, .tied = true}, "Q2_K");
  EXPECT_EQ(along_layers(tied, "attn_v"), "Q3_K 8");
  EXPECT_EQ(tied.at("token_embd.weight"), "Q6_K");
  EXPECT_EQ(along_layers(types_of({.layers = 8, .kv_heads = 32}, "IQ4_XS"), "attn_v"), "IQ4_XS 8");

  // Queries, keys and values in one matrix count as values.
  EXPECT_EQ(along_layers(types_of({.family = "phi3", .layers = 8, .fused = true}, "Q4_K_M"), "attn_qkv"),
            "Q6_K 1, Q4_K 2, Q6_K 1, Q4_K 2, Q6_K 2");

  const ModelOf mixtral{.layers = 8, .experts = 8};
  const Types eight = types_of(mixtral, "Q4_K_M");
  EXPECT_EQ(along_layers(eight, "attn_v"), "Q8_0 8");
  EXPECT_EQ(along_layers(eight, "attn_k"), "Q8_0 8");
  EXPECT_EQ(along_layers(eight, "attn_q"), "Q4_K 8");
  EXPECT_EQ(along_layers(eight, "attn_output"), "Q5_K 8");
  EXPECT_EQ(along_layers(eight, "ffn_down_exps"), "Q6_K 1, Q4_K 2, Q6_K 1, Q4_K 2, Q6_K 2");
  EXPECT_EQ(along_layers(types_of(mixtral, "Q3_K_L"), "attn_output"), "Q3_K 8");
  const Types four = types_of({.layers = 8, .experts = 4}, "MXFP4_MOE");
  EXPECT_EQ(along_layers(four, "ffn_up_exps"), "MXFP4 8");
  EXPECT_EQ(along_layers(four, "attn_q"), "Q8_0 8");

  // 70B, and 65B, whose heads are not grouped.
  EXPECT_EQ(along_layers(types_of({.layers = 80, .heads = 64}, "Q3_K_S"), "attn_v"), "Q5_K 80");
  EXPECT_EQ(along_layers(types_of({.layers = 80, .heads = 64, .kv_heads = 64}, "Q3_K_S"), "attn_v"), "Q3_K 80");
  EXPECT_EQ(along_layers(types_of({.family = "qwen3", .layers = 80, .heads = 64}, "Q3_K_S"), "attn_v"), "Q3_K 80");
}

TEST(QuantiseMixture, RowsThatDoNotDivideGetAFormatOf32) {
  const ModelOf narrow{.layers = 8, .width = 96};
  const Types types = types_of(narrow, "Q4_K_M");
  EXPECT_EQ(along_layers(types, "ffn_up"), "Q5_0 8");
  EXPECT_EQ(along_layers(types, "attn_v"), "Q8_0 1, Q5_0 2, Q8_0 1, Q5_0 2, Q8_0 2");
  EXPECT_EQ(types.at("output.weight"), "Q8_0");
  EXPECT_EQ(along_layers(types_of(narrow, "Q3_K_M"), "attn_v"), "Q5_1 2, Q5_0 6");
  EXPECT_EQ(along_layers(types_of(narrow, "Q3_K_M"), "ffn_up"), "Q4_0 8");
  EXPECT_EQ(along_layers(types_of({.layers = 2, .width = 100}, "Q4_K_M"), "ffn_up"), "F16 2");
}

TEST(QuantiseMixture, PureIsOneType) {
  const Types types = types_of({.layers = 8}, "Q4_K_M", true);
  for (const auto& [name, type] : types) EXPECT_EQ(type, name == "file_type" ? "14" : "Q4_K") << name;
}

TEST(QuantiseMixture, Names) {
  EXPECT_EQ(find_mixture("q3_k_L").name, "Q3_K_L");
  EXPECT_EQ(find_mixture("Q6_K").rules.size(), 0u);
  const std::string message = message_of<UsageError>([] { find_mixture("Q4_K_XL"); });
  EXPECT_NE(message.find("\"Q4_K_XL\": there is no such type to quantize to; choose one of F32, F16"),
            std::string::npos)
      << message;
  EXPECT_NE(message.find(", Q4_K_M"), std::string::npos);
  for (const char* name : {"I8", ""}) EXPECT_THROW(find_mixture(name), UsageError) << name;
}

TEST(QuantiseMixture, NumbersThatNoModelHasAreNoLayers) {
  const TemporaryFolder folder;
  const std::vector<float> zeros(256);
  std::vector<GgufTensor> tensors;
  for (const char* name : {"blk.99999999999999999999.attn_v.weight", "blk.2147483647.attn_v.weight",
                           "blk.-1.ffn_down.weight", "blk.x.ffn_down.weight", "blk.7", "blk.", "blk.3.ffn_down.weight"})
    tensors.push_back({name, {2, 128}, BlockType::f32, std::as_bytes(std::span(zeros))});
  GgufMetadata metadata;
  metadata.set("general.architecture", std::string("llama"));
  metadata.set("llama.attention.head_count", std::uint32_t{0});
  metadata.set("llama.attention.head_count_kv", std::int32_t{-1});
  write_gguf(folder / "in.gguf", metadata, tensors);
  EXPECT_EQ(plan_quantisation(TensorSource::open(folder / "in.gguf"), {}).size(), tensors.size());
}

}  // namespace
}  // namespace weft::io
