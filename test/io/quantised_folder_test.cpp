// Folders of packed integers: the values and types of GPTQ, AWQ and MLX, and what is refused.
#include "io/quantised_folder.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "base/json.hpp"
#include "base/message_of.hpp"
#include "io/packed_integers.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

using test::IntegerMatrix;
using test::message_of;
using test::PackedTensors;
using test::TemporaryFolder;

Json gptq(Extent group, const char* form = "gptq") {
  return {{"quantization_config",
           {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", group}, {"checkpoint_format", form}}}};
}
Json awq(Extent group) {
  return {{"quantization_config", {{"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"version", "gemm"}}}};
}
Json mlx(int bits, Extent group) { return {{"quantization", {{"bits", bits}, {"group_size", group}}}}; }

TensorSource opened(const TemporaryFolder& folder, const Json& config, const PackedTensors& tensors) {
  folder.put("config.json", config.dump());
  tensors.write(folder / "model.safetensors");
  return with_quantised_layers(TensorSource::open(folder.path()));
}

struct TypeCase {
  const char* name;
  IntegerMatrix matrix;
  std::function<void(PackedTensors&, const IntegerMatrix&)> put;
  Json config;
  BlockType type;
};

IntegerMatrix in_another_order(IntegerMatrix m) {
  for (Extent c = 0; c < m.k; ++c) m.group_of.push_back(static_cast<int>((c * 7 + 3) % m.groups()));
  return m;
}

std::vector<TypeCase> type_cases() {
  const auto v1 = [](PackedTensors& t, const IntegerMatrix& m) { test::put_gptq(t, "layer", m, false); };
  const auto v2 = [](PackedTensors& t, const IntegerMatrix& m) { test::put_gptq(t, "layer", m, true); };
  const auto by_awq = [](PackedTensors& t, const IntegerMatrix& m) { test::put_awq(t, "layer", m); };
  const auto by_mlx = [](PackedTensors& t, const IntegerMatrix& m) { test::put_mlx(t, "layer", m); };
  const auto ints = [](int bits, Extent group, int zero) { return test::random_integers(96, 128, bits, group, zero); };
  std::vector<TypeCase> cases = {
      {"gptq, centred", ints(4, 32, 8), v1, gptq(32), BlockType::q4_0},
      {"gptq v2, centred", ints(4, 128, 8), v2, gptq(128, "gptq_v2"), BlockType::q4_0},
      {"gptq, one group", ints(4, 128, 8), v1, gptq(-1), BlockType::q4_0},
      {"gptq, any zero points", ints(4, 64, -1), v1, gptq(64), BlockType::q5_0},
      {"gptq v2, any zero points", ints(4, 64, -1), v2, gptq(64, "gptq_v2"), BlockType::q5_0},
      {"gptq, 2 bits", ints(2, 32, -1), v1, gptq(32), BlockType::q4_0},
      {"gptq, 3 bits", ints(3, 32, -1), v1, gptq(32), BlockType::q4_0},
      {"gptq, 8 bits", ints(8, 64, 128), v1, gptq(64), BlockType::q8_0},
      {"gptq, 8 bits, any zero points", ints(8, 64, -1), v1, gptq(64), BlockType::f16},
      {"gptq, act-order", in_another_order(ints(4, 32, 8)), v1, gptq(32), BlockType::f16},
      {"gptq, small groups", ints(4, 16, 8), v1, gptq(16), BlockType::f16},
      {"gptq, an incomplete group", ints(4, 96, -1), v1, gptq(96), BlockType::q5_0},
      {"awq", ints(4, 64, -1), by_awq, awq(64), BlockType::q5_0},
      {"awq, centred", ints(4, 64, 8), by_awq, awq(64), BlockType::q4_0},
  };
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const Extent group : {32, 64, 128})
      cases.push_back({"mlx", test::with_offsets(ints(bits, group, -1)), by_mlx, mlx(bits, group),
                       bits <= 4   ? BlockType::q4_1
                       : bits == 5 ? BlockType::q5_1
                                   : BlockType::f16});
  return cases;
}

TEST(QuantisedFolder, ValuesAreThoseOfTheLayoutInTheSmallestExactType) {
  for (const TypeCase& c : type_cases()) {
    SCOPED_TRACE(std::string(c.name) + ", " + std::to_string(c.matrix.bits) + " bits, groups of " +
                 std::to_string(c.matrix.group));
    const TemporaryFolder folder;
    PackedTensors tensors;
    c.put(tensors, c.matrix);
    tensors.add("other.weight", "F32", {2}, std::vector<float>{1, 2});
    const TensorSource source = opened(folder, c.config, tensors);
    ASSERT_EQ(source.tensors().size(), 2u);
    const SourceTensor& layer = source.at("layer.weight");
    EXPECT_EQ(layer.shape, (Shape{96, 128}));
    ASSERT_EQ(layer.type, c.type) << layer.type_name;
    std::vector<float> wanted = c.matrix.values();
    if (c.type == BlockType::f16)
      for (float& value : wanted) value = f32_from_f16(f16_from_f32(value));
    EXPECT_EQ(source.read_f32("layer.weight"), wanted);
    EXPECT_EQ(source.notes().size(), c.type == BlockType::f16 ? 1u : 0u);
    EXPECT_EQ(source.read_f32("other.weight"), (std::vector<float>{1, 2}));
  }
}

TEST(QuantisedFolder, ScalesThatF16CannotHoldAreUnpacked) {
  const TemporaryFolder folder;
  IntegerMatrix m = test::random_integers(32, 64, 4, 32, 8);
  PackedTensors tensors;
  test::put_gptq(tensors, "layer", m, false);
  for (std::size_t i = 0; i < m.scale.size(); ++i) m.scale[i] = i == 5 ? 90000.0f : 0.1f;
  std::vector<float> by_group;
  for (Extent g = 0; g < m.groups(); ++g)
    for (Extent r = 0; r < m.n; ++r) by_group.push_back(m.scale[static_cast<std::size_t>(r * m.groups() + g)]);
  tensors.add("layer.scales", "F32", {2, 32}, by_group);
  const TensorSource source = opened(folder, gptq(32), tensors);
  EXPECT_EQ(source.at("layer.weight").type, BlockType::f32);
  EXPECT_EQ(source.read_f32("layer.weight"), m.values());
  EXPECT_NE(source.notes().at(0).find("1 of 1 quantised layers (4 bits) are unpacked to F32, because their scales"),
            std::string::npos);
}

TEST(QuantisedFolder, MlxDescribesLayersApart) {
  const TemporaryFolder folder;
  const IntegerMatrix a = test::with_offsets(test::random_integers(32, 64, 4, 32, -1)),
                      b = test::with_offsets(test::random_integers(32, 64, 5, 64, -1, 2));
  PackedTensors tensors;
  test::put_mlx(tensors, "a", a);
  test::put_mlx(tensors, "b", b);
  tensors.add("c.weight", "F32", {1}, std::vector<float>{3});
  Json config = mlx(4, 32);
  config["quantization"]["b"] = {{"bits", 5}, {"group_size", 64}};
  config["quantization"]["c"] = false;
  const TensorSource source = opened(folder, config, tensors);
  EXPECT_EQ(source.read_f32("a.weight"), a.values());
  EXPECT_EQ(source.read_f32("b.weight"), b.values());
  EXPECT_EQ(source.read_f32("c.weight"), std::vector<float>{3});
}

TEST(QuantisedFolder, FoldersWithoutQuantisedWeightsAreLeftAsTheyAre) {
  const TemporaryFolder folder;
  PackedTensors tensors;
  tensors.add("a.weight", "F32", {2}, std::vector<float>{1, 2});
  const TensorSource source = opened(folder, Json{{"model_type", "llama"}}, tensors);
  EXPECT_FALSE(source.at("a.weight").data.empty());
  EXPECT_EQ(source.files().size(), 1u);
}

TEST(QuantisedFolder, WhatDoesNotFitIsRefused) {
  struct Case {
    Json config;
    std::function<void(PackedTensors&)> change;
    const char* message;
  };
  const auto nothing = [](PackedTensors&) {};
  const auto with = [](Json config, const char* key, const Json& value) {
    config["quantization_config"][key] = value;
    return config;
  };
  const std::vector<std::uint32_t> words(4096);
  const Case cases[] = {
      {with(gptq(32), "quant_method", "bitsandbytes"), nothing, "the method is \"bitsandbytes\"; Weft reads gptq, awq"},
      {gptq(32, "marlin"), nothing, "checkpoint_format of GPTQ is \"marlin\""},
      {with(awq(32), "version", "gemv"), nothing, "the version of AWQ is \"gemv\""},
      {with(gptq(32), "group_size", "32"), nothing, "group_size is \"32\", not a whole number from -1"},
      {gptq(64), nothing, "128 inputs in groups of 64 have other scales"},
      {Json{{"model_type", "llama"}}, nothing, "config.json has no quantization_config"},
      {gptq(32), [](PackedTensors& t) { t.erase("layer.scales"); }, "layer \"layer\": the layer has no scales"},
      {gptq(32), [](PackedTensors& t) { t.erase("layer.qzeros"); }, "the layer has no zero points"},
      {gptq(32),
       [&](PackedTensors& t) {
         t.add("layer.qzeros", "I32", {4, 5}, std::vector(words.begin(), words.begin() + 20));
       },
       "that is not 2, 3, 4 or 8 bits for each"},
      {gptq(32), [&](PackedTensors& t) { t.add("layer.qzeros", "I32", {0}, std::vector<std::uint32_t>()); },
       "it must be a matrix"},
      {gptq(32),
       [&](PackedTensors& t) {
         t.add("layer.qweight", "I32", {15, 96}, std::vector(words.begin(), words.begin() + 15 * 96));
       },
       "the groups of inputs are I32 [120]"},
      {gptq(32),
       [&](PackedTensors& t) {
         t.add("layer.qweight", "F32", {16, 96}, std::vector(words.begin(), words.begin() + 16 * 96));
       },
       "packed integers are I32 or U32"},
      {gptq(32),
       [](PackedTensors& t) {
         t.add("layer.scales", "I8", {4, 96}, std::vector<std::byte>(4 * 96));
       },
       "scales are F16, BF16 or F32"},
      {gptq(32),
       [](PackedTensors& t) {
         t.add("layer.scales", "F16", {4, 96}, std::vector<std::uint16_t>(4 * 96, 0x7C00));
       },
       "is NaN or infinite"},
      {gptq(32), [](PackedTensors& t) { t.add("layer.g_idx", "I32", {128}, std::vector<std::int32_t>(128, 4)); },
       "input 0 is of group 4, and there are 4"},
      {gptq(32), [](PackedTensors& t) { t.add("layer.g_idx", "I32", {127}, std::vector<std::int32_t>(127)); },
       "the groups of inputs are I32 [128]"},
      {gptq(32), [](PackedTensors& t) { t.add("layer.weight", "F32", {1}, std::vector<float>{1}); }, "is there twice"},
  };
  for (const Case& c : cases) {
    const TemporaryFolder folder;
    PackedTensors tensors;
    test::put_gptq(tensors, "layer", test::random_integers(96, 128, 4, 32, 8), false);
    c.change(tensors);
    const std::string message = message_of<FileError>([&] { (void)opened(folder, c.config, tensors); });
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace weft::io
