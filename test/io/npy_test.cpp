// .npy: round trips, NumPy's variants, one bad file for each rule, damaged headers.
#include "io/npy.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/temporary_folder.hpp"
#include "io/damage.hpp"
#include "weft/error.hpp"

namespace weft::io::npy_test {
namespace {

using test::message_of;
using test::TemporaryFolder;

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string file_of(const std::string& dictionary, const std::string& data = "", char major = 1) {
  const std::string header = dictionary + "\n";
  std::string text = std::string("\x93NUMPY") + major + '\0';
  text += static_cast<char>(header.size() & 0xFF);
  text += static_cast<char>(header.size() >> 8);
  if (major > 1) text += std::string(2, '\0');
  return text + header + data;
}

std::string described(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Array parse(const std::string& file) { return parse_npy(as_bytes(file), "x.npy"); }
std::string error_of(const std::string& file) {
  return message_of<FileError>([&] { parse(file); });
}

TEST(Npy, RoundTripOfEveryDtypeAndRank) {
  const TemporaryFolder folder;
  const Array arrays[] = {
      Array::of<float>({2, 3}, {1, -0.0f, std::nanf("5"), INFINITY, 1e-45f, 3}),
      Array::of<double>({}, {2.5}),
      Array::of<std::int32_t>({3}, {INT32_MIN, 0, INT32_MAX}),
      Array::of<std::uint32_t>({1, 1, 2}, {0, UINT32_MAX}),
      Array::of<bool>({2, 2}, {true, false, false, true}),
      Array::of<float>({0, 4}, {}),
  };
  for (const Array& array : arrays) {
    write_npy(folder / "x.npy", array);
    EXPECT_EQ(read_npy(folder / "x.npy"), array);
    EXPECT_EQ(parse_npy(npy_bytes(array), "x"), array);
  }
}

TEST(Npy, LayoutIsNumPys) {
  const auto bytes = npy_bytes(Array::of<float>({3}, {0, 0, 0}));
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  EXPECT_EQ(text, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dictionary +
                      std::string(128 - 10 - dictionary.size() - 1, ' ') + "\n" + std::string(12, '\0'));
}

TEST(Npy, VersionsOrdersAndSpellings) {
  const std::string data = raw<float>({1, 2, 3, 4, 5, 6});
  const Array expected = Array::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  for (const char major : {1, 2, 3}) EXPECT_EQ(parse(file_of(described("<f4", "(2, 3)"), data, major)), expected);
  EXPECT_EQ(parse(file_of("{\"shape\":(2,3,),\"descr\":\"<f4\",\"fortran_order\":False}   ", data)), expected);
  EXPECT_EQ(parse(file_of(described("<f4", "(2, 3)", "True"), raw<float>({1, 4, 2, 5, 3, 6}))), expected);
  EXPECT_EQ(parse(file_of(described("<f4", "(6,)", "True"), data)), Array::of<float>({6}, {1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(parse(file_of(described("<f4", "()", "True"), raw<float>({7}))), Array::of<float>({}, {7}));
  EXPECT_EQ(parse(file_of(described("<f4", "(0, 3)", "True"))), Array::of<float>({0, 3}, {}));
  EXPECT_EQ(parse(file_of(described(">i4", "(2,)"), std::string("\0\0\1\2\xff\xff\xff\xfe", 8))),
            Array::of<std::int32_t>({2}, {258, -2}));
  EXPECT_EQ(parse(file_of(described(">f8", "(1,)"), std::string("\x3f\xf0\0\0\0\0\0\0", 8))),
            Array::of<double>({1}, {1}));
}

TEST(Npy, FortranOrderOfRankThree) {
  const Shape shape{2, 3, 4};
  std::vector<std::int32_t> row_major(24), column_major(24);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 3; ++j)
      for (int k = 0; k < 4; ++k) {
        row_major[static_cast<std::size_t>(i * 12 + j * 4 + k)] = 100 * i + 10 * j + k;
        column_major[static_cast<std::size_t>(i + 2 * j + 6 * k)] = 100 * i + 10 * j + k;
      }
  EXPECT_EQ(parse(file_of(described("<i4", "(2, 3, 4)", "True"), raw(column_major))),
            Array::of<std::int32_t>(shape, row_major));
}

TEST(Npy, LongIntegersKeepEveryBit) {
  EXPECT_EQ(parse(file_of(described("<i8", "(3,)"), raw<std::int64_t>({INT64_MIN, -1, INT64_MAX}))),
            Array::of<std::int64_t>({3}, {INT64_MIN, -1, INT64_MAX}));
  EXPECT_EQ(parse(file_of(described(">i8", "(1,)"), std::string("\0\0\0\0\0\0\0\5", 8))),
            Array::of<std::int64_t>({1}, {5}));
  EXPECT_EQ(parse(file_of(described("<u8", "(1,)"), raw<std::uint64_t>({UINT64_MAX}))),
            Array::of<std::uint64_t>({1}, {UINT64_MAX}));
}

TEST(Npy, EveryTypeOfTheFormatComesBack) {
  for (const Element& row : kElements) {
    Array array{row.type, {4}, std::vector<std::byte>(bytes_of(row.type, 4))};
    for (std::size_t i = 0; i < array.data.size(); ++i)
      array.data[i] = static_cast<std::byte>(row.type == DType::boolean ? i % 2 : 37 * i + 200);
    if (row.npy.empty()) {
      EXPECT_THROW(npy_bytes(array), UsageError) << row.name;
      continue;
    }
    const std::vector<std::byte> bytes = npy_bytes(array);
    EXPECT_EQ(parse_npy(bytes, "x"), array) << row.name;
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    EXPECT_NE(text.find(std::string(row.bits == 8 ? "'|" : "'<") + std::string(row.npy) + "'"), std::string::npos);
  }
}

struct BadFile {
  const char* name;
  std::string file;
  const char* message;
};

std::vector<BadFile> bad_files() {
  const std::string f4 = described("<f4", "(1,)");
  const std::string good = file_of(f4, "1234");
  const auto with_version = [&](char major, char minor) {
    std::string text = good;
    text[6] = major, text[7] = minor;
    return text;
  };
  std::string ones;
  for (int i = 0; i < 65; ++i) ones += "1,";
  return {
      {"empty", "", "does not begin with \\x93NUMPY; it is not a .npy file"},
      {"other magic", "PK\3\4" + good, "does not begin with \\x93NUMPY"},
      {"only the magic", good.substr(0, 6), "ends within the version"},
      {"version 0.0", with_version(0, 0), "version 0.0 of the format is unknown"},
      {"version 4.0", with_version(4, 0), "version 4.0 of the format is unknown"},
      {"version 1.1", with_version(1, 1), "version 1.1 of the format is unknown"},
      {"no length", good.substr(0, 9), "ends within the header length"},
      {"half a wide length", file_of(f4, "1234", 2).substr(0, 11), "ends within the header length"},
      {"header over the limit", file_of(f4 + std::string(10'000, ' '), "1234"), "over the limit of 10000"},
      {"wide header length", file_of(f4, "1234", 2).replace(8, 4, "\xff\xff\xff\xff"),
       "the header length 4294967295 is over the limit"},
      {"header past the end", good.substr(0, 40), "reaches past the end of the file"},
      {"no newline", file_of(f4 + "  ", "1234").replace(file_of(f4 + "  ").size() - 1, 1, " "),
       "does not end in a newline"},
      {"empty dictionary", file_of("{}"), "key 'descr' is missing"},
      {"no dictionary", file_of("hello"), "expected '{', found \"h\""},
      {"empty header", file_of(""), "expected '{', found the end of the header"},
      {"no descr", file_of("{'fortran_order': False, 'shape': ()}"), "key 'descr' is missing"},
      {"no order", file_of("{'descr': '<f4', 'shape': ()}"), "key 'fortran_order' is missing"},
      {"no shape", file_of("{'descr': '<f4', 'fortran_order': False}"), "key 'shape' is missing"},
      {"unknown key", file_of("{'descr': '<f4', 'evil': 1}"), "unknown key \"evil\""},
      {"key twice", file_of("{'descr': '<f4', 'descr': '<f4'}"), "key 'descr' occurs twice"},
      {"key without quotes", file_of("{descr: '<f4'}"), "a text in quotes is expected"},
      {"text without end", file_of("{'descr"), "a text lacks its closing quote"},
      {"escape", file_of("{'de\\x73cr': '<f4'}"), "a text holds an escape"},
      {"no colon", file_of("{'descr' '<f4'}"), "expected ':', found"},
      {"no comma", file_of("{'descr': '<f4' 'shape': ()}"), "expected '}', found"},
      {"dictionary without end", file_of("{'descr': '<f4', "), "a text in quotes is expected"},
      {"something behind", file_of(f4 + "; import os", "1234"), "something follows the dictionary"},
      {"order is a number", file_of(described("<f4", "(1,)", "0"), "1234"), "fortran_order is neither True nor False"},
      {"shape is a number", file_of(described("<f4", "1"), "1234"), "shape is not a tuple"},
      {"shape is a list", file_of(described("<f4", "[1]"), "1234"), "shape is not a tuple"},
      {"shape in brackets", file_of(described("<f4", "(1)"), "1234"), "shape is a number, not a tuple"},
      {"shape without comma", file_of(described("<f4", "(1 1)"), "1234"), "shape lacks a comma"},
      {"shape without end", file_of("{'shape': (1, "), "shape holds something other than whole numbers"},
      {"two commas", file_of(described("<f4", "(1,,)"), "1234"), "shape holds something other than whole numbers"},
      {"negative extent", file_of(described("<f4", "(-1,)"), "1234"), "an extent of shape is negative"},
      {"fractional extent", file_of(described("<f4", "(1.0,)"), "1234"), "shape lacks a comma"},
      {"extent with a name", file_of(described("<f4", "(True,)"), "1234"), "whole numbers"},
      {"extent over 64 bits", file_of(described("<f4", "(9223372036854775808,)"), "1234"),
       "an extent of shape overflows 64 bits"},
      {"elements overflow", file_of(described("<f4", "(4294967296, 4294967296)"), "1234"), "overflows 64 bits"},
      {"elements overflow beside a zero", file_of(described("<f4", "(0, 4294967296, 4294967296)")),
       "overflows 64 bits"},
      {"bytes overflow", file_of(described("<f8", "(9223372036854775807,)"), "1234"), "overflows 64 bits"},
      {"rank over the limit", file_of(described("<f4", "(" + ones + ")"), "1234"), "the rank is over the limit of 64"},
      {"objects", file_of(described("|O", "(1,)"), "12345678"),
       "an array of Python objects, which only running code could load"},
      {"structure", file_of("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,)}", "1234"),
       "structured arrays are not read"},
      {"complex", file_of(described("<c8", "(1,)"), "12345678"),
       "descr \"<c8\" is not a type of Weft's arrays, which are f32, f64, i32, u32, bool, f16, i64, i16, i8, u64, u16 "
       "and u8; convert it first, for example array.astype('float32')"},
      {"long double", file_of(described("<f16", "(1,)"), std::string(16, '1')), "is not a type of Weft's arrays"},
      {"text", file_of(described("<U3", "(1,)"), "123456789012"), "descr \"<U3\" is not a type of numbers"},
      {"date", file_of(described("<M8[ns]", "(1,)"), "12345678"), "is not a type of numbers"},
      {"empty descr", file_of(described("", "(1,)"), "1234"), "descr \"\" is empty"},
      {"no byte order", file_of(described("f4", "(1,)"), "1234"), "without a byte order"},
      {"native byte order", file_of(described("=f4", "(1,)"), "1234"), "without a byte order"},
      {"no order for four bytes", file_of(described("|f4", "(1,)"), "1234"), "is not a type of numbers"},
      {"bool that is 2", file_of(described("|b1", "(2,)"), std::string("\0\2", 2)),
       "element 1 of b1 is the byte 2; only 0 and 1"},
      {"truncated data", file_of(f4, "123"),
       "the array takes 4 bytes, but only 3 follow the header; the file is truncated"},
      {"huge claim", file_of(described("<f4", "(1000000000000,)"), "1234"),
       "the array takes 4000000000000 bytes, but only 4 follow"},
      {"two arrays", good + good, "bytes follow the array; keep one array in a .npy file"},
  };
}

TEST(Npy, EachRuleHasItsOwnMessage) {
  for (const BadFile& bad : bad_files()) {
    const std::string message = error_of(bad.file);
    EXPECT_TRUE(message.starts_with("x.npy: ")) << bad.name << ": " << message;
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.name << ": " << message;
  }
  EXPECT_GE(bad_files().size(), 50u);
}

TEST(Npy, WriterRefusesDataThatDoesNotFit) {
  EXPECT_NE(message_of<UsageError>([] {
              npy_bytes({DType::f32, {2}, std::vector<std::byte>(4)});
            }).find("f32 [2] takes 8 bytes, but 4 are given"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { npy_bytes({DType::f32, {-1}, {}}); }).find("is negative"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([] {
              npy_bytes({DType::f32, Shape(std::vector<Extent>(4000, 1)), std::vector<std::byte>(4)});
            }).find("does not fit the header"),
            std::string::npos);
  EXPECT_NE(message_of<ShapeError>([] { Array::of<float>({2}, {1}); }).find("the shape holds 2"), std::string::npos);
  EXPECT_NE(
      message_of<DTypeError>([] { Array::of<float>({1}, {1}).values<double>(); }).find("array of f32 is read as f64"),
      std::string::npos);
}

TEST(Npy, ErrorsOfReadNameThePath) {
  const TemporaryFolder folder;
  const auto path = folder.put("cut.npy", "\x93NUM");
  EXPECT_NE(message_of<FileError>([&] { read_npy(path); }).find("cut.npy: does not begin"), std::string::npos);
}

void load_or_refuse(const std::string& text) {
  const std::string heap(text);
  try {
    const Array array = parse(heap);
    ASSERT_EQ(array.data.size(), static_cast<std::size_t>(array.shape.numel()) * size_bytes(array.dtype));
  } catch (const FileError&) {
  }
}

TEST(NpyMutations, EveryTruncationIsRefused) {
  const std::string file = file_of(described("<f4", "(2, 3)", "True"), raw<float>({1, 2, 3, 4, 5, 6}));
  for (std::size_t length = 0; length < file.size(); ++length)
    EXPECT_NE(error_of(file.substr(0, length)), "no error") << length;
}

TEST(NpyMutations, EveryFlippedBitAndReplacedByteLoadsOrIsRefused) {
  for (const std::string& file : {file_of(described("<f4", "(2, 3)", "True"), raw<float>({1, 2, 3, 4, 5, 6})),
                                  file_of(described("<i8", "(2,)"), raw<std::int64_t>({1, 2}))}) {
    for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
      std::string mutated = file;
      mutated[bit / 8] = static_cast<char>(mutated[bit / 8] ^ (1 << bit % 8));
      load_or_refuse(mutated);
    }
    for (std::size_t at = 0; at < file.size(); ++at)
      for (const char c : std::string("'\"{}()[],:09-<>|TFObu\\ \0\xff", 26)) {
        std::string mutated = file;
        mutated[at] = c;
        load_or_refuse(mutated);
      }
  }
}

TEST(NpyMutations, MuchDamageIsReadOrRefused) {
  survive_damage({file_of(described("<f4", "(2, 3)", "True"), raw<float>({1, 2, 3, 4, 5, 6})),
                  file_of(described(">i8", "(2,)"), raw<std::int64_t>({1, 2}), 2), file_of(described("|b1", "(0, 4)"))},
                 [](const std::string& text) {
                   const Array array = parse(text);
                   ASSERT_EQ(array.data.size(),
                             static_cast<std::size_t>(array.shape.numel()) * size_bytes(array.dtype));
                 });
}

}  // namespace
}  // namespace weft::io::npy_test
