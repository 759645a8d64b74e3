// Metatensor files: round trips of every type, places and alignments, each broken rule by its code, versions, damage and faults.
#include "weft/metatensor.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/faulty_file_system.hpp"
#include "base/file.hpp"
#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "base/temporary_folder.hpp"
#include "io/safetensors.hpp"
#include "metatensor/source.hpp"
#include "runtime/host_memory.hpp"
#include "weft/elementwise.hpp"
#include "weft/io.hpp"

namespace weft::metatensor {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::span<const std::byte> bytes_in(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Values that every type holds.
Tensor sample(DType type, const Shape& shape) {
  std::vector<std::byte> bytes(bytes_of(type, static_cast<std::size_t>(shape.numel())), std::byte{1});
  return tensor_from_bytes(bytes.data(), shape, type, kCpu);
}

std::vector<std::byte> host_bytes(const Tensor& tensor) {
  std::vector<std::byte> bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
  tensor.copy_to(bytes.data(), bytes.size());
  return bytes;
}

const char* kSample = R"({"TypeDef:Struct": true, "properties": {
  "label": {"TypeDef:Enum": true, "enum": ["cat", "dog"]},
  "caption": {"TypeDef:String": true, "maxLength": 13},
  "pixels": {"TypeDef:Tensor": {"dtype": "f32", "shape": [2, 2]}},
  "good": {"TypeDef:Boolean": true}}})";

Value sample_value(int i) {
  const auto f = static_cast<float>(i);
  return Value::object({{"label", i % 2 ? "dog" : "cat"},
                        {"caption", "number " + std::to_string(i)},
                        {"pixels", tensor({{f, f + 1}, {f + 2, f + 3}})},
                        {"good", i % 3 == 0}});
}

void save_mixed(const std::filesystem::path& path) {
  const std::vector<Value> samples = {sample_value(0), sample_value(1), sample_value(2)};
  const std::vector<std::string> images = {"first", "", "a longer third"};
  Writer()
      .tensor("layers.0.weight", tensor({{1.0f, 2.0f}, {3.0f, 4.0f}}))
      .tensor("layers.0.scale", sample(DType::f16, {3}))
      .records("samples", typedefs::Layout(Value::parse(kSample)), samples)
      .blob("images", images)
      .tensor("mask", tensor<bool>({true, false, true}))
      .tensor("counts", sample(DType::i64, {2}), 256)
      .metadata("note", "a text")
      .save(path);
}

TEST(Metatensor, RoundTripOfEveryType) {
  const TemporaryFolder folder;
  Writer writer;
  for (const DType type : kAllDTypes) {
    writer.tensor("t." + std::string(name_of(type)), sample(type, {2, 256}));
    if (!is_block(type)) writer.tensor("odd." + std::string(name_of(type)), sample(type, {3}));
    writer.tensor("empty." + std::string(name_of(type)), sample(type, {0, 256}));
  }
  writer.save(folder / "m");
  EXPECT_TRUE(validate(folder / "m").empty());
  const File file = File::open(folder / "m");
  for (const DType type : kAllDTypes) {
    const std::string name(name_of(type));
    const Tensor read = file.tensor("t." + name, kCpu);
    EXPECT_EQ(read.dtype(), type);
    EXPECT_EQ(read.shape(), Shape({2, 256}));
    EXPECT_EQ(host_bytes(read), host_bytes(sample(type, {2, 256}))) << name;
    if (!is_block(type)) {
      EXPECT_EQ(host_bytes(file.tensor("odd." + name, kCpu)), host_bytes(sample(type, {3}))) << name;
    }
    EXPECT_EQ(file.tensor("empty." + name, kCpu).numel(), 0) << name;
  }
}

TEST(Metatensor, NestedStructsRecordsAndBlobs) {
  const TemporaryFolder folder;
  save_mixed(folder / "m");
  EXPECT_TRUE(validate(folder / "m").empty());
  const File file = File::open(folder / "m");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"note", "a text"}}));
  EXPECT_EQ(file.paths(),
            (std::vector<std::string>{"layers.0.weight", "layers.0.scale", "samples", "images", "mask", "counts"}));
  EXPECT_EQ(file.at("layers.0").kind, Kind::structure);
  EXPECT_EQ(file.at("samples").count, 3u);
  EXPECT_EQ(file.tensor("layers.0.weight").to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(file.tensor("mask").to_vector<bool>(), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(file.tensor("samples.2.pixels").to_vector<float>(), (std::vector<float>{2, 3, 4, 5}));
  EXPECT_EQ(file.record("samples", 1).at("label").string(), "dog");
  EXPECT_EQ(file.record("samples", 1).at("caption").string(), "number 1");
  EXPECT_EQ(file.column("samples", "pixels", 1, 2).to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 2, 3, 4, 5}));
  EXPECT_EQ(file.column("samples", "pixels", 1, 2).shape(), Shape({2, 2, 2}));
  EXPECT_EQ(text_of(file.bytes("images.0")), "first");
  EXPECT_EQ(text_of(file.bytes("images.1")), "");
  EXPECT_EQ(text_of(file.bytes("images.2")), "a longer third");
  std::string pieces;
  file.read(
      "images", [&](std::span<const std::byte> piece) { pieces += text_of(piece) + "|"; }, 7);
  EXPECT_EQ(pieces, "firsta |longer |third|");
}

// Offsets are relative to the data region.
TEST(Metatensor, OffsetsAreRelativeToTheDataRegion) {
  const TemporaryFolder folder;
  save_mixed(folder / "m");
  const File file = File::open(folder / "m");
  const std::vector<std::byte> all = read_file(folder / "m");
  std::uint64_t header = 0;
  std::memcpy(&header, all.data(), 8);
  EXPECT_EQ((8 + header) % 256, 0u) << "the region begins at a multiple of 256";
  EXPECT_EQ(file.range("layers.0.weight"), (typedefs::Range{0, 16}));
  for (const std::string path : {"layers.0.weight", "samples.1", "samples.1.caption", "images.2", "counts"}) {
    const typedefs::Range range = file.range(path);
    EXPECT_EQ(text_of(std::span(all).subspan(8 + header + range.begin, range.size())), text_of(file.bytes(path)))
        << path;
  }
  EXPECT_EQ(file.range("samples").begin % 16, 0u);
  EXPECT_EQ(file.range("samples.1").begin - file.range("samples.0").begin, 44u)
      << "41 bytes, rounded up to the alignment 4";
  EXPECT_EQ(file.range("counts").begin % 256, 0u);
}

TEST(Metatensor, TensorsOnTheCpuUseTheMapping) {
  const TemporaryFolder folder;
  save_mixed(folder / "m");
  Tensor weight, pixels;
  {
    const File file = File::open(folder / "m");
    weight = file.tensor("layers.0.weight", kCpu);
    pixels = file.tensor("samples.1.pixels", kCpu);
    EXPECT_EQ(runtime::view_host(weight).data, static_cast<const void*>(file.bytes("layers.0.weight").data()));
    EXPECT_EQ(runtime::view_host(pixels).data, static_cast<const void*>(file.bytes("samples.1.pixels").data()));
  }
  EXPECT_EQ((weight + 1).to_vector<float>(), (std::vector<float>{2, 3, 4, 5})) << "the tensor keeps the mapping";
}

TEST(Metatensor, EverySafetensorsReaderOpensIt) {
  const TemporaryFolder folder;
  save_mixed(folder / "m");
  const io::SafetensorsFile plain = io::SafetensorsFile::open(folder / "m");
  EXPECT_EQ(plain.at("layers.0.weight").dtype, "F32");
  EXPECT_EQ(plain.at("layers.0.weight").shape, Shape({2, 2}));
  EXPECT_EQ(plain.at("images.index").shape, Shape({3, 2}));
  EXPECT_EQ(load_safetensors(folder / "m").tensors.at("layers.0.weight").to_vector<float>(),
            (std::vector<float>{1, 2, 3, 4}));
  save_safetensors(folder / "s", {{"a.b", tensor({1.0f})}, {"a", tensor({2.0f})}}, {{"k", "v"}});
  const File file = File::open(folder / "s");
  EXPECT_FALSE(file.has_schema());
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_EQ(file.tensor("a.b").to_vector<float>(), (std::vector<float>{1}));
  EXPECT_TRUE(validate(folder / "s").empty());
}

TEST(Metatensor, WritersStreamWhatIsLargerThanMemory) {
  const TemporaryFolder folder;
  const std::vector<std::byte> piece(std::size_t{1} << 20, std::byte{3});
  {
    const test::MemoryLimit limit(std::size_t{32} << 20);
    Writer()
        .tensor("w", DType::u8, {64, 1 << 20},
                [&](const auto& put) {
                  for (int i = 0; i < 64; ++i) put(piece);
                })
        .save(folder / "m");
  }
  std::uint64_t sum = 0, most = 0;
  File::open(folder / "m").read("w", [&](std::span<const std::byte> part) {
    most = std::max<std::uint64_t>(most, part.size());
    for (const std::byte b : part) sum += static_cast<std::uint64_t>(b);
  });
  EXPECT_EQ(sum, 3u * (64u << 20));
  EXPECT_EQ(most, 4u << 20);
}

TEST(Metatensor, WritersRefuseWhatReadersWould) {
  const auto refused = [](const auto& add) {
    return message_of<UsageError>([&] {
      Writer writer;
      writer.tensor("a", tensor({1.0f}));
      add(writer);
    });
  };
  const auto none = [](const auto&) {};
  EXPECT_EQ(refused([](Writer& w) { w.tensor("a", tensor({1.0f})); }), "there already is \"a\"");
  EXPECT_EQ(refused([](Writer& w) { w.tensor("a.b", tensor({1.0f})); }),
            "\"a.b\" is below \"a\", which is not a struct");
  EXPECT_NE(refused([](Writer& w) { w.tensor("", tensor({1.0f})); }).find("the path is empty"), std::string::npos);
  EXPECT_NE(refused([](Writer& w) { w.tensor("b..c", tensor({1.0f})); }).find("an empty name"), std::string::npos);
  EXPECT_NE(refused([](Writer& w) { w.tensor("__padding__.0", tensor({1.0f})); }).find("begins with __"),
            std::string::npos);
  EXPECT_NE(refused([](Writer& w) { w.tensor("b", Tensor()); }).find("no value"), std::string::npos);
  EXPECT_NE(refused([&](Writer& w) { w.tensor("b", DType::f32, {1}, none, 512); }).find("and not 512"),
            std::string::npos);
  EXPECT_NE(refused([&](Writer& w) {
              w.tensor("b", DType::f32, {1LL << 40, 1LL << 40}, none);
            }).find("overflows"),
            std::string::npos);
  EXPECT_NE(refused([&](Writer& w) { w.tensor("b", DType::q4_0, {33}, none); }).find("blocks of 32"),
            std::string::npos);
  EXPECT_NE(refused([](Writer& w) { w.metadata("metatensor", ""); }).find("holds the schema"), std::string::npos);
  EXPECT_NE(refused([](Writer& w) { w.optional("b"); }).find("was not added"), std::string::npos);
  const typedefs::Layout packed(Value::parse(R"({"TypeDef:String": true})"), typedefs::Mode::packed);
  EXPECT_NE(refused([&](Writer& w) { w.records("b", packed, 1, none); }).find("fixed size"), std::string::npos);
  const TemporaryFolder folder;
  EXPECT_NE(refused([&](Writer& w) {
              w.tensor("b", DType::f32, {2}, none).save(folder / "m");
            }).find("takes 8 bytes, but 0 bytes"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "m"));
}

// ---- Broken rules -------------------------------------------------------------------------------------------------------------

std::string file_of(const std::string& header, const std::string& data = "", std::uint64_t length = 0) {
  std::string text(8, '\0');
  const std::uint64_t size = length ? length : header.size();
  std::memcpy(text.data(), &size, 8);
  return text + header + data;
}

/// A header with this schema; its data begins at byte 512.
std::string described(const std::string& schema, const std::string& tensors, const std::string& data = "",
                      const std::string& before = R"("version":1,"endian":"little")") {
  const std::string extension = "{" + before + ",\"schema\":" + schema + "}";
  std::string header = "{\"__metadata__\":{\"metatensor\":" + Value(extension).to_json() + "}" +
                       (tensors.empty() ? "" : ",") + tensors + "}";
  header.resize(std::max<std::size_t>(504, header.size()), ' ');
  return file_of(header, data);
}

struct BadFile {
  const char* code;
  std::string file;
  std::uint64_t byte;
  const char* name;
};

const std::string kU8 = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
const std::string kFlat = R"({"kind":"struct","fields":{"a":{"kind":"flat","dtype":"u8","shape":[4]}}})";
constexpr std::uint64_t kAny = UINT64_MAX;

std::vector<BadFile> bad_files() {
  const std::string blob = R"({"kind":"struct","fields":{"b":{"kind":"blob","count":2}}})";
  const std::string blob_tensors =
      R"("b.index":{"dtype":"U64","shape":[2,2],"data_offsets":[0,32]},"b.data":{"dtype":"U8","shape":[4],"data_offsets":[32,36]})";
  const auto row = [](std::uint64_t offset, std::uint64_t length) {
    std::string text(16, '\0');
    std::memcpy(text.data(), &offset, 8);
    std::memcpy(text.data() + 8, &length, 8);
    return text;
  };
  const std::string records =
      R"({"kind":"struct","fields":{"r":{"kind":"struct","count":2,"layout":{"TypeDef:Boolean":true},"align":1}}})";
  std::string deep = R"({"kind":"struct","fields":{}})";
  for (int i = 0; i < 40; ++i) deep = R"({"kind":"struct","fields":{"a":)" + deep + "}}";
  return {
      // The rules of safetensors.
      {"HEADER_TOO_SMALL", "1234567", 0, ""},
      {"HEADER_TOO_LARGE", file_of("{}", "", 100'000'001), 0, ""},
      {"INVALID_HEADER_LENGTH", file_of("{}", "", 3), 0, ""},
      {"INVALID_HEADER_START", file_of(" {}"), 8, ""},
      {"HEADER_NOT_UTF8", file_of("{\"\xff\":1}"), 10, ""},
      {"INVALID_JSON", file_of("{nope}"), kAny, ""},
      {"HEADER_LIMIT", file_of(R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", "1"), kAny, ""},
      {"DUPLICATE_NAME", file_of("{\"a\":" + kU8 + ",\"a\":" + kU8 + "}", "1234"), kAny, ""},
      {"INVALID_HEADER", file_of(R"({"__metadata__":{"k":1}})"), kAny, ""},
      {"INVALID_ENTRY", file_of(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})"), kAny, "a"},
      {"UNKNOWN_DTYPE", file_of(R"({"a":{"dtype":"F33","shape":[4],"data_offsets":[0,4]}})", "1234"), kAny, "a"},
      {"REVERSED_RANGE", file_of(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[4,0]}})"), kAny, "a"},
      {"OVERLAP", file_of("{\"a\":" + kU8 + ",\"b\":" + kU8 + "}", "1234"), kAny, "b"},
      {"HOLE", file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", "12345"), kAny, "a"},
      {"SIZE_OVERFLOW", file_of(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234"),
       kAny, "a"},
      {"PARTIAL_BYTE", file_of(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "12"), kAny, "a"},
      {"SIZE_MISMATCH", file_of(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})", "1234"), kAny, "a"},
      {"TRUNCATED", file_of("{\"a\":" + kU8 + "}", "12"), kAny, "a"},
      {"TRAILING_BYTES", file_of("{\"a\":" + kU8 + "}", "12345"), kAny, ""},
      // Those of the schema.
      {"SCHEMA_INVALID", described("{}", ""), 8, ""},
      {"SCHEMA_INVALID", described(R"({"kind":"flat","dtype":"f32","shape":[]})", ""), 8, ""},
      {"SCHEMA_INVALID", described(deep, ""), 8, ""},
      {"SCHEMA_INVALID", described(R"({"kind":"struct","fields":{"a":1,"a":2}})", ""), 8, ""},
      {"SCHEMA_INVALID",
       described(R"({"kind":"struct","fields":{"a":{"kind":"flat","dtype":"f32","shape":[4294967296,4294967296]}}})",
                 ""),
       8, "a"},
      {"SCHEMA_INVALID",
       described(R"({"kind":"struct","fields":{"r":{"kind":"struct","count":9,"layout":{"TypeDef:Int7":true}}}})", ""),
       8, ""},
      {"UNKNOWN_VERSION", described(kFlat, "\"a\":" + kU8, "1234", R"("version":2,"endian":"little")"), 8, ""},
      {"UNKNOWN_ENDIAN", described(kFlat, "\"a\":" + kU8, "1234", R"("version":1,"endian":"big")"), 8, ""},
      {"MISSING_TENSOR", described(kFlat, ""), 8, "a"},
      {"TENSOR_MISMATCH", described(kFlat, R"("a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]})", "1234"), 512, "a"},
      {"UNDESCRIBED_TENSOR",
       described(kFlat, "\"a\":" + kU8 + R"(,"z":{"dtype":"U8","shape":[1],"data_offsets":[4,5]})", "12345"), 516, "z"},
      {"MISALIGNED",
       described(
           kFlat,
           R"("__padding__.0":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[4],"data_offsets":[2,6]})",
           std::string("\0\0", 2) + "1234"),
       514, "a"},
      {"INVALID_PADDING",
       described(R"({"kind":"struct","fields":{}})",
                 R"("__padding__.0":{"dtype":"U8","shape":[1,1],"data_offsets":[0,1]})", std::string(1, '\0')),
       512, "__padding__.0"},
      // Those of data, which opening does not read.
      {"NONZERO_PADDING",
       described(
           kFlat,
           R"("__padding__.0":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})",
           std::string("\0\0\1\0", 4) + "1234"),
       514, "__padding__.0"},
      {"INVALID_BOOL",
       described(R"({"kind":"struct","fields":{"a":{"kind":"flat","dtype":"bool","shape":[2]}}})",
                 R"("a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]})", "\1\2"),
       513, "a"},
      {"INVALID_RECORD", described(records, R"("r":{"dtype":"U8","shape":[2,1],"data_offsets":[0,2]})", "\1\2"), 513,
       "r"},
      {"BLOB_RANGE", described(blob, blob_tensors, row(0, 4) + row(2, UINT64_MAX) + "abcd"), 528, "b"},
      {"BLOB_OVERLAP", described(blob, blob_tensors, row(0, 3) + row(2, 2) + "abcd"), 528, "b"},
  };
}

TEST(Metatensor, OpeningReadsTheHeaderOnly) {
  const TemporaryFolder folder;
  folder.put("large",
             described(R"({"kind":"struct","fields":{"w":{"kind":"flat","dtype":"f32","shape":[17179869184]}}})",
                       R"("w":{"dtype":"F32","shape":[17179869184],"data_offsets":[0,68719476736]})"));
  std::filesystem::resize_file(folder / "large", 512 + 68719476736u);  // a hole on the disk, larger than memory
  const File file = File::open(folder / "large");
  EXPECT_EQ(file.at("w").shape, Shape({17179869184}));
  EXPECT_EQ(file.bytes("w").back(), std::byte{0});
  EXPECT_TRUE(validate(folder / "large").empty()) << "floats are not read";
}

const char* kDataCodes[] = {"NONZERO_PADDING", "INVALID_BOOL", "INVALID_RECORD", "BLOB_RANGE", "BLOB_OVERLAP"};

TEST(Metatensor, EachRuleHasItsCodeByteAndName) {
  for (const BadFile& bad : bad_files()) {
    const std::vector<FormatViolation> all = validate(bytes_in(bad.file), "m");
    ASSERT_EQ(all.size(), 1u) << bad.code << ": "
                              << (all.empty() ? "" : all[0].message + " and " + std::string(all.back().code));
    EXPECT_EQ(all[0].code, bad.code) << all[0].message;
    EXPECT_TRUE(bad.byte == kAny ? all[0].byte >= 8 : all[0].byte == bad.byte) << bad.code << " at " << all[0].byte;
    EXPECT_LE(all[0].byte, bad.file.size()) << bad.code;
    EXPECT_EQ(all[0].name, bad.name) << bad.code;
    EXPECT_TRUE(all[0].message.starts_with("m")) << all[0].message;
    const bool is_data = std::find(std::begin(kDataCodes), std::end(kDataCodes), all[0].code) != std::end(kDataCodes);
    try {
      File::parse(bytes_in(bad.file), "m");
      EXPECT_TRUE(is_data) << bad.code;
    } catch (const FormatError& error) {
      EXPECT_FALSE(is_data) << bad.code;
      EXPECT_EQ(error.violation().code, bad.code);
      EXPECT_EQ(error.what(), all[0].message);
    }
  }
}

TEST(Metatensor, HostileHeadersAreRefused) {
  const auto code_of = [](const std::string& file) -> std::string {
    try {
      File::parse(bytes_in(file), "m");
      return "none";
    } catch (const FormatError& error) {
      return std::string(error.violation().code);
    }
  };
  const auto tensor = [](const std::string& shape, const std::string& offsets, const std::string& rest = "") {
    return file_of(R"({"a":{"dtype":"U8","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}" + rest + "}",
                   "1234");
  };
  EXPECT_EQ(code_of(file_of("{}", "", UINT64_MAX)), "HEADER_TOO_LARGE");
  EXPECT_EQ(code_of(file_of("{}", "", 99'999'999)), "INVALID_HEADER_LENGTH");
  EXPECT_EQ(code_of(tensor("[4]", "[4,0]")), "REVERSED_RANGE");
  EXPECT_EQ(code_of(tensor("[4]", "[0,18446744073709551615]")), "SIZE_MISMATCH");
  EXPECT_EQ(code_of(tensor("[4]", "[0,4]", R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]})")), "OVERLAP");
  EXPECT_EQ(code_of(tensor("[0,9223372036854775807,9223372036854775807]", "[0,0]")), "SIZE_OVERFLOW");
  EXPECT_EQ(code_of(tensor("[9223372036854775807,9223372036854775807,0]", "[0,0]")), "SIZE_OVERFLOW")
      << "in either order";
  EXPECT_EQ(code_of(tensor("[" + std::string(200'000, '[') + "]", "[0,4]")), "HEADER_LIMIT");
}

TEST(Metatensor, ValidateListsAllBrokenRules) {
  const std::string header =
      R"({"__metadata__":{"k":[1]},"a":{"dtype":"F33","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":"x","data_offsets":{"y":0},"z":0},)"
      R"("c":[],"d":{"dtype":"U8","shape":[3],"data_offsets":[0,4]},"e":{"dtype":"U8","shape":[4],"data_offsets":[2,6]},)"
      R"("f":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[6,900]}})";
  std::string codes;
  for (const FormatViolation& each : validate(bytes_in(file_of(header, "123456")), "m"))
    codes += std::string(each.code) + " " + each.name + ", ";
  EXPECT_EQ(codes,
            "INVALID_HEADER , UNKNOWN_DTYPE a, INVALID_ENTRY b, INVALID_ENTRY b, INVALID_ENTRY b, INVALID_ENTRY c, "
            "SIZE_MISMATCH d, "
            "OVERLAP e, SIZE_OVERFLOW f, TRUNCATED f, ");
}

TEST(Metatensor, DataIsCheckedWhereItIsRead) {
  for (const BadFile& bad : bad_files()) {
    if (bad.code == std::string("INVALID_BOOL")) {
      EXPECT_NE(message_of<FileError>([&] {
                  File::parse(bytes_in(bad.file), "m").tensor("a");
                }).find("element 1 is the byte 2"),
                std::string::npos);
    }
    if (bad.code == std::string("BLOB_RANGE")) {
      EXPECT_NE(
          message_of<FileError>([&] { File::parse(bytes_in(bad.file), "m").bytes("b.1"); }).find("beyond the 4 bytes"),
          std::string::npos);
    }
  }
}

TEST(Metatensor, PathsThatAreNotThereNameWhatIsNear) {
  const TemporaryFolder folder;
  save_mixed(folder / "m");
  const File file = File::open(folder / "m");
  EXPECT_NE(message_of<FileError>([&] { file.tensor("layers.0.wieght"); }).find("Did you mean \"layers.0.weight\"?"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { file.tensor("images"); }).find("is not a tensor"), std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { file.bytes("samples.3"); }).find("beyond the 3 records"), std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { file.bytes("images.3"); }).find("beyond the 3 entries"), std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { file.bytes("mask.1"); }).find("no such part"), std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { file.column("samples", "pixels", 2, 2); }).find("has 3 records; [2, 4)"),
            std::string::npos);
  EXPECT_THROW(file.tensor("samples.0.label"), typedefs::LayoutError);
}

// ---- Versions -----------------------------------------------------------------------------------------------------------------

TEST(Metatensor, DifferencesOfSchemas) {
  const auto layout = [](const char* properties) {
    return typedefs::Layout(Value::parse(std::string(R"({"TypeDef:Struct": true, "properties": )") + properties + "}"));
  };
  const Node older =
      structure({{"a", flat(DType::f32, {2})},
                 {"b", structure({{"c", flat(DType::f32, {2})}, {"gone", blob(1)}})},
                 {"r", records(layout(R"({"x": {"TypeDef:Int8": true}, "y": {"TypeDef:Int8": true}})"), 3)}});
  const Node newer =
      structure({{"b", structure({{"c", flat(DType::f16, {2})}, {"new", flat(DType::u8, {})}})},
                 {"a", flat(DType::f32, {2}, 256)},
                 {"r", records(layout(R"({"x": {"TypeDef:Int16": true}, "z": {"TypeDef:Int8": true}})"), 9)}});
  std::string text;
  for (const Change& change : difference(older, newer))
    text += std::string(change.kind == Change::Kind::added     ? "+"
                        : change.kind == Change::Kind::removed ? "-"
                                                               : "~") +
            change.path + " ";
  EXPECT_EQ(text, "~b.c -b.gone ~r.x -r.y +b.new +r.z ");
  EXPECT_TRUE(difference(older, older).empty());
  EXPECT_EQ(to_value(node_from(to_value(newer))), to_value(newer));
}

TEST(Metatensor, SchemasAsTreesOfElements) {
  const Node made = node_from_elements(Value::parse(R"({"type": "Struct", "children": [
    {"type": "Field", "props": {"name": "weight"}, "children": [{"type": "Tensor", "props": {"dtype": "q4_0", "shape": [2, 32], "align": 64}}]},
    {"type": "Field", "props": {"name": "old", "optional": true}, "children": [{"type": "Blob", "props": {"count": 2}}]},
    {"type": "Field", "props": {"name": "samples"}, "children": [{"type": "ArrayOf", "props": {"count": 3}, "children": [
      {"type": "Struct", "props": {"align": 8}, "children": [
        {"type": "Field", "props": {"name": "label"}, "children": [{"type": "Enum", "props": {"enum": ["a", "b"]}}]},
        {"type": "Field", "props": {"name": "text", "align": 8}, "children": [{"type": "String", "props": {"maxLength": 4}}]},
        {"type": "Field", "props": {"name": "list"}, "children": [{"type": "Array", "props": {"minItems": 2, "maxItems": 2}, "children": [
          {"type": "Uint16"}]}]},
        {"type": "Field", "props": {"name": "u"}, "children": [{"type": "Union", "props": {"discriminator": "k"}, "children": [
          {"type": "Field", "props": {"name": "x"}, "children": [{"type": "Struct", "children": [
            {"type": "Field", "props": {"name": "v"}, "children": [{"type": "Tensor", "props": {"dtype": "f32", "shape": [1]}}]}]}]}]}]}]}]}]}]})"));
  EXPECT_EQ(made.find("weight")->alignment, 64u);
  EXPECT_TRUE(made.find("old")->is_optional);
  const typedefs::Layout& layout = *made.find("samples")->layout;
  EXPECT_EQ(layout.range("text"), (typedefs::Range{8, 16}));
  EXPECT_EQ(layout.range("list.1"), (typedefs::Range{18, 20}));
  EXPECT_EQ(layout.range("u.x.v"), (typedefs::Range{24, 28}));
  EXPECT_EQ(layout.size_bytes(), 32u);
  EXPECT_EQ(to_value(node_from(to_value(made))), to_value(made));
  const std::pair<const char*, const char*> kBad[] = {
      {"3", "is not {type, props, children}"},
      {R"({"type": "Loop"})", "there is no \"Loop\" here"},
      {R"({"type": "Struct", "children": [{"type": "Tensor"}]})", "/children/0: the children of a Struct are Fields"},
      {R"({"type": "Struct", "children": [{"type": "Field", "props": {"name": "a"}}]})",
       "a Field has one child, and not 0"},
      {R"({"type": "Struct", "children": [{"type": "Field", "props": {"name": "a"}, "children": [{"type": "Tensor", "props": {"dtype": "f32", "shape": [1], "x": 1}}]}]})",
       "a Tensor has no prop \"x\""},
      {R"({"type": "Struct", "children": [{"type": "Field", "props": {"name": "a"}, "children": [{"type": "Tensor", "props": {"dtype": "f31", "shape": [1]}}]}]})",
       "while reading /children/0/children/0"},
      {R"({"type": "Struct", "children": [{"type": "Field", "props": {"name": "a.b"}, "children": [{"type": "Blob"}]}]})",
       "cannot be the name"}};
  for (const auto& [json, message] : kBad)
    EXPECT_NE(message_of<UsageError>([json = json] { node_from_elements(Value::parse(json)); }).find(message),
              std::string::npos)
        << json;
}

TEST(Metatensor, ReadersOfOtherVersions) {
  const TemporaryFolder folder;
  save_mixed(folder / "m");
  const File file = File::open(folder / "m");
  Node wanted = structure({{"layers", structure({{"0", structure({{"weight", flat(DType::f16, {2, 2})},
                                                                  {"bias", optional(flat(DType::f32, {2}))}})}})}});
  EXPECT_NE(message_of<FileError>([&] { Reader(file, wanted); }).find("it needs a migration"), std::string::npos);
  const Reader reader(file, wanted, {{"layers.0.weight", [](const Tensor& old) { return cast(old, DType::f16); }}});
  EXPECT_EQ(reader.tensor("layers.0.weight")->dtype(), DType::f16);
  EXPECT_EQ(reader.tensor("layers.0.bias"), std::nullopt);
  EXPECT_NE(message_of<FileError>([&] { reader.tensor("mask"); }).find("not a tensor of the schema"),
            std::string::npos);
  const Reader wrong(file, wanted, {{"layers.0.weight", [](const Tensor& old) { return old; }}});
  EXPECT_NE(message_of<FileError>([&] { wrong.tensor("layers.0.weight"); }).find("the migration of"),
            std::string::npos);
  wanted.fields.push_back({"must", flat(DType::f32, {})});
  EXPECT_NE(message_of<FileError>([&] { Reader(file, wanted); }).find("\"must\" is missing; it is not optional"),
            std::string::npos);
}

// ---- Models -------------------------------------------------------------------------------------------------------------------

TEST(Metatensor, ModelsKeepTheirTypes) {
  const TemporaryFolder folder;
  const Tensor blocks = sample(DType::q4_k, {2, 256}), plain = tensor({1.0f, 2.0f});
  save_gguf(folder / "m.gguf", {{"a.w", blocks}, {"b", plain}}, {{"general.name", "small"}});
  write_model(open_source(folder / "m.gguf"), folder / "m.metatensor", {});
  const io::TensorSource back = open_source(folder / "m.metatensor");
  EXPECT_EQ(back.kind(), io::SourceKind::metatensor);
  EXPECT_EQ(back.at("a.w").type_name, "Q4_K");
  EXPECT_EQ(back.at("a.w").shape, Shape({2, 256}));
  EXPECT_EQ(text_of(back.at("a.w").data), text_of(host_bytes(blocks)));
  io::convert_model(back, folder / "n.gguf", {});
  EXPECT_EQ(load_gguf(folder / "n.gguf").metadata.at("general.name"), "small");
  write_model(back, folder / "h.metatensor", {.type = DType::f16});
  EXPECT_EQ(open_source(folder / "h.metatensor").at("a.w").type_name, "F16");
}

// ---- Damage and faults --------------------------------------------------------------------------------------------------------

/// Reads everything there is, and touches it.
void read_all(const File& file) {
  std::size_t sum = 0;
  for (const std::string& path : file.paths()) {
    for (const std::byte b : file.bytes(path)) sum += static_cast<std::size_t>(b);
    const Node& node = file.at(path);
    if (node.kind == Kind::flat) file.tensor(path, kCpu).eval();
    if (node.kind == Kind::records)
      for (std::uint64_t i = 0; i < node.count; ++i) file.record(path, i).value();
    if (node.kind == Kind::blob)
      for (std::uint64_t i = 0; i < node.count; ++i)
        for (const std::byte b : file.bytes(path + "." + std::to_string(i))) sum += static_cast<std::size_t>(b);
  }
  ASSERT_LT(sum, std::size_t{1} << 40);
}

TEST(MetatensorMutations, DamagedFilesAreReadOrRefused) {
  const TemporaryFolder folder;
  save_mixed(folder / "m");
  const std::string good = text_of(read_file(folder / "m"));
  const test::MemoryLimit limit(std::size_t{256} << 20);
  int read = 0, refused = 0;
  test::for_each_mutation(good, good.size(), 3000, [&](const std::string& mutated, const std::string& what) {
    const std::string heap(mutated);
    std::size_t violations = validate(bytes_in(heap), "m").size();
    try {
      const File file = File::parse(bytes_in(heap), "m");
      read_all(file);
      ++read;
    } catch (const FileError&) {
      EXPECT_GT(violations, 0u) << what;
      ++refused;
    } catch (const typedefs::LayoutError&) {
      EXPECT_GT(violations, 0u) << what;
      ++refused;
    }
  });
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST(MetatensorMutations, DamagedHeadersAreReadOrRefused) {
  const TemporaryFolder folder;
  save_mixed(folder / "m");
  const std::string good = text_of(read_file(folder / "m"));
  std::uint64_t header = 0;
  std::memcpy(&header, good.data(), 8);
  const test::MemoryLimit limit(std::size_t{256} << 20);
  std::mt19937_64 random(11);
  const int rounds = test::every_mutation() ? 300'000 : 5'000;
  for (int i = 0; i < rounds; ++i) {
    std::string text = good.substr(8, header);
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = "{}[]:,\"\\0919"[random() % 12]; break;
        case 1: text.erase(at, 1 + random() % 12); break;
        case 2: text.insert(at, text.substr(random() % text.size(), 1 + random() % 40)); break;
        default: text.insert(at, "9223372036854775807"); break;
      }
      if (text.empty()) text = " ";
    }
    const std::string file = file_of(text, good.substr(8 + header));
    validate(bytes_in(file), "m");
    try {
      read_all(File::parse(bytes_in(file), "m"));
    } catch (const FileError&) {
    } catch (const typedefs::LayoutError&) {
    } catch (const DTypeError&) {
    }
  }
}

TEST(MetatensorFaults, EveryCallOfASaveMayFail) {
  for (const test::Fault& fault : test::kFaults)
    for (int n = 1;; ++n) {
      const TemporaryFolder folder;
      Writer().tensor("a", tensor({1.0f})).save(folder / "m");
      test::FaultyFileSystem system(n, fault);
      std::string message;
      {
        const ScopedFileSystem use(system);
        message = message_of<FileError>([&] { Writer().tensor("a", tensor({2.0f})).save(folder / "m"); });
      }
      const float now = File::open(folder / "m").tensor("a").item<float>();
      ASSERT_TRUE(message == "no error" ? now == 2 : now == 1 || message.find("may not survive") != std::string::npos)
          << fault.name << " at call " << n << ": " << message;
      if (!system.failed()) break;
      ASSERT_LT(n, 100);
    }
}

}  // namespace
}  // namespace weft::metatensor
