// Running workflows: order, concurrency, branches, maps, failure policies, aborts, deadlines, authority, and tensors.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "base/message_of.hpp"
#include "operations/code_of.hpp"
#include "weft/workflow.hpp"

namespace weft::workflow {
namespace {

using namespace std::chrono_literals;
using operations::Clock;
using operations::OperationError;
using test::code_of;
using test::message_of;

bool soon(const auto& condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

struct RunTest : testing::Test {
  std::shared_ptr<operations::Registry> registry = std::make_shared<operations::Registry>();
  operations::Exchange exchange{registry};
  std::mutex mutex;
  std::string log;                       // what ran, in order
  std::atomic<int> calls = 0, most = 0;  // calls at once
  std::atomic<bool> open = false;        // lets t.gate go

  RunTest() {
    add("add", [](operations::Context& call) { return Value(call.input("x").number() + call.input("y").number()); });
    add("same", [this](operations::Context& call) {
      note(call.input().to_json());
      return call.input();
    });
    add("fail", [this](operations::Context&) -> Value {
      note("fail");
      throw OperationError(operations::kExecutionError, "it failed", 7);
    });
    // Waits until the test opens the gate, or the call is ended.
    add("gate", [this](operations::Context& call) {
      note("gate");
      while (!open && !call.stop().stop_requested()) std::this_thread::sleep_for(1ms);
      call.check();
      note("through");
      return call.input();
    });
    add("busy", [this](operations::Context& call) {
      const int now = ++calls;
      for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      std::this_thread::sleep_for(10ms);
      --calls;
      return call.input();
    });
  }
  void add(const char* name, std::function<Value(operations::Context&)> handler) {
    registry->add({.space = "t", .name = name}, std::move(handler));
  }
  void note(const std::string& text) {
    const std::lock_guard lock(mutex);
    log += text + " ";
  }
  std::string noted() {
    const std::lock_guard lock(mutex);
    return log;
  }
  Value run_root(Element root, Value input = nullptr, const RunOptions& options = {}) {
    return run(exchange, {.tree = std::move(root)}, std::move(input), options);
  }
};

std::string statuses(const CallGraph& graph) {
  std::string text;
  for (const CallGraph::Node& node : graph.nodes())
    if (!node.operation.empty())
      text += (node.name.empty() ? node.id : node.name) + "=" + std::string(name_of(node.status)) + " ";
  return text;
}

TEST_F(RunTest, OutputFeedsTheNextInput) {
  EXPECT_EQ(
      run_root(sequential({operation("t.same"), operation("t.add", Value::object({{"x", "$.previous"}, {"y", 1}})),
                           operation("t.same")}),
               3),
      Value(4.0));
  EXPECT_EQ(noted(), "3 4.0 ");
}

TEST_F(RunTest, ReferencesNameEarlierResults) {
  const Value answer = run_root(
      with_output(
          sequential({named("a", operation("t.same",
                                           Value::object({{"list", Value::array({1, 2, "$.input.k"})}, {"a.b", 5}}))),
                      named("b", operation("t.same", "$$.text"))}),
          Value::object(
              {{"third", "$.a.list[2]"}, {"dotted", "$.a.list.1"}, {"quoted", "$.a[\"a.b\"]"}, {"text", "$.b"}})),
      Value::object({{"k", "v"}}));
  EXPECT_EQ(answer, Value::parse(R"({"third": "v", "dotted": 2, "quoted": 5, "text": "$.text"})"));
  EXPECT_NE(message_of<OperationError>([&] {
              run_root(operation("t.same", "$.input.none"), Value::object({}));
            }).find("/tree: \"$.input.none\": object has no \"none\""),
            std::string::npos);
}

TEST_F(RunTest, ParallelRunsAtOnceWithinItsLimit) {
  std::vector<Element> children;
  for (int i = 0; i < 8; ++i) children.push_back(operation("t.busy", i));
  const Value answer = run_root(parallel(children, 3));
  EXPECT_EQ(answer, Value::parse("[0, 1, 2, 3, 4, 5, 6, 7]")) << "in the order of the template";
  EXPECT_LE(most, 3);
  EXPECT_GE(most, 2);
}

TEST_F(RunTest, ParallelSiblingsWaitForEachOther) {
  const Value answer =
      run_root(parallel({operation("t.same", "$.c"), named("b", operation("t.same", 1)),
                         named("c", sequential({operation("t.same", "$.b"),
                                                operation("t.add", Value::object({{"x", "$.previous"}, {"y", 1}}))}))},
                        1));
  EXPECT_EQ(answer, Value::array({2.0, 1, 2.0})) << "one at a time, and no deadlock";
  EXPECT_EQ(noted(), "1 1 2.0 ");
}

TEST_F(RunTest, ConditionalsBranchOnData) {
  const auto choose = [&](Value test, Value input) {
    return run_root(conditional(std::move(test), operation("t.same", "yes"), operation("t.same", "no")),
                    std::move(input));
  };
  EXPECT_EQ(choose("$.input", true), Value("yes"));
  EXPECT_EQ(choose("$.input", false), Value("no"));
  const Value schema = Value::parse(R"({"value": "$.input.loss", "matches": {"exclusiveMaximum": 0.5}})");
  EXPECT_EQ(choose(schema, Value::object({{"loss", 0.25}})), Value("yes"));
  EXPECT_EQ(choose(schema, Value::object({{"loss", 0.5}})), Value("no"));
  EXPECT_EQ(run_root(conditional(Value("$.input"), operation("t.same", "yes")), false), Value());
  EXPECT_EQ(run_root(sequential({named("a", operation("t.same", 4)),
                                 conditional([](const Value& results) { return results["a"].integer() > 3; },
                                             operation("t.same", "yes"))})),
            Value("yes"));
  EXPECT_NE(message_of<OperationError>([&] { choose("$.input", 3); }).find("is an integer, and not a boolean"),
            std::string::npos);
}

TEST_F(RunTest, MapsGoOverItemsInOrderOrAtOnce) {
  Element sum = map("$.input", "n", operation("t.add", Value::object({{"x", "$.previous"}, {"y", "$.n"}})));
  sum.initial = 10;
  EXPECT_EQ(run_root(sum, Value::parse("[1, 2, 3]")), Value::array({11.0, 13.0, 16.0}));
  EXPECT_EQ(run_root(sum, Value::parse("[]")), Value::Array());
  Element wide = map("$.input", "n", operation("t.busy", Value::array({"$.index", "$.n"})));
  wide.max_concurrency = 4;
  EXPECT_EQ(run_root(wide, Value::parse("[5, 6, 7, 8, 9]")), Value::parse("[[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]]"));
  EXPECT_LE(most, 4);
  EXPECT_GE(most, 2);
  Element nested = map("$.input", "row", map("$.row", "n", operation("t.same", Value::array({"$.n", "$.index"}))));
  EXPECT_EQ(run_root(nested, Value::parse("[[1, 2], [3]]")), Value::parse("[[[1, 0], [2, 1]], [[3, 0]]]"));
  EXPECT_EQ(code_of([&] { run_root(sum, 3); }), operations::kExecutionError);
  EXPECT_NE(message_of<OperationError>([&] {
              run_root(sum, Value::parse("[1, 2, 3]"), {.nodes_max = 3});
            }).find("which is the limit"),
            std::string::npos);
}

// A failed node aborts dependents by default.
TEST_F(RunTest, AFailureAbortsWhatDependsOnItAndNothingElse) {
  Template workflow{
      .tree = parallel({sequential({named("bad", operation("t.fail")), named("after", operation("t.same", 1))}),
                        named("needs", operation("t.same", "$.bad2")), named("bad2", operation("t.fail")),
                        sequential({named("free", operation("t.gate", 2)), named("free2", operation("t.same", 3))})})};
  workflow::Run running = start(exchange, workflow, nullptr);
  ASSERT_TRUE(soon([&] { return running.graph().with_status(Status::failed).size() >= 3; }));
  open = true;
  EXPECT_NE(message_of<OperationError>([&] { running.get(); }).find("/tree/children/"), std::string::npos);
  EXPECT_EQ(statuses(running.graph()),
            "bad=failed after=aborted needs=aborted bad2=failed free=completed free2=completed ");
  EXPECT_EQ(running.status(), Status::failed);
  EXPECT_EQ(noted().find("1 "), std::string::npos) << "what depends on it never ran";
}

// Continue-running lets running nodes end and starts nothing.
TEST_F(RunTest, ContinueRunningEndsWhatRunsAndStartsNothing) {
  Template workflow{
      .on_failure = OnFailure::continue_running,
      .tree = parallel({sequential({named("gate", operation("t.gate", 1)), named("next", operation("t.same", 2))}),
                        sequential({named("first", operation("t.busy", 0)), named("bad", operation("t.fail"))})})};
  workflow::Run running = start(exchange, workflow, nullptr);
  ASSERT_TRUE(
      soon([&] { return noted().find("fail") != std::string::npos && noted().find("gate") != std::string::npos; }));
  ASSERT_TRUE(soon([&] { return !running.graph().with_status(Status::failed).empty(); }));
  EXPECT_FALSE(has_ended(running.status())) << "the gate still runs";
  open = true;
  EXPECT_EQ(code_of([&] { running.get(); }), operations::kExecutionError);
  EXPECT_EQ(statuses(running.graph()), "gate=completed next=aborted first=completed bad=failed ");
  EXPECT_EQ(noted().find("2 "), std::string::npos);
}

TEST_F(RunTest, ErrorsNameTheirPlaceAndKeepTheirDetails) {
  try {
    run_root(sequential({operation("t.same", 1), named("bad", operation("t.fail"))}));
    ADD_FAILURE();
  } catch (const OperationError& error) {
    EXPECT_STREQ(error.what(), "/tree/children/1 \"bad\": it failed");
    EXPECT_EQ(error.details(), Value(7));
  }
}

TEST_F(RunTest, AbortsReachTheCallsUnderWay) {
  Template workflow{.tree = sequential({named("gate", operation("t.gate")), named("next", operation("t.same", 2))})};
  workflow::Run running = start(exchange, workflow, nullptr);
  ASSERT_TRUE(soon([&] { return noted() == "gate "; }));
  EXPECT_EQ(running.get_until(Clock::now() + 5ms), std::nullopt);
  running.abort();
  EXPECT_EQ(code_of([&] { running.get(); }), operations::kAborted);
  EXPECT_EQ(statuses(running.graph()), "gate=aborted next=aborted ");
  EXPECT_EQ(running.status(), Status::aborted);
  EXPECT_TRUE(soon([&] { return exchange.pending() == 0; }));
  EXPECT_EQ(noted(), "gate ") << "it did not come through";

  workflow.on_failure = OnFailure::continue_running;
  workflow::Run gentle = start(exchange, workflow, nullptr);
  ASSERT_TRUE(soon([&] { return noted() == "gate gate "; }));
  gentle.abort();
  EXPECT_EQ(gentle.get_until(Clock::now() + 5ms), std::nullopt) << "what runs may end";
  open = true;
  EXPECT_EQ(code_of([&] { gentle.get(); }), operations::kAborted);
  EXPECT_EQ(statuses(gentle.graph()), "gate=completed next=aborted ");
}

TEST_F(RunTest, DeadlinesEndIt) {
  RunOptions options;
  options.call.deadline = Clock::now() + 30ms;
  EXPECT_EQ(code_of([&] {
              run_root(sequential({operation("t.gate"), operation("t.same", 1)}), nullptr, options);
            }),
            operations::kTimeout);
  Element slow = operation("t.gate");
  slow.timeout = 0.03;
  EXPECT_EQ(code_of([&] { run_root(slow); }), operations::kTimeout) << "of one operation";
  EXPECT_TRUE(soon([&] { return exchange.pending() == 0; }));
}

TEST_F(RunTest, AttemptsAreRepeated) {
  int failures = 0;
  const char* code = "BUSY";
  registry->add({.space = "t", .name = "flaky", .errors = {{"BUSY", "try again"}}}, [&](operations::Context& call) {
    note("try");
    if (failures-- > 0) throw OperationError(code, "not now");
    return call.input();
  });
  Element flaky = operation("t.flaky", 5);
  flaky.retries = 2;
  flaky.retry_delay = 0.02;
  failures = 2;
  const auto begin = Clock::now();
  workflow::Run running = start(exchange, {.tree = flaky}, nullptr);
  EXPECT_EQ(running.get(), Value(5));
  EXPECT_GE(Clock::now() - begin, 60ms) << "0.02 s, and then twice as long";
  EXPECT_EQ(noted(), "try try try ");
  EXPECT_EQ(running.graph().roots(), std::vector<std::string>{"root"});
  failures = 3;
  EXPECT_EQ(code_of([&] { run_root(flaky); }), "BUSY") << "after the last attempt";
  EXPECT_EQ(failures, 0);
  // A timeout is that of an attempt.
  std::atomic<int> slow_calls = 0;
  add("slow", [&](operations::Context& call) {
    const bool is_first = slow_calls++ == 0;
    while (is_first && !call.stop().stop_requested()) std::this_thread::sleep_for(1ms);
    return call.input();
  });
  Element slow = operation("t.slow", 1);
  slow.timeout = 0.05;
  slow.retries = 1;
  EXPECT_EQ(run_root(slow), Value(1));
  // As an operation, where each attempt is a nested call.
  failures = 1;
  workflow::add(*registry, {.space = "t", .name = "whole"}, {.tree = flaky}, registry->owner());
  EXPECT_EQ(exchange.call("t.whole", {}).data, Value(5));
}

TEST_F(RunTest, WhatCannotBeMendedIsNotRepeated) {
  registry->add({.space = "t", .name = "strict", .input = Value::parse(R"({"type": "string"})")},
                [](operations::Context& call) { return call.input(); });
  Element strict = operation("t.strict", "$.input");
  strict.retries = 50;
  const auto begin = Clock::now();
  EXPECT_EQ(code_of([&] { run_root(strict, 3); }), operations::kValidationError);
  // Neither an abort nor a deadline waits for the next attempt.
  Element failing = operation("t.fail");
  failing.retries = 50;
  failing.retry_delay = 20;
  RunOptions options;
  options.call.deadline = Clock::now() + 500ms;
  EXPECT_EQ(code_of([&] { run_root(failing, nullptr, options); }), operations::kExecutionError)
      << "it would be too late";
  workflow::Run running = start(exchange, {.tree = failing}, nullptr);
  ASSERT_TRUE(soon([&] { return noted() == "fail fail "; }));
  running.abort();
  EXPECT_EQ(code_of([&] { running.get(); }), operations::kAborted);
  EXPECT_LT(Clock::now() - begin, 10s);
}

TEST_F(RunTest, ObserversSeeEveryStatus) {
  std::string seen;
  run_root(sequential({named("a", operation("t.same", 1)), named("b", operation("t.same", 2))}), nullptr,
           {.observer = [&](const NodeEvent& event) {
             seen += (event.name.empty() ? event.node : event.name) + "=" + std::string(name_of(event.status)) + " ";
           }});
  EXPECT_EQ(seen,
            "root=ready root=running a=ready a=running a=completed b=ready b=running b=completed root=completed ");
}

TEST_F(RunTest, TheGraphOfARunHasItsEdges) {
  workflow::Run running =
      start(exchange,
            {.tree = sequential({operation("t.same", 1), map(Value::array({1, 2}), "n", operation("t.same", "$.n"))})},
            nullptr);
  running.get();
  const CallGraph graph = running.graph();
  EXPECT_EQ(graph.roots(), std::vector<std::string>{"root"});
  EXPECT_EQ(graph.children("root.1"), (std::vector<std::string>{"root.1[0]", "root.1[1]"}));
  EXPECT_EQ(graph.find("root.1")->depends_on, std::vector<std::string>{"root.0"});
  EXPECT_EQ(graph.find("root.1[1]")->depends_on, std::vector<std::string>{"root.1[0]"});
  EXPECT_EQ(graph.lineage("root.1[1]"), (std::vector<std::string>{"root", "root.1", "root.1[1]"}));
  EXPECT_EQ(graph.with_status(Status::completed).size(), graph.size());
  EXPECT_FALSE(graph.find("root.0")->request_id.empty());
  EXPECT_EQ(to_value(call_graph_from(to_value(graph))), to_value(graph));
}

// One mistake anywhere, and nothing runs.
TEST_F(RunTest, NothingRunsUnlessAllIsGood) {
  EXPECT_NE(message_of<UsageError>([&] {
              run_root(sequential({operation("t.same", 1), operation("t.none")}));
            }).find("UNKNOWN_OPERATION"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              run_root(sequential({operation("t.same", 1), parallel({named("a", operation("t.same", "$.b")),
                                                                     named("b", operation("t.same", "$.a"))})}));
            }).find("CYCLE"),
            std::string::npos);
  Template typed{
      .input_schema = Value::parse(R"({"type": "object", "properties": {"n": {"type": "integer", "default": 5}}})"),
      .tree = operation("t.same", "$.input.n")};
  EXPECT_EQ(code_of([&] { run(exchange, typed, 3); }), operations::kValidationError);
  EXPECT_EQ(noted(), "");
  EXPECT_EQ(run(exchange, typed, Value::Object()), Value(5)) << "with defaults";
}

TEST_F(RunTest, CallsHaveTheCallersIdentity) {
  registry->add({.space = "t", .name = "guarded", .access = {.scopes = {"s"}}},
                [](operations::Context& call) { return Value(call.identity()->id); });
  RunOptions options;
  EXPECT_EQ(code_of([&] { run_root(operation("t.guarded"), nullptr, options); }), operations::kAccessDenied);
  options.call.identity = operations::Identity{.id = "me", .scopes = {"s"}};
  EXPECT_EQ(run_root(operation("t.guarded"), nullptr, options), Value("me"));
}

TEST_F(RunTest, AWorkflowIsAnOperation) {
  registry->add({.space = "vault",
                 .name = "open",
                 .access = {.scopes = {"vault"}},
                 .visibility = operations::Visibility::internal},
                [](operations::Context&) { return Value("gold"); });
  registry->add({.space = "t", .name = "declared", .errors = {{"FULL", "no room"}}},
                [](operations::Context&) -> Value { throw OperationError("FULL", "no room for it"); });
  const Template asking{
      .description = "asks the vault",
      .input_schema = Value::parse(R"({"type": "object", "required": ["fail"]})"),
      .tree = sequential({conditional(Value("$.input.fail"), operation("t.declared")), operation("vault.open")})};
  workflow::add(*registry, {.space = "flow", .name = "ask"}, asking, {.id = "flow", .scopes = {"vault"}});
  EXPECT_EQ(registry->find("flow.ask")->description, "asks the vault");
  EXPECT_EQ(registry->find("flow.ask")->errors.size(), 1u);
  EXPECT_EQ(exchange.call("flow.ask", Value::object({{"fail", false}})).data, Value("gold"))
      << "with its own authority";
  EXPECT_EQ(code_of([&] { exchange.call("flow.ask", Value::object({{"fail", true}})); }), "FULL");
  EXPECT_EQ(code_of([&] { exchange.call("flow.ask", Value::Object()); }), operations::kValidationError);
  EXPECT_THROW(run_root(operation("vault.open")), UsageError) << "internal operations are not found from outside";
  EXPECT_THROW(workflow::add(*registry, {.space = "flow", .name = "bad"}, {.tree = operation("flow.bad")}), UsageError)
      << "a workflow cannot call itself";
  std::vector<std::string> parents;
  exchange.observe([&](const operations::Event& event) {
    if (event.type == operations::Event::Type::requested)
      parents.push_back(event.parent_request_id + ">" + event.request_id);
  });
  exchange.call("flow.ask", Value::object({{"fail", false}}), {.request_id = "r"});
  EXPECT_EQ(parents, (std::vector<std::string>{">r", "r>r/root.1"}));
}

TEST_F(RunTest, AbortsOfTheCallReachTheWorkflow) {
  for (const OnFailure policy : {OnFailure::abort_dependents, OnFailure::continue_running}) {
    const std::string name = policy == OnFailure::abort_dependents ? "hard" : "soft";
    workflow::add(*registry, {.space = "flow", .name = name},
                  {.on_failure = policy, .tree = sequential({operation("t.gate"), operation("t.same", 2)})});
    log.clear();
    open = false;
    operations::PendingCall call = exchange.start("flow." + name, nullptr);
    ASSERT_TRUE(soon([&] { return noted() == "gate "; }));
    exchange.abort(call.request_id());
    EXPECT_EQ(code_of([&] { call.get(); }), operations::kAborted);
    open = true;
    ASSERT_TRUE(soon([&] { return exchange.pending() == 0; }));
    const char* all = policy == OnFailure::continue_running ? "gate through " : "gate ";
    EXPECT_TRUE(soon([&] { return noted() == all; }));
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(noted().find("2 "), std::string::npos) << "nothing new";
    open = false;
  }
}

TEST_F(RunTest, ManyRunsAtOnce) {
  std::vector<Element> children;
  for (int i = 0; i < 20; ++i)
    children.push_back(i % 3 ? operation("t.same", i)
                             : sequential({operation("t.same", i), operation("t.fail"), operation("t.same", i)}));
  const Template workflow{.tree = parallel(children)};
  std::vector<workflow::Run> runs;
  for (int i = 0; i < 10; ++i) runs.push_back(start(exchange, workflow, nullptr));
  runs[3].abort();
  for (std::size_t i = 0; i < runs.size(); ++i) EXPECT_NE(code_of([&] { runs[i].get(); }), "none");
  { workflow::Run dropped = start(exchange, workflow, nullptr); }
  EXPECT_TRUE(soon([&] { return exchange.pending() == 0; }));
}

}  // namespace
}  // namespace weft::workflow
