// Folders of FP8: values of tiles of every shape, the type they are read as, and what is refused.
#include "io/fp8_folder.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/message_of.hpp"
#include "io/packed_integers.hpp"
#include "io/quantised_folder.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

using test::message_of;
using test::PackedTensors;
using test::TemporaryFolder;

constexpr Extent kRows = 150, kColumns = 70;

/// Sign, four bits of exponent with the bias 7, three of fraction; no infinity, and NaN where all seven are set.
double value_of_e4m3(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15), fraction = static_cast<int>(code & 7);
  if (exponent == 15 && fraction == 7) return NAN;
  const double size = exponent == 0 ? fraction * std::exp2(-9) : (8 + fraction) * std::exp2(exponent - 10);
  return code & 128 ? -size : size;
}

std::vector<std::byte> all_codes() {
  std::vector<std::byte> codes;
  for (Extent i = 0; i < kRows * kColumns; ++i) {
    const auto code = static_cast<unsigned>(i * 37 % 256);
    codes.push_back(static_cast<std::byte>((code & 127) == 127 ? code ^ 1 : code));
  }
  return codes;
}

Json fp8(const Json& block) { return {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", block}}; }
Json compressed(const Json& weights) {
  Json all = {{"num_bits", 8}, {"type", "float"}};
  all.update(weights);
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", all}}}}},
          {"ignore", {"lm_head"}}};
}

TensorSource opened_fp8(const TemporaryFolder& folder, const Json& description, const PackedTensors& tensors,
                        const char* key = "quantization_config") {
  folder.put("config.json", Json{{key, description}}.dump());
  tensors.write(folder / "model.safetensors");
  return with_quantised_layers(TensorSource::open(folder.path()));
}

struct TileCase {
  const char* name;
  Json description;
  Extent rows, columns;  // of a tile
  Shape scales;
  const char *ending, *type;
};

std::vector<TileCase> tile_cases() {
  const char *inverse = "_scale_inv", *plain = "_scale";
  return {
      {"blocks, incomplete", fp8({128, 128}), 128, 128, {2, 1}, inverse, "F32"},
      {"small blocks", fp8({16, 48}), 16, 48, {10, 2}, inverse, "BF16"},
      {"blocks of e8m0", fp8({64, 32}), 64, 32, {3, 3}, inverse, "F8_E8M0"},
      {"one scale", fp8(nullptr), kRows, kColumns, {}, inverse, "BF16"},
      {"one scale of one axis", fp8(nullptr), kRows, kColumns, {1}, plain, "F32"},
      {"rows", fp8(nullptr), 1, kColumns, {kRows}, plain, "F32"},
      {"fbgemm", {{"quant_method", "fbgemm_fp8"}}, 1, kColumns, {kRows, 1}, plain, "F32"},
      {"modelopt", {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}, kRows, kColumns, {}, plain, "F32"},
      {"compressed, tensor", compressed({{"strategy", "tensor"}}), kRows, kColumns, {1}, plain, "BF16"},
      {"compressed, channel", compressed({{"strategy", "channel"}}), 1, kColumns, {kRows, 1}, plain, "F16"},
      {"compressed, block",
       compressed({{"strategy", "block"}, {"block_structure", {128, 64}}}),
       128,
       64,
       {2, 2},
       plain,
       "F32"},
      {"compressed, group", compressed({{"strategy", "group"}, {"group_size", 32}}), 1, 32, {kRows, 3}, plain, "F32"},
  };
}

/// Scales from `least` on, as the file has them and as numbers.
std::vector<float> put_scales(PackedTensors& tensors, const TileCase& c, float least) {
  const auto count = static_cast<std::size_t>(c.scales.numel());
  std::vector<float> values;
  std::vector<std::uint16_t> halves;
  std::vector<std::byte> exponents;
  const std::string type = c.type, name = std::string("layer.weight") + c.ending;
  for (std::size_t i = 0; i < count; ++i) {
    const float value = least * (1 + static_cast<float>(i * 5 % 17) / 7);
    if (type == "F8_E8M0") {
      const int exponent = static_cast<int>(std::floor(std::log2(value)));
      exponents.push_back(static_cast<std::byte>(exponent + 127));
      values.push_back(std::ldexp(1.0f, exponent));
    } else if (type == "F32") {
      values.push_back(value);
    } else {
      halves.push_back(type == "F16" ? f16_from_f32(value) : bf16_from_f32(value));
      values.push_back(type == "F16" ? f32_from_f16(halves.back()) : f32_from_bf16(halves.back()));
    }
  }
  if (type == "F32")
    tensors.add(name, type, c.scales, values);
  else if (type == "F8_E8M0")
    tensors.add(name, type, c.scales, exponents);
  else
    tensors.add(name, type, c.scales, halves);
  return values;
}

std::vector<float> wanted_values(const TileCase& c, const std::vector<float>& scales, BlockType type) {
  const std::vector<std::byte> codes = all_codes();
  const Extent across = (kColumns + c.columns - 1) / c.columns;
  std::vector<float> values;
  for (Extent row = 0; row < kRows; ++row)
    for (Extent column = 0; column < kColumns; ++column) {
      const auto tile = static_cast<std::size_t>(row / c.rows * across + column / c.columns);
      const auto code = static_cast<unsigned>(codes[static_cast<std::size_t>(row * kColumns + column)]);
      const auto value = static_cast<float>(value_of_e4m3(code) * scales[tile]);
      values.push_back(type == BlockType::f16 ? f32_from_f16(f16_from_f32(value))
                                              : f32_from_bf16(bf16_from_f32(value)));
    }
  return values;
}

TEST(Fp8Folder, ValuesAreCodesTimesTheScaleOfTheirTile) {
  for (const TileCase& c : tile_cases())
    for (const auto& [least, type] : {std::pair(2e-4f, BlockType::f16), std::pair(1e-9f, BlockType::bf16)}) {
      if (c.type == std::string("F16") && type == BlockType::bf16) continue;  // F16 has no such scale
      SCOPED_TRACE(c.name + (" from " + std::to_string(least)));
      const TemporaryFolder folder;
      PackedTensors tensors;
      tensors.add("layer.weight", "F8_E4M3", {kRows, kColumns}, all_codes());
      tensors.add("lm_head.weight", "F32", {2}, std::vector<float>{1, 2});
      const std::vector<float> scales = put_scales(tensors, c, least);
      const TensorSource source = opened_fp8(folder, c.description, tensors);
      ASSERT_EQ(source.tensors().size(), 2u);
      ASSERT_EQ(source.at("layer.weight").type, type);
      EXPECT_EQ(source.read_f32("layer.weight"), wanted_values(c, scales, type));
      EXPECT_EQ(source.read_f32("lm_head.weight"), (std::vector<float>{1, 2}));
      ASSERT_EQ(source.notes().size(), 1u);
      EXPECT_EQ(source.notes()[0].find("1 matrix in FP8 is unpacked to "), 0u);
    }
}

TEST(Fp8Folder, LargeScalesNeedBf16AndZerosDoNot) {
  const auto type_of = [](const std::vector<float>& scales) {
    const TemporaryFolder folder;
    PackedTensors tensors;
    tensors.add("layer.weight", "F8_E4M3", {kRows, kColumns}, all_codes());
    tensors.add("layer.weight_scale_inv", "F32", {2, 1}, scales);
    return opened_fp8(folder, fp8({128, 128}), tensors).at("layer.weight").type;
  };
  EXPECT_EQ(type_of({146, 0}), BlockType::f16);
  EXPECT_EQ(type_of({147, 1}), BlockType::bf16);
  EXPECT_EQ(type_of({-147, 1}), BlockType::bf16);
  EXPECT_EQ(type_of({1.4e-7f, 1}), BlockType::f16);
  EXPECT_EQ(type_of({1.3e-7f, 1}), BlockType::bf16);
}

TEST(Fp8Folder, ScalesOfActivationsAndCachesAreLeftOut) {
  const TemporaryFolder folder;
  PackedTensors tensors;
  tensors.add("layer.weight", "F8_E4M3", {kRows, kColumns}, all_codes());
  for (const char* name : {"layer.weight_scale", "layer.input_scale", "self_attn.k_scale", "self_attn.v_scale"})
    tensors.add(name, "F32", {1}, std::vector<float>{0.5});
  const TensorSource source = opened_fp8(folder, compressed({{"strategy", "tensor"}}), tensors, "compression_config");
  EXPECT_EQ(source.tensors().size(), 1u);
  EXPECT_EQ(source.notes().at(1), "3 scales of activations and caches are not used: Weft does not round these to FP8");
}

TEST(Fp8Folder, WhatDoesNotFitIsRefused) {
  struct Case {
    Json description;
    std::function<void(PackedTensors&)> change;
    const char* message;
  };
  const auto nothing = [](PackedTensors&) {};
  const auto with = [](Json description, const char* key, const Json& value) {
    description[key] = value;
    return description;
  };
  const auto scales = [](const char* type, const Shape& shape, std::vector<float> values) {
    return [=](PackedTensors& t) { t.add("layer.weight_scale_inv", type, shape, values); };
  };
  const Case cases[] = {
      {with(fp8({128, 128}), "fmt", "e5m2"), nothing, "the fmt of fp8 is \"e5m2\"; Weft reads \"e4m3\""},
      {fp8(Json::array({128})), nothing, "weight_block_size is \"[128]\", not two whole numbers from 1"},
      {fp8({0, 128}), nothing, "not two whole numbers from 1"},
      {fp8({64, 64}), nothing, "the scales of [150, 70] are [3, 2] for tiles of 64 rows by 64 columns"},
      {fp8(nullptr), nothing, "are [1, 1] for tiles of all rows by all columns, or [150, 1] for tiles of 1 rows"},
      {{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}, nothing, "quant_algo of ModelOpt is \"NVFP4\""},
      {with(compressed(Json::object()), "format", "pack-quantized"), nothing,
       "compressed-tensors is \"pack-quantized\""},
      {with(compressed(Json::object()), "sparsity_config", {{"format", "sparse-24-bitmask"}}), nothing,
       "\"sparse-24-bitmask\""},
      {with(compressed(Json::object()), "config_groups", Json::object()), nothing,
       "config_groups is not an object with a group"},
      {with(compressed(Json::object()), "config_groups", {{"a", {{"targets", {"Linear"}}}}}), nothing,
       "no group of config_groups"},
      {compressed({{"num_bits", 4}}), nothing, "have type \"float\" of \"4\" bits"},
      {compressed({{"type", "int"}}), nothing, "the weights of \"group_0\" have type \"int\""},
      {compressed({{"strategy", "token"}}), nothing, "the strategy \"token\""},
      {compressed({{"strategy", "group"}}), nothing, "1 by group_size is \"[1,null]\""},
      {fp8({128, 128}), [](PackedTensors& t) { t.erase("layer.weight_scale_inv"); },
       "\"layer.weight\" is in FP8, and there is neither \"layer.weight_scale_inv\" nor \"layer.weight_scale\""},
      {fp8({128, 128}), scales("F32", {2}, {1, INFINITY}), "scale 1 is NaN or infinite"},
      {fp8({128, 128}), scales("I32", {2}, {1, 1}), "scales are F32, F16, BF16 or F8_E8M0"},
      {fp8({128, 128}),
       [](PackedTensors& t) {
         t.add("layer.weight_scale_inv", "F8_E8M0", {2}, std::vector<std::byte>{std::byte{127}, std::byte{255}});
       },
       "scale 1 is NaN or infinite"},
      {fp8({128, 128}), [](PackedTensors& t) { t.add("layer.weight", "F8_E4M3", {kRows * kColumns}, all_codes()); },
       "Weft reads FP8 in matrices"},
  };
  for (const Case& c : cases) {
    const TemporaryFolder folder;
    PackedTensors tensors;
    tensors.add("layer.weight", "F8_E4M3", {kRows, kColumns}, all_codes());
    tensors.add("layer.weight_scale_inv", "F32", {2, 1}, std::vector<float>{1, 2});
    c.change(tensors);
    const std::string message = message_of<FileError>([&] { (void)opened_fp8(folder, c.description, tensors); });
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
  }
}

TEST(Fp8Folder, NanCodesAreNamedBeforeAModelUsesThem) {
  const TemporaryFolder folder;
  PackedTensors tensors;
  std::vector<std::byte> codes = all_codes();
  codes[75] = std::byte{0xFF};
  tensors.add("layer.weight", "F8_E4M3", {kRows, kColumns}, codes);
  tensors.add("layer.weight_scale_inv", "F32", {2, 1}, std::vector<float>{1, 2});
  const TensorSource source = opened_fp8(folder, fp8({128, 128}), tensors);
  const std::string message = message_of<FileError>([&] { source.require_finite(source.at("layer.weight")); });
  EXPECT_NE(message.find("\"layer.weight\": element 75 is NaN"), std::string::npos) << message;
}

}  // namespace
}  // namespace weft::io
