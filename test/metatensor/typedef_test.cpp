// Layouts: the bytes of every kind in both modes, places of parts, hostile schemas and hostile bytes.
#include "weft/typedef.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "weft/device.hpp"

namespace weft::typedefs {
namespace {

using test::message_of;

Layout layout(const char* schema, Mode mode = Mode::aligned) { return Layout(Value::parse(schema), mode); }

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<int>(b) >> 4];
    text += kDigits[static_cast<int>(b) & 15];
  }
  return text;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

struct KindCase {
  const char* schema;
  const char* value;
  const char* packed;  // "" where the kind is not for this mode
  const char* aligned;
};

// A leading byte, so that packed values are not aligned.
const KindCase kKindCases[] = {
    {R"({"TypeDef:Int8": true})", "-2", "07fe", "07fe"},
    {R"({"TypeDef:Uint8": true})", "200", "07c8", "07c8"},
    {R"({"TypeDef:Int16": true})", "-2", "07feff", "0700feff"},
    {R"({"TypeDef:Uint16": true})", "258", "070201", "07000201"},
    {R"({"TypeDef:Int32": true})", "-2", "07feffffff", "07000000feffffff"},
    {R"({"TypeDef:Uint32": true})", "4294967295", "07ffffffff", "07000000ffffffff"},
    {R"({"TypeDef:Int64": true})", "-9223372036854775808", "070000000000000080", "07000000000000000000000000000080"},
    {R"({"TypeDef:Uint64": true})", "18446744073709551615", "07ffffffffffffffff", "0700000000000000ffffffffffffffff"},
    {R"({"TypeDef:Float16": true})", "-1.5", "0700be", "070000be"},
    {R"({"TypeDef:BFloat16": true})", "1.0", "07803f", "0700803f"},
    {R"({"TypeDef:Float32": true})", "1.0", "070000803f", "070000000000803f"},
    {R"({"TypeDef:Float64": true})", "\"-inf\"", "07000000000000f0ff", "0700000000000000000000000000f0ff"},
    {R"({"TypeDef:Boolean": true})", "true", "0701", "0701"},
    {R"({"TypeDef:Enum": true, "enum": ["a", "b"]})", "\"b\"", "0701000000", "0700000001000000"},
    {R"({"TypeDef:String": true})", "\"hé\"", "070300000068c3a9", ""},
    {R"({"TypeDef:String": true, "maxLength": 5})", "\"hi\"", "07020000006869", "0700000002000000686900000000000000"},
    {R"({"TypeDef:Timestamp": true})", "\"2026-01-02T03:04:05Z\"", "0714000000323032362d30312d30325430333a30343a30355a",
     ""},
    {R"({"TypeDef:Record": true, "additionalProperties": {"TypeDef:Uint8": true}})", R"({"k": 5})",
     "0701000000010000006b05", ""},
    {R"({"TypeDef:Array": true, "items": {"TypeDef:Uint16": true}, "minItems": 2, "maxItems": 2})", "[1, 2]",
     "0701000200", "070001000200"},
    {R"({"TypeDef:Array": true, "items": {"TypeDef:Uint16": true}})", "[1, 2]", "070200000001000200", ""},
    {R"({"TypeDef:Array": true, "items": {"TypeDef:Uint16": true}, "maxItems": 3})", "[1]", "07010000000100",
     "070000000100000001000000000000 00"},
    {R"({"TypeDef:Array": true, "items": {"TypeDef:String": true}})", R"(["a", ""])", "0702000000010000006100000000",
     ""},
    {R"({"TypeDef:Union": {"discriminator": "kind", "mapping": {
        "dot": {"TypeDef:Struct": true, "properties": {}},
        "box": {"TypeDef:Struct": true, "properties": {"w": {"TypeDef:Float32": true}}}}}})",
     R"({"kind": "box", "w": 1.0})", "07010000000000803f", "07000000010000000000803f"},
    {R"({"TypeDef:Union": {"discriminator": {"offset": 1, "type": "Uint8"}, "mapping": {
        "3": {"TypeDef:Uint8": true}, "9": {"TypeDef:Uint16": true}}}})",
     R"({"__discriminator": 9, "value": 513})", "0700090102", "070000090102"},
};

std::string without_spaces(std::string text) {
  std::erase(text, ' ');
  return text;
}

TEST(Typedef, BytesOfEveryKindInBothModes) {
  for (const KindCase& c : kKindCases)
    for (const Mode mode : {Mode::packed, Mode::aligned}) {
      const std::string schema =
          std::string(R"({"TypeDef:Struct": true, "properties": {"first": {"TypeDef:Uint8": true}, "x": )") + c.schema +
          "}}";
      std::string expected = without_spaces(mode == Mode::packed ? c.packed : c.aligned);
      if (expected.empty()) {
        EXPECT_THROW(Layout(Value::parse(schema), mode), LayoutError) << schema;
        continue;
      }
      const Layout made(Value::parse(schema), mode);
      const Value value = Value::object({{"first", 7}, {"x", Value::parse(c.value)}});
      const Encoded encoded = made.encode(value);
      std::string got = hex(encoded.data);
      if (mode == Mode::aligned) {
        ASSERT_TRUE(made.size_bytes().has_value());
        EXPECT_EQ(got.size() / 2, *made.size_bytes());
        // Padding at the end is of no interest here; it is zero.
        while (got.size() > expected.size()) {
          EXPECT_TRUE(got.ends_with("00")) << schema << ' ' << got;
          got.resize(got.size() - 2);
        }
        while (expected.size() > got.size() && expected.ends_with("00")) expected.resize(expected.size() - 2);
      }
      EXPECT_EQ(got, expected) << schema;
      EXPECT_EQ(made.view(encoded.data).value(), value) << schema;
      made.view(encoded.data).check();
    }
}

// Unaligned fields in packed mode, padded in aligned mode.
TEST(Typedef, PackedFieldsAreUnalignedAndAlignedFieldsArePadded) {
  const char* schema = R"({"TypeDef:Struct": true, "properties": {
    "a": {"TypeDef:Uint8": true}, "b": {"TypeDef:Float64": true}, "c": {"TypeDef:Uint16": true}}})";
  const Layout packed = layout(schema, Mode::packed), aligned = layout(schema);
  EXPECT_EQ(packed.range("b"), (Range{1, 9}));
  EXPECT_EQ(packed.range("c"), (Range{9, 11}));
  EXPECT_EQ(packed.size_bytes(), 11u);
  EXPECT_EQ(packed.stride(), 11u);
  EXPECT_EQ(aligned.range("b"), (Range{8, 16}));
  EXPECT_EQ(aligned.range("c"), (Range{16, 18}));
  EXPECT_EQ(aligned.size_bytes(), 24u) << "with the padding behind the last field";
  EXPECT_EQ(aligned.alignment(), 8u);
  const Value value = Value::parse(R"({"a": 1, "b": 2.5, "c": 3})");
  EXPECT_EQ(packed.view(packed.encode(value).data).at("b").number(), 2.5);
  EXPECT_EQ(aligned.view(aligned.encode(value).data).at("b").number(), 2.5);
}

TEST(Typedef, AnnotationsOfAlignment) {
  const Layout made = layout(R"({"TypeDef:Struct": {"align": 64}, "properties": {
    "a": {"TypeDef:Uint8": true},
    "near": {"TypeDef:Float32": true, "TypeDef:Align": 1},
    "far": {"TypeDef:Uint8": true, "TypeDef:Align": 32},
    "inner": {"TypeDef:Struct": {"align": 16}, "TypeDef:Align": 4, "properties": {"x": {"TypeDef:Uint8": true}}}}})");
  EXPECT_EQ(made.range("near"), (Range{1, 5})) << "below its own alignment";
  EXPECT_EQ(made.range("far"), (Range{32, 33}));
  EXPECT_EQ(made.range("inner"), (Range{36, 40})) << "the field's alignment wins";
  EXPECT_EQ(made.size_bytes(), 64u);
  EXPECT_EQ(made.alignment(), 64u);
}

TEST(Typedef, PathsOfNestedParts) {
  const Layout made = layout(R"({"TypeDef:Struct": true, "properties": {
    "points": {"TypeDef:Array": true, "items": {"$ref": "Point"}, "minItems": 3, "maxItems": 3},
    "shape": {"TypeDef:Union": {"discriminator": "kind", "mapping": {"circle": {"$ref": "Point"}}}},
    "pixels": {"TypeDef:Tensor": {"dtype": "f16", "shape": [2, 3]}}},
    "$defs": {"Point": {"TypeDef:Struct": true, "properties": {"x": {"TypeDef:Float32": true}, "y": {"TypeDef:Float32": true}}}}})");
  EXPECT_EQ(made.schema()["properties"]["points"]["items"]["$ref"], Value("#/$defs/Point"));
  EXPECT_EQ(made.range("points.2.y"), (Range{20, 24}));
  EXPECT_EQ(made.range("shape.__discriminator"), (Range{24, 28}));
  EXPECT_EQ(made.range("shape.circle.y"), (Range{32, 36}));
  EXPECT_EQ(made.range("pixels"), (Range{36, 48}));
  EXPECT_EQ(made.tensor_at("pixels"), std::pair(DType::f16, Shape({2, 3})));
  std::string all;
  for (const auto& [path, range] : made.ranges()) all += path + " ";
  EXPECT_EQ(all, "points.0.x points.0.y shape.__discriminator shape.circle.x shape.circle.y pixels ");
  EXPECT_EQ(message_of<LayoutError>([&] { made.range("points.3.x"); }), "\"points.3\": is not an index below 3");
  EXPECT_EQ(message_of<LayoutError>([&] { made.range("shape.square"); }), "\"shape.square\": there is no such part");
  const Layout packed = layout(R"({"TypeDef:Struct": true, "properties": {
    "name": {"TypeDef:String": true}, "after": {"TypeDef:Uint8": true}}})",
                               Mode::packed);
  try {
    packed.range("after");
    ADD_FAILURE();
  } catch (const LayoutError& error) {
    EXPECT_EQ(error.code(), LayoutError::Code::offset);
    EXPECT_EQ(error.path(), "after");
  }
  const Encoded encoded = packed.encode(Value::parse(R"({"name": "abc", "after": 9})"));
  EXPECT_EQ(packed.view(encoded.data).at("after").integer(), 9) << "views know where it is";
  EXPECT_EQ(packed.view(encoded.data).at("after").range(), (Range{7, 8}));
}

TEST(Typedef, BigEndian) {
  const Layout made = layout(R"({"TypeDef:Struct": true, "TypeDef:Endian": "big", "properties": {
    "a": {"TypeDef:Uint32": true}, "b": {"TypeDef:String": true, "maxLength": 2}, "c": {"TypeDef:Float16": true}}})");
  const Value value = Value::parse(R"({"a": 258, "b": "x", "c": 1.0})");
  const Encoded encoded = made.encode(value);
  EXPECT_EQ(hex(encoded.data),
            "00000102"
            "0000000178000000"
            "3c000000");
  EXPECT_EQ(made.view(encoded.data).value(), value);
}

TEST(Typedef, IndirectTextsAreInTheRegion) {
  const Layout made = layout(R"({"TypeDef:Struct": true, "properties": {
    "a": {"TypeDef:String": {"encoding": "offset-indirect"}}, "b": {"TypeDef:String": {"encoding": "offset-indirect"}}}})");
  EXPECT_TRUE(made.uses_region());
  EXPECT_EQ(made.size_bytes(), 16u);
  const Value value = Value::parse(R"({"a": "long text", "b": "more"})");
  Encoded encoded = made.encode(value);
  EXPECT_EQ(hex(encoded.data), "00000000090000000900000004000000");
  EXPECT_EQ(made.view(encoded.data, encoded.region).value(), value);
  EXPECT_NE(message_of<LayoutError>([&] { made.view(encoded.data).at("b").string(); }).find("beyond the 0 bytes"),
            std::string::npos);
  encoded.data[8] = std::byte{0};
  encoded.data[12] = std::byte{9};
  EXPECT_EQ(made.view(encoded.data, encoded.region).at("b").string(), "long text") << "one text alone may be read";
  EXPECT_NE(message_of<LayoutError>([&] { made.view(encoded.data, encoded.region).value(); }).find("overlap"),
            std::string::npos);
}

TEST(Typedef, TensorsAndBytes) {
  const Layout made = layout(R"({"TypeDef:Struct": true, "properties": {
    "raw": {"TypeDef:Bytes": true, "maxLength": 3}, "x": {"TypeDef:Tensor": {"dtype": "f32", "shape": [2]}},
    "q": {"TypeDef:Tensor": {"dtype": "int4", "shape": [3]}}}})");
  const Tensor x = tensor({1.0f, -2.0f}), raw = tensor<std::uint8_t>({std::uint8_t{7}, std::uint8_t{8}});
  const Tensor q = cast(tensor({1.0f, -8.0f, 3.0f}), DType::int4);
  const Encoded encoded = made.encode(Value::object({{"raw", raw}, {"x", x}, {"q", q}}));
  EXPECT_EQ(hex(encoded.data),
            "0200000007080000"
            "0000803f000000c0"
            "81030000");
  const Value back = made.view(encoded.data).value();
  EXPECT_EQ(back["raw"].tensor().to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{7, 8}));
  EXPECT_EQ(back["x"].tensor().to_vector<float>(), (std::vector<float>{1, -2}));
  EXPECT_EQ(cast(back["q"].tensor(), DType::f32).to_vector<float>(), (std::vector<float>{1, -8, 3}));
  EXPECT_NE(message_of<LayoutError>([&] {
              made.encode(Value::object({{"raw", raw}, {"x", tensor({1.0f})}, {"q", q}}));
            }).find("\"x\": the tensor has shape [1], and not [2]"),
            std::string::npos);
}

TEST(Typedef, DeclarationsInOtherLanguages) {
  const Layout made = layout(R"({"TypeDef:Struct": true, "properties": {
    "kind": {"TypeDef:Enum": true, "enum": ["on", "off"]}, "x": {"TypeDef:Tensor": {"dtype": "f32", "shape": [2, 2]}},
    "n": {"TypeDef:Uint32": true, "TypeDef:Align": 16}}})");
  EXPECT_EQ(declarations(made, Language::cpp, "Sample"),
            "#include <cstddef>\n#include <cstdint>\n\n#pragma pack(push, 1)\n"
            "enum class Sample_kind : std::uint32_t { on = 0, off = 1 };\n"
            "struct Sample {\n  Sample_kind kind;\n  float x[4];\n  std::uint8_t padding_20[12];\n  std::uint32_t n;\n"
            "  std::uint8_t padding_36[12];\n};\nstatic_assert(sizeof(Sample) == 48);\n"
            "static_assert(offsetof(Sample, kind) == 0);\nstatic_assert(offsetof(Sample, x) == "
            "4);\nstatic_assert(offsetof(Sample, n) == 32);\n"
            "#pragma pack(pop)\n");
  EXPECT_EQ(declarations(made, Language::rust, "Sample"),
            "#![allow(non_camel_case_types, non_upper_case_globals)]\n"
            "pub type Sample_kind = u32;\npub const Sample_kind_on: Sample_kind = 0;\npub const Sample_kind_off: "
            "Sample_kind = 1;\n"
            "#[repr(C, packed)]\n#[derive(Clone, Copy)]\npub struct Sample {\n    pub kind: Sample_kind,\n    pub x: "
            "[f32; 4],\n"
            "    pub padding_20: [u8; 12],\n    pub n: u32,\n    pub padding_36: [u8; 12],\n}\n"
            "const _: () = assert!(core::mem::size_of::<Sample>() == 48);\n");
  EXPECT_EQ(
      declarations(made, Language::wgsl, "Sample"),
      "alias Sample_kind = u32;\nconst Sample_kind_on: u32 = 0u;\nconst Sample_kind_off: u32 = 1u;\n"
      "struct Sample {\n  kind: Sample_kind,\n  @size(28) x: array<f32, 4>,\n  @size(16) n: u32,\n}  // 48 bytes\n");
  EXPECT_EQ(declarations(made, Language::typescript, "Sample"),
            "import type { Tensor } from \"weft\";\n\nexport type Sample = { \"kind\": \"on\" | \"off\"; \"x\": "
            "Tensor; \"n\": number; };\n"
            "/** Where the parts are: [begin, end) in 48 bytes. */\nexport const Sample_places = {\n  \"kind\": [0, "
            "4],\n  \"x\": [4, 20],\n"
            "  \"n\": [32, 36],\n} as const;\n");
}

TEST(Typedef, DeclarationsThatALanguageLacksAreRefused) {
  const auto refused = [](const char* schema, Language language, Mode mode = Mode::aligned) {
    return message_of<LayoutError>([&] { declarations(Layout(Value::parse(schema), mode), language, "T"); });
  };
  const char* byte = R"({"TypeDef:Struct": true, "properties": {"a": {"TypeDef:Uint8": true}}})";
  EXPECT_NE(refused(byte, Language::wgsl).find("fewer than 4 bytes"), std::string::npos);
  EXPECT_NE(
      refused(R"({"TypeDef:Struct": true, "TypeDef:Endian": "big", "properties": {"a": {"TypeDef:Uint8": true}}})",
              Language::cpp)
          .find("little-endian"),
      std::string::npos);
  EXPECT_NE(refused(R"({"TypeDef:Uint8": true})", Language::rust).find("is not a Struct"), std::string::npos);
  EXPECT_NE(
      refused(R"({"TypeDef:Struct": true, "properties": {"a": {"TypeDef:String": true}}})", Language::cpp, Mode::packed)
          .find("depends on the data"),
      std::string::npos);
  EXPECT_NE(
      refused(
          R"({"TypeDef:Struct": true, "properties": {"a b": {"TypeDef:Uint8": true}, "a_b": {"TypeDef:Uint8": true}}})",
          Language::cpp)
          .find("two fields would have the name"),
      std::string::npos);
  EXPECT_NE(
      refused(R"({"TypeDef:Struct": true, "properties": {"u": {"TypeDef:Union": {"discriminator": "k", "mapping": {
      "a": {"TypeDef:Struct": true, "properties": {"x": {"TypeDef:Float32": true}}}}}}}})",
              Language::wgsl)
          .find("WGSL has no unions"),
      std::string::npos);
}

struct BadSchema {
  const char* schema;
  Mode mode;
  const char* message;
};

const BadSchema kBadSchemas[] = {
    {"3", Mode::packed, "is not an object"},
    {"{}", Mode::packed, "it has no kind"},
    {R"({"TypeDef:Int8": true, "TypeDef:Int16": true})", Mode::packed, "it has two kinds"},
    {R"({"TypeDef:Int7": true})", Mode::packed, "there is no keyword \"TypeDef:Int7\""},
    {R"({"TypeDef:Int8": false})", Mode::packed, "neither true nor an object"},
    {R"({"TypeDef:Int8": true, "TypeDef:Endian": "middle"})", Mode::packed, "neither little nor big"},
    {R"({"TypeDef:Int8": true, "TypeDef:Align": 3})", Mode::aligned, "a power of two from 1 to 256, and not 3"},
    {R"({"TypeDef:Int8": true, "TypeDef:Align": 512})", Mode::aligned, "and not 512"},
    {R"({"TypeDef:Struct": true})", Mode::packed, "a Struct has \"properties\""},
    {R"({"TypeDef:Struct": true, "properties": {"a.b": {"TypeDef:Int8": true}}})", Mode::packed, "cannot be a name"},
    {R"({"TypeDef:Struct": true, "properties": {"a": 1}})", Mode::packed, "at \"/properties/a\": it is not an object"},
    {R"({"TypeDef:Array": true})", Mode::packed, "an Array has \"items\""},
    {R"({"TypeDef:Array": true, "items": {"TypeDef:Int8": true}})", Mode::aligned, "an Array needs maxItems"},
    {R"({"TypeDef:Array": true, "items": {"TypeDef:Int8": true}, "minItems": 3, "maxItems": 2})", Mode::packed,
     "above maxItems"},
    {R"({"TypeDef:Array": true, "items": {"TypeDef:Struct": true, "properties": {}}})", Mode::packed,
     "cannot be counted"},
    {R"({"TypeDef:String": true})", Mode::aligned, "in aligned mode it needs maxLength"},
    {R"({"TypeDef:String": true, "maxLength": -1})", Mode::packed, "not a whole number of 32 bits"},
    {R"({"TypeDef:String": {"encoding": "zip"}})", Mode::packed, "there is no encoding"},
    {R"({"TypeDef:Record": true, "additionalProperties": {"TypeDef:Int8": true}})", Mode::aligned, "no fixed size"},
    {R"({"TypeDef:Record": true})", Mode::packed, "the type of its values"},
    {R"({"TypeDef:Enum": true})", Mode::packed, "lists its words"},
    {R"({"TypeDef:Enum": true, "enum": ["a", "a"]})", Mode::packed, "repeats a word"},
    {R"({"TypeDef:Tensor": true})", Mode::packed, "a dtype and a shape"},
    {R"({"TypeDef:Tensor": {"dtype": "f31", "shape": []}})", Mode::packed, "there is no dtype \"f31\""},
    {R"({"TypeDef:Tensor": {"dtype": "f32", "shape": [-1]}})", Mode::packed, "not a whole number of 63 bits"},
    {R"({"TypeDef:Tensor": {"dtype": "q4_0", "shape": [33]}})", Mode::packed, "do not divide into blocks of 32"},
    {R"({"TypeDef:Tensor": {"dtype": "f32", "shape": [4294967296, 4294967296]}})", Mode::packed, "overflows 64 bits"},
    {R"({"TypeDef:Tensor": {"dtype": "f64", "shape": [4611686018427387904]}})", Mode::packed, "overflows 64 bits"},
    {R"({"TypeDef:Union": true})", Mode::packed, "a discriminator and a mapping"},
    {R"({"TypeDef:Union": {"discriminator": "k", "mapping": {"a": {"TypeDef:Int8": true}}}})", Mode::packed,
     "are Structs"},
    {R"({"TypeDef:Union": {"discriminator": {"offset": 0, "type": "Uint8"}, "mapping": {"256": {"TypeDef:Int8": true}}}})",
     Mode::packed, "is not a number of 1 bytes"},
    {R"({"TypeDef:Union": {"discriminator": {"type": "Int8"}, "mapping": {"1": {"TypeDef:Int8": true}}}})",
     Mode::packed, "the discriminator is the name of a field"},
    {R"({"$ref": "Nowhere"})", Mode::packed, "$defs has no \"Nowhere\""},
    {R"({"$ref": "https://example.org/x"})", Mode::packed, "not the name of a definition"},
    {R"({"$ref": "A", "$defs": {"A": {"TypeDef:Array": true, "items": {"$ref": "A"}, "maxItems": 2}}})", Mode::packed,
     "contains itself"},
    {R"({"TypeDef:Array": true, "minItems": 4294967295, "maxItems": 4294967295, "items": {"TypeDef:Array": true,
        "minItems": 4294967295, "maxItems": 4294967295, "items": {"TypeDef:Float64": true}}})",
     Mode::packed, "overflows 64 bits"},
    {R"({"TypeDef:String": true, "pattern": "("})", Mode::packed, "the layout's schema"},
};

TEST(Typedef, RefusesSchemasThatAreNoLayouts) {
  for (const BadSchema& bad : kBadSchemas) {
    const std::string message = message_of<LayoutError>([&] { layout(bad.schema, bad.mode); });
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.schema << ": " << message;
  }
  std::string deep = R"({"TypeDef:Int8": true})";
  for (int i = 0; i < 30; ++i) deep = R"({"TypeDef:Struct": true, "properties": {"a": )" + deep + "}}";
  layout(deep.c_str());
}

// Definitions of definitions: few bytes of schema, any number of paths. The layout is small, and lists are cut with an error.
TEST(Typedef, DefinitionsMayDoubleWithoutCost) {
  std::string schema = R"({"$ref": "A30", "$defs": {"A0": {"TypeDef:Int8": true})";
  for (int i = 1; i <= 30; ++i) {
    const std::string inner = R"({"$ref": "A)" + std::to_string(i - 1) + "\"}";
    schema += ", \"A" + std::to_string(i) + R"(": {"TypeDef:Struct": true, "properties": {"l": )" + inner +
              ", \"r\": " + inner + "}}";
  }
  const Layout made = layout((schema + "}}").c_str());
  EXPECT_EQ(made.size_bytes(), std::uint64_t{1} << 30);
  EXPECT_NE(message_of<LayoutError>([&] { made.ranges(); }).find("too many parts"), std::string::npos);
  for (const Language language : {Language::cpp, Language::rust, Language::typescript, Language::wgsl})
    EXPECT_THROW(declarations(made, language, "A"), LayoutError);
}

TEST(Typedef, ValuesThatDoNotFitAreRefused) {
  const Layout made = layout(R"({"TypeDef:Struct": true, "properties": {
    "n": {"TypeDef:Int8": true, "minimum": 0}, "s": {"TypeDef:String": true, "maxLength": 4}, "f": {"TypeDef:Float16": true}}})");
  const auto refused = [&](const char* value) {
    return message_of<LayoutError>([&] { made.encode(Value::parse(value)); });
  };
  EXPECT_NE(refused(R"({"n": 128, "s": "", "f": 0})").find("/n: is 128, which is above the maximum of 127"),
            std::string::npos);
  EXPECT_NE(refused(R"({"n": -1, "s": "", "f": 0})").find("/n: "), std::string::npos)
      << "the schema's own keywords hold too";
  EXPECT_NE(refused(R"({"n": 1, "s": "", "f": 0, "g": 0})").find("\"g\""), std::string::npos);
  EXPECT_NE(refused(R"({"n": 1, "s": ""})").find("\"f\""), std::string::npos);
  EXPECT_NE(refused(R"({"n": 1, "s": "éé€", "f": 0})").find("\"s\": has 7 bytes, above its maxLength of 4"),
            std::string::npos);
  EXPECT_NE(refused(R"({"n": 1, "s": "", "f": 70000})").find("\"f\": 70000 is out of range"), std::string::npos);
}

TEST(Typedef, BytesThatCannotBeReadAreRefused) {
  const Layout made = layout(R"({"TypeDef:Struct": true, "properties": {
    "b": {"TypeDef:Boolean": true}, "e": {"TypeDef:Enum": true, "enum": ["x"]}, "s": {"TypeDef:String": true},
    "t": {"TypeDef:Timestamp": true}}})",
                             Mode::packed);
  const auto view = [&](const std::string& bytes, const char* path) {
    const std::vector<std::byte> data = bytes_of(bytes);
    return message_of<LayoutError>([&] {
      const View part = made.view(data).at(path);
      part.value();
    });
  };
  const std::string zero4(4, '\0');
  EXPECT_EQ(view("\2", "b"), "\"b\": a Boolean is the byte 0 or 1, and not 2");
  EXPECT_NE(view("\1\1" + zero4.substr(1), "e").find("the index 1 is beyond the 1 words"), std::string::npos);
  EXPECT_NE(view("\1" + zero4 + "\377\377\377\377", "s").find("beyond the 9 bytes"), std::string::npos);
  EXPECT_NE(view("\1" + zero4 + std::string("\1\0\0\0\xff", 5), "s").find("not UTF-8 at byte 0"), std::string::npos);
  EXPECT_NE(view("\1" + zero4 + zero4 + std::string("\1\0\0\0x", 5), "t").find("is not a time"), std::string::npos);
  EXPECT_NE(view("", "e").find("beyond the 0 bytes"), std::string::npos);
}

// Every kind in one packed value.
const char* kEverything = R"({"TypeDef:Struct": true, "properties": {
  "n": {"TypeDef:Int16": true}, "b": {"TypeDef:Boolean": true}, "e": {"TypeDef:Enum": true, "enum": ["x", "y"]},
  "s": {"TypeDef:String": true}, "t": {"TypeDef:Timestamp": true}, "i": {"TypeDef:String": {"encoding": "offset-indirect"}},
  "m": {"TypeDef:Record": true, "additionalProperties": {"TypeDef:String": true}},
  "a": {"TypeDef:Array": true, "items": {"TypeDef:Array": true, "items": {"TypeDef:Uint8": true}}},
  "u": {"TypeDef:Union": {"discriminator": "k", "mapping": {
     "p": {"TypeDef:Struct": true, "properties": {"v": {"TypeDef:Float64": true}}},
     "q": {"TypeDef:Struct": true, "properties": {"w": {"TypeDef:String": true}}}}}}}})";

TEST(TypedefHostile, DamagedBytesAreReadOrRefusedWithinLittleMemory) {
  const Layout made = layout(kEverything, Mode::packed);
  const Encoded good =
      made.encode(Value::parse(R"({"n": -3, "b": true, "e": "y", "s": "text", "t": "2026-01-02T03:04:05Z",
    "i": "indirect", "m": {"k": "v", "l": ""}, "a": [[1, 2], [], [3]], "u": {"k": "q", "w": "z"}})"));
  const test::MemoryLimit limit(std::size_t{64} << 20);
  const std::string text(reinterpret_cast<const char*>(good.data.data()), good.data.size());
  int read = 0, refused = 0;
  test::for_each_mutation(text, text.size(), 2000, [&](const std::string& mutated, const std::string&) {
    const std::vector<std::byte> data = bytes_of(mutated);
    try {
      made.view(data, good.region).value();
      ++read;
    } catch (const LayoutError& error) {
      EXPECT_EQ(error.code(), LayoutError::Code::access);
      ++refused;
    }
  });
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 100);
}

TEST(TypedefHostile, DamagedSchemasAreTakenOrRefused) {
  const std::string text = kEverything;
  std::mt19937_64 random(5);
  const int rounds = test::every_mutation() ? 200'000 : 3'000;
  for (int i = 0; i < rounds; ++i) {
    std::string mutated = text;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % mutated.size();
      if (random() % 2)
        mutated[at] = "{}[]:,\"0a"[random() % 9];
      else
        mutated.insert(at, mutated.substr(random() % mutated.size(), 1 + random() % 40));
    }
    try {
      const Layout made(Value::parse(mutated), random() % 2 ? Mode::packed : Mode::aligned);
      made.ranges();
    } catch (const LayoutError&) {
    } catch (const FileError&) {  // not JSON
    }
  }
}

}  // namespace
}  // namespace weft::typedefs
