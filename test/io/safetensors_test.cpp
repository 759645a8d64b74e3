// safetensors: round trips, one bad file for each rule, damaged headers, faults while saving.
#include "io/safetensors.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/faulty_file_system.hpp"
#include "base/temporary_folder.hpp"
#include "weft/error.hpp"

namespace weft::io::safetensors_test {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::string length_prefix(std::uint64_t length) {
  std::string text;
  for (int i = 0; i < 8; ++i) text += static_cast<char>(length >> (8 * i) & 0xFF);
  return text;
}

/// A file with a right length, whatever the header.
std::string file_of(const std::string& header, const std::string& data = "") {
  return length_prefix(header.size()) + header + data;
}

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string error_of(const std::string& file) {
  return message_of<FileError>([&] { SafetensorsFile::parse(as_bytes(file), "m.safetensors"); });
}

struct Owned {
  std::string name, dtype;
  Shape shape;
  std::string data;
};

std::vector<TensorView> views(const std::vector<Owned>& tensors) {
  std::vector<TensorView> result;
  for (const Owned& t : tensors) result.push_back({t.name, t.dtype, t.shape, as_bytes(t.data)});
  return result;
}

std::string bytes_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(Safetensors, RoundTripOfEveryDtypeAndRank) {
  const TemporaryFolder folder;
  const std::vector<Owned> tensors = {
      {"f32", "F32", {2, 3}, std::string(24, '\x11')},
      {"scalar", "F64", {}, std::string(8, '\x22')},
      {"empty", "F32", {0, 5}, ""},
      {"also empty", "I64", {3, 0}, ""},
      {"bool", "BOOL", {3}, std::string("\0\1\1", 3)},
      {"f4", "F4", {2, 3}, "abc"},
      {"f6", "F6_E2M3", {4}, "abc"},
      {"f6b", "F6_E3M2", {8}, "abcdef"},
      {"u8", "U8", {1, 1, 1}, "x"},
      {"i8", "I8", {2}, "xy"},
      {"e5m2", "F8_E5M2", {1}, "1"},
      {"e4m3", "F8_E4M3", {1}, "2"},
      {"e8m0", "F8_E8M0", {1}, "3"},
      {"e4m3fnuz", "F8_E4M3FNUZ", {1}, "4"},
      {"e5m2fnuz", "F8_E5M2FNUZ", {1}, "5"},
      {"i16", "I16", {1}, "ab"},
      {"u16", "U16", {1}, "cd"},
      {"f16", "F16", {1}, "ef"},
      {"bf16", "BF16", {1}, "gh"},
      {"i32", "I32", {1}, "ijkl"},
      {"u32", "U32", {1}, "mnop"},
      {"c64", "C64", {1}, "qrstuvwx"},
      {"u64", "U64", {1}, "yz012345"},
      {"nàme \"quoted\"\n\t\x01", "F32", {1}, "wxyz"},
      {"", "U8", {1}, "!"},
  };
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"note", "züri \"x\"\n"}, {"", ""}};
  write_safetensors(folder / "m.safetensors", views(tensors), metadata);
  const SafetensorsFile file = SafetensorsFile::open(folder / "m.safetensors");
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const Owned& t : tensors) {
    const TensorView& read = file.at(t.name);
    EXPECT_EQ(read.dtype, t.dtype);
    EXPECT_EQ(read.shape, t.shape);
    EXPECT_EQ(bytes_text(read.data), t.data);
  }
}

TEST(Safetensors, LayoutIsTheReferences) {
  const std::vector<Owned> tensors = {
      {"b", "F32", {1}, "1234"}, {"t", "BOOL", {1}, "\1"}, {"a", "F32", {}, "5678"}, {"z", "F64", {1}, "abcdefgh"}};
  EXPECT_EQ(bytes_text(safetensors_bytes(views(tensors), {{"k", "v"}})),
            file_of("{\"__metadata__\":{\"k\":\"v\"},"
                    "\"z\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                    "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[8,12]},"
                    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[12,16]},"
                    "\"t\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[16,17]}}     ",
                    "abcdefgh56781234\1"));
}

TEST(Safetensors, EmptyFileOfTensors) {
  EXPECT_EQ(bytes_text(safetensors_bytes({})), file_of("{}      "));
  EXPECT_TRUE(SafetensorsFile::parse(as_bytes(file_of("{}")), "m").tensors().empty());
  EXPECT_TRUE(SafetensorsFile::parse(as_bytes(file_of("{} \r\n\t")), "m").tensors().empty());
  EXPECT_TRUE(SafetensorsFile::parse(as_bytes(file_of("{\"__metadata__\":{}}")), "m").metadata().empty());
}

TEST(Safetensors, FileOverItsOwnMapping) {
  const TemporaryFolder folder;
  write_safetensors(folder / "m", views({{"a", "U8", {4}, "1234"}}));
  const SafetensorsFile file = SafetensorsFile::open(folder / "m");
  write_safetensors(folder / "m", file.tensors());
  EXPECT_EQ(bytes_text(SafetensorsFile::open(folder / "m").at("a").data), "1234");
}

TEST(Safetensors, ArraysKeepEveryBit) {
  const Array array = Array::of<float>({2, 2}, {std::nanf("7"), -0.0f, std::numeric_limits<float>::infinity(), 1e-45f});
  const auto bytes = safetensors_bytes(std::vector<TensorView>{{"x", "F32", array.shape, array.data}});
  EXPECT_EQ(to_array(SafetensorsFile::parse(bytes, "m").at("x"), "m"), array);
  for (const Element& row : kElements) {
    if (row.safetensors.empty()) {
      EXPECT_THROW(safetensors_dtype(row.type), UsageError) << row.name;
      continue;
    }
    EXPECT_EQ(dtype_from_safetensors(safetensors_dtype(row.type)), row.type);
    EXPECT_EQ(safetensors_dtype_bits(row.safetensors), row.bits) << row.name;
  }
}

TEST(Safetensors, ArraysOfOtherDtypesAreRefusedWithTheCure) {
  const std::string file = file_of(
      R"({"w":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]},"t":{"dtype":"BOOL","shape":[2],"data_offsets":[2,4]}})",
      "abab");
  const SafetensorsFile read = SafetensorsFile::parse(as_bytes(file), "m");
  EXPECT_TRUE(message_of<FileError>([&] { to_array(read.at("w"), "m"); })
                  .starts_with("m: tensor \"w\" is F8_E8M0, which Weft's tensors do not hold; convert it first, for "
                               "example to F32; they hold f32, "));
  EXPECT_NE(message_of<FileError>([&] {
              to_array(read.at("t"), "m");
            }).find("element 0 of BOOL is the byte 97; only 0 and 1"),
            std::string::npos);
}

TEST(Safetensors, MissingTensorNamesThoseThatAreThere) {
  const auto bytes = safetensors_bytes(views({{"a", "U8", {1}, "1"}, {"b", "U8", {1}, "1"}}));
  EXPECT_EQ(message_of<FileError>([&] { SafetensorsFile::parse(bytes, "m").at("c"); }),
            "m: there is no tensor \"c\"; it holds \"a\", \"b\"");
}

struct BadFile {
  const char* name;
  std::string file;
  const char* message;
};

std::string tensor(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }
std::string described(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return tensor("\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets);
}

std::vector<BadFile> bad_files() {
  const std::string good = described("F32", "[1]", "[0,4]");
  const std::string u8 = "\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]";
  return {
      {"empty file", "", "holds 0 bytes, fewer than the 8 of the header length"},
      {"seven bytes", "1234567", "holds 7 bytes, fewer than the 8"},
      {"length over the limit", length_prefix(100'000'001) + std::string(20, ' '),
       "the header length 100000001 is over the limit of 100000000"},
      {"a text", "Call me Ishmael. Some years ago",
       "this is not a model file, neither GGUF nor safetensors: it begins with \"Call me Ishmael. Some ye...\""},
      {"JSON whose ninth byte is a brace", "{\n \"a\": {}}", "it begins with \"{\\n \\\"a\\\": {}}\""},
      {"length of all ones", std::string(8, '\xFF') + "{}", "the header length 18446744073709551615 is over the limit"},
      {"length past the end", length_prefix(3) + "{}",
       "the header of 3 bytes reaches past the end of the file of 10 bytes"},
      {"only a length", length_prefix(2), "the header of 2 bytes reaches past the end of the file of 8 bytes"},
      {"empty header", file_of(""), "the header does not begin with '{'"},
      {"leading space", file_of(" {}"), "the header does not begin with '{'"},
      {"byte order mark", file_of("\xEF\xBB\xBF{}"), "the header does not begin with '{'"},
      {"array", file_of("[]"), "the header does not begin with '{'"},
      {"not UTF-8", file_of("{\"\xff\":1}"), "m.safetensors (header): byte 2 (0xff, line 1) is not UTF-8"},
      {"not JSON", file_of("{nope}"), "line 1, column 3: not valid JSON: invalid literal"},
      {"cut JSON", file_of("{\"a\":{"), "not valid JSON: unexpected end of input"},
      {"trailing comma", file_of("{\"__metadata__\":{},}"), "not valid JSON: unexpected '}'"},
      {"two documents", file_of("{}{}"), "not valid JSON: unexpected '{'; expected end of input"},
      {"NUL behind the header", file_of(std::string("{}\0", 3)), "not valid JSON"},
      {"comment", file_of("{/**/}"), "not valid JSON"},
      {"name twice", file_of("{\"a\":{" + u8 + "},\"a\":{" + u8 + "}}", "1234"), "key \"a\" occurs twice"},
      {"name twice by an escape", file_of("{\"a\":{" + u8 + "},\"\\u0061\":{" + u8 + "}}", "1234"),
       "key \"a\" occurs twice"},
      {"metadata twice", file_of("{\"__metadata__\":{},\"__metadata__\":{}}"), "key \"__metadata__\" occurs twice"},
      {"metadata key twice", file_of("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"), "key \"k\" occurs twice"},
      {"field twice", file_of(tensor("\"dtype\":\"U8\"," + u8), "1234"), "key \"dtype\" occurs twice"},
      {"metadata is text", file_of("{\"__metadata__\":\"x\"}"), "__metadata__ is not an object of strings"},
      {"metadata is null", file_of("{\"__metadata__\":null}"), "__metadata__ is not an object of strings"},
      {"metadata is an array", file_of("{\"__metadata__\":[]}"), "__metadata__ is an array"},
      {"metadata value is a number", file_of("{\"__metadata__\":{\"k\":1}}"),
       "__metadata__ \"k\" is not a string; metadata maps text to text"},
      {"metadata value is an object", file_of("{\"__metadata__\":{\"k\":{}}}"), "__metadata__ \"k\" is not a string"},
      {"tensor is a number", file_of("{\"a\":1}"), "tensor \"a\": is not an object with dtype, shape and data_offsets"},
      {"tensor is an array", file_of("{\"a\":[]}"), "tensor \"a\": is an array"},
      {"no dtype", file_of(tensor("\"shape\":[4],\"data_offsets\":[0,4]"), "1234"), "tensor \"a\": dtype is missing"},
      {"no shape", file_of(tensor("\"dtype\":\"U8\",\"data_offsets\":[0,4]"), "1234"),
       "tensor \"a\": shape is missing"},
      {"no offsets", file_of(tensor("\"dtype\":\"U8\",\"shape\":[4]"), "1234"),
       "tensor \"a\": data_offsets is missing"},
      {"unknown field", file_of(tensor(u8 + ",\"stride\":[1]"), "1234"), "tensor \"a\": unknown key \"stride\""},
      {"dtype is a number", file_of(tensor("\"dtype\":8")), "tensor \"a\": dtype is not a string"},
      {"dtype is an object", file_of(tensor("\"dtype\":{}")), "tensor \"a\": dtype is not a string"},
      {"unknown dtype", file_of(described("F33", "[1]", "[0,4]"), "1234"),
       "tensor \"a\": unknown dtype \"F33\"; the format has BOOL, F4"},
      {"lower-case dtype", file_of(described("f32", "[1]", "[0,4]"), "1234"), "unknown dtype \"f32\""},
      {"shape is a number", file_of(tensor("\"shape\":4")), "tensor \"a\": shape is not an array"},
      {"shape is an object", file_of(tensor("\"shape\":{}")), "tensor \"a\": shape is an object"},
      {"negative extent", file_of(described("U8", "[-4]", "[0,4]"), "1234"),
       "shape holds \"-4\", which is not a whole number"},
      {"fractional extent", file_of(described("U8", "[4.0]", "[0,4]"), "1234"),
       "shape holds \"4.0\", which is not a whole number"},
      {"extent as text", file_of(described("U8", "[\"4\"]", "[0,4]"), "1234"), "which is not a whole number"},
      {"extent is null", file_of(described("U8", "[null]", "[0,4]"), "1234"), "shape holds \"null\""},
      {"nested shape", file_of(described("U8", "[[4]]", "[0,4]"), "1234"), "nested deeper than 3"},
      {"extent over 63 bits", file_of(described("U8", "[9223372036854775808]", "[0,4]"), "1234"),
       "extent 9223372036854775808 overflows 63 bits"},
      {"extent over 64 bits", file_of(described("U8", "[18446744073709551616]", "[0,4]"), "1234"),
       "which is not a whole number from 0 to 2^64 - 1"},
      {"rank over the limit",
       file_of(described(
                   "U8",
                   "[1" +
                       [] {
                         std::string s;
                         for (int i = 0; i < 64; ++i) s += ",1";
                         return s;
                       }() +
                       "]",
                   "[0,1]"),
               "1"),
       "the rank is over the limit of 64"},
      {"elements overflow", file_of(described("U8", "[4294967296,4294967296]", "[0,4]"), "1234"),
       "the number of elements of shape [4294967296, 4294967296] overflows 64 bits"},
      {"elements overflow behind a zero", file_of(described("U8", "[0,4294967296,4294967296]", "[0,0]")),
       "overflows 64 bits"},
      {"elements overflow before a zero", file_of(described("U8", "[4294967296,4294967296,0]", "[0,0]")),
       "overflows 64 bits"},
      {"bits overflow", file_of(described("F64", "[4611686018427387904]", "[0,4]"), "1234"),
       "4611686018427387904 x 64 overflows 64 bits"},
      {"F4 within a byte", file_of(described("F4", "[3]", "[0,2]"), "12"),
       "3 elements of F4 take 12 bits, which is not a whole number of bytes"},
      {"F6 within a byte", file_of(described("F6_E3M2", "[1]", "[0,1]"), "1"), "1 elements of F6_E3M2 take 6 bits"},
      {"offsets are a number", file_of(tensor("\"data_offsets\":4")), "data_offsets is not an array"},
      {"no offset", file_of(described("U8", "[4]", "[]"), "1234"),
       "data_offsets holds 0 numbers; it must hold a begin and an end"},
      {"one offset", file_of(described("U8", "[4]", "[4]"), "1234"), "data_offsets holds 1 numbers"},
      {"three offsets", file_of(described("U8", "[4]", "[0,4,4]"), "1234"),
       "data_offsets holds more than a begin and an end"},
      {"negative offset", file_of(described("U8", "[4]", "[-4,0]"), "1234"), "data_offsets holds \"-4\""},
      {"end before begin", file_of(described("U8", "[4]", "[4,0]"), "1234"),
       "data_offsets [4, 0] end before they begin"},
      {"hole at the start", file_of(described("U8", "[4]", "[1,5]"), "12345"),
       "its data begins at byte 1, but the data before it ends at byte 0; holes are not allowed"},
      {"hole between",
       file_of("{\"a\":{" + u8 + "},\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[5,6]}}", "123456"),
       "tensor \"b\": its data begins at byte 5"},
      {"overlap",
       file_of("{\"a\":{" + u8 + "},\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}", "12345"),
       "tensors must not overlap"},
      {"the same bytes", file_of("{\"a\":{" + u8 + "},\"b\":{" + u8 + "}}", "1234"),
       "tensor \"b\": its data begins at byte 0, but the data before it ends at byte 4; tensors must not overlap"},
      {"empty tensor inside another",
       file_of("{\"a\":{" + u8 + "},\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}", "1234"),
       "tensors must not overlap"},
      {"too few bytes for the shape", file_of(described("F32", "[2]", "[0,4]"), "1234"),
       "F32 [2] takes 8 bytes, but data_offsets span 4"},
      {"too many bytes for the shape", file_of(described("F32", "[]", "[0,8]"), "12345678"),
       "F32 [] takes 4 bytes, but data_offsets span 8"},
      {"tail", file_of(good, "1234PK"), "2 bytes follow the data of the last tensor; remove them"},
      {"tail without tensors", file_of("{}", "x"), "1 bytes follow the data"},
      {"two bytes missing", file_of(good, "12"), "tensor \"a\": its data ends at byte 4 of 2; the file is truncated"},
      {"hostile name in a message", file_of("{\"a\\n\\u001b[2J\":1}"), "tensor \"a\\n\\x1b[2J\": is not an object"},
  };
}

TEST(Safetensors, EachRuleHasItsOwnMessage) {
  for (const BadFile& bad : bad_files()) {
    const std::string message = error_of(bad.file);
    EXPECT_TRUE(message.starts_with("m.safetensors")) << bad.name << ": " << message;
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.name << ": " << message;
    EXPECT_LT(message.size(), 500u);
  }
  EXPECT_GE(bad_files().size(), 60u);
}

TEST(Safetensors, ErrorsOfOpenNameThePath) {
  const TemporaryFolder folder;
  const auto path = folder.put("cut.safetensors", "123");
  EXPECT_NE(message_of<FileError>([&] { SafetensorsFile::open(path); }).find("cut.safetensors: holds 3 bytes"),
            std::string::npos);
  EXPECT_NE(message_of<FileError>([&] { SafetensorsFile::open(folder / "none"); }).find("there is no such file"),
            std::string::npos);
}

TEST(Safetensors, WriterRefusesWhatTheReaderWould) {
  struct Case {
    const char* name;
    std::vector<Owned> tensors;
    SafetensorsMetadata metadata;
    const char* message;
  };
  const Case cases[] = {
      {"name twice", {{"a", "U8", {1}, "1"}, {"a", "F32", {1}, "1234"}}, {}, "two tensors are named \"a\""},
      {"reserved name", {{"__metadata__", "U8", {1}, "1"}}, {}, "the name is reserved"},
      {"name not UTF-8", {{"\xff", "U8", {1}, "1"}}, {}, "tensor name \"\\xff\" is not UTF-8 at byte 0"},
      {"metadata not UTF-8", {}, {{"k", "\xff"}}, "metadata value \"\\xff\" is not UTF-8"},
      {"metadata key not UTF-8", {}, {{"\xff", ""}}, "metadata key \"\\xff\" is not UTF-8"},
      {"unknown dtype", {{"a", "f32", {1}, "1234"}}, {}, "unknown dtype \"f32\""},
      {"short data", {{"a", "F32", {2}, "1234"}}, {}, "F32 [2] takes 64 bits, but 4 bytes of data are given"},
      {"half a byte", {{"a", "F4", {3}, "12"}}, {}, "F4 [3] takes 12 bits, which is not a whole number"},
      {"negative extent", {{"a", "U8", {-1}, "1"}}, {}, "extent -1 of shape [-1] is negative"},
      {"overflow", {{"a", "U8", {1LL << 40, 1LL << 40}, "1"}}, {}, "overflows 64 bits"},
      {"rank", {{"a", "U8", Shape(std::vector<Extent>(65, 1)), "1"}}, {}, "rank 65 is over the limit of 64"},
      {"header", {}, {{"k", std::string(100'000'001, 'x')}}, "the header takes over 100000000 bytes"},
  };
  const TemporaryFolder folder;
  for (const Case& c : cases) {
    const std::string message =
        message_of<UsageError>([&] { write_safetensors(folder / "m", views(c.tensors), c.metadata); });
    EXPECT_NE(message.find(c.message), std::string::npos) << c.name << ": " << message;
    EXPECT_FALSE(std::filesystem::exists(folder / "m"));
  }
}

TEST(Safetensors, DataMayComeInPieces) {
  const TemporaryFolder folder;
  const std::vector<Owned> tensors = {{"b", "F32", {2}, "12345678"}, {"e", "F16", {0}, ""}, {"a", "F32", {1}, "abcd"}};
  std::vector<TensorInfo> infos;
  for (const Owned& t : tensors) infos.push_back({t.name, t.dtype, t.shape});
  write_safetensors(folder / "m", infos, {{"k", "v"}}, [&](std::size_t i, const auto& put) {
    for (std::size_t at = 0; at < tensors[i].data.size(); at += 3)
      put(as_bytes(tensors[i].data).subspan(at).first(std::min<std::size_t>(3, tensors[i].data.size() - at)));
  });
  EXPECT_EQ(bytes_text(read_file(folder / "m")), bytes_text(safetensors_bytes(views(tensors), {{"k", "v"}})));
  for (const std::size_t count : {0u, 3u, 5u})
    EXPECT_NE(message_of<UsageError>([&] {
                write_safetensors(folder / "n", std::span(infos).last(1), {},
                                  [&](std::size_t, const auto& put) { put(as_bytes(std::string(count, 'x'))); });
              }).find("tensor \"a\": F32 [1] takes 4 bytes, but " + std::to_string(count) + " bytes"),
              std::string::npos);
  const std::vector<TensorInfo> half = {{"f4", "F4", {3}}};
  EXPECT_NE(message_of<UsageError>([&] {
              write_safetensors(folder / "n", half, {}, [](std::size_t, const auto&) {});
            }).find("takes 12 bits, which is not a whole number of bytes"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "n"));
}

std::string small_file() {
  return bytes_text(safetensors_bytes(views({{"w", "F32", {2, 2}, std::string(16, 'w')},
                                             {"b", "BOOL", {3}, std::string("\0\1\0", 3)},
                                             {"e", "I64", {0}, ""}}),
                                      {{"k", "v"}}));
}

/// Touches every byte that the views claim, so that a sanitizer sees a view outside the file.
void load_or_refuse(const std::string& text) {
  const std::string heap(text);  // of its own, so that reading past its end is seen
  try {
    const SafetensorsFile file = SafetensorsFile::parse(as_bytes(heap), "m");
    std::size_t sum = 0;
    for (const TensorView& t : file.tensors())
      for (const std::byte b : t.data) sum += static_cast<std::size_t>(b);
    ASSERT_LE(sum, 255 * text.size());
  } catch (const FileError&) {
  }
}

TEST(SafetensorsMutations, EveryTruncationIsRefused) {
  const std::string file = small_file();
  for (std::size_t length = 0; length < file.size(); ++length)
    EXPECT_NE(error_of(file.substr(0, length)), "no error") << length;
}

TEST(SafetensorsMutations, EveryFlippedBitLoadsOrIsRefused) {
  const std::string file = small_file();
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string mutated = file;
    mutated[bit / 8] = static_cast<char>(mutated[bit / 8] ^ (1 << bit % 8));
    load_or_refuse(mutated);
  }
}

TEST(SafetensorsMutations, EveryReplacedHeaderByteLoadsOrIsRefused) {
  const std::string file = small_file();
  for (std::size_t at = 8; at + 19 < file.size(); ++at)
    for (const char c : std::string("\"{}[]:,0-9\\ \0\x80", 14)) {
      std::string mutated = file;
      mutated[at] = c;
      load_or_refuse(mutated);
    }
}

TEST(SafetensorsFaults, EveryCallOfASaveMayFail) {
  const std::vector<Owned> old = {{"a", "U8", {3}, "old"}}, fresh = {{"a", "U8", {3}, "new"}};
  for (const test::Fault& fault : test::kFaults)
    for (int n = 1;; ++n) {
      const TemporaryFolder folder;
      write_safetensors(folder / "m", views(old));
      test::FaultyFileSystem system(n, fault);
      std::string message;
      {
        const ScopedFileSystem use(system);
        message =
            message_of<FileError>([&] { write_safetensors(folder / "m", views(fresh), {}, {.keep_previous = true}); });
      }
      const std::string now = bytes_text(SafetensorsFile::open(folder / "m").at("a").data);
      ASSERT_TRUE(message == "no error" ? now == "new"
                                        : now == "old" || message.find("may not survive") != std::string::npos)
          << fault.name << " at call " << n << ": " << message;
      if (!system.failed()) break;
      ASSERT_LT(n, 100);
    }
}

}  // namespace
}  // namespace weft::io::safetensors_test
