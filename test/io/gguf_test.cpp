// GGUF: round trips, one bad file for each rule, damaged heads, split files, faults while saving.
#include "io/gguf.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/faulty_file_system.hpp"
#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft::io::gguf_test {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string text(const std::string& value) { return raw<std::uint64_t>(value.size()) + value; }

/// A file from its parts, as far as they are given.
std::string file_of(std::uint64_t tensors, std::uint64_t values, const std::string& rest, std::uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(tensors) + raw(values) + rest;
}
std::string value_of(const std::string& key, std::uint32_t type, const std::string& value) {
  return text(key) + raw(type) + value;
}
std::string tensor_of(const std::string& name, const std::vector<std::uint64_t>& dims, std::uint32_t type,
                      std::uint64_t offset) {
  std::string out = text(name) + raw(static_cast<std::uint32_t>(dims.size()));
  for (const std::uint64_t dim : dims) out += raw(dim);
  return out + raw(type) + raw(offset);
}
std::string padded(std::string head, std::size_t alignment = 32) {
  head.resize((head.size() + alignment - 1) / alignment * alignment);
  return head;
}

std::string error_of(const std::string& file) {
  return message_of<FileError>([&] { GgufFile::parse(as_bytes(file), "m.gguf"); });
}

GgufMetadata sample_metadata() {
  GgufMetadata metadata;
  metadata.set("general.architecture", std::string("llama"));
  metadata.set("a.u8", std::uint8_t{255});
  metadata.set("a.i8", std::int8_t{-128});
  metadata.set("a.u16", std::uint16_t{65535});
  metadata.set("a.i16", std::int16_t{-32768});
  metadata.set("a.u32", std::uint32_t{4294967295u});
  metadata.set("a.i32", std::int32_t{-2147483647 - 1});
  metadata.set("a.f32", 1e-45f);
  metadata.set("a.bool", true);
  metadata.set("a.text", std::string("z\xC3\xBCri \0 \n", 9));
  metadata.set("a.u64", std::numeric_limits<std::uint64_t>::max());
  metadata.set("a.i64", std::numeric_limits<std::int64_t>::min());
  metadata.set("a.f64", -0.0);
  metadata.set("l.u8", GgufArray(std::vector<std::uint8_t>{1, 2}));
  metadata.set("l.i8", GgufArray(std::vector<std::int8_t>{-1}));
  metadata.set("l.u16", GgufArray(std::vector<std::uint16_t>{7}));
  metadata.set("l.i16", GgufArray(std::vector<std::int16_t>{-7}));
  metadata.set("l.u32", GgufArray(std::vector<std::uint32_t>{1, 2, 3}));
  metadata.set("l.i32", GgufArray(std::vector<std::int32_t>{-1, 0, 1}));
  metadata.set("l.f32", GgufArray(std::vector<float>{0.5f}));
  metadata.set("l.bool", GgufArray(std::vector<bool>{true, false, true}));
  metadata.set("l.text", GgufArray(std::vector<std::string>{"", "a", "\xFF"}));
  metadata.set("l.u64", GgufArray(std::vector<std::uint64_t>{}));
  metadata.set("l.i64", GgufArray(std::vector<std::int64_t>{1}));
  metadata.set("l.f64", GgufArray(std::vector<double>{2}));
  return metadata;
}

/// One tensor of each type, of shape [2, 256]; and odd shapes.
struct Model {
  std::vector<std::string> data;
  std::vector<GgufTensor> tensors;
};
Model sample_model() {
  Model model;
  model.data.reserve(100);
  const auto add = [&](std::string name, Shape shape, BlockType type) {
    model.data.emplace_back(bytes_for(type, shape, "sample"), static_cast<char>('a' + model.data.size()));
    model.tensors.push_back({std::move(name), std::move(shape), type, as_bytes(model.data.back())});
  };
  for (const BlockFormat& format : block_formats()) add("t." + std::string(format.name), {2, 256}, format.type);
  add("scalar", {}, BlockType::f32);
  add("empty", {3, 0}, BlockType::q8_0);
  add("odd", {3, 1, 5}, BlockType::f16);
  add("four", {2, 1, 3, 32}, BlockType::q4_0);
  add(std::string(63, 'n'), {1}, BlockType::i8);
  return model;
}

TEST(Gguf, RoundTripOfEveryTypeOfValueAndTensor) {
  const TemporaryFolder folder;
  const Model model = sample_model();
  for (const std::uint32_t alignment : {0u, 8u, 64u, 4096u}) {
    GgufMetadata metadata = sample_metadata();
    if (alignment) metadata.set("general.alignment", alignment);
    write_gguf(folder / "m.gguf", metadata, model.tensors);
    const GgufFile file = GgufFile::open(folder / "m.gguf");
    EXPECT_EQ(file.version(), 3u);
    EXPECT_EQ(file.alignment(), alignment ? alignment : 32u);
    EXPECT_EQ(file.metadata().entries(), metadata.entries());
    ASSERT_EQ(file.tensors().size(), model.tensors.size());
    for (std::size_t i = 0; i < model.tensors.size(); ++i) {
      const GgufTensor &read = file.tensors()[i], &written = model.tensors[i];
      EXPECT_EQ(read.name, written.name);
      EXPECT_EQ(read.shape, written.shape);
      EXPECT_EQ(read.type, written.type);
      EXPECT_EQ(text_of(read.data), text_of(written.data));
      EXPECT_EQ(file.find(read.name), &read);
      EXPECT_EQ((read.data.data() - file.tensors()[0].data.data()) % file.alignment(), 0);
    }
    EXPECT_EQ(text_of(read_file(folder / "m.gguf")), text_of(gguf_bytes(metadata, model.tensors)));
  }
}

TEST(Gguf, LayoutIsTheFormats) {
  GgufMetadata metadata;
  metadata.set("a.b", std::uint32_t{7});
  metadata.set("c", GgufArray(std::vector<std::string>{"x"}));
  const std::string data = "12345678";
  const std::vector<GgufTensor> tensors = {{"w", {1, 2}, BlockType::f32, as_bytes(data)}};
  const std::string expected =
      padded(padded(file_of(1, 2,
                            value_of("a.b", 4, raw<std::uint32_t>(7)) +
                                value_of("c", 9, raw<std::uint32_t>(8) + raw<std::uint64_t>(1) + text("x")) +
                                tensor_of("w", {2, 1}, 0, 0))) +
             data);
  EXPECT_EQ(text_of(gguf_bytes(metadata, tensors)), expected);
  const GgufFile file = GgufFile::parse(as_bytes(expected), "m");
  EXPECT_EQ(file.at("w").shape, (Shape{1, 2}));
  EXPECT_EQ(text_of(file.at("w").data), data);
  // Version 2 is the same; the padding after the last tensor may be missing.
  std::string second = expected.substr(0, expected.size() - 24);
  second[4] = 2;
  EXPECT_EQ(GgufFile::parse(as_bytes(second), "m").version(), 2u);
}

TEST(Gguf, EmptyFiles) {
  EXPECT_TRUE(GgufFile::parse(as_bytes(file_of(0, 0, "")), "m").tensors().empty());
  EXPECT_EQ(text_of(gguf_bytes(GgufMetadata(), {})), padded(file_of(0, 0, "")));
}

TEST(GgufMetadata, LookUpsConvertOnlyWhatFits) {
  const std::vector<std::byte> bytes = gguf_bytes(sample_metadata(), {});
  const GgufFile file = GgufFile::parse(bytes, "m.gguf");
  const GgufMetadata& m = file.metadata();
  EXPECT_EQ(m.get<std::string>("general.architecture"), "llama");
  EXPECT_EQ(m.get<std::int64_t>("a.u32"), 4294967295);
  EXPECT_EQ(m.get<std::uint8_t>("a.u8"), 255);
  EXPECT_EQ(m.get<int>("a.i8"), -128);
  EXPECT_EQ(m.get<double>("a.f32"), 1e-45f);
  EXPECT_EQ(m.get<float>("a.f64"), 0.0f);
  EXPECT_TRUE(m.get<bool>("a.bool"));
  EXPECT_EQ(m.get_or<int>("none", 5), 5);
  EXPECT_EQ(m.get_if<int>("none"), std::nullopt);
  EXPECT_EQ(m.get_if<int>("a.i16"), -32768);
  EXPECT_EQ(m.array<std::string>("l.text")[1], "a");
  EXPECT_EQ(m.array<float>("l.f32"), std::vector<float>{0.5f});
  EXPECT_EQ(m.array_if<float>("none"), nullptr);
  EXPECT_EQ(m.array_if<bool>("l.bool")->size(), 3u);
  EXPECT_EQ(m.integers("l.i32"), (std::vector<std::int64_t>{-1, 0, 1}));
  EXPECT_EQ(m.integers("l.u8"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(m.integers("a.u16"), (std::vector<std::int64_t>{65535}));

  const auto error = [&](const auto& call) { return message_of<FileError>(call); };
  EXPECT_EQ(error([&] { m.get<int>("none"); }),
            "m.gguf: metadata \"none\" is missing; convert the model again with a current converter");
  EXPECT_EQ(error([&] { m.get<int>("a.f32"); }),
            "m.gguf: metadata \"a.f32\" is f32; it must be a whole number. Convert the model again with a current "
            "converter");
  EXPECT_NE(error([&] { m.get<int>("a.bool"); }).find("is bool; it must be a whole number"), std::string::npos);
  EXPECT_NE(error([&] { m.get<bool>("a.u8"); }).find("is u8; it must be a bool"), std::string::npos);
  EXPECT_NE(error([&] { m.get<float>("a.u8"); }).find("is u8; it must be a float"), std::string::npos);
  EXPECT_NE(error([&] { m.get<std::string>("l.text"); }).find("is array of 3 string; it must be a string"),
            std::string::npos);
  EXPECT_NE(error([&] { m.get_or<std::uint16_t>("a.u32", 0); }).find("is 4294967295, which does not fit u16"),
            std::string::npos);
  EXPECT_NE(error([&] { m.get_if<unsigned>("a.i8"); }).find("is -128, which does not fit u32"), std::string::npos);
  // Scores declared as bytes must not be read as floats.
  EXPECT_NE(error([&] { m.array<float>("l.u8"); }).find("is array of 2 u8; it must be an array of f32"),
            std::string::npos);
  EXPECT_NE(error([&] { m.array<float>("a.f32"); }).find("is f32; it must be an array of f32"), std::string::npos);
  EXPECT_NE(error([&] { m.integers("l.f32"); }).find("must be an array of whole numbers"), std::string::npos);
  EXPECT_NE(error([&] { m.integers("a.u64"); }).find("does not fit i64"), std::string::npos);
}

TEST(GgufMetadata, SetReplacesAndEraseKeepsTheOrder) {
  GgufMetadata m;
  m.set("a", 1u);
  m.set("b", 2u);
  m.set("c", 3u);
  m.set("b", std::string("two"));
  m.erase("a");
  m.erase("none");
  ASSERT_EQ(m.entries().size(), 2u);
  EXPECT_EQ(m.entries()[0].key, "b");
  EXPECT_EQ(m.get<std::string>("b"), "two");
  EXPECT_EQ(m.get<int>("c"), 3);
  EXPECT_FALSE(m.contains("a"));
}

struct BadFile {
  const char* name;
  std::string file;
  const char* message;
};

std::vector<BadFile> bad_files() {
  const std::string u32 = raw<std::uint32_t>(1);
  const auto one = [&](const std::string& key, std::uint32_t type, const std::string& value) {
    return file_of(0, 1, value_of(key, type, value));
  };
  const auto array = [&](std::uint32_t type, std::uint64_t count, const std::string& rest) {
    return one("k", 9, raw(type) + raw(count) + rest);
  };
  const auto tensor = [&](const std::vector<std::uint64_t>& dims, std::uint32_t type, std::uint64_t offset = 0) {
    return padded(file_of(1, 0, tensor_of("w", dims, type, offset))) + std::string(64, 'x');
  };
  const std::uint64_t huge = std::uint64_t{1} << 62;
  return {
      {"empty file", "", "byte 0: not a GGUF file: it begins with \"\""},
      {"other file", "PK\3\4 and more", "not a GGUF file: it begins with \"PK\\x03\\x04\", not with \"GGUF\""},
      {"magic alone", "GGUF", "version takes 4 bytes, but the file ends after 0"},
      {"version 1", "GGUF" + raw<std::uint32_t>(1) + std::string(100, '\0'), "version 1 is older than 2"},
      {"version 0", file_of(0, 0, "", 0), "version 0 is older than 2"},
      {"version 4", file_of(0, 0, "", 4), "version 4 is newer than 3"},
      {"big-endian", file_of(0, 0, "", 0x03000000), "version 0x03000000 is that of a big-endian file; convert it"},
      {"tensors over the file", file_of(huge, 0, std::string(100, 'x')),
       "4611686018427387904 tensors do not fit into the"},
      {"negative tensors", file_of(std::uint64_t(-1), 0, ""),
       "18446744073709551615 tensors do not fit into the 0 bytes"},
      {"values over the file", file_of(0, 3, std::string(29, 'x')), "3 metadata values do not fit into the 29 bytes"},
      {"key over the file", file_of(0, 1, raw<std::uint64_t>(1000) + std::string(20, 'k')),
       "metadata 1 of 1: key takes 1000 bytes, but the file ends after 20"},
      {"key over the limit", file_of(0, 1, raw<std::uint64_t>(65536) + std::string(70000, 'k')),
       "key has 65536 bytes; at most 65535 are allowed"},
      {"empty key", one("", 4, u32 + "xxxx"), "the key is empty"},
      {"key with a space", one("a b", 4, u32), "the key holds more than letters"},
      {"key not ASCII", one("\xC3\xBC", 4, u32), "metadata \"\xC3\xBC\": the key holds more than letters"},
      {"key with an empty part", one("a..b", 4, u32), "the key has an empty part"},
      {"key ends in a dot", one("a.", 4, u32), "the key has an empty part"},
      {"key twice", file_of(0, 2, value_of("k", 4, u32) + value_of("k", 6, u32)),
       "metadata \"k\": the key occurs twice"},
      {"unknown type", one("k", 13, u32), "a value of the unknown type 13"},
      {"type of all ones", one("k", 0xFFFFFFFF, u32), "a value of the unknown type 4294967295"},
      {"bool of 2", one("k", 7, "\2"), "byte 37: metadata \"k\": the value is a bool with the byte 2"},
      {"cut number", one("k", 10, u32), "the value takes 8 bytes, but the file ends after 4"},
      {"text over the file", one("k", 8, raw<std::uint64_t>(5) + "abcd"), "the value takes 5 bytes"},
      {"text over the limit", one("k", 8, raw(huge)), "the value has 4611686018427387904 bytes; at most 1073741824"},
      {"array of arrays", array(9, 1, std::string(20, '\0')), "it is an array of arrays"},
      {"array of an unknown type", array(77, 1, std::string(20, '\0')), "elements of the unknown type 77"},
      {"array over the limit", array(0, huge, "x"), "the array has 4611686018427387904 elements; at most 1073741824"},
      {"array over the file", array(6, 3, std::string(8, 'x')), "3 elements do not fit into the 8 bytes"},
      {"array of texts over the file", array(8, 1u << 30, text("x")),
       "1073741824 elements do not fit into the 9 bytes"},
      {"array of bools with a 3", array(7, 2, "\1\3"), "an element is a bool with the byte 3"},
      {"cut array of texts", array(8, 2, text("x") + raw<std::uint64_t>(9)), "an element takes 9 bytes"},
      {"alignment of another type", one("general.alignment", 10, raw<std::uint64_t>(32)),
       "metadata \"general.alignment\" is u64; it must be a u32, a power of two from 8 to 65536"},
      {"alignment 0", one("general.alignment", 4, raw<std::uint32_t>(0)), "is 0; it must be a u32"},
      {"alignment 4", one("general.alignment", 4, raw<std::uint32_t>(4)), "is 4; it must be a u32"},
      {"alignment 48", one("general.alignment", 4, raw<std::uint32_t>(48)), "is 48; it must be a u32"},
      {"alignment 2^31", one("general.alignment", 4, raw<std::uint32_t>(1u << 31)), "is 2147483648; it must be a u32"},
      {"no name", padded(file_of(1, 0, tensor_of("", {4}, 0, 0))) + std::string(32, 'x'), "the name is empty"},
      {"long name", padded(file_of(1, 0, tensor_of(std::string(64, 'n'), {4}, 0, 0))) + std::string(32, 'x'),
       "name has 64 bytes; at most 63 are allowed"},
      {"name not UTF-8", padded(file_of(1, 0, tensor_of("\xFF", {4}, 0, 0))) + std::string(32, 'x'),
       "tensor \"\\xff\": the name is not UTF-8"},
      {"name with a 0", padded(file_of(1, 0, tensor_of(std::string("a\0b", 3), {4}, 0, 0))) + std::string(32, 'x'),
       "the name holds a 0 byte"},
      {"name twice",
       padded(file_of(2, 0, tensor_of("w", {4}, 0, 0) + tensor_of("w", {4}, 0, 32))) + std::string(64, 'x'),
       "tensor \"w\": the name occurs twice"},
      {"rank 5", tensor({1, 1, 1, 1, 1}, 0), "rank 5 is over the limit of 4"},
      {"rank of all ones", padded(file_of(1, 0, text("w") + std::string(40, '\xFF'))), "rank 4294967295 is over"},
      {"negative extent", tensor({std::uint64_t(-1)}, 0), "extent 18446744073709551615 overflows 63 bits"},
      {"extents overflow", tensor({1ull << 32, 1ull << 32}, 0),
       "the number of elements of shape [4294967296, 4294967296]"},
      {"extents overflow beside a 0", tensor({0, 1ull << 62, 4}, 0), "overflows 64 bits"},
      {"bytes overflow", tensor({huge}, 28), "4611686018427387904 x 8 overflows 64 bits"},
      {"unknown tensor type", tensor({4}, 99), "type 99 is unknown"},
      {"unread tensor type", tensor({256}, 16), "its type IQ2_XXS (16) is not read here; use a file in one of F32"},
      {"withdrawn tensor type", tensor({256}, 4), "its type Q4_2 (withdrawn) (4) is not read here"},
      {"rows that do not divide", tensor({33, 2}, 8), "rows of 33 elements do not divide into blocks of 32 (Q8_0)"},
      {"offset not 0", tensor({4}, 0, 32), "its data is at offset 32, but that of the tensors before it ends"},
      {"offset not aligned",
       padded(file_of(2, 0, tensor_of("v", {4}, 0, 0) + tensor_of("w", {4}, 0, 16))) + std::string(64, 'x'),
       "tensor \"w\": its data is at offset 16, but that of the tensors before it ends, aligned to 32, at 32"},
      {"overlap", padded(file_of(2, 0, tensor_of("v", {4}, 0, 0) + tensor_of("w", {4}, 0, 0))) + std::string(64, 'x'),
       "tensor \"w\": its data is at offset 0"},
      {"hole", padded(file_of(2, 0, tensor_of("v", {4}, 0, 0) + tensor_of("w", {4}, 0, 64))) + std::string(128, 'x'),
       "tensor \"w\": its data is at offset 64"},
      {"data cut off", tensor({17}, 0), "tensor \"w\": its data ends at byte 132 of 128; the file is cut off"},
      {"data missing", file_of(1, 0, tensor_of("w", {1}, 0, 0)), "tensor \"w\": its data ends at byte 68 of 57"},
      {"data far behind the end", tensor({1ull << 40}, 24), "its data ends at byte 1099511627840 of 128"},
      {"hostile key in a message", one("\x1b[2J", 4, u32), "metadata \"\\x1b[2J\": the key holds"},
  };
}

TEST(Gguf, EachRuleHasItsOwnMessage) {
  for (const BadFile& bad : bad_files()) {
    const std::string message = error_of(bad.file);
    EXPECT_TRUE(message.starts_with("m.gguf: ")) << bad.name << ": " << message;
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.name << ": " << message;
    EXPECT_LT(message.size(), 500u) << bad.name;
  }
}

TEST(Gguf, ErrorsOfOpenNameThePath) {
  const TemporaryFolder folder;
  const auto path = folder.put("cut.gguf", "GGUF");
  EXPECT_NE(message_of<FileError>([&] { GgufFile::open(path); }).find("cut.gguf: byte 4: version takes 4 bytes"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { GgufFile::open(folder / "none"); }).find("there is no such file"),
            std::string::npos);
}

TEST(Gguf, MissingTensorNamesThoseThatAreThere) {
  const Model model = sample_model();
  const auto bytes = gguf_bytes(GgufMetadata(), model.tensors);
  EXPECT_EQ(message_of<FileError>([&] { GgufFile::parse(bytes, "m").at("c"); }),
            "m: there is no tensor \"c\"; it holds \"t.F32\", \"t.F16\", \"t.BF16\", \"t.F64\", \"t.I8\" and 21 more");
  EXPECT_EQ(message_of<FileError>([&] { GgufFile::parse(as_bytes(file_of(0, 0, "")), "m").at("c"); }),
            "m: there is no tensor \"c\"; it holds none");
}

TEST(Gguf, WriterRefusesWhatTheReaderWould) {
  const std::string data(8, 'x');
  const auto error = [&](GgufMetadata metadata, std::vector<GgufTensor> tensors) {
    return message_of<UsageError>([&] { gguf_bytes(metadata, tensors); });
  };
  const auto with = [](const std::string& key, GgufValue value) {
    GgufMetadata metadata;
    metadata.set(key, std::move(value));
    return metadata;
  };
  const auto f32 = [&](std::string name, Shape shape) {
    return GgufTensor{std::move(name), std::move(shape), BlockType::f32, as_bytes(data)};
  };
  EXPECT_EQ(error(with("a b", 1u), {}),
            "gguf: metadata \"a b\": the key holds more than letters, digits, '_', '-' and '.'");
  EXPECT_NE(error(with("general.alignment", 33u), {}).find("must be a u32, a power of two"), std::string::npos);
  EXPECT_NE(error(with("general.alignment", std::uint64_t{32}), {}).find("must be a u32"), std::string::npos);
  EXPECT_EQ(error({}, {f32("", {2})}), "gguf: tensor \"\": the name is empty");
  EXPECT_NE(error({}, {f32(std::string(64, 'n'), {2})}).find("the name has more than 63 bytes"), std::string::npos);
  EXPECT_NE(error({}, {f32("a", {2}), f32("a", {2})}).find("two tensors have this name"), std::string::npos);
  EXPECT_NE(error({}, {f32("a", {1, 1, 1, 1, 2})}).find("rank 5 is over the limit of 4"), std::string::npos);
  EXPECT_NE(error({}, {f32("a", {-2})}).find("extent -2 of shape [-2] is negative"), std::string::npos);
  EXPECT_NE(error({}, {f32("a", {3})}).find("F32 [3] takes 12 bytes, but 8 bytes of data are given"),
            std::string::npos);
  EXPECT_NE(error({}, {{"a", {33}, BlockType::q4_0, as_bytes(data)}}).find("do not divide into blocks of 32"),
            std::string::npos);
}

TEST(Gguf, WriterTakesPiecesAndWatchesTheirSizes) {
  const TemporaryFolder folder;
  const std::vector<GgufTensorInfo> infos = {
      {"a", {0}, BlockType::f32}, {"b", {3}, BlockType::f32}, {"c", {1}, BlockType::i8}, {"d", {0}, BlockType::f32}};
  {
    GgufWriter writer(folder / "m", GgufMetadata(), infos);
    writer.write(as_bytes("12345"));
    EXPECT_NE(message_of<UsageError>([&] {
                writer.write(as_bytes("12345678"));
              }).find("tensor \"b\": 8 bytes are given, but 7 of its 12 are still to come"),
              std::string::npos);
    EXPECT_NE(message_of<UsageError>([&] { writer.commit(); }).find("tensor \"b\": 7 of its 12 bytes are missing"),
              std::string::npos);
    writer.write(as_bytes("6789012"));
    writer.write({});
    writer.write(as_bytes("x"));
    EXPECT_NE(message_of<UsageError>([&] { writer.write(as_bytes("y")); }).find("1 bytes follow the data of the last"),
              std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(folder / "m"));
    writer.commit();
  }
  const GgufFile file = GgufFile::open(folder / "m");
  EXPECT_EQ(text_of(file.at("b").data), "123456789012");
  EXPECT_EQ(text_of(file.at("c").data), "x");
  { GgufWriter unfinished(folder / "n", GgufMetadata(), infos); }
  EXPECT_FALSE(std::filesystem::exists(folder / "n"));
  EXPECT_TRUE(find_leftovers(folder.path()).empty());
}

TEST(Gguf, FileOverItsOwnMapping) {
  const TemporaryFolder folder;
  const Model model = sample_model();
  write_gguf(folder / "m", sample_metadata(), model.tensors);
  const GgufFile file = GgufFile::open(folder / "m");
  write_gguf(folder / "m", file.metadata(), file.tensors());
  EXPECT_EQ(text_of(GgufFile::open(folder / "m").at("four").data), text_of(file.at("four").data));
}

struct Part {
  const char* name;
  std::uint16_t number, count;
  std::vector<const char*> tensors;
};
void put_part(const TemporaryFolder& folder, const Part& part, std::int32_t total) {
  GgufMetadata metadata;
  metadata.set("split.no", part.number);
  metadata.set("split.count", part.count);
  metadata.set("split.tensors.count", total);
  metadata.set("part", std::uint32_t{part.number});
  std::vector<GgufTensor> tensors;
  for (const char* name : part.tensors)
    tensors.push_back({name, {1}, BlockType::i8, std::as_bytes(std::span(name, 1))});
  write_gguf(folder / part.name, metadata, tensors);
}

TEST(GgufSplit, AnyPartOpensAll) {
  const TemporaryFolder folder;
  put_part(folder, {"m-x-00001-of-00003.gguf", 0, 3, {"a", "b"}}, 4);
  put_part(folder, {"m-x-00002-of-00003.gguf", 1, 3, {}}, 4);
  put_part(folder, {"m-x-00003-of-00003.gguf", 2, 3, {"c", "d"}}, 4);
  for (const char* name : {"m-x-00001-of-00003.gguf", "m-x-00002-of-00003.gguf", "m-x-00003-of-00003.gguf"}) {
    const GgufFile file = GgufFile::open(folder / name);
    EXPECT_EQ(file.part_count(), 3u);
    EXPECT_EQ(file.metadata().get<int>("part"), 0);
    ASSERT_EQ(file.tensors().size(), 4u);
    for (const char* tensor : {"a", "b", "c", "d"}) EXPECT_EQ(text_of(file.at(tensor).data), tensor);
  }
}

TEST(GgufSplit, PartsThatDoNotBelongTogetherAreRefused) {
  const auto error = [](const std::vector<Part>& parts, std::int32_t total = 2) {
    const TemporaryFolder folder;
    for (const Part& part : parts) put_part(folder, part, total);
    return message_of<FileError>([&] { GgufFile::open(folder / parts[0].name); });
  };
  EXPECT_NE(error({{"m-00001-of-00002.gguf", 0, 2, {"a"}}}).find("part 2 of 2 is missing"), std::string::npos);
  EXPECT_NE(error({{"m.gguf", 0, 2, {"a"}}}).find("its name does not end in \"-00001-of-00002.gguf\""),
            std::string::npos);
  EXPECT_NE(error({{"m-00002-of-00002.gguf", 0, 2, {"a"}}}).find("its name does not end in \"-00001-of-00002.gguf\""),
            std::string::npos);
  EXPECT_NE(error({{"m-00001-of-00002.gguf", 0, 2, {"a"}}, {"m-00002-of-00002.gguf", 0, 2, {"b"}}})
                .find("split.no and split.count are not those of part 2 of 2"),
            std::string::npos);
  EXPECT_NE(error({{"m-00001-of-00002.gguf", 0, 2, {"a"}}, {"m-00002-of-00002.gguf", 1, 3, {"b"}}})
                .find("split.no and split.count are not those of part 2 of 2"),
            std::string::npos);
  EXPECT_NE(error({{"m-00001-of-00002.gguf", 0, 2, {"a"}}, {"m-00002-of-00002.gguf", 1, 2, {"a"}}})
                .find("tensor \"a\" is in two parts"),
            std::string::npos);
  EXPECT_NE(error({{"m-00001-of-00002.gguf", 0, 2, {"a"}}, {"m-00002-of-00002.gguf", 1, 2, {"b"}}}, 3)
                .find("the parts hold 2 tensors, but split.tensors.count is 3"),
            std::string::npos);
}

/// Valid, small, with every kind of thing in its head.
std::string small_file() {
  GgufMetadata metadata;
  metadata.set("general.alignment", 8u);
  metadata.set("a.text", std::string("xy"));
  metadata.set("a.bool", true);
  metadata.set("a.list", GgufArray(std::vector<std::string>{"p", "q"}));
  metadata.set("a.flags", GgufArray(std::vector<bool>{true, false}));
  metadata.set("a.numbers", GgufArray(std::vector<std::uint16_t>{1, 2, 3}));
  const std::string data(36, 'd');
  const std::vector<GgufTensor> tensors = {{"w", {2, 2}, BlockType::f32, as_bytes(data).first(16)},
                                           {"q", {2, 32}, BlockType::q4_0, as_bytes(data)},
                                           {"e", {0, 4}, BlockType::f16, {}}};
  return text_of(gguf_bytes(metadata, tensors));
}

/// Touches every byte that a tensor claims, so that a sanitizer sees one outside the file; true if the file loads.
bool load_or_refuse(const std::string& file) {
  const std::string heap(file);  // of its own, so that reading past its end is seen
  try {
    const GgufFile read = GgufFile::parse(as_bytes(heap), "m");
    std::size_t sum = 0;
    for (const GgufTensor& t : read.tensors()) {
      for (const std::byte b : t.data) sum += static_cast<std::size_t>(b);
      std::vector<float> values(static_cast<std::size_t>(t.shape.numel()));
      dequantise(t.type, t.data, values);
    }
    EXPECT_LE(sum, 255 * file.size());
    return true;
  } catch (const FileError&) {
    return false;
  }
}

TEST(GgufMutations, EveryTruncationIsRefused) {
  const std::string file = small_file();
  ASSERT_TRUE(load_or_refuse(file));
  const std::size_t end = file.size() - 4;  // of the data; then padding
  for (std::size_t length = 0; length < end; ++length) EXPECT_FALSE(load_or_refuse(file.substr(0, length))) << length;
}

TEST(GgufMutations, EveryFlippedBitLoadsOrIsRefused) {
  const std::string file = small_file();
  int refused = 0;
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string mutated = file;
    mutated[bit / 8] = static_cast<char>(mutated[bit / 8] ^ (1 << bit % 8));
    refused += !load_or_refuse(mutated);
  }
  EXPECT_GT(refused, 1000);
}

TEST(GgufMutations, EveryReplacedByteLoadsOrIsRefused) {
  const std::string file = small_file();
  for (std::size_t at = 0; at < file.size(); ++at)
    for (const char c : std::string("\0\1\x7f\x80\xff", 5)) {
      std::string mutated = file;
      mutated[at] = c;
      load_or_refuse(mutated);
      for (std::size_t i = at; i < std::min(at + 8, file.size()); ++i) mutated[i] = c;
      load_or_refuse(mutated);
    }
}

TEST(GgufFaults, EveryCallOfASaveMayFail) {
  const std::string old_data = "old", new_data = "new";
  const auto tensors = [](const std::string& data) {
    return std::vector<GgufTensor>{{"a", {3}, BlockType::i8, as_bytes(data)}};
  };
  for (const test::Fault& fault : test::kFaults)
    for (int n = 1;; ++n) {
      const TemporaryFolder folder;
      write_gguf(folder / "m", GgufMetadata(), tensors(old_data));
      test::FaultyFileSystem system(n, fault);
      std::string message;
      {
        const ScopedFileSystem use(system);
        message = message_of<FileError>([&] { write_gguf(folder / "m", GgufMetadata(), tensors(new_data)); });
      }
      const std::string now = text_of(GgufFile::open(folder / "m").at("a").data);
      ASSERT_TRUE(message == "no error" ? now == "new"
                                        : now == "old" || message.find("may not survive") != std::string::npos)
          << fault.name << " at call " << n << ": " << message;
      if (!system.failed()) break;
      ASSERT_LT(n, 100);
    }
}

}  // namespace
}  // namespace weft::io::gguf_test
