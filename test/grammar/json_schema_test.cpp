// JSON Schema as a grammar: what each keyword lets through, what is refused, and random walks that end in valid values.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/message_of.hpp"
#include "grammar/formats.hpp"
#include "grammar/numbers.hpp"
#include "grammar/pattern.hpp"
#include "grammar/token_matcher.hpp"
#include "weft/error.hpp"
#include "weft/grammar.hpp"
#include "weft/schema.hpp"
#include "weft/value.hpp"

namespace weft::llm {
namespace {

using test::message_of;

struct SchemaCase {
  const char* schema;
  std::vector<std::string> fit, unfit;
};

const SchemaCase kSchemaCases[] = {
    {"true", {"1", "\"a\"", "[1, {\"a\": null}]"}, {"", "x", "[1,]", "{\"a\"}", "01", "\"\n\"", "\"\\ud800\""}},
    {R"({"type": "string"})", {R"("")", R"("a\n\u00e9\ud83d\ude00é")"}, {"1", "\"", R"("\q")", "\"\xC3\""}},
    {R"({"type": "integer"})", {"0", "-12"}, {"01", "-0", "1.5", "1e3", "+1", "--1"}},
    {R"({"type": "number"})", {"0", "-1.50", "2e-3", "1E+10"}, {".5", "1.", "1e", "0x1"}},
    {R"({"type": ["boolean", "null"]})", {"true", "false", "null"}, {"True", "nul", "0"}},
    {R"({"enum": ["a b", 1, null, [1, {"x": "é"}]]})",
     {"\"a b\"", "1", "null", "[1, {\"x\": \"é\"}]", "[1,{\"x\":\"é\"}]"},
     {"2", "\"a\"", "[1]"}},
    {R"({"const": "x\"\\\n"})", {R"("x\"\\\n")"}, {R"("x")"}},
    {R"({"type": "integer", "enum": [1, "a", 2.5, 3]})", {"1", "3"}, {"\"a\"", "2.5"}},
    {R"({"enum": [1, 5, 9], "minimum": 3})", {"5", "9"}, {"1"}},
    {R"({"type": "integer", "minimum": -12, "maximum": 105})",
     {"-12", "-9", "-1", "0", "99", "105"},
     {"-13", "-20", "106", "110", "200", "1000"}},
    {R"({"type": "integer", "exclusiveMinimum": 9, "exclusiveMaximum": 11.5})", {"10", "11"}, {"9", "12", "1", "100"}},
    {R"({"type": "integer", "minimum": 1000000000000000000000})",
     {"1000000000000000000000"},
     {"999999999999999999999"}},
    {R"({"type": "number", "minimum": 0.5, "maximum": 12.25})",
     {"0.5", "0.50", "1", "12.25", "12.2", "9.99"},
     {"0.49", "0", "12.26", "12.251", "13", "-1", "1e0"}},
    {R"({"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 0})",
     {"-1.49", "-1", "-0.001"},
     {"-1.5", "-1.50", "0", "-2", "0.1"}},
    {R"({"type": "integer", "multipleOf": 7, "minimum": 1})", {"7", "14", "700"}, {"0", "8", "-7"}},
    {R"({"type": "number", "multipleOf": 0.25})", {"0.5", "1.25", "-3", "2.75"}, {"0.3", "1.253"}},
    {R"({"type": "string", "minLength": 2, "maxLength": 3})",
     {R"("ab")", R"("éé\n")", R"("\ud83d\ude00xy")"},
     {R"("a")", R"("abcd")"}},
    {R"({"type": "string", "pattern": "^[a-c]+\\d$"})", {R"("abc1")"}, {R"("abc")", R"("1")", R"("xabc1")"}},
    {R"({"type": "string", "pattern": "b"})", {R"("b")", R"("abc")", R"("\"b\\")"}, {R"("a")"}},
    {R"({"type": "string", "pattern": "^a|b$", "maxLength": 4})",
     {R"("a")", R"("axyz")", R"("xb")"},
     {R"("xay")", R"("axyzz")"}},
    {R"({"type": "string", "format": "date"})",
     {R"("2024-02-29")", R"("1999-12-31")"},
     {R"("2023-02-29")", R"("2024-13-01")", R"("24-01-01")"}},
    {R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
     {"[1]", "[1, 2,3]", "[\n  1\n]"},
     {"[]", "[1,2,3,4]", "[1 2]", "[,1]"}},
    {R"({"type": "array", "prefixItems": [{"const": 1}, {"type": "string"}], "items": false})",
     {"[]", "[1]", "[1,\"a\"]"},
     {"[2]", "[1,\"a\",1]"}},
    {R"({"type": "array", "prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3})",
     {"[1,2,2]", "[1,2,2,2]"},
     {"[1,2]", "[1,2,1]"}},
    {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["b"]})",
     {R"({"a": 1, "b": "x"})", R"({"b":""})", "{\n  \"a\": 1,\n  \"b\": \"x\"\n}"},
     {"{}", R"({"a": 1})", R"({"b":"x","a":1})", R"({"b":"x","c":1})", R"({"a":1,})"}},
    {R"({"properties": {"a": {"type": "integer"}}, "type": "object", "additionalProperties": {"type": "boolean"}})",
     {"{}", R"({"a":1,"b":true})", R"({"b":true,"aa":false})"},
     {R"({"b":1})", R"({"a":true})", R"({"b":true,"a":1})", R"({"b":true,"b":false})"}},
    {R"({"type": "object"})", {"{}", R"({"x": [1], "y": {}})"}, {"[]", R"({"x":1,"x":2})", R"({"x":{"y":1,"y":2}})"}},
    {R"({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "maxProperties": 2})",
     {R"({"a":1,"b":2})", R"({"a":1,"c":2})", R"({"b":1,"c":2})"},
     {"{}", R"({"a":1})", R"({"a":1,"b":2,"c":3})"}},
    {R"({"type": "object", "required": ["z"], "properties": {"a": {"const": 1}}})",
     {R"({"a":1,"z":[]})", R"({"z":null})"},
     {R"({"a":1})"}},
    {R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})", {"12", "\"a\""}, {"\"ab\"", "1.5"}},
    {R"({"oneOf": [{"type": "integer"}, {"type": "string"}]})", {"12", "\"ab\""}, {"null"}},
    {R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"]},
                   {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]}]})",
     {R"({"kind":"a","x":1})", R"({"kind":"b"})"},
     {R"({"kind":"a"})", R"({"kind":"c"})"}},
    {R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                   {"properties": {"a": {"minimum": 5}, "b": {"const": 2}}}]})",
     {R"({"a":5})", R"({"a":6,"b":2})"},
     {R"({"a":4})", "{}", "5"}},
    {R"({"type": "object", "properties": {"next": {"$ref": "#"}, "v": {"$ref": "#/$defs/v"}}, "required": ["v"], "$defs": {"v": {"type": "integer"}}})",
     {R"({"v":1})", R"({"next":{"next":{"v":3},"v":2},"v":1})"},
     {R"({"next":{},"v":1})"}},
    {R"({"$ref": "#list", "$defs": {"l": {"$anchor": "list", "type": "array", "items": {"$ref": "#/$defs/l"}}}})",
     {"[]", "[[],[[]]]"},
     {"[1]"}},
    {R"({"type": ["string", "null", "boolean"], "not": {"enum": ["", "no", null, false]}})",
     {"\"a\"", "\"non\"", "true"},
     {"\"\"", "\"no\"", "null", "false"}},
    {R"({"not": {"type": ["string", "object", "array"]}})", {"1", "1.5", "null", "true"}, {"\"a\"", "{}", "[]"}},
    {R"({"type": "number", "not": {"type": "integer"}})", {"1.5", "-0.25"}, {"1", "1.0", "0", "\"a\""}},
    {R"({"type": "integer", "minimum": 0, "maximum": 12, "not": {"enum": [0, 7, 12]}})",
     {"1", "6", "8", "11"},
     {"0", "7", "12", "13"}},
    {R"({"type": "number", "not": {"const": -2.5}})", {"-2.4", "-2.51", "2.5", "0"}, {"-2.5", "-2.50"}},
    {R"({"type": "string", "maxLength": 4, "not": {"pattern": "^a|b$"}})",
     {"\"\"", "\"ba\"", "\"xa\""},
     {"\"a\"", "\"ab\"", "\"xb\""}},
    {R"({"type": "object", "not": {"required": ["a"]}})", {"{}", R"({"b":1})"}, {R"({"a":1})", R"({"b":1,"a":2})"}},
    {R"({"type": "integer", "not": {"anyOf": [{"minimum": 5}, {"const": 2}]}})", {"4", "1", "-9"}, {"2", "5", "9"}},
    {R"({"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "x": {"type": "integer"}}, "required": ["kind"],
         "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["x"]},
         "else": {"properties": {"x": {"const": 3}}}})",
     {R"({"kind":"a","x":1})", R"({"kind":"b"})", R"({"kind":"b","x":3})"},
     {R"({"kind":"a"})", R"({"kind":"b","x":1})", R"({"x":3})"}},
    {R"({"if": {"type": "integer"}, "then": {"minimum": 3}, "else": {"type": "string"}})",
     {"3", "\"a\""},
     {"2", "null", "2.5"}},
    {R"({"if": {"$ref": "#/$defs/small"}, "else": {"multipleOf": 10}, "type": "integer",
         "$defs": {"small": {"maximum": 5}}})",
     {"4", "5", "20"},
     {"6", "11"}},
    {R"({"type": "object", "properties": {"card": {"type": "integer"}, "name": {"type": "string"}},
         "dependentRequired": {"card": ["name"]}})",
     {"{}", R"({"name":"a"})", R"({"card":1,"name":"a"})"},
     {R"({"card":1})"}},
    {R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
         "dependentSchemas": {"a": {"properties": {"b": {"const": 2}}, "required": ["b"]}}})",
     {"{}", R"({"b":1})", R"({"a":1,"b":2})"},
     {R"({"a":1})", R"({"a":1,"b":1})"}},
    {R"({"type": "object", "properties": {"id": {"type": "string"}},
         "patternProperties": {"^n_": {"type": "integer"}, "_z$": {"minimum": 5}, "^i": {"minLength": 2}},
         "additionalProperties": false})",
     {"{}", R"({"id":"ab","n_a":1})", R"({"n_z":5})", R"({"a_z":7})", R"({"a_z":"x"})"},
     {R"({"id":"a"})", R"({"n_a":"x"})", R"({"n_z":4})", R"({"n_z":"x"})", R"({"b":1})", R"({"n_a":1,"n_a":2})"}},
    {R"({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"},
         "maxProperties": 2})",
     {R"({"x":1,"y":"a"})", R"({"y":"a","x1":1})"},
     {R"({"x":"a"})", R"({"y":1})", R"({"x":1,"y":"a","z":"b"})"}},
    {R"({"type": "object", "allOf": [{"properties": {"a": {"type": "integer"}}, "required": ["a"]}],
         "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]}, {"properties": {"c": {"const": 2}}, "required": ["c"]}],
         "unevaluatedProperties": false})",
     {R"({"a":1,"b":1})", R"({"a":1,"c":2})"},
     {R"({"a":1})", R"({"a":1,"b":1,"d":1})", R"({"a":1,"b":2})"}},
    {R"({"type": "object", "allOf": [{"properties": {"a": {"const": 1}}, "unevaluatedProperties": false},
                                     {"properties": {"b": {"const": 1}}}]})",
     {"{}", R"({"a":1})"},
     {R"({"b":1})", R"({"a":1,"b":1})"}},
    {R"({"properties": {"enum": {"type": "integer"}, "$ref": {"const": 1}}, "type": "object"})",
     {R"({"enum":3,"$ref":1})"},
     {R"({"enum":"a"})"}},
};

TEST(SchemaGrammar, AcceptsWhatTheSchemaSays) {
  for (const SchemaCase& c : kSchemaCases) {
    SCOPED_TRACE(c.schema);
    const Grammar grammar = Grammar::parse_json_schema(c.schema);
    const schema::Schema validator = schema::Schema::parse(c.schema, {.asserts_formats = true});
    for (const std::string& text : c.fit) {
      EXPECT_TRUE(grammar.accepts(text)) << text;
      EXPECT_TRUE(validator.accepts(Value::parse(text))) << text;  // of the cases themselves
    }
    for (const std::string& text : c.unfit) EXPECT_FALSE(grammar.accepts(text)) << text;
  }
}

TEST(SchemaGrammar, RefusesWhatItCannotSay) {
  struct Bad {
    const char *schema, *message;
  };
  const Bad cases[] = {
      {R"({"not": {"format": "date"}})", "uses \"not\" over \"format\", which a grammar cannot say"},
      {R"({"properties": {"a": {"if": {"uniqueItems": true}, "then": false}}, "type": "object"})",
       "the schema at \"#/properties/a\" uses \"if\" over \"uniqueItems\""},
      {R"({"type": "array", "not": {"const": []}})", "uses \"not\" over a list or an object"},
      {R"({"not": {"$ref": "#"}})", "a reference in \"not\""},
      {R"({"type": "object", "propertyNames": {"maxLength": 3}})", "propertyNames"},
      {R"({"type": "object", "patternProperties": {"a": true, "b": true, "c": true, "d": true, "e": true, "f": true}})",
       "6 patterns of properties; at most 5"},
      {R"({"type": "object", "patternProperties": {"(?=a)b": true}})", "look-around"},
      {R"({"type": "string", "not": {"pattern": "(a|b)*a(a|b){14}"}})", "take a simpler pattern"},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems"},
      {R"({"type": "array", "contains": {"const": 1}})", "contains"},
      {R"({"type": "string", "pattern": "(?=a)b"})", "look-around"},
      {R"({"type": "string", "pattern": "\\bword"})", "word boundary"},
      {R"({"type": "string", "pattern": "(a)\\1"})", "back reference"},
      {R"({"type": "string", "format": "regex"})", "has the format \"regex\""},
      {R"({"oneOf": [{"type": "integer"}, {"minimum": 3}]})", "a value might fit both"},
      {R"({"anyOf": [{"$ref": "#"}, {"type": "string"}]})", "refers to itself"},
      {R"({"oneOf": [{"$ref": "#"}, {"type": "string"}]})", "refers to itself"},
      {R"({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}})",
       "refers to itself"},
      {R"({"type": "integer", "multipleOf": 123456})", "too many states"},
      {R"({"type": "string", "minLength": 5, "maxLength": 4})", "no text fits it"},
      {R"({"enum": ["a"], "type": "integer"})", "no text fits it"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})", "no text fits it"},
      {R"({"type": "array", "maxItems": 900000000, "items": {"type": "integer"}})", "more than 1000000 states"},
      {R"({"type": "strin"})", "#/type"},
      {R"({"$ref": "https://example.org/other"})", "example.org"},
      {R"({"$ref": "#/$defs/none"})", "none"},
      {R"({"$schema": "https://example.org/dialect"})", "example.org"},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "items": [true]})", "items"},
  };
  for (const Bad& bad : cases) {
    const std::string message = message_of<UsageError>([&] { Grammar::parse_json_schema(bad.schema); });
    EXPECT_NE(message.find(bad.message), std::string::npos) << bad.schema << "\n" << message;
  }
  // Many references to schemas that have many references themselves.
  std::string bomb = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 40; ++i)
    bomb += "\"d" + std::to_string(i) + R"(": {"anyOf": [{"$ref": "#/$defs/d)" + std::to_string(i + 1) +
            R"("}, {"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}]},";
  bomb += R"("d40": {"type": "null"}}})";
  EXPECT_THROW(Grammar::parse_json_schema(bomb), UsageError);
  EXPECT_THROW(Grammar::parse_json_schema("{\"description\": \"" + std::string(2'000'000, 'x') + "\"}"), UsageError);
  EXPECT_THROW(Grammar::parse_json_schema("{"), FileError);
}

TEST(SchemaGrammar, OlderDraftsAreReadAsThisOne) {
  const Grammar grammar = Grammar::parse_json_schema(
      R"({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/n", "definitions": {"n": {"type": "integer"}}})");
  EXPECT_TRUE(grammar.accepts("1"));
  EXPECT_FALSE(grammar.accepts("true"));
}

TEST(SchemaGrammar, LenientLeavesOut) {
  const Grammar grammar = Grammar::parse_json_schema(
      R"({"type": "array", "items": {"type": "string", "format": "regex", "not": {"const": ""}}, "uniqueItems": true})",
      {.lenient = true});
  EXPECT_TRUE(grammar.accepts("[\"a\", \"a\"]"));
  EXPECT_FALSE(grammar.accepts("[1]"));
}

TEST(SchemaGrammar, TextsAroundTheJson) {
  const Grammar one = Grammar::parse_json_schema(R"({"type": "null"})", {.opening = "<a>", .closing = "</a>"});
  for (const char* text : {"<a>null", "<a>null</a>"}) EXPECT_TRUE(one.accepts(text)) << text;
  for (const char* text : {"null", "<a>null</a><a>null", "<a>null</"}) EXPECT_FALSE(one.accepts(text)) << text;
  const Grammar several =
      Grammar::parse_json_schema(R"({"type": "null"})", {.opening = "", .closing = "</a>", .again = "<a>"});
  for (const char* text : {"null", "null</a><a>null", "null</a>\n<a>null</a>"})
    EXPECT_TRUE(several.accepts(text)) << text;
}

TEST(Patterns, AreThoseOfTheValidator) {
  const char* patterns[] = {"^a*b?c+$", "x{2,3}",      "^[^a-c]$", "^(?:ab|c)*$", "\\d\\D",         "^\\w+\\W\\s?$",
                            "^$",       "^\\u00e9.$",  "a$|^b",    "^.{0,2}$",    "^\\p{L}\\P{L}$", "(^a)|(b$)",
                            "",         "^[\\]\\-x]$", "a|",       "^(?<n>a)b{2}"};
  const char* texts[] = {"",   "a", "b",  "ab", "abc", "cc", "xx",  "xxxx", "1a",   "a1",
                         "a ", "é", "éx", "ba", "]",   "-",  "abb", "c\n",  "ab\n", "w_1- "};
  for (const char* pattern : patterns) {
    const grammar::Regular automaton = grammar::regular_of_pattern(pattern);
    const schema::Schema validator(Value::object({{"pattern", pattern}}));
    for (const char* text : texts)
      EXPECT_EQ(automaton.accepts(text), validator.accepts(Value(text))) << pattern << " " << text;
  }
}

// ---- Random walks ------------------------------------------------------------------------------------------------------------

/// Bytes that bring a text of JSON to an end, the best first: at last all of them.
std::string closing_bytes(char first) {
  std::string bytes = std::string("\"") + first + "}]@,";
  for (char c = 'A'; c <= 'Z'; ++c) bytes += c;
  bytes += "-0123456789";
  for (int c = 0; c < 256; ++c) bytes += static_cast<char>(c);
  return bytes;
}

/// All bytes, and pieces as those of models: parts of characters, ends of JSON, words.
std::shared_ptr<const grammar::TokenTrie> walk_vocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* piece :
       {"\", \"", "\":",   "\": ", "{\"",  "\"}",      "},",       "]]",       "[\"",           "\":\"", ", ",
        "\\n",    "\\u00", "the",  " a",   "\xC3\xA9", "\xF0\x9F", "\x98\x80", "\"a\":1,\"a\"", "12",    "true",
        "null",   "20",    "-0",   "\n  ", "\"}]",     "\",\"a",   "\"\":",    "\"\"",          "false"})
    bytes.emplace_back(piece);
  bytes.emplace_back();  // the end
  return std::make_shared<const grammar::TokenTrie>(std::move(bytes));
}

/// A text of random tokens that the masks allow. After some steps it makes for an end.
std::string walk(const Grammar& grammar, const std::shared_ptr<const grammar::TokenTrie>& trie, std::mt19937& random) {
  const auto end = static_cast<std::int32_t>(trie->size() - 1);
  grammar::TokenMatcher matcher(*grammar.shared(), trie, {end});
  const std::string closings[] = {closing_bytes('x'), closing_bytes(':')};
  grammar::TokenMatcher::State state;
  std::string text;
  for (int steps = 0; steps < 2000; ++steps) {
    const grammar::TokenMask& mask = matcher.allowed(state);
    std::vector<std::int32_t> allowed;
    for (std::size_t i = 0; i < mask.size(); ++i)
      if (mask[i]) allowed.push_back(static_cast<std::int32_t>(i));
    if (allowed.empty()) {
      EXPECT_TRUE(matcher.may_end(state)) << "no way on from " << text;
      break;
    }
    EXPECT_EQ(mask[static_cast<std::size_t>(end)], matcher.may_end(state));
    // Two of three tokens are of several bytes where there are any, so that they are tested too.
    std::vector<std::int32_t> large;
    for (const std::int32_t token : allowed)
      if (trie->bytes_of(token).size() != 1) large.push_back(token);
    const auto& list = !large.empty() && random() % 3 != 0 ? large : allowed;
    std::int32_t token = list[random() % list.size()];
    if (steps > 40 && random() % 4 != 0) {
      const std::string& closing = closings[random() % 2];
      const auto byte =
          std::find_if(closing.begin(), closing.end(), [&](char c) { return mask[static_cast<unsigned char>(c)]; });
      token = mask[static_cast<std::size_t>(end)] ? end : static_cast<std::int32_t>(static_cast<unsigned char>(*byte));
    }
    if (token == end) return text;
    EXPECT_TRUE(matcher.accept(state, token)) << text;
    text += trie->bytes_of(token);
  }
  EXPECT_TRUE(matcher.may_end(state)) << text;
  return text;
}

Value random_schema(std::mt19937& random, int depth) {
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  const auto inner = [&] { return random_schema(random, depth - 1); };
  if (below(8) == 0) switch (below(4)) {
      case 0: return Value::object({{"not", Value::object({{"type", Value::array({"object", "array", "number"})}})}});
      case 1:
        return Value::object({{"type", "integer"}, {"not", Value::object({{"enum", Value::array({0, 3, -17, "x"})}})}});
      case 2:
        return Value::object(
            {{"type", "string"}, {"maxLength", 5}, {"not", Value::object({{"pattern", "^[a-m]|\\d"}})}});
      default:
        return Value::object({{"type", Value::array({"integer", "string"})},
                              {"if", Value::object({{"minimum", below(9)}})},
                              {"then", Value::object({{"multipleOf", 3}})},
                              {"else", Value::object({{"maximum", 4}})}});
    }
  switch (below(depth > 0 ? 15 : 10)) {
    case 0: return Value::object({{"type", "boolean"}});
    case 1: return Value::object({{"type", Value::array({"null", "integer"})}});
    case 2: {
      const int low = below(400) - 200;
      return Value::object({{"type", "integer"}, {"minimum", low}, {"maximum", low + below(50)}});
    }
    case 3:
      return Value::object({{"type", "number"}, {"minimum", below(9) - 4.5}, {"exclusiveMaximum", 7.25 + below(3)}});
    case 4: return Value::object({{"type", "number"}});
    case 5: return Value::object({{"type", "string"}, {"minLength", below(3)}, {"maxLength", 2 + below(4)}});
    case 6: {
      const char* patterns[] = {"^[a-c]{1,4}$", "^\\d{3}-\\d+$", "x", "^(ab|\"|\\\\)*$", "^[^a]é?$"};
      return Value::object({{"type", "string"}, {"pattern", patterns[below(5)]}});
    }
    case 7: {
      const char* formats[] = {"date-time", "time", "date", "duration", "email",
                               "hostname",  "ipv4", "ipv6", "uuid",     "uri"};
      return Value::object({{"type", "string"}, {"format", formats[below(10)]}});
    }
    case 8: return Value::object({{"enum", Value::array({1, "two", nullptr, 2.5, Value::array({1, "é"})})}});
    case 9: return Value::object({{"type", "integer"}, {"multipleOf", 1 + below(12)}});
    case 10: {
      const int least = below(3);
      return Value::object(
          {{"type", "array"}, {"items", inner()}, {"minItems", least}, {"maxItems", least + below(3)}});
    }
    case 11:
      return Value::object(
          {{"type", "array"}, {"prefixItems", Value::array({inner(), inner()})}, {"items", below(2) == 0}});
    case 12: return Value::object({{"anyOf", Value::array({inner(), inner()})}});
    default: {
      Value::Object properties;
      Value::Array required;
      const char* names[] = {"a", "b\"", "name", "é", "a b"};
      for (const char* name : names) {
        if (below(2) == 0) continue;
        properties.set(name, inner());
        if (below(2) == 0) required.push_back(name);
      }
      Value schema = Value::object({{"type", "object"}, {"properties", properties}, {"required", required}});
      if (below(3) == 0) schema.members().set("additionalProperties", inner());
      if (below(4) == 0) schema.members().set("maxProperties", Value(required.size() + 1));
      if (below(4) == 0)
        schema.members().set("patternProperties",
                             Value::object({{"^n", inner()}, {"e$", Value::object({{"type", "integer"}})}}));
      if (below(4) == 0)
        schema.members().set("dependentRequired",
                             Value::object({{"a", Value::array({"name"})}, {"é", Value::array({"a b"})}}));
      if (below(6) == 0) schema.members().set("unevaluatedProperties", false);
      if (below(6) == 0) {
        schema.members().set("if", Value::object({{"required", Value::array({"a"})}}));
        schema.members().set("then", Value::object({{"required", Value::array({"name"})}}));
      }
      return schema;
    }
  }
}

TEST(SchemaGrammar, RandomWalksEndInValidValues) {
  const auto trie = walk_vocabulary();
  for (unsigned seed = 1; seed <= 250; ++seed) {
    std::mt19937 random(seed);
    const Value schema = random_schema(random, 3);
    SCOPED_TRACE("seed " + std::to_string(seed) + " " + schema.to_json());
    const Grammar grammar = Grammar::json_schema(schema);
    const schema::Schema validator(schema, {.asserts_formats = true});
    for (int i = 0; i < 4; ++i) {
      const std::string text = walk(grammar, trie, random);
      SCOPED_TRACE(text);
      Value value;
      ASSERT_NO_THROW(value = Value::parse(text));
      EXPECT_EQ(to_string(validator.check(value)), "");
      EXPECT_TRUE(grammar.accepts(text));
      // What a program writes of the value is accepted too, unless its numbers have another form.
      const std::string again = value.to_json();
      if (text.find_first_of("eE.") == std::string::npos && schema.to_json().find("number") == std::string::npos) {
        EXPECT_TRUE(grammar.accepts(again)) << again;
        EXPECT_TRUE(grammar.accepts(value.to_json(2))) << again;
      }
    }
  }
}

TEST(SchemaGrammar, RandomWalksOfAnyObject) {
  const auto trie = walk_vocabulary();
  for (unsigned seed = 1; seed <= 100; ++seed) {
    std::mt19937 random(seed);
    const std::string text = walk(Grammar::json_object(), trie, random);
    ASSERT_NO_THROW(EXPECT_TRUE(Value::parse(text).is_object())) << text;
  }
}

TEST(Formats, AreThoseOfTheValidator) {
  struct Format {
    const char* name;
    std::vector<std::string> fit, unfit;
  };
  const Format formats[] = {
      {"date-time",
       {"2024-02-29T23:59:59Z", "1985-04-12t23:20:50.52+05:30", "1990-12-31T23:59:60Z"},
       {"2023-02-29T00:00:00Z", "2024-01-01T24:00:00Z", "2024-01-01 00:00:00Z"}},
      {"time", {"00:00:00Z", "12:30:45.123-08:00"}, {"12:30:45", "12:60:00Z", "12:30Z"}},
      {"date", {"2000-02-29", "1600-02-29"}, {"1900-02-29", "2024-04-31", "2024-00-10"}},
      {"duration", {"P1Y", "P1Y2M3DT4H5M6S", "PT1S", "P4W", "PT5H3M"}, {"P", "PT", "P1S", "P1YT", "P1Y2D", "1Y"}},
      {"email", {"a@b", "first.last+tag@example.co.uk"}, {"a", "@b", "a@", ".a@b", "a..b@c", "a b@c"}},
      {"hostname",
       {"example.com", "a", "a-b.c1", "xn--bcher-kva.example"},
       {"", "-a", "a-", "a..b", "a_b", "ab--c", std::string(64, 'a')}},
      {"ipv4", {"0.0.0.0", "255.249.99.9"}, {"256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5"}},
      {"ipv6",
       {"::", "::1", "1:2:3:4:5:6:7:8", "1::8", "fe80::1:2.3.4.5", "1:2:3:4:5:6:7::", "::2:3:4:5:6:7:8"},
       {"1", ":::", "1::2::3", "1:2:3:4:5:6:7:8:9", "12345::"}},
      {"uuid",
       {"123e4567-e89b-12d3-a456-426614174000"},
       {"123e4567e89b12d3a456426614174000", "123e4567-e89b-12d3-a456-42661417400g"}},
      {"uri",
       {"http://a.b/c?d=e#f", "mailto:a@b.c", "urn:isbn:0", "http://[::1]:80/", "a:/b"},
       {"/a", "//a/b", "http://a b", "1a:b", "http://%zz"}},
  };
  for (const Format& format : formats) {
    const grammar::Regular* automaton = grammar::find_format_automaton(format.name);
    ASSERT_NE(automaton, nullptr) << format.name;
    const schema::Schema validator(Value::object({{"format", format.name}}), {.asserts_formats = true});
    for (const std::string& text : format.fit) {
      EXPECT_TRUE(automaton->accepts(text)) << format.name << " " << text;
      EXPECT_TRUE(validator.accepts(Value(text))) << format.name << " " << text;
    }
    for (const std::string& text : format.unfit) {
      EXPECT_FALSE(automaton->accepts(text)) << format.name << " " << text;
      EXPECT_FALSE(validator.accepts(Value(text))) << format.name << " " << text;
    }
  }
  EXPECT_EQ(grammar::find_format_automaton("regex"), nullptr);
}

TEST(Numbers, BoundsAgainstAllNumbersOfAFewDigits) {
  // Every number of one decimal, against every bound of up to two.
  for (int low = -25; low <= 25; low += 5)
    for (const bool is_exclusive : {false, true}) {
      const auto bound = [&](int hundredths) {
        return grammar::Bound{grammar::Decimal::parse(Value(hundredths / 100.0).to_json()), is_exclusive};
      };
      const grammar::Regular above = grammar::numbers_within({.at_least = {bound(low)}}),
                             below = grammar::numbers_within({.at_most = {bound(low)}});
      for (int x = -300; x <= 300; ++x) {
        const std::string text = (x < 0 ? "-" : "") + std::to_string(std::abs(x) / 100) + "." +
                                 std::to_string(std::abs(x) / 10 % 10) + std::to_string(std::abs(x) % 10);
        if (x == 0) continue;  // written as 0
        EXPECT_EQ(above.accepts(text), is_exclusive ? x > low : x >= low) << text << " " << low;
        EXPECT_EQ(below.accepts(text), is_exclusive ? x < low : x <= low) << text << " " << low;
      }
    }
  for (int low = -120; low <= 120; low += 7) {
    const grammar::Bound bound{grammar::Decimal::parse(std::to_string(low)), false};
    const grammar::Regular above = grammar::numbers_within({.is_integer = true, .at_least = {bound}}),
                           below = grammar::numbers_within({.is_integer = true, .at_most = {bound}});
    for (int x = -1200; x <= 1200; ++x) {
      EXPECT_EQ(above.accepts(std::to_string(x)), x >= low) << x << " " << low;
      EXPECT_EQ(below.accepts(std::to_string(x)), x <= low) << x << " " << low;
    }
  }
}

}  // namespace
}  // namespace weft::llm
