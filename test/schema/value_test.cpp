// Values: what they hold, numbers compared exactly, objects, JSON text.
#include "weft/value.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/message_of.hpp"

namespace weft {
namespace {

using test::message_of;

TEST(Value, KnowsItsKind) {
  EXPECT_EQ(Value().kind(), Value::Kind::null);
  EXPECT_EQ(Value(true).kind(), Value::Kind::boolean);
  EXPECT_EQ(Value(3).kind(), Value::Kind::integer);
  EXPECT_EQ(Value(UINT64_MAX).kind(), Value::Kind::integer);
  EXPECT_EQ(Value(3.0).kind(), Value::Kind::number);
  EXPECT_EQ(Value("x").kind(), Value::Kind::string);
  EXPECT_EQ(Value::array({1, "a"}).kind(), Value::Kind::array);
  EXPECT_EQ(Value::object({{"a", 1}}).kind(), Value::Kind::object);
  EXPECT_TRUE(Value(3.0).is_integer());
  EXPECT_FALSE(Value(3.5).is_integer());
  EXPECT_EQ(Value(3.0).integer(), 3);
  EXPECT_EQ(Value(UINT64_MAX).unsigned_integer(), UINT64_MAX);
}

TEST(Value, RefusesWhatItDoesNotHold) {
  EXPECT_EQ(message_of<UsageError>([] { Value("x").integer(); }), "a value is string, not an integer");
  EXPECT_EQ(message_of<UsageError>([] { Value(3.5).integer(); }), "a value is number, not an integer");
  EXPECT_EQ(message_of<UsageError>([] { Value(UINT64_MAX).integer(); }),
            "18446744073709551615 is not an integer of 64 bits");
  EXPECT_EQ(message_of<UsageError>([] { Value(-1).unsigned_integer(); }), "-1 is not an unsigned integer of 64 bits");
  EXPECT_EQ(message_of<UsageError>([] { Value::object({})["a"]; }), "an object has no member \"a\"");
  EXPECT_EQ(message_of<UsageError>([] { Value::array({1})[std::size_t{1}]; }), "element 1 of an array of 1");
  EXPECT_EQ(message_of<UsageError>([] { Value::object({{"a", 1}, {"a", 2}}); }), "key \"a\" is given twice");
}

TEST(Value, ComparesNumbersExactly) {
  const std::int64_t large = (std::int64_t{1} << 53) + 1;  // no double
  EXPECT_EQ(Value(3), Value(3.0));
  EXPECT_NE(Value(large), Value(0x1p53));
  EXPECT_GT(compare_numbers(large, 0x1p53), 0);
  EXPECT_LT(compare_numbers(INT64_MAX, 0x1p63), 0);
  EXPECT_EQ(compare_numbers(std::uint64_t{1} << 63, 0x1p63), 0);
  EXPECT_GT(compare_numbers(UINT64_MAX, INT64_MAX), 0);
  EXPECT_LT(compare_numbers(INT64_MIN, UINT64_MAX), 0);
  EXPECT_LT(compare_numbers(-1, -0.5), 0);
  EXPECT_GT(compare_numbers(-0.5, -1), 0);
  EXPECT_LT(compare_numbers(1e300, INFINITY), 0);
  EXPECT_NE(Value(NAN), Value(NAN));
  EXPECT_EQ(Value(3).hash(), Value(3.0).hash());
  EXPECT_NE(Value(1), Value(true));
}

TEST(Value, ObjectsKeepTheirOrderAndFindTheirMembers) {
  Value::Object object;
  for (int i = 0; i < 100; ++i) object.set("k" + std::to_string((i * 37) % 100), i);
  EXPECT_EQ(object.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(object.find("k" + std::to_string((i * 37) % 100)));
    EXPECT_EQ(*object.find("k" + std::to_string((i * 37) % 100)), Value(i));
  }
  EXPECT_EQ(object[1].key, "k37");
  EXPECT_FALSE(object.find("k100"));
  object.set("k37", "other");
  EXPECT_EQ(object.size(), 100u);
  object.remove("k0");
  EXPECT_EQ(object.size(), 99u);
  EXPECT_EQ(object[0].key, "k37");
  EXPECT_FALSE(object.contains("k0"));
  EXPECT_EQ(Value::object({{"a", 1}, {"b", 2}}), Value::object({{"b", 2.0}, {"a", 1}}));
  EXPECT_EQ(Value::object({{"a", 1}, {"b", 2}}).hash(), Value::object({{"b", 2.0}, {"a", 1}}).hash());
}

TEST(Value, ReadsAndWritesJson) {
  const char* text = R"({"b":[1,-2,2.5,1e+300,18446744073709551615],"a":{"x":null,"y":true},"s":"\"\\\n\u0001é"})";
  const Value value = Value::parse(text);
  EXPECT_EQ(value.to_json(), text);
  EXPECT_EQ(Value::parse(value.to_json(2)), value);
  EXPECT_EQ(Value(2.0).to_json(), "2.0");
  EXPECT_EQ(Value(INFINITY).to_json(), "\"inf\"");
  EXPECT_EQ(Value("\xff").to_json(), "\"\\ufffd\"");
  EXPECT_EQ(Value::parse("[1, [2, 3]]").to_json(2), "[\n  1,\n  [2, 3]\n]");
  EXPECT_EQ(message_of<FileError>([] { Value::parse("{\"a\": 1, \"a\": 2}"); }),
            "JSON: line 1, column 12: key \"a\" occurs twice; keep one");
  EXPECT_EQ(message_of<FileError>([] { Value::parse(std::string(65, '[')); }),
            "JSON: line 1, column 65: arrays and objects are nested deeper than 64");
}

}  // namespace
}  // namespace weft
