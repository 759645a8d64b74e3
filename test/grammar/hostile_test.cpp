// Damaged and hostile grammars: each is taken or refused with an error, in little time and memory.
#include <gtest/gtest.h>

#include <chrono>

#include "base/mutations.hpp"
#include "weft/error.hpp"
#include "weft/grammar.hpp"

namespace weft::llm {
namespace {

constexpr const char* kGbnf = R"(root ::= object "\n"? # the whole
object ::= "{" pair ("," ws pair){0,3} "}"
pair ::= "\"" [a-z\x41-\u00e9^\-]+ "\":" ws (object | [0-9]{1,5} | .)
ws ::= [ \t]*)";
constexpr const char* kSchema =
    R"({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": {
  "a": {"type": "integer", "minimum": -5, "exclusiveMaximum": 1e3, "multipleOf": 5}, "b": {"anyOf": [{"$ref": "#/$defs/s"}, {"const": null}]},
  "c": {"type": "array", "prefixItems": [{"enum": [1, "x"]}], "items": {"type": "number", "maximum": 2.5}, "maxItems": 4}},
  "required": ["a"], "additionalProperties": {"$ref": "#"}, "maxProperties": 5,
  "$defs": {"s": {"type": "string", "pattern": "^(a|[b-d]{2,3})*\\d?$", "minLength": 2, "format": "date"}}})";

template <class Make>
void expect_taken_or_refused(const std::string& text, const Make& make) {
  int taken = 0, refused = 0;
  const test::MemoryLimit limit(std::size_t{1} << 30);
  test::for_each_mutation(text, text.size(), 400, [&](const std::string& damaged, const std::string&) {
    try {
      const Grammar grammar = make(damaged);
      grammar.accepts_beginning("{\"a\": 10, \"b\": \"ab");
      ++taken;
    } catch (const UsageError&) {
      ++refused;
    } catch (const FileError&) {
      ++refused;
    }
  });
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, 0);
}

TEST(HostileGrammar, DamagedGbnfIsTakenOrRefused) {
  expect_taken_or_refused(kGbnf, [](const std::string& text) { return Grammar::parse(text); });
}

TEST(HostileGrammar, DamagedSchemasAreTakenOrRefused) {
  expect_taken_or_refused(kSchema, [](const std::string& text) { return Grammar::parse_json_schema(text); });
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST(HostileGrammar, BombsAreRefusedInTime) {
  std::vector<std::string> schemas;
  // Alternatives of alternatives, none of which anything fits.
  std::string dead = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = R"({"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"}";
    dead += "\"d" + std::to_string(i) + R"(": {"anyOf": [)" + next + "," + next + "]},";
  }
  schemas.push_back(dead + R"("d40": false}})");
  // A long chain of references.
  std::string chain = R"({"$ref": "#/$defs/d0", "$defs": {)";
  for (int i = 0; i < 10000; ++i)
    chain += "\"d" + std::to_string(i) + R"(": {"$ref": "#/$defs/d)" + std::to_string(i + 1) + "\"},";
  schemas.push_back(chain + R"("d10000": {"type": "null"}}})");
  // Wide classes, many times; and repetitions that multiply.
  schemas.push_back(R"({"type": "string", "pattern": ")" + repeated(R"(\\p{L}{10000})", 300) + "\"}");
  schemas.push_back(R"json({"type": "string", "pattern": "((((a{100}){100}){100}){100})"})json");
  schemas.push_back(R"({"type": "string", "pattern": "(a|b|c|d)*", "maxLength": 1000000})");
  schemas.push_back(R"({"type": "string", "format": "uri", "minLength": 3000, "maxLength": 9000})");
  // Items that multiply.
  schemas.push_back(R"({"type": "array", "maxItems": 10000, "items": )" +
                    repeated(R"({"type": "array", "maxItems": 10000, "items": )", 30) + R"({"type": "integer"})" +
                    repeated("}", 31));
  // Many alternatives that must be told apart.
  std::string many = R"({"oneOf": [{"type": "integer", "maximum": 0})";
  for (int i = 0; i < 3000; ++i)
    many += R"(,{"type": "object", "properties": {"k": {"const": )" + std::to_string(i) + R"(}}, "required": ["k"]})";
  schemas.push_back(many + "]}");
  const test::MemoryLimit limit(std::size_t{2} << 30);
  for (const std::string& schema : schemas) {
    SCOPED_TRACE(schema.substr(0, 100));
    const auto begin = std::chrono::steady_clock::now();
    try {
      Grammar::parse_json_schema(schema);
    } catch (const Error&) {  // but not std::bad_alloc
    }
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 60);
  }
  for (const std::string& gbnf :
       {"root ::= \"a\"" + repeated("*", 100000), "root ::= " + repeated("(", 5000) + "\"a\"" + repeated(")", 5000),
        "root ::= " + repeated("[^a]{100000} ", 20), "root ::= " + repeated("\"a\"? ", 100000),
        repeated("r ::= \"a\"\n", 3)})
    EXPECT_THROW(Grammar::parse(gbnf), UsageError) << gbnf.substr(0, 50);
  // Ambiguity without end costs time for each byte, but not without bounds.
  const Grammar ambiguous = Grammar::parse("root ::= s\ns ::= s s s | s s | \"a\" | \"\"");
  EXPECT_TRUE(ambiguous.accepts(std::string(200, 'a')));
}

}  // namespace
}  // namespace weft::llm
