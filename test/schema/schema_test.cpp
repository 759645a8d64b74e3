// Schemas: messages with their places, tensors, defaults, limits against hostile schemas and values. What keywords mean is
// tested by the official suite (schema_suite).
#include "weft/schema.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/message_of.hpp"

namespace weft::schema {
namespace {

using test::message_of;

std::string violations(const char* schema, const Value& value, SchemaOptions options = {}) {
  std::string text;
  for (const Violation& each : Schema::parse(schema, std::move(options)).check(value))
    text += each.instance_path + " " + each.schema_path + " " + each.message + "\n";
  return text;
}
std::string violations(const char* schema, const char* value, SchemaOptions options = {}) {
  return violations(schema, Value::parse(value), std::move(options));
}
std::string refusal(const char* schema, SchemaOptions options = {}) {
  return message_of<SchemaError>([&] { Schema::parse(schema, std::move(options)); });
}

struct MessageCase {
  const char *schema, *value, *violations;
};
const MessageCase kMessages[] = {
    {R"({"type": "integer"})", R"("x")", " #/type is a string, and not an integer\n"},
    {R"({"type": ["null", "number"]})", "[]", " #/type is an array, and not null or a number\n"},
    {R"({"properties": {"a": {"maximum": 2}}})", R"({"a": 3})",
     "/a #/properties/a/maximum is 3, which is above the maximum of 2\n"},
    {R"({"exclusiveMinimum": 0})", "0", " #/exclusiveMinimum is 0, which is not above 0\n"},
    {R"({"multipleOf": 0.01})", "0.015", " #/multipleOf is 0.015, which is not a multiple of 0.01\n"},
    {R"({"items": {"minLength": 2}})", R"(["ab", "é"])",
     "/1 #/items/minLength has 1 characters, and needs at least 2\n"},
    {R"({"pattern": "^a"})", R"("b")", " #/pattern is \"b\", which does not match \"^a\"\n"},
    {R"({"enum": ["a", 1, null]})", "2", " #/enum is 2, and not one of \"a\", 1, null\n"},
    {R"({"const": [1]})", "3", " #/const is 3, and not an array of 1\n"},
    {R"({"required": ["a", "b"]})", "{}",
     " #/required has no property \"a\", which is required\n #/required has no property \"b\", which is required\n"},
    {R"({"properties": {"a": true, "b": true}, "additionalProperties": false})", R"({"c": 1})",
     " #/additionalProperties has a property \"c\", which is not known; known are a, b\n"},
    {R"({"uniqueItems": true})", "[1, 2, 1.0]", " #/uniqueItems has the element 2 (1.0) twice\n"},
    {R"({"contains": {"type": "string"}})", "[1]",
     " #/contains has 0 elements of the kind that is wanted, and needs at least 1\n"},
    {R"({"not": {"type": "string"}})", R"("x")", " #/not is \"x\", which is excluded\n"},
    {R"({"oneOf": [{"type": "integer"}, {"minimum": 2}]})", "3",
     " #/oneOf fits alternative 1 and 2, and must fit one only\n"},
    {R"({"anyOf": [{"type": "string"}, {"properties": {"a": {"type": "null"}}, "type": "object"}]})", R"({"a": 1})",
     " #/anyOf is an object of 1 members, and fits none of 2 alternatives\n/a #/anyOf/1/properties/a/type is an "
     "integer, and not null\n"},
    {R"({"$defs": {"p/q": {"type": "null"}}, "properties": {"a~b": {"$ref": "#/$defs/p~1q"}}})", R"({"a~b": 1})",
     "/a~0b #/$defs/p~1q/type is an integer, and not null\n"},
    {R"({"$id": "https://x.org/s", "additionalProperties": false})", R"({"a": 1})",
     " https://x.org/s#/additionalProperties has a property \"a\", and may have none of that name\n"},
    {R"({"properties": {"a": false}})", R"({"a": 1})", "/a #/properties/a is not allowed here\n"},
    {R"({"allOf": [{"properties": {"a": true}}], "unevaluatedProperties": false})", R"({"a": 1, "b": 2})",
     " #/unevaluatedProperties has a property \"b\", which no schema describes\n"},
    {R"({"dependentRequired": {"a": ["b"]}})", R"({"a": 1})",
     " #/dependentRequired has the property \"a\", and then needs \"b\" too\n"},
};

TEST(Schema, TellsWhatIsWrongAndWhere) {
  for (const MessageCase& one : kMessages) EXPECT_EQ(violations(one.schema, one.value), one.violations) << one.schema;
}

struct RefusedCase {
  const char *schema, *message;
};
const RefusedCase kRefused[] = {
    {"3", "schema #: is an integer, and not a boolean or an object"},
    {R"({"type": "int"})",
     "schema #/type: is \"int\", and fits none of 2 alternatives; the nearest refuses it because it is \"int\", "
     "and not one of \"array\", \"boolean\", \"integer\", \"null\", \"number\", \"object\", \"string\""},
    {R"({"minLength": -1})", "schema #/minLength: is -1, which is below the minimum of 0"},
    {R"({"properties": {"a": 3}})", "schema #/properties/a: is an integer, and not a boolean or an object"},
    {R"({"multipleOf": 0})", "schema #/multipleOf: is 0, which is not above 0"},
    {R"({"$ref": "#/$defs/x"})", "schema #: \"$ref\" leads to \"#/$defs/x\", and there is nothing"},
    {R"({"$ref": "#x"})", "schema #: \"$ref\" leads to \"#x\", and there is no such anchor"},
    {R"({"$ref": "https://x.org/y"})", "schema #: \"$ref\" leads to \"https://x.org/y\", which is not known here"},
    {R"({"pattern": "("})", "schema #/pattern: regular expression \"(\": a group is not closed at byte 1"},
    {R"({"pattern": "\\A"})", "schema #/pattern: regular expression \"\\\\A\": ECMA-262 has no escape \\A at byte 2"},
    {R"({"$schema": "http://json-schema.org/draft-07/schema#"})",
     "schema #: \"$schema\" is \"http://json-schema.org/draft-07/schema\"; only draft 2020-12 is supported"},
    {R"({"x-tensor": {"dtypes": ["f31"]}})", "schema #/x-tensor/dtypes: \"f31\" is not a dtype"},
    {R"({"$defs": {"a": {"$anchor": "n"}, "b": {"$anchor": "n"}}})",
     "schema #/$defs/b: the anchor \"n\" is given twice"},
};

TEST(Schema, RefusesWrongSchemas) {
  for (const RefusedCase& one : kRefused) EXPECT_EQ(refusal(one.schema), one.message) << one.schema;
}

TEST(Schema, RequiresVocabulariesThatItKnows) {
  const auto fetch = [](const std::string& uri) -> std::optional<Value> {
    if (uri != "https://x.org/meta") return std::nullopt;
    return Value::parse(R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://x.org/meta",
      "$vocabulary": {"https://json-schema.org/draft/2020-12/vocab/core": true, "https://x.org/vocab/own": true}})");
  };
  EXPECT_EQ(refusal(R"({"$schema": "https://x.org/meta"})", {.fetch = fetch}),
            "schema #: its meta-schema \"https://x.org/meta\" requires the vocabulary \"https://x.org/vocab/own\", "
            "which is not known");
}

TEST(Schema, TakesTensors) {
  const Value f32 = zeros({2}), i32 = zeros({2}, DType::i32);
  const char* any = R"({"x-tensor": true, "type": "object"})";
  const char* floats = R"({"x-tensor": {"dtypes": ["f32", "f64"]}})";
  EXPECT_EQ(violations(any, i32), "");
  EXPECT_EQ(violations(floats, f32), "");
  EXPECT_EQ(violations(floats, i32), " #/x-tensor is a tensor of i32, and not of f32, f64\n");
  EXPECT_EQ(violations(floats, "3"), " #/x-tensor is an integer, and not a tensor\n");
  EXPECT_EQ(violations(R"({"type": "object"})", f32), " #/type is a tensor, and not an object\n");
  EXPECT_EQ(violations("{}", f32), "");
  EXPECT_EQ(violations(R"({"anyOf": [{"type": "number"}, {"x-tensor": true}]})", f32), "");
}

TEST(Schema, FillsInDefaultsAndNormalises) {
  const Schema schema = Schema::parse(R"({
    "type": "object", "additionalProperties": false,
    "properties": {"n": {"type": "integer", "default": 3}, "x": {"type": "number"},
                   "o": {"$ref": "#/$defs/o"}, "l": {"items": {"$ref": "#/$defs/o"}}},
    "$defs": {"o": {"properties": {"k": {"default": "v"}}}}})");
  EXPECT_EQ(schema.with_defaults(Value::parse(R"({"o": {}, "l": [{}, {"k": 1}], "y": 2.0})")),
            Value::parse(R"({"o": {"k": "v"}, "l": [{"k": "v"}, {"k": 1}], "y": 2.0, "n": 3})"));
  const Value normal = schema.normalised(Value::parse(R"({"n": 4.0, "x": 4.0, "y": 2})"));
  EXPECT_EQ(normal.to_json(), R"({"n":4,"x":4.0})");
}

TEST(Schema, ChecksFormatsWhereAsked) {
  const char* schema = R"({"format": "date-time"})";
  EXPECT_EQ(violations(schema, R"("yesterday")"), "");
  EXPECT_EQ(violations(schema, R"("yesterday")", {.asserts_formats = true}),
            " #/format is \"yesterday\", which is not of the format date-time\n");
  EXPECT_EQ(violations(schema, R"("2026-02-28T23:59:60Z")", {.asserts_formats = true}), "");
}

// ---- Hostile schemas and values ---------------------------------------------------------------------------------------------

double seconds_of(const auto& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Schema, EndsWhereASchemaRefersToItself) {
  EXPECT_EQ(violations(R"({"$ref": "#"})", "1"), " # nests, or refers to itself, deeper than 200 schemas\n");
  EXPECT_EQ(violations(R"({"$dynamicAnchor": "a", "anyOf": [{"$dynamicRef": "#a"}]})", "1"),
            " # nests, or refers to itself, deeper than 200 schemas\n");
  EXPECT_EQ(violations(R"({"not": {"$ref": "#"}})", "1"), " # nests, or refers to itself, deeper than 200 schemas\n");
}

TEST(Schema, EndsWhereWorkGrowsWithoutBound) {
  // Each of 40 schemas applies the next one twice.
  std::string schema = R"({"$ref": "#/$defs/0", "$defs": {)";
  for (int i = 0; i < 40; ++i)
    schema += "\"" + std::to_string(i) + "\": {\"allOf\": [{\"$ref\": \"#/$defs/" + std::to_string(i + 1) +
              "\"}, {\"$ref\": \"#/$defs/" + std::to_string(i + 1) + "\"}]}, ";
  schema += "\"40\": true}}";
  const double seconds =
      seconds_of([&] { EXPECT_EQ(violations(schema.c_str(), "1"), " # takes more than 2000000 steps to check\n"); });
  EXPECT_LT(seconds, 20);
}

TEST(Schema, EndsSearchesThatTakeTooLong) {
  const std::string text(40, 'a');
  const std::string message = violations(R"({"pattern": "^(a+)+$"})", Value(text + "!"));
  EXPECT_NE(message.find("takes too long"), std::string::npos) << message;
}

TEST(Schema, EndsChecksThatTakeTooLong) {
  Value::Object many;  // each search takes some milliseconds, and none too many steps
  for (int i = 0; i < 1000; ++i) many.set("k" + std::to_string(i), std::string(24, 'a') + "!");
  const double seconds = seconds_of([&] {
    EXPECT_EQ(violations(R"({"additionalProperties": {"not": {"pattern": "^(a|aa)+$"}}})", Value(many),
                         {.seconds_max = 0.02}),
              " # takes longer than 0.02 s to check\n");
  });
  EXPECT_LT(seconds, 10);
  const Value large = Value::Array(100'000, Value::array({1, 2}));
  EXPECT_EQ(
      violations(
          R"({"allOf": [{"not": {"const": 1}}, {"not": {"enum": [1]}}, {"not": {"const": 1}}, {"not": {"const": 1}}, {"not": {"const": 1}},
                          {"not": {"const": 1}}, {"not": {"const": 1}}, {"not": {"const": 1}}]})",
          large),
      " # takes more than 2000000 steps to check\n");
}

TEST(Schema, ComparesManyElementsQuickly) {
  Value::Array many;
  for (int i = 0; i < 200'000; ++i) many.push_back(Value::array({i, "x"}));
  many.push_back(Value::array({7, "x"}));
  const Value value = std::move(many);
  EXPECT_LT(seconds_of([&] {
              EXPECT_EQ(violations(R"({"uniqueItems": true})", value).substr(0, 40),
                        " #/uniqueItems has the element 200000 (a");
            }),
            20);
}

TEST(Schema, RefusesSchemasThatNestTooDeep) {
  std::string deep = "true";
  Value schema(true);
  for (int i = 0; i < 1000; ++i) schema = Value::object({{"not", std::move(schema)}});
  EXPECT_NE(message_of<SchemaError>([&] { Schema{Value(schema)}; }).find("too deep"), std::string::npos);
}

TEST(Schema, ListsAFewViolationsOnly) {
  Value::Array many(1000, Value("x"));
  EXPECT_EQ(Schema::parse(R"({"items": {"type": "integer"}})").check(many).size(), 10u);
}

TEST(Schema, ServesThreads) {
  const Schema schema =
      Schema::parse(R"({"type": "object", "properties": {"a": {"pattern": "^x*$"}}, "unevaluatedProperties": false})");
  std::vector<std::thread> threads;
  std::atomic<int> taken = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) taken += schema.check(Value::object({{"a", t % 2 ? "xx" : "y"}})).empty();
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken, 400);
}

}  // namespace
}  // namespace weft::schema
