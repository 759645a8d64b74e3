// Models in other types and containers: which tensor becomes what, and that values and metadata stay.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/message_of.hpp"
#include "base/temporary_folder.hpp"
#include "base/threads.hpp"
#include "io/convert_model.hpp"
#include "io/quantise_model.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

using test::message_of;
using test::TemporaryFolder;

struct Named {
  const char* name;
  Shape shape;
  BlockType type = BlockType::f32;
};

std::vector<float> normal_values(std::size_t count) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::filesystem::path put_model(const TemporaryFolder& folder, const std::vector<Named>& tensors,
                                const GgufMetadata& metadata = {}) {
  std::vector<std::vector<std::byte>> data;
  std::vector<GgufTensor> written;
  for (const Named& t : tensors) {
    const auto count = static_cast<std::size_t>(t.shape.numel());
    data.emplace_back(bytes_for(t.type, t.shape, "sample"));
    if (block_format(t.type).can_quantise()) quantise(t.type, normal_values(count), data.back());
  }
  for (std::size_t i = 0; i < tensors.size(); ++i)
    written.push_back({tensors[i].name, tensors[i].shape, tensors[i].type, data[i]});
  write_gguf(folder / "in.gguf", metadata, written);
  return folder / "in.gguf";
}

TEST(QuantiseModel, EachTensorGetsTheTypeThatItsNameAndRowsAskFor) {
  const TemporaryFolder folder;
  const auto path = put_model(folder, {{"token_embd.weight", {8, 256}},
                                       {"output.weight", {8, 256}},
                                       {"output_norm.weight", {256}},
                                       {"blk.0.attn_q.weight", {4, 512}},
                                       {"blk.0.attn_q.bias", {512}},
                                       {"blk.0.attn_norm.weight", {2, 256}},
                                       {"blk.0.ffn_gate_inp.weight", {4, 256}},
                                       {"blk.0.ffn_up.weight", {4, 96}},
                                       {"blk.0.ffn_down.weight", {4, 100}},
                                       {"blk.0.row.weight", {1, 256}},
                                       {"blk.0.exps.weight", {2, 4, 256}, BlockType::f16},
                                       {"blk.0.numbers.weight", {4, 256}, BlockType::i32},
                                       {"blk.0.half.weight", {256}, BlockType::f16}});
  const TensorSource model = TensorSource::open(path);
  using B = BlockType;
  using R = TypeReason;
  const auto expect = [&](const QuantiseOptions& options, const std::vector<std::pair<BlockType, TypeReason>>& wanted) {
    const auto plan = plan_quantisation(model, options);
    ASSERT_EQ(plan.size(), wanted.size());
    for (std::size_t i = 0; i < plan.size(); ++i) {
      EXPECT_EQ(name_of(plan[i].type), name_of(wanted[i].first)) << plan[i].tensor->name;
      EXPECT_EQ(static_cast<int>(plan[i].reason), static_cast<int>(wanted[i].second)) << plan[i].tensor->name;
    }
  };
  expect({.type = "Q4_K", .rules = {}, .pure = false, .progress = {}}, {{B::q4_k, R::wanted},
                                                                        {B::q6_k, R::mixture},
                                                                        {B::f32, R::kept},
                                                                        {B::q4_k, R::wanted},
                                                                        {B::f32, R::kept},
                                                                        {B::f32, R::kept},
                                                                        {B::f32, R::kept},
                                                                        {B::q5_0, R::rows},
                                                                        {B::f16, R::rows},
                                                                        {B::f32, R::kept},
                                                                        {B::q4_k, R::wanted},
                                                                        {B::i32, R::kept},
                                                                        {B::f16, R::kept}});
  expect({.type = "Q2_K",
          .rules = {{"*attn_q.weight", B::q8_0}, {"blk.0.ffn_*", B::q5_k}, {"*ffn_down*", B::f32}},
          .pure = true,
          .progress = {}},
         {{B::q2_k, R::wanted},
          {B::q2_k, R::wanted},
          {B::f32, R::kept},
          {B::q8_0, R::rule},
          {B::f32, R::kept},
          {B::f32, R::kept},
          {B::q5_k, R::rule},
          {B::q5_1, R::rows},
          {B::f32, R::rule},
          {B::f32, R::kept},
          {B::q2_k, R::wanted},
          {B::i32, R::kept},
          {B::f16, R::kept}});
  for (const auto& [type, smaller] : {std::pair{"Q3_K", B::q4_0},
                                      {"IQ4_XS", B::iq4_nl},
                                      {"Q5_K", B::q5_1},
                                      {"Q6_K", B::q8_0},
                                      {"Q8_0", B::q8_0},
                                      {"BF16", B::bf16}})
    EXPECT_EQ(plan_quantisation(model, {.type = type, .rules = {}, .pure = false, .progress = {}})[7].type, smaller);

  EXPECT_NE(
      message_of<UsageError>([&] {
        plan_quantisation(model, {.type = "Q4_K", .rules = {{"*nothing*", B::f16}}, .pure = false, .progress = {}});
      }).find("the pattern \"*nothing*\" matches no tensor of"),
      std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              plan_quantisation(model, {.type = "Q4_K", .rules = {{"*", B::f16}}, .pure = false, .progress = {}});
            }).find("matches tensor \"blk.0.numbers.weight\" of I32, which holds whole numbers"),
            std::string::npos);
}

TEST(QuantiseModel, WritesWhatTheFormatsMakeOfTheValues) {
  const TemporaryFolder folder;
  GgufMetadata metadata;
  metadata.set("general.architecture", std::string("llama"));
  metadata.set("general.file_type", std::uint32_t{0});
  metadata.set("split.count", std::uint16_t{1});
  const auto path =
      put_model(folder, {{"token_embd.weight", {300, 256}}, {"norm.weight", {256}}, {"w.weight", {0, 256}}}, metadata);
  const TensorSource model = TensorSource::open(path);
  std::vector<std::string> seen;
  QuantiseOptions options{.type = "Q4_K_S", .rules = {}, .pure = true, .progress = {}};
  options.progress = [&](const SourceTensor& tensor, BlockType type, std::uint64_t done, std::uint64_t total) {
    seen.push_back(tensor.name + " " + std::string(file_name_of(type)));
    EXPECT_LE(done, total);
  };
  std::string first;
  const int threads = thread_count();
  for (const int count : {1, 3}) {
    set_thread_count(count);
    quantise_model(model, folder / "out.gguf", options);
    const std::string bytes = read_text_file(folder / "out.gguf");
    EXPECT_EQ(first.empty() ? bytes : first, bytes) << "on " << count << " threads";
    first = bytes;
  }
  set_thread_count(threads);
  EXPECT_EQ(seen[0], "token_embd.weight Q4_K");
  const GgufFile out = GgufFile::open(folder / "out.gguf");
  EXPECT_EQ(out.metadata().get<int>("general.file_type"), 14);
  EXPECT_EQ(out.metadata().get<int>("general.quantization_version"), 2);
  EXPECT_EQ(out.metadata().get<std::string>("general.architecture"), "llama");
  EXPECT_FALSE(out.metadata().contains("split.count"));
  std::vector<std::byte> wanted(bytes_for(BlockType::q4_k, Shape{300, 256}, "w"));
  quantise(BlockType::q4_k, model.read_f32("token_embd.weight"), wanted);
  const auto got = out.at("token_embd.weight").data;
  EXPECT_TRUE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()));
  EXPECT_EQ(out.at("norm.weight").type, BlockType::f32);
  // Once more into the same type changes nothing.
  quantise_model(TensorSource::open(folder / "out.gguf"), folder / "again.gguf", options);
  EXPECT_EQ(read_text_file(folder / "again.gguf"), first);
}

TEST(QuantiseModel, WhatIsRefused) {
  const TemporaryFolder folder;
  const std::vector<float> values = {1, 2, INFINITY, 4}, large = {1, 1e6f, 1, 1};
  const auto bytes = std::as_bytes(std::span(values)), large_bytes = std::as_bytes(std::span(large));
  write_safetensors(folder / "m.safetensors", std::vector<TensorView>{{"a", "F32", {4}, bytes}});
  write_gguf(folder / "bad.gguf", {}, std::vector<GgufTensor>{{"a.weight", {2, 2}, BlockType::f32, bytes}});
  write_gguf(folder / "large.gguf", {}, std::vector<GgufTensor>{{"a.weight", {2, 2}, BlockType::f32, large_bytes}});
  const QuantiseOptions f16{.type = "F16", .rules = {}, .pure = false, .progress = {}};
  const auto error = [&](const char* name, const QuantiseOptions& options) {
    return message_of<FileError>([&] { quantise_model(TensorSource::open(folder / name), folder / "out", options); });
  };
  EXPECT_NE(error("m.safetensors", f16).find("not a GGUF file; convert it first: weft convert"), std::string::npos);
  EXPECT_NE(error("bad.gguf", f16).find("tensor \"a.weight\": element 2 is NaN or infinite"), std::string::npos);
  EXPECT_NE(
      error("large.gguf", f16)
          .find("tensor \"a.weight\": element 1 is too large for F16; keep its type or take one of a wider range"),
      std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              quantise_model(TensorSource::open(folder / "large.gguf"), folder / "out",
                             {.type = "I8", .rules = {}, .pure = false, .progress = {}});
            }).find("\"I8\": there is no such type to quantize to; choose one of F32, F16"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));
  EXPECT_TRUE(find_leftovers(folder.path()).empty());
}

GgufMetadata every_type() {
  GgufMetadata m("in.gguf");
  m.set("general.architecture", std::string("llama"));
  m.set("z.u8", std::uint8_t{255});
  m.set("a.i8", std::int8_t{-128});
  m.set("a.u16", std::uint16_t{65535});
  m.set("a.i16", std::int16_t{-1});
  m.set("a.u32", std::uint32_t{7});
  m.set("a.i32", std::int32_t{-7});
  m.set("a.f32", 1e-5f);
  m.set("a.inf", -std::numeric_limits<float>::infinity());
  m.set("a.f64", 0.1);
  m.set("a.bool", false);
  m.set("a.text", std::string("z\xC3\xBCri \"x\"\n"));
  m.set("a.u64", std::numeric_limits<std::uint64_t>::max());
  m.set("a.i64", std::numeric_limits<std::int64_t>::min());
  m.set("l.f32", GgufArray(std::vector<float>{0.1f, -1e30f, std::numeric_limits<float>::infinity(), 1e-45f}));
  m.set("l.f64", GgufArray(std::vector<double>{0.1}));
  m.set("l.bool", GgufArray(std::vector<bool>{true, false}));
  m.set("l.text", GgufArray(std::vector<std::string>{"a", "", "[\"]"}));
  m.set("l.u64", GgufArray(std::vector<std::uint64_t>{std::numeric_limits<std::uint64_t>::max()}));
  m.set("l.none", GgufArray(std::vector<std::int32_t>{}));
  return m;
}

TEST(ConvertModel, ThereAndBackIsTheSameModel) {
  const TemporaryFolder folder;
  const auto path = put_model(folder,
                              {{"a", {2, 3}},
                               {"b", {4}, BlockType::f16},
                               {"c", {4}, BlockType::bf16},
                               {"d", {}, BlockType::f64},
                               {"e", {5}, BlockType::i64},
                               {"f", {2, 64}, BlockType::q4_0},
                               {"g", {0, 3}, BlockType::i8}},
                              every_type());
  const TensorSource model = TensorSource::open(path);
  convert_model(model, folder / "m.safetensors", {});
  const TensorSource middle = TensorSource::open(folder / "m.safetensors");
  EXPECT_EQ(middle.safetensors_metadata().at("a.u32"), "7");
  EXPECT_EQ(middle.safetensors_metadata().at("l.bool"), "[\"true\",\"false\"]");
  EXPECT_EQ(middle.at("f").type, BlockType::f32);
  EXPECT_EQ(middle.at("b").type, BlockType::f16);
  for (const SourceTensor& tensor : model.tensors()) {
    EXPECT_EQ(middle.at(tensor.name).shape, tensor.shape);
    EXPECT_EQ(middle.read_f32(tensor.name), model.read_f32(tensor.name)) << tensor.name;
  }
  convert_model(middle, folder / "back.gguf", {});
  const TensorSource back = TensorSource::open(folder / "back.gguf");
  EXPECT_EQ(back.gguf()->metadata().entries(), model.gguf()->metadata().entries());
  for (const SourceTensor& tensor : model.tensors()) {
    EXPECT_EQ(back.at(tensor.name).shape, tensor.shape);
    EXPECT_EQ(back.read_f32(tensor.name), model.read_f32(tensor.name)) << tensor.name;
  }
}

TEST(ConvertModel, TheTypeOfAFileIsThatOfItsMatrices) {
  const TemporaryFolder folder;
  GgufMetadata metadata;
  metadata.set("general.file_type", std::uint32_t{3});
  const auto path = put_model(folder, {{"norm", {4}}, {"a", {2, 32}, BlockType::q4_1}}, metadata);
  convert_model(TensorSource::open(path), folder / "half.safetensors",
                {.type = BlockType::f16, .rename = {}, .progress = {}});
  convert_model(TensorSource::open(folder / "half.safetensors"), folder / "half.gguf", {});
  const TensorSource half = TensorSource::open(folder / "half.gguf");
  EXPECT_EQ(half.gguf()->metadata().get<int>("general.file_type"), 1);
  EXPECT_EQ(half.at("a").type, BlockType::f16);
  EXPECT_EQ(half.at("norm").type, BlockType::f32);  // as programs that read GGUF expect it
  convert_model(TensorSource::open(path), folder / "full.gguf", {});
  EXPECT_EQ(TensorSource::open(folder / "full.gguf").gguf()->metadata().get<int>("general.file_type"), 0);
}

TEST(ConvertModel, TypesNamesAndMetadataAsAsked) {
  const TemporaryFolder folder;
  const TensorSource model = TensorSource::open(
      put_model(folder, {{"a", {2, 32}}, {"b", {2, 32}, BlockType::q8_0}, {"c", {4}, BlockType::i32}}, every_type()));
  ConvertOptions options{.type = BlockType::bf16, .with_metadata = false, .rename = {}, .progress = {}};
  options.rename = [](const std::string& name) { return "model." + name; };
  for (const char* name : {"out.safetensors", "out.gguf"}) {
    convert_model(model, folder / name, options);
    const TensorSource out = TensorSource::open(folder / name);
    EXPECT_EQ(out.at("model.a").type, BlockType::bf16);
    EXPECT_EQ(out.at("model.b").type, BlockType::bf16);
    EXPECT_EQ(out.at("model.c").type, BlockType::i32);
    EXPECT_TRUE(out.gguf() ? out.gguf()->metadata().entries().empty() : out.safetensors_metadata().empty());
  }
  options.rename = [](const std::string&) { return std::string("same"); };
  for (const char* name : {"no.safetensors", "no.gguf"})
    EXPECT_NE(message_of<UsageError>([&] { convert_model(model, folder / name, options); }).find("tensors"),
              std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              convert_model(model, folder / "x.bin", {});
            }).find("let it end in .gguf or .safetensors"),
            std::string::npos);
  options.type = BlockType::q4_0;
  EXPECT_NE(message_of<UsageError>([&] {
              convert_model(model, folder / "x.gguf", options);
            }).find("F32, F16 or BF16, not to Q4_0; weft quantize"),
            std::string::npos);
  const auto bytes = std::vector<std::byte>(4);
  write_safetensors(folder / "u8.safetensors", std::vector<TensorView>{{"u", "U8", {4}, bytes}});
  EXPECT_NE(message_of<FileError>([&] {
              convert_model(TensorSource::open(folder / "u8.safetensors"), folder / "x.gguf", {});
            }).find("tensor \"u\" is U8, which is not converted"),
            std::string::npos);
}

TEST(ConvertModel, MetadataThatDoesNotFitItsTypesIsRefused) {
  const auto error = [](SafetensorsMetadata text) {
    return message_of<FileError>([&] { metadata_from_text(text, "m"); });
  };
  EXPECT_EQ(metadata_from_text({{"format", "pt"}}, "m").get<std::string>("format"), "pt");
  EXPECT_NE(error({{"gguf.types", "[]"}}).find("\"gguf.types\": is not an object"), std::string::npos);
  EXPECT_NE(error({{"gguf.types", "{"}}).find("not valid JSON"), std::string::npos);
  EXPECT_NE(error({{"gguf.types", R"({"k":"u8"})"}}).find("\"k\": is in gguf.types, but missing"), std::string::npos);
  EXPECT_NE(error({{"gguf.types", R"({"k":1})"}, {"k", "1"}}).find("its type in gguf.types is not a string"),
            std::string::npos);
  EXPECT_NE(error({{"gguf.types", R"({"k":"u9"})"}, {"k", "1"}}).find("its type \"u9\" is unknown"), std::string::npos);
  EXPECT_NE(error({{"gguf.types", R"({"k":"u8"})"}, {"k", "256"}}).find("\"256\" is not a u8"), std::string::npos);
  EXPECT_NE(error({{"gguf.types", R"({"k":"bool"})"}, {"k", "1"}}).find("\"1\" is not a bool"), std::string::npos);
  EXPECT_NE(error({{"gguf.types", R"({"k":"[f32]"})"}, {"k", "7"}}).find("is not an array"), std::string::npos);
  EXPECT_NE(error({{"gguf.types", R"({"k":"[f32]"})"}, {"k", "[1]"}}).find("element 0 is not a f32 written as text"),
            std::string::npos);
  EXPECT_NE(error({{"gguf.types", R"({"k":"[array]"})"}, {"k", "[]"}}).find("element type \"array\" is unknown"),
            std::string::npos);
  GgufMetadata bad;
  bad.set("k", std::string("\xFF"));
  EXPECT_NE(message_of<FileError>([&] { metadata_as_text(bad); }).find("\"k\": the text is not UTF-8; --no-metadata"),
            std::string::npos);
  bad.set("k", GgufArray(std::vector<std::string>{"a", "\xFF"}));
  EXPECT_NE(message_of<FileError>([&] { metadata_as_text(bad); }).find("element 1 is not UTF-8"), std::string::npos);
}

}  // namespace
}  // namespace weft::io
