// Specifications from JSON Schema documents: the forms, what is taken along, and hostile documents.
#include <gtest/gtest.h>

#include "base/message_of.hpp"
#include "weft/operations.hpp"

namespace weft::operations {
namespace {

std::vector<Specification> read(std::string_view json, const std::string& space = "") {
  return specifications_from_schema(Value::parse(json), {.space = space});
}
std::string refusal(std::string_view json, const std::string& space = "x") {
  return test::message_of<UsageError>([&] { read(json, space); });
}

TEST(SchemaImport, DefinitionsWithInputOrOutputAreOperations) {
  const auto found = read(R"({
    "$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Pet shop",
    "$defs": {
      "Pet": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "friends": {"$ref": "#/$defs/Pets"}}},
      "Pets": {"type": "array", "items": {"$ref": "#/$defs/Pet"}},
      "Unused": {"type": "null"},
      "find": {"title": "Find a pet", "description": "By its name.",
               "properties": {"input": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
                              "output": {"$ref": "#/$defs/Pet"}}},
      "count": {"properties": {"output": {"type": "integer"}}}}})");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].id(), "Pet_shop.find");
  EXPECT_EQ(found[0].title, "Find a pet");
  EXPECT_EQ(found[0].kind, Kind::mutation);
  EXPECT_EQ(found[1].input, Value(true));
  const Value& defs = found[0].output["$defs"];
  EXPECT_TRUE(defs.find("Pet") && defs.find("Pets"));
  EXPECT_EQ(defs.members().size(), 2u);

  auto registry = std::make_shared<Registry>();
  registry->add(found[0], [](Context& call) { return Value::object({{"name", call.input("name").string()}}); });
  Exchange exchange(registry);
  EXPECT_EQ(exchange.call("Pet_shop.find", Value::object({{"name", "Rex"}})).data["name"].string(), "Rex");
  EXPECT_EQ(test::message_of<OperationError>([&] {
              exchange.call("Pet_shop.find", Value::object({{"name", 3}}));
            }),
            "Pet_shop.find: the input does not fit:\n/name: is an integer, and not a string");
}

TEST(SchemaImport, ListsOfSpecificationsAndTools) {
  const auto found = read(R"({"title": "t", "definitions": {"Text": {"type": "string"}}, "operations": [
    {"name": "a", "input": {"$ref": "#/definitions/Text"}, "output": {"type": "integer"}},
    {"namespace": "own", "name": "b", "type": "query", "inputSchema": {"$ref": "#/$defs/X", "$defs": {"X": {"type": "null"}}}},
    {"type": "function", "function": {"name": "c", "description": "A tool.", "strict": true, "parameters": {"type": "object"}}}]})");
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].id(), "t.a");
  EXPECT_EQ(found[0].input, Value::parse(R"({"$ref": "#/$defs/Text", "$defs": {"Text": {"type": "string"}}})"));
  EXPECT_EQ(found[1].id(), "own.b");
  EXPECT_EQ(found[1].kind, Kind::query);
  EXPECT_EQ(found[1].input["$defs"]["X"]["type"].string(), "null");
  EXPECT_EQ(found[2].description, "A tool.");
  EXPECT_EQ(read(R"([{"name": "z"}])", "given")[0].id(), "given.z");
}

TEST(SchemaImport, WhatIsListedCanBeRead) {
  auto registry = std::make_shared<Registry>();
  registry->add({.space = "a", .name = "b", .errors = {{"OWN", "an error"}}, .access = {.scopes = {"s"}}});
  const Value listed = Value::object({{"operations", Value::array({to_value(*registry->find("a.b"))})}});
  EXPECT_EQ(to_value(specifications_from_schema(listed)[0]), to_value(*registry->find("a.b")));
}

TEST(SchemaImport, DataIsNotASchema) {
  const auto found = read(R"({"title": "t", "$defs": {"A": {"type": "string"}, "f": {"properties": {"input": {
    "properties": {"default": {"$ref": "#/$defs/A"}, "$ref": {"type": "null"}}, "const": {"$ref": "#/$defs/B"}}}}}})");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].input["$defs"].find("A"));  // a property named "default" is a schema
  EXPECT_EQ(found[0].input["const"]["$ref"].string(), "#/$defs/B");
}

TEST(SchemaImport, HostileDocuments) {
  const auto defs = [](const std::string& more) {
    return R"({"$defs": {"f": {"properties": {"input": {"$ref": "#/$defs/A"}}}, )" + more + "}}";
  };
  std::string deep = R"({"type": "null"})";
  for (int i = 0; i < 27; ++i) deep = R"({"properties": {"a": )" + deep + "}}";
  struct Case {
    std::string document, message;
  };
  const Case cases[] = {
      {"3", "neither an object nor a list"},
      {"{}", "has no operations"},
      {"[]", "has no operations"},
      {R"({"operations": {}})", "\"operations\" is not a list"},
      {R"({"$defs": []})", "\"$defs\" is not an object"},
      {R"([3])", "operation 0: is not an object"},
      {R"([{}])", "\"name\" is missing"},
      {R"([{"name": 3}])", "reading \"name\""},
      {R"([{"name": "a", "nonsense": 1}])", "unknown member \"nonsense\""},
      {R"([{"name": "a", "input": {}, "parameters": {}}])", "two schemas of its input"},
      {R"([{"name": "a"}, {"name": "a"}])", "is given twice"},
      {R"([{"name": "../a"}])", "cannot be called by that name"},
      {R"([{"name": "a", "namespace": "x y"}])", "cannot be called by that name"},
      {R"([{"name": ""}])", "cannot be called by that name"},
      {R"([{"name": "a", "input": {"type": "nonsense"}}])", "reading the operation \"a\""},
      {R"([{"name": "a", "input": 3}])", "reading the operation \"a\""},
      {R"([{"name": "a", "input": {"pattern": "("}}])", "reading the operation \"a\""},
      {R"([{"name": "a", "input": {"$ref": "#/$defs/A"}}])", "there is no definition \"A\""},
      {R"([{"name": "a", "input": {"$ref": "file:///etc/passwd"}}])", "a schema refers to"},
      {R"([{"name": "a", "input": {"$ref": "http://169.254.169.254/"}}])", "a schema refers to"},
      {R"([{"name": "a", "input": {"$ref": "#/operations/0"}}])", "a schema refers to"},
      {defs(R"("A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"})"), "circle"},
      {defs(R"("A": {"$ref": "#/$defs/None"})"), "there is no definition \"None\""},
      {defs(R"("A": )" + deep), "nested too deep"},
  };
  for (const Case& each : cases)
    EXPECT_NE(refusal(each.document).find(each.message), std::string::npos) << each.document << "\n"
                                                                            << refusal(each.document);
  EXPECT_NE(refusal(R"([{"name": "a"}])", "").find("has no namespace"), std::string::npos);
  std::string many = "[";
  for (int i = 0; i <= 10'000; ++i) many += R"({"name": "a)" + std::to_string(i) + R"("},)";
  many.back() = ']';
  EXPECT_NE(refusal(many).find("more than 10000 operations"), std::string::npos);
}

}  // namespace
}  // namespace weft::operations
