// Templates: JSON, and what is found before anything runs.
#include <gtest/gtest.h>

#include <random>

#include "base/message_of.hpp"
#include "base/mutations.hpp"
#include "weft/workflow.hpp"

namespace weft::workflow {
namespace {

using test::message_of;

struct CheckTest : testing::Test {
  operations::Registry registry;

  CheckTest() {
    const auto add = [&](const char* name, const char* input, const char* output) {
      operations::Specification specification{.space = "t", .name = name};
      specification.input = Value::parse(input);
      specification.output = Value::parse(output);
      registry.add(std::move(specification), [](operations::Context& call) { return call.input(); });
    };
    add("any", "true", "true");
    add("number",
        R"({"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}, "additionalProperties": false})",
        R"({"type": "object", "required": ["x"], "properties": {"x": {"type": "number"}}, "additionalProperties": false})");
    add("text", R"({"type": "object", "required": ["s"], "properties": {"s": {"type": "string"}}})",
        R"({"type": "object", "properties": {"s": {"type": "string"}, "more": {"type": "integer"}}})");
    add("list", "true", R"({"type": "array", "items": {"type": "integer"}})");
    operations::Specification stream{.space = "t", .name = "stream", .kind = operations::Kind::subscription};
    registry.add(std::move(stream), [](operations::Context&) { return Value(); });
    operations::Specification hidden{.space = "t", .name = "hidden"};
    hidden.visibility = operations::Visibility::internal;
    registry.add(std::move(hidden), [](operations::Context&) { return Value(); });
  }

  std::string problems(const char* json, bool internal = false) {
    std::string text;
    for (const Problem& each : check(template_from(Value::parse(json)), registry, internal))
      text += each.code + " " + each.path + "\n";
    return text;
  }
};

TEST(WorkflowTemplate, JsonAndBuildersAreTheSame) {
  const Template made{
      .name = "w",
      .description = "d",
      .input_schema = Value::parse(R"({"type": "object"})"),
      .on_failure = OnFailure::continue_running,
      .tree = with_output(sequential({named("a", operation("t.any", Value::object({{"x", "$.input.x"}}))),
                                      parallel({operation("t.any"), operation("t.any")}, 2),
                                      conditional(Value("$.a.flag"), operation("t.any"), operation("t.list")),
                                      map("$.input.list", "each", operation("t.any", "$.each"))}),
                          Value::object({{"all", "$.previous"}}))};
  const Value json = Value::parse(R"({
    "name": "w", "description": "d", "inputSchema": {"type": "object"}, "onFailure": "continue-running",
    "tree": {"type": "Sequential", "props": {"output": {"all": "$.previous"}}, "children": [
      {"type": "Operation", "props": {"name": "t.any", "id": "a", "input": {"x": "$.input.x"}}},
      {"type": "Parallel", "props": {"maxConcurrency": 2}, "children": [
        {"type": "Operation", "props": {"name": "t.any"}}, {"type": "Operation", "props": {"name": "t.any"}}]},
      {"type": "Conditional", "props": {"test": "$.a.flag"}, "children": [
        {"type": "Operation", "props": {"name": "t.any"}}, {"type": "Operation", "props": {"name": "t.list"}}]},
      {"type": "Map", "props": {"over": "$.input.list", "as": "each"}, "children": [
        {"type": "Operation", "props": {"name": "t.any", "input": "$.each"}}]}]}})");
  EXPECT_EQ(to_value(made), json);
  EXPECT_EQ(to_value(template_from(json)), json);
  EXPECT_EQ(to_value(template_from(json["tree"]).tree), json["tree"]) << "an element alone is a template";
  EXPECT_NE(message_of<UsageError>([] {
              to_value(conditional([](const Value&) { return true; }, operation("t.any")));
            }).find("a function of C++"),
            std::string::npos);
}

TEST(WorkflowTemplate, JsonThatIsNoTemplateIsRefused) {
  const std::pair<const char*, const char*> kBad[] = {
      {"3", "is an integer, and not an object"},
      {"{}", "\"tree\" is missing"},
      {R"({"tree": {}})", "/tree: \"type\" is missing"},
      {R"({"type": "Loop"})", "there is no element \"Loop\""},
      {R"({"type": "Operation"})", "\"name\" is missing"},
      {R"({"type": "Operation", "props": {"name": 3}})", "/props/name: is an integer, and not a string"},
      {R"({"type": "Operation", "props": {"name": "a.b", "timeout": -1}})", "not a positive number"},
      {R"({"type": "Operation", "props": {"name": "a.b", "retries": 1.5}})", "whole number from 0 to 100"},
      {R"({"type": "Operation", "props": {"name": "a.b", "retryDelay": "1"}})", "not a number of seconds"},
      {R"({"type": "Operation", "props": {"name": "a.b", "over": []}})", "there is no member \"over\" here"},
      {R"({"type": "Parallel", "props": {"maxConcurrency": 0}})", "not a whole number from 1"},
      {R"({"type": "Sequential", "children": 3})", "/children: is an integer, and not an array"},
      {R"({"type": "Sequential", "children": [3]})", "/children/0: is an integer"},
      {R"({"onFailure": "ignore", "tree": {"type": "Sequential"}})", "neither abort-dependents nor continue-running"},
      {R"({"tree": {"type": "Sequential"}, "extra": 1})", "there is no member \"extra\""},
  };
  for (const auto& [json, message] : kBad)
    EXPECT_NE(message_of<UsageError>([&, json = json] { template_from(Value::parse(json)); }).find(message),
              std::string::npos)
        << json << ": " << message_of<UsageError>([&, json = json] { template_from(Value::parse(json)); });
}

struct BadTemplate {
  const char* json;
  const char* problems;
};

const BadTemplate kBadTemplates[] = {
    {R"({"type": "Sequential"})", "INVALID_ELEMENT /tree\n"},
    {R"({"type": "Operation", "props": {"name": "t.any"}, "children": [{"type": "Operation", "props": {"name": "t.any"}}]})",
     "INVALID_ELEMENT /tree/children\n"},
    {R"({"type": "Conditional", "children": [{"type": "Operation", "props": {"name": "t.any"}}]})",
     "INVALID_ELEMENT /tree/props\n"},
    {R"({"type": "Conditional", "props": {"test": {"value": 1}}, "children": [{"type": "Operation", "props": {"name": "t.any"}}]})",
     "INVALID_ELEMENT /tree/props/test\n"},
    {R"({"type": "Conditional", "props": {"test": {"value": 1, "matches": {"type": "x"}}}, "children": [{"type": "Operation", "props": {"name": "t.any"}}]})",
     "INVALID_ELEMENT /tree/props/test/matches\n"},
    {R"({"type": "Map", "props": {"over": 3}, "children": [{"type": "Operation", "props": {"name": "t.any"}}]})",
     "INVALID_ELEMENT /tree/props/over\n"},
    {R"({"type": "Map", "props": {"over": [], "as": "input"}, "children": [{"type": "Operation", "props": {"name": "t.any"}}]})",
     "INVALID_ELEMENT /tree/props/as\n"},
    {R"({"type": "Sequential", "children": [{"type": "Operation", "props": {"id": "a", "name": "t.any"}}, {"type": "Operation", "props": {"id": "a", "name": "t.any"}}]})",
     "DUPLICATE_ID /tree/children/1/props/id\n"},
    {R"({"type": "Operation", "props": {"id": "previous", "name": "t.any"}})", "DUPLICATE_ID /tree/props/id\n"},
    {R"({"type": "Operation", "props": {"name": "t.nay"}})", "UNKNOWN_OPERATION /tree/props/name\n"},
    {R"({"type": "Operation", "props": {"name": "t.stream"}})", "UNKNOWN_OPERATION /tree/props/name\n"},
    {R"({"type": "Operation", "props": {"name": "t.hidden"}})", "UNKNOWN_OPERATION /tree/props/name\n"},
    {R"({"type": "Operation", "props": {"name": "t.any", "input": {"a": ["$.x y", "$.", "$.a..b", "$.a[b]", "$.a[0"]}}})",
     "MISSING_RESULT /tree/props/input/a/0\nINVALID_REFERENCE /tree/props/input/a/1\nINVALID_REFERENCE "
     "/tree/props/input/a/2\n"
     "INVALID_REFERENCE /tree/props/input/a/3\nINVALID_REFERENCE /tree/props/input/a/4\n"},
    {R"({"type": "Operation", "props": {"name": "t.any", "input": "$.nothing"}})",
     "MISSING_RESULT /tree/props/input\n"},
    {R"({"type": "Operation", "props": {"name": "t.any", "input": "$.index"}})", "MISSING_RESULT /tree/props/input\n"},
    {R"({"type": "Sequential", "children": [{"type": "Operation", "props": {"name": "t.any", "input": "$.b"}}, {"type": "Operation", "props": {"id": "b", "name": "t.any"}}]})",
     "LATER_RESULT /tree/children/0/props/input\n"},
    {R"({"type": "Sequential", "props": {"id": "s"}, "children": [{"type": "Operation", "props": {"name": "t.any", "input": "$.s"}}]})",
     "LATER_RESULT /tree/children/0/props/input\n"},
    {R"({"type": "Sequential", "children": [
        {"type": "Map", "props": {"over": [1]}, "children": [{"type": "Operation", "props": {"id": "in", "name": "t.any"}}]},
        {"type": "Operation", "props": {"name": "t.any", "input": "$.in"}}]})",
     "MISSING_RESULT /tree/children/1/props/input\n"},
    {R"({"type": "Sequential", "children": [
        {"type": "Conditional", "props": {"test": "$.input"}, "children": [{"type": "Operation", "props": {"id": "in", "name": "t.any"}}]},
        {"type": "Operation", "props": {"name": "t.any", "input": "$.in"}}]})",
     "MISSING_RESULT /tree/children/1/props/input\n"},
    // Types, with the place in the template.
    {R"({"type": "Operation", "props": {"name": "t.number", "input": {"x": "one"}}})",
     "TYPE_MISMATCH /tree/props/input\n"},
    {R"({"type": "Operation", "props": {"name": "t.number", "input": {}}})", "TYPE_MISMATCH /tree/props/input\n"},
    {R"({"type": "Operation", "props": {"name": "t.number", "input": {"x": 1, "y": 2}}})",
     "TYPE_MISMATCH /tree/props/input\n"},
    {R"({"type": "Sequential", "children": [{"type": "Operation", "props": {"name": "t.text", "input": {"s": ""}}}, {"type": "Operation", "props": {"name": "t.number"}}]})",
     "TYPE_MISMATCH /tree/children/1\n"},
    {R"({"type": "Sequential", "children": [{"type": "Operation", "props": {"id": "a", "name": "t.text", "input": {"s": ""}}}, {"type": "Operation", "props": {"name": "t.number", "input": {"x": "$.a.s"}}}]})",
     "TYPE_MISMATCH /tree/children/1/props/input\n"},
    {R"({"type": "Sequential", "children": [{"type": "Operation", "props": {"id": "a", "name": "t.number", "input": {"x": 1}}}, {"type": "Operation", "props": {"name": "t.any", "input": "$.a.y"}}]})",
     "MISSING_RESULT /tree/children/1/props/input\n"},
    {R"({"type": "Sequential", "children": [{"type": "Operation", "props": {"id": "a", "name": "t.number", "input": {"x": 1}}}, {"type": "Map", "props": {"over": "$.a"}, "children": [{"type": "Operation", "props": {"name": "t.any"}}]}]})",
     "TYPE_MISMATCH /tree/children/1/props/over\n"},
    {R"({"type": "Sequential", "children": [{"type": "Operation", "props": {"id": "a", "name": "t.list"}}, {"type": "Map", "props": {"over": "$.a", "as": "n"}, "children": [{"type": "Operation", "props": {"name": "t.text", "input": {"s": "$.n"}}}]}]})",
     "TYPE_MISMATCH /tree/children/1/children/0/props/input\n"},
    {R"({"type": "Sequential", "children": [{"type": "Operation", "props": {"id": "a", "name": "t.text", "input": {"s": ""}}}, {"type": "Conditional", "props": {"test": "$.a.s"}, "children": [{"type": "Operation", "props": {"name": "t.any"}}]}]})",
     "TYPE_MISMATCH /tree/children/1/props/test\n"},
    {R"({"outputSchema": {"type": "string"}, "tree": {"type": "Operation", "props": {"name": "t.list"}}})",
     "TYPE_MISMATCH /outputSchema\n"},
    {R"({"inputSchema": {"type": "x"}, "tree": {"type": "Operation", "props": {"name": "t.list"}}})",
     "INVALID_ELEMENT /inputSchema\n"},
};

// Mistakes are refused before anything runs.
TEST_F(CheckTest, FindsEachMistakeWithItsPath) {
  for (const BadTemplate& bad : kBadTemplates) EXPECT_EQ(problems(bad.json), bad.problems) << bad.json;
}

// Cycles are refused.
TEST_F(CheckTest, FindsCyclesOfParallelElements) {
  const char* cycle = R"({"type": "Parallel", "children": [
    {"type": "Operation", "props": {"id": "a", "name": "t.any", "input": "$.c"}},
    {"type": "Operation", "props": {"id": "b", "name": "t.any", "input": "$.a"}},
    {"type": "Sequential", "children": [{"type": "Operation", "props": {"id": "c", "name": "t.any", "input": "$.b"}}]}]})";
  EXPECT_EQ(problems(cycle), "CYCLE /tree\n");
  const auto found = check(template_from(Value::parse(cycle)), registry);
  EXPECT_EQ(found[0].message, "elements wait for each other: \"a\" -> /tree/children/2 -> \"b\" -> \"a\"");
  EXPECT_EQ(problems(R"({"type": "Parallel", "children": [
    {"type": "Operation", "props": {"id": "a", "name": "t.any", "input": "$.b"}}, {"type": "Operation", "props": {"id": "b", "name": "t.any"}}]})"),
            "")
      << "siblings of a parallel may come in any order";
}

TEST_F(CheckTest, TakesWhatIsGood) {
  EXPECT_EQ(
      problems(R"({"type": "Sequential", "props": {"output": {"last": "$.previous", "first": "$.a.x"}}, "children": [
    {"type": "Operation", "props": {"id": "a", "name": "t.number", "input": {"x": 1}}},
    {"type": "Operation", "props": {"name": "t.number"}},
    {"type": "Operation", "props": {"name": "t.number", "input": {"x": "$.a.x"}}},
    {"type": "Map", "props": {"id": "m", "over": [1, 2], "as": "n", "initial": {"x": 0}}, "children": [
      {"type": "Operation", "props": {"name": "t.any", "input": ["$.n", "$.index", "$.previous.x", "$$.text", "$5"]}}]},
    {"type": "Operation", "props": {"name": "t.any", "input": "$.m[0]"}}]})"),
      "");
  EXPECT_EQ(problems(R"({"type": "Operation", "props": {"name": "t.hidden"}})", true), "");
}

TEST(WorkflowFit, SchemasByTheRules) {
  const auto kind = [](const char* output, const char* input) {
    const Fit result = fit(Value::parse(output), Value::parse(input));
    return result.kind == Fit::Kind::fits      ? std::string("fits")
           : result.kind == Fit::Kind::unknown ? "unknown"
                                               : result.detail;
  };
  EXPECT_EQ(kind(R"({"type": "string"})", R"({"type": "string"})"), "fits");
  EXPECT_EQ(kind("true", R"({"type": "string"})"), "unknown");
  EXPECT_EQ(kind(R"({"type": "string"})", "{}"), "unknown");
  EXPECT_EQ(kind(R"({"type": "integer"})", R"({"type": "number"})"), "fits");
  EXPECT_EQ(kind(R"({"type": "number"})", R"({"type": "integer"})"), "unknown");
  EXPECT_EQ(kind(R"({"type": "string"})", R"({"type": "number"})"), "the data: is a string, and not a number");
  EXPECT_EQ(
      kind(
          R"({"type": "object", "properties": {"a": {"type": "string"}, "b": true}})",
          R"({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}, "additionalProperties": false})"),
      "fits")
      << "more fields than are needed";
  EXPECT_EQ(kind(R"({"type": "object", "properties": {"b": true}})", R"({"type": "object", "required": ["a"]})"),
            "the data: has no field \"a\"");
  EXPECT_EQ(kind(R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}}}})",
                 R"({"properties": {"a": {"type": "array", "items": {"type": "integer"}}}})"),
            "/a/0: is null, and not an integer");
  EXPECT_EQ(kind(R"({"x-tensor": {"dtypes": ["f32"]}})",
                 R"({"anyOf": [{"x-tensor": {"dtypes": ["f32", "f16"]}}, {"type": "number"}]})"),
            "fits");
  EXPECT_EQ(kind(R"({"x-tensor": true})", R"({"x-tensor": {"dtypes": ["f32"]}})"), "unknown");
  EXPECT_EQ(kind(R"({"x-tensor": {"dtypes": ["i64"]}})", R"({"x-tensor": {"dtypes": ["f32"]}})"),
            "the data: is a tensor of i64, which is not taken");
  EXPECT_EQ(kind(R"({"x-tensor": true})", R"({"type": "string"})"), "the data: is a tensor, and not a string");
  EXPECT_EQ(kind(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", R"({"type": "string"})"), "unknown");
  EXPECT_EQ(kind(R"({"const": 3})", R"({"maximum": 2})"), "the data: is 3, which is above the maximum of 2");
  EXPECT_EQ(kind(R"({"type": "integer"})", R"({"type": "integer", "maximum": 2})"), "unknown");
  EXPECT_EQ(kind(R"({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}})", R"({"type": "null"})"),
            "the data: is a string, and not null");
  EXPECT_EQ(kind(R"({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})", R"({"type": "null"})"), "unknown");
}

TEST_F(CheckTest, TheGraphOfOperationsIsData) {
  const Template workflow = template_from(Value::parse(R"({"type": "Sequential", "children": [
    {"type": "Operation", "props": {"id": "a", "name": "t.number", "input": {"x": 1}}},
    {"type": "Parallel", "children": [
      {"type": "Operation", "props": {"id": "late", "name": "t.any", "input": ["$.early"]}},
      {"type": "Operation", "props": {"id": "early", "name": "t.number", "input": {"x": "$.a.x"}}}]},
    {"type": "Operation", "props": {"name": "t.any", "input": 1}}]})"));
  const OperationGraph graph = operation_graph(workflow, registry);
  std::string text;
  for (const auto& node : graph.nodes) text += node.id + ",";
  for (const auto& edge : graph.edges)
    text += " " + std::to_string(edge.from) + (edge.is_data ? "=>" : "->") + std::to_string(edge.to);
  EXPECT_EQ(text, "a,early,late,, 0=>1 0->2 1=>2 1->3 2->3");
  EXPECT_EQ(to_value(graph)["edges"][0],
            Value::parse(
                R"({"from": "/tree/children/0", "to": "/tree/children/1/children/1", "kind": "data", "fit": "fits"})"));
  for (const auto& edge : graph.edges) EXPECT_LT(edge.from, edge.to) << "a topological order";
  EXPECT_NE(message_of<UsageError>([&] {
              operation_graph(template_from(Value::parse(kBadTemplates[0].json)), registry);
            }).find("INVALID_ELEMENT"),
            std::string::npos);
}

TEST(WorkflowGraph, CallsAsTheyHappen) {
  using operations::Event;
  CallGraph graph;
  const auto at = [](int seconds) { return operations::Clock::time_point(std::chrono::seconds(seconds)); };
  graph.add({.type = Event::Type::requested, .request_id = "r", .operation_id = "a.outer"}, at(1));
  graph.add({.type = Event::Type::requested, .request_id = "c", .operation_id = "a.inner", .parent_request_id = "r"},
            at(2));
  graph.add({.type = Event::Type::error, .request_id = "c", .code = "FULL", .message = "no room"}, at(4));
  graph.add({.type = Event::Type::requested, .request_id = "d", .operation_id = "a.inner", .parent_request_id = "r"},
            at(4));
  graph.add({.type = Event::Type::aborted, .request_id = "d"}, at(5));
  CallGraph::Node last = *graph.find("d");
  last.depends_on = {"c"};
  graph.set(last);
  EXPECT_EQ(graph.roots(), std::vector<std::string>{"r"});
  EXPECT_EQ(graph.children("r"), (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(graph.lineage("d"), (std::vector<std::string>{"r", "d"}));
  EXPECT_EQ(graph.dependents("c"), std::vector<std::string>{"d"});
  EXPECT_EQ(graph.with_status(Status::running), std::vector<std::string>{"r"});
  EXPECT_EQ(graph.with_status(Status::aborted), std::vector<std::string>{"d"});
  EXPECT_EQ(graph.duration("c"), std::chrono::seconds(2));
  EXPECT_EQ(graph.find("c")->code, "FULL");
  EXPECT_EQ(to_value(call_graph_from(to_value(graph))), to_value(graph));
  last.parent = "d";
  EXPECT_THROW(graph.set(last), UsageError);
  EXPECT_THROW(graph.lineage("x"), UsageError);
  for (
      const char* bad :
      {"{}", R"({"nodes": [{"id": "a", "status": "odd"}], "edges": []})",
       R"({"nodes": [], "edges": [{"from": "a", "to": "b", "kind": "triggered"}]})",
       R"({"nodes": [{"id": "a", "status": "idle"}, {"id": "a", "status": "idle"}], "edges": []})",
       R"({"nodes": [{"id": "a", "status": "idle"}, {"id": "b", "status": "idle"}], "edges": [{"from": "a", "to": "b", "kind": "triggered"}, {"from": "b", "to": "a", "kind": "triggered"}]})"})
    EXPECT_THROW(call_graph_from(Value::parse(bad)), UsageError) << bad;
}

// Results of results, doubled at every step: the check stays small.
TEST_F(CheckTest, HostileDoublingIsCheckedQuickly) {
  std::string children =
      R"({"type": "Sequential", "props": {"id": "s0", "output": ["$.previous", "$.previous"]}, "children": [{"type": "Operation", "props": {"name": "t.number", "input": {"x": 1}}}]})";
  for (int i = 1; i < 60; ++i) {
    const std::string before = "$.s" + std::to_string(i - 1);
    children += R"(, {"type": "Sequential", "props": {"id": "s)" + std::to_string(i) + R"(", "output": [")" + before +
                R"(", ")" + before +
                R"("]}, "children": [{"type": "Operation", "props": {"name": "t.any", "input": 1}}]})";
  }
  const test::MemoryLimit limit(std::size_t{1} << 30);
  EXPECT_EQ(problems((R"({"type": "Sequential", "children": [)" + children + "]}").c_str()), "");
}

TEST_F(CheckTest, HostileTemplatesAreCheckedOrRefused) {
  const std::string good =
      R"({"inputSchema": {"type": "object"}, "tree": {"type": "Sequential", "props": {"id": "s", "output": {"a": "$.previous"}}, "children": [
    {"type": "Parallel", "props": {"maxConcurrency": 2}, "children": [{"type": "Operation", "props": {"id": "a", "name": "t.number", "input": {"x": 1}}},
      {"type": "Operation", "props": {"name": "t.any", "input": ["$.a.x", "$.input[\"k\"]"]}}]},
    {"type": "Conditional", "props": {"test": {"value": "$.previous[0]", "matches": {"type": "object"}}}, "children": [{"type": "Operation", "props": {"name": "t.any"}}]},
    {"type": "Map", "props": {"over": [1, 2], "as": "i", "initial": null}, "children": [{"type": "Operation", "props": {"name": "t.text", "input": {"s": "$.i"}}}]}]}})";
  std::mt19937_64 random(7);
  const int rounds = test::every_mutation() ? 200'000 : 3'000;
  int sound = 0;
  for (int i = 0; i < rounds; ++i) {
    std::string text = good;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = "{}[]:,\"$.0a"[random() % 11]; break;
        case 1: text.erase(at, 1 + random() % 10); break;
        default: text.insert(at, text.substr(random() % text.size(), 1 + random() % 50));
      }
    }
    try {
      sound += check(template_from(Value::parse(text)), registry).empty();
    } catch (const FileError&) {
    } catch (const UsageError&) {
    }
  }
  EXPECT_LT(sound, rounds);
}

}  // namespace
}  // namespace weft::workflow
