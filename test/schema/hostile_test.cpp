// Damaged schemas, values, expressions and texts of formats: each is taken or refused by name, in time, and nothing crashes.
#include <gtest/gtest.h>

#include <chrono>

#include "base/mutations.hpp"
#include "schema/formats.hpp"
#include "schema/regex.hpp"
#include "weft/schema.hpp"

namespace weft::schema::hostile_test {
namespace {

const char* const kSchemas[] = {
    R"({"$id": "https://x.org/a", "$defs": {"n": {"$anchor": "n", "type": "integer", "minimum": 0}, "t": {"$dynamicAnchor": "t",
      "type": "object", "properties": {"v": {"$ref": "#n"}, "c": {"items": {"$dynamicRef": "#t"}}}, "unevaluatedProperties": false}},
      "$ref": "#/$defs/t"})",
    R"({"oneOf": [{"type": ["string", "null"], "pattern": "^[a-c]{2,3}(\\d|\\p{Lu})+$"}, {"allOf": [{"multipleOf": 0.5}, {"exclusiveMaximum": 7}]},
      {"prefixItems": [{"const": {"a": 1}}, {"enum": [1, "x"]}], "items": {"maxLength": 3}, "contains": {"type": "string"}, "minContains": 1,
       "uniqueItems": true}], "if": {"type": "object"}, "then": {"required": ["k"], "propertyNames": {"maxLength": 4}}, "else": true})",
    R"({"x-tensor": {"dtypes": ["f32"]}, "patternProperties": {"^x": {"format": "date-time"}}, "dependentRequired": {"a": ["b"]},
      "dependentSchemas": {"a": {"minProperties": 2}}, "not": {"maxProperties": 0}, "unevaluatedItems": {"type": "number"}, "default": [1, {"a": null}]})",
};
const char* const kValues[] = {R"({"v": 3, "c": [{"v": 1}, {"c": []}]})", R"([{"a": 1}, "x", "ab", 2.5])",
                               R"({"a": 1, "b": "2026-02-28T12:00:00Z", "x1": "y", "k": -0.0})"};
const char* const kExpressions[] = {R"(^(?:[a-z\d_]+|\p{Script=Greek}{2,})\u0041(?<n>x)\k<n>$)",
                                    R"((?=a+)(?!b)(?<=c)[^\S\w-]\b\x41\cA\u{1F600}|.)", R"([\]\\^-]+?(a|(b*)?)\1\0)"};

TEST(HostileSchema, DamagedSchemasAreTakenOrRefused) {
  int taken = 0, refused = 0;
  for (const std::string good : kSchemas)
    test::for_each_mutation(good, good.size(), 400, [&](const std::string& text, const std::string& what) {
      SCOPED_TRACE(what);
      try {
        const Schema schema = Schema::parse(text, {.asserts_formats = true, .seconds_max = 1});
        for (const char* value : kValues) {
          const Value read = Value::parse(value);
          EXPECT_EQ(schema.accepts(read), schema.check(read).empty());
          schema.normalised(read);
        }
        ++taken;
      } catch (const SchemaError&) {
        ++refused;
      } catch (const FileError&) {
        ++refused;
      }
    });
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 100);
}

TEST(HostileSchema, DamagedValuesAreChecked) {
  std::vector<Schema> schemas;
  for (const char* text : kSchemas) schemas.push_back(Schema::parse(text, {.asserts_formats = true}));
  for (const std::string good : kValues)
    test::for_each_mutation(good, good.size(), 400, [&](const std::string& text, const std::string& what) {
      SCOPED_TRACE(what);
      try {
        const Value value = Value::parse(text);
        EXPECT_EQ(Value::parse(value.to_json()), value);
        for (const Schema& schema : schemas) {
          EXPECT_EQ(schema.accepts(value), schema.check(value).empty());
          schema.with_defaults(value);
        }
      } catch (const FileError&) {
      }
    });
}

TEST(HostileSchema, DamagedExpressionsAreTakenOrRefused) {
  int taken = 0, refused = 0;
  for (const std::string good : kExpressions)
    test::for_each_mutation(good, good.size(), 2000, [&](const std::string& text, const std::string& what) {
      SCOPED_TRACE(what);
      try {
        const Regex regex(text);
        for (const char* subject : {"", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "αβAxx", "\xff\xfe"})
          regex.is_found_in(subject);
        ++taken;
      } catch (const RegexLimitError&) {
        ++taken;
      } catch (const UsageError&) {
        ++refused;
      }
    });
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 100);
}

TEST(HostileSchema, WhatEcmaDoesNotHaveIsRefused) {
  for (const char* text :
       {"(?R)",    "(?1)",        "(?>a)", "(?i)a",   "(*COMMIT)", "(?P<n>a)", "(?#c)",  "(?|a)",
        "a++",     "a*+",         "a{2}+", "\\Qa\\E", "\\G",       "\\A",      "\\z",    "\\K",
        "\\R",     "\\h",         "\\C",   "\\N",     "\\X",       "\\g{1}",   "\\o{7}", "\\01",

        "(",       ")",           "[",     "*",       "+a",        "{2}",      "\\",     "\\u12",
        "\\ud800", "\\u{110000}", "\\x1",  "\\c1",    "\\p{Xan}",  "\\p{}",    "\\pL",   "(?<1>a)(?<1>b)",
        "(?<n"})
    EXPECT_THROW(Regex{text}, UsageError) << text;
  EXPECT_THROW(Regex(std::string(20'000, 'a')), UsageError);
  EXPECT_THROW(Regex(std::string(200, '(') + std::string(200, ')')), UsageError);
  // And classes with brackets inside are only characters.
  EXPECT_TRUE(Regex("^[[:alpha:]+$").is_found_in("[pa:"));
  EXPECT_FALSE(Regex("^[]$").is_found_in("a"));
  EXPECT_TRUE(Regex("^[^]$").is_found_in("\n"));
  EXPECT_FALSE(Regex("^a$").is_found_in("a\n"));
}

TEST(HostileSchema, FormatsTakeAnyText) {
  for (const char* name : {"date-time", "date", "time", "duration", "email", "idn-email", "hostname", "ipv4", "ipv6",
                           "uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template", "json-pointer",
                           "relative-json-pointer", "regex"})
    for (const std::string good : {"2026-02-28T23:59:60+01:00", "P1Y2M3DT4H5M6S", "\"a b\"@[IPv6:::1]",
                                   "http://u:p@[::1]:80/%41?q#f", "{+a,b:3*}/{?x}", "/a~0b/~1", "12#", "xn--a.b-c"}) {
      const FormatTest test = find_format(name);
      ASSERT_TRUE(test) << name;
      test::for_each_mutation(good, good.size(), 200, [&](const std::string& text, const std::string&) { test(text); });
      test(std::string(100'000, good[0]));
    }
  EXPECT_FALSE(find_format("unknown"));
}

}  // namespace
}  // namespace weft::schema::hostile_test
