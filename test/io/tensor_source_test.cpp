// One set of named tensors over GGUF, safetensors and folders.
#include "io/tensor_source.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::vector<float> sample_values(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = std::ldexp(static_cast<float>(i % 17) - 8, -3);  // exact in bf16
  return values;
}
std::vector<std::byte> stored(BlockType type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(bytes_for(type, values.size(), "sample"));
  quantise(type, values, bytes);
  return bytes;
}

TEST(TensorSource, SameTensorsFromEveryKind) {
  const TemporaryFolder folder, model, shards;
  const auto values = sample_values(6 * 32);
  const Shape shape{6, 32};
  const auto f32 = stored(BlockType::f32, values), f16 = stored(BlockType::f16, values),
             bf16 = stored(BlockType::bf16, values), f64 = stored(BlockType::f64, values);
  const std::vector<GgufTensor> in_gguf = {{"a", shape, BlockType::f32, f32},
                                           {"b", shape, BlockType::f16, f16},
                                           {"c", shape, BlockType::bf16, bf16},
                                           {"d", shape, BlockType::f64, f64}};
  const std::vector<TensorView> views = {
      {"a", "F32", shape, f32}, {"b", "F16", shape, f16}, {"c", "BF16", shape, bf16}, {"d", "F64", shape, f64}};
  write_gguf(folder / "m.gguf", GgufMetadata(), in_gguf);
  write_safetensors(folder / "m.safetensors", views, {{"k", "v"}});
  write_safetensors(model / "model.safetensors", views);
  write_safetensors(shards / "model-00001-of-00002.safetensors", std::span(views).first(3));
  write_safetensors(shards / "model-00002-of-00002.safetensors", std::span(views).last(1));
  shards.put("model.safetensors.index.json",
             R"({"metadata": {"total_size": 1}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                 "b": "model-00001-of-00002.safetensors", "c": "model-00001-of-00002.safetensors",
                 "d": "model-00002-of-00002.safetensors"}})");

  const struct {
    std::filesystem::path path;
    SourceKind kind;
  } sources[] = {{folder / "m.gguf", SourceKind::gguf},
                 {folder / "m.safetensors", SourceKind::safetensors},
                 {model.path(), SourceKind::folder},
                 {shards.path(), SourceKind::folder}};
  for (const auto& [path, kind] : sources) {
    const TensorSource source = TensorSource::open(path);
    EXPECT_EQ(source.kind(), kind);
    EXPECT_EQ(source.gguf() != nullptr, kind == SourceKind::gguf);
    EXPECT_EQ(source.safetensors_metadata().contains("k"), kind == SourceKind::safetensors);
    EXPECT_EQ(source.tensors().size(), 4u);
    for (const char* name : {"a", "b", "c", "d"}) {
      EXPECT_EQ(source.at(name).shape, shape);
      EXPECT_EQ(source.read_f32(name), values) << path << " " << name;
      source.require_finite(source.at(name));
    }
    EXPECT_EQ(source.at("c").type, BlockType::bf16);
    EXPECT_EQ(source.find("none"), nullptr);
    EXPECT_NE(message_of<FileError>([&] { source.at("none"); }).find("there is no tensor \"none\"; it holds \""),
              std::string::npos);
  }
}

TEST(TensorSource, MetadataIsForgottenAndTensorsStay) {
  const TemporaryFolder folder;
  GgufMetadata metadata;
  metadata.set("general.name", std::string(100000, 'x'));
  const std::vector<float> values(64, 1.0f);
  const auto data = stored(BlockType::f32, values);
  write_gguf(folder / "m", metadata, std::vector<GgufTensor>{{"w", {64}, BlockType::f32, data}});
  TensorSource source = TensorSource::open(folder / "m");
  EXPECT_TRUE(source.gguf()->metadata().contains("general.name"));
  source.forget_metadata();
  EXPECT_FALSE(source.gguf()->metadata().contains("general.name"));
  EXPECT_EQ(source.read_f32("w"), values);
}

TEST(TensorSource, LargeTensorsAreReadInPiecesThatFit) {
  const TemporaryFolder folder;
  for (const BlockType type : {BlockType::q4_k, BlockType::q8_0, BlockType::i8, BlockType::f16}) {
    const Shape shape{3, (1 << 16) - 256};  // pieces end within rows
    const std::size_t bytes = bytes_for(type, shape, "sample");
    std::vector<std::byte> data(bytes);
    for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 37 % 61);  // no exponents of infinity
    write_gguf(folder / "m.gguf", GgufMetadata(), std::vector<GgufTensor>{{"w", shape, type, data}});
    const TensorSource source = TensorSource::open(folder / "m.gguf");
    std::vector<float> whole(static_cast<std::size_t>(shape.numel()));
    dequantise(type, data, whole);
    EXPECT_EQ(source.read_f32("w"), whole) << name_of(type);
  }
}

TEST(TensorSource, WhatIsRefused) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<FileError>([&] {
              TensorSource::open(folder.put("x", "hello world"));
            }).find("this is not a model file, neither GGUF nor safetensors: it begins with \"hello world\""),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { TensorSource::open(folder.put("y", "")); }).find("it begins with nothing"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { TensorSource::open(folder / "none"); }).find("there is no such file"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { TensorSource::open(folder.path()); }).find("holds neither model.safetensors"),
            std::string::npos);

  const std::vector<float> numbers = {1, 2, NAN, 4};
  const auto data = stored(BlockType::f32, numbers);
  std::vector<std::byte> block = stored(BlockType::q8_0, std::vector<float>(64, 1.0f));
  block[35] = std::byte{0x7C};
  write_safetensors(folder / "m", std::vector<TensorView>{{"f", "F32", {4}, data}, {"u", "U8", {16}, data}});
  write_gguf(folder / "q", GgufMetadata(), std::vector<GgufTensor>{{"q", {64}, BlockType::q8_0, block}});
  const TensorSource source = TensorSource::open(folder / "m"), blocks = TensorSource::open(folder / "q");
  EXPECT_EQ(source.at("u").type, std::nullopt);
  EXPECT_EQ(source.at("u").type_name, "U8");
  EXPECT_NE(message_of<FileError>([&] { source.read_f32("u"); }).find("tensor \"u\" is U8, which is not read"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] {
              source.require_finite(source.at("f"));
            }).find("tensor \"f\": element 2 is NaN or infinite; the file is damaged"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] {
              blocks.require_finite(blocks.at("q"));
            }).find("tensor \"q\": the scale of the block from element 32 on is NaN or infinite"),
            std::string::npos);
  std::vector<float> few(3);
  EXPECT_NE(message_of<UsageError>([&] { source.read_f32(source.at("f"), few); }).find("[4] is read into 3 places"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::io
