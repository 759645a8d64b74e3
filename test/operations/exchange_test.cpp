// Calls: their order, errors, events, deadlines, aborts and their cascade, subscriptions, threads.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "base/message_of.hpp"
#include "operations/code_of.hpp"
#include "weft/operations.hpp"

namespace weft::operations {
namespace {

using namespace std::chrono_literals;
using test::code_of;
using test::message_of;

Specification specification(std::string space, std::string name, Kind kind = Kind::query) {
  return {.space = std::move(space), .name = std::move(name), .kind = kind};
}

struct ExchangeTest : testing::Test {
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Exchange exchange{registry};
  std::mutex mutex;
  std::vector<Event> events;

  void watch() {
    exchange.observe([this](const Event& event) {
      const std::lock_guard lock(mutex);
      events.push_back(event);
    });
  }
  std::string types() {
    const std::lock_guard lock(mutex);
    std::string text;
    for (const Event& event : events) text += std::string(name_of(event.type)).substr(5) + " ";
    return text;
  }
  static bool soon(const auto& condition) {
    for (int i = 0; i < 5000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
};

TEST_F(ExchangeTest, AnswersACall) {
  Specification length = specification("text", "length");
  length.input = Value::parse(
      R"({"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}, "times": {"type": "integer", "default": 2}}})");
  length.output = Value::parse(R"({"type": "integer"})");
  registry->add(length, [](Context& call) {
    return Value(static_cast<double>(call.input("text").string().size() * call.input("times").integer()));
  });
  const Envelope answer = exchange.call("text.length", Value::object({{"text", "four"}}));
  EXPECT_EQ(answer.data.kind(), Value::Kind::integer) << "the output's schema says integer";
  EXPECT_EQ(answer.data, Value(8));
  EXPECT_EQ(std::get<LocalSource>(answer.source).operation_id, "text.length");
  EXPECT_TRUE(answer.warnings.empty());
  EXPECT_EQ(exchange.pending(), 0u);
}

TEST_F(ExchangeTest, ErrorsHaveTheirCodes) {
  Specification strict = specification("a", "strict");
  strict.input = Value::parse(R"({"properties": {"n": {"maximum": 2}}})");
  strict.access.scopes = {"s"};
  registry->add(strict, [](Context&) { return Value(); });
  registry->add(specification("a", "listed"));
  Specification failing = specification("a", "failing");
  failing.errors = {{"FULL", "no room"}};
  registry->add(failing, [](Context& call) -> Value {
    const std::string how = call.input().string();
    if (how == "declared") throw OperationError("FULL", "no room for it", 3);
    if (how == "undeclared") throw OperationError("EMPTY", "nothing is there");
    if (how == "weft") throw ShapeError("shapes differ");
    if (how == "standard") throw std::runtime_error("broken");
    throw 3;
  });
  Specification hidden = specification("a", "hidden");
  hidden.visibility = Visibility::internal;
  registry->add(hidden, [](Context&) { return Value(); });

  const Identity holder{.id = "h", .scopes = {"s"}};
  EXPECT_EQ(code_of([&] { exchange.call("a.none", {}); }), kNotFound);
  EXPECT_EQ(code_of([&] { exchange.call("a.hidden", {}); }), kNotFound);
  EXPECT_EQ(code_of([&] { exchange.call("a.listed", {}); }), kNotFound);
  EXPECT_EQ(code_of([&] { exchange.call("a.strict", Value::parse(R"({"n": 3})")); }), kAccessDenied)
      << "before the input is looked at";
  EXPECT_EQ(code_of([&] { exchange.call("a.strict", Value::parse(R"({"n": 3})"), {.identity = holder}); }),
            kValidationError);
  EXPECT_EQ(
      message_of<OperationError>([&] { exchange.call("a.strict", Value::parse(R"({"n": 3})"), {.identity = holder}); }),
      "a.strict: the input does not fit:\n/n: is 3, which is above the maximum of 2");
  EXPECT_EQ(code_of([&] { exchange.call("a.failing", "declared"); }), "FULL");
  EXPECT_EQ(code_of([&] { exchange.call("a.failing", "undeclared"); }), kExecutionError);
  EXPECT_EQ(code_of([&] { exchange.call("a.failing", "weft"); }), kExecutionError);
  EXPECT_EQ(message_of<OperationError>([&] { exchange.call("a.failing", "weft"); }), "a.failing: shapes differ");
  EXPECT_EQ(code_of([&] { exchange.call("a.failing", "standard"); }), kExecutionError);
  EXPECT_EQ(code_of([&] { exchange.call("a.failing", "other"); }), kUnknownError);
  EXPECT_EQ(code_of([&] { exchange.call("a.failing", "declared", {.deadline = Clock::now() + 10s}); }), "FULL")
      << "on a worker";
  EXPECT_EQ(code_of([&] { exchange.start("a.none", {}).get(); }), kNotFound);
  EXPECT_TRUE(soon([&] { return exchange.pending() == 0; }));
}

TEST_F(ExchangeTest, AWrongOutputIsAWarning) {
  Specification wrong = specification("a", "wrong");
  wrong.output = Value::parse(R"({"properties": {"n": {"type": "integer"}}})");
  registry->add(wrong, [](Context&) { return Value::object({{"n", "x"}}); });
  const Envelope answer = exchange.call("a.wrong", {});
  EXPECT_EQ(answer.data, Value::object({{"n", "x"}}));
  ASSERT_EQ(answer.warnings.size(), 1u);
  EXPECT_EQ(answer.warnings[0], "/n: is a string, and not an integer");
}

TEST_F(ExchangeTest, TellsObserversOfEveryEvent) {
  registry->add(specification("a", "inner"), [](Context& call) { return call.input(); });
  registry->add(specification("a", "outer"),
                {.run = [](Context& call) { return call.call("a.inner", 1); }, .reach = {"a.inner"}});
  Specification three = specification("a", "three", Kind::subscription);
  registry->add(three, [](Context& call) {
    for (int i = 0; i < 3; ++i) call.emit(i);
    return Value();
  });
  watch();
  exchange.call("a.outer", 3, {.identity = Identity{.id = "i"}, .request_id = "r1"});
  EXPECT_EQ(types(), "requested requested responded responded ");
  EXPECT_EQ(events[0].request_id, "r1");
  EXPECT_EQ(events[0].identity, "i");
  EXPECT_EQ(events[0].operation_id, "a.outer");
  EXPECT_EQ(events[0].input, Value(3));
  EXPECT_EQ(events[1].parent_request_id, "r1");
  EXPECT_EQ(events[1].identity, "") << "the handler's authority, not the caller's";
  EXPECT_EQ(events[3].output->data, Value(1));
  events.clear();
  Subscription answers = exchange.subscribe("a.three", {});
  while (answers.next()) {
  }
  EXPECT_TRUE(soon([&] { return types() == "requested responded responded responded completed "; })) << types();
  events.clear();
  EXPECT_EQ(code_of([&] { exchange.call("a.none", {}); }), kNotFound);
  EXPECT_EQ(types(), "requested error ");
}

TEST_F(ExchangeTest, EnvelopesAndEventsAreJson) {
  const Envelope envelope{.data = 3, .source = LocalSource{"a.b", Clock::time_point(1234567ms)}, .warnings = {"w"}};
  EXPECT_EQ(to_value(envelope).to_json(),
            R"({"data":3,"meta":{"source":"local","operationId":"a.b","timestamp":1234567,"warnings":["w"]}})");
  EXPECT_EQ(to_value(envelope_from(to_value(envelope))), to_value(envelope));
  const Envelope http{.data = "x", .source = HttpSource{200, {{"a", "b"}}, "text/plain"}};
  EXPECT_EQ(to_value(envelope_from(to_value(http))), to_value(http));
  const Envelope mcp{.data = "x", .source = McpSource{true, Value::array({1}), Value(2), {}}};
  EXPECT_EQ(to_value(envelope_from(to_value(mcp))), to_value(mcp));
  for (const char* wrong : {"3", "{}", R"({"data": 1})", R"({"data": 1, "meta": {"source": "moon"}})",
                            R"({"data": 1, "meta": {"source": "local"}})"})
    EXPECT_EQ(message_of<UsageError>([&] { envelope_from(Value::parse(wrong)); }).substr(0, 23),
              "this is not an envelope")
        << wrong;
  EXPECT_EQ(to_value(Event{.type = Event::Type::error, .request_id = "r", .code = "C", .message = "m"}).to_json(),
            R"({"event":"call.error","requestId":"r","code":"C","message":"m"})");
}

// ---- Subscriptions ------------------------------------------------------------------------------------------------------------

TEST_F(ExchangeTest, ASubscriberGetsAllAnswersInOrder) {
  registry->add(specification("a", "count", Kind::subscription), [](Context& call) {
    for (int i = 0; i < call.input().integer(); ++i) call.emit(i);
    return Value();
  });
  Subscription answers = exchange.subscribe("a.count", 1000, {.buffer = 3});
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(answers.next()->data, Value(i));
  EXPECT_FALSE(answers.next());
  EXPECT_EQ(exchange.call("a.count", 5).data, Value(0)) << "call gives the first";
  EXPECT_TRUE(soon([&] { return exchange.pending() == 0; }));
}

TEST_F(ExchangeTest, ASubscriberThatLeavesStopsTheHandler) {
  std::atomic<bool> ended = false;
  registry->add(specification("a", "endless", Kind::subscription), [&](Context& call) -> Value {
    try {
      for (int i = 0;; ++i) call.emit(i);
    } catch (const OperationError& error) {
      ended = error.code() == kAborted;
      throw;
    }
  });
  {
    Subscription answers = exchange.subscribe("a.endless", {});
    EXPECT_EQ(answers.next()->data, Value(0));
  }
  EXPECT_TRUE(soon([&] { return ended.load(); }));
  EXPECT_EQ(exchange.pending(), 0u);
}

TEST_F(ExchangeTest, RunGivesAnswersOnTheCallersThread) {
  registry->add(specification("a", "count", Kind::subscription), [](Context& call) {
    for (std::int64_t i = 0; i < call.input().integer(); ++i) call.emit(i);
    return Value();
  });
  registry->add(specification("a", "thread"),
                [](Context&) { return Value(std::hash<std::thread::id>{}(std::this_thread::get_id())); });
  registry->add(specification("a", "sleepy"), [](Context& call) {
    while (!call.stop().stop_requested()) std::this_thread::sleep_for(1ms);
    return Value("late");
  });
  watch();
  std::vector<Value> got;
  exchange.run("a.count", 3, {}, [&](Envelope answer) {
    got.push_back(answer.data);
    return true;
  });
  EXPECT_EQ(got, (std::vector<Value>{0, 1, 2}));
  EXPECT_EQ(types(), "requested responded responded responded completed ");
  exchange.run("a.thread", {}, {}, [&](Envelope answer) {
    EXPECT_EQ(answer.data, Value(std::hash<std::thread::id>{}(std::this_thread::get_id())));
    return true;
  });
  got.clear();
  EXPECT_EQ(code_of([&] {
              exchange.run("a.count", 100, {}, [&](Envelope answer) {
                got.push_back(answer.data);
                return got.size() < 3;
              });
            }),
            "ABORTED");
  EXPECT_EQ(got.size(), 3u);
  EXPECT_EQ(
      code_of([&] { exchange.run("a.sleepy", {}, {.deadline = Clock::now() + 30ms}, [](Envelope) { return true; }); }),
      "TIMEOUT");
  std::jthread aborting([&] { soon([&] { return exchange.abort("named"); }); });
  EXPECT_EQ(code_of([&] { exchange.run("a.sleepy", {}, {.request_id = "named"}, [](Envelope) { return true; }); }),
            "ABORTED");
  EXPECT_EQ(code_of([&] { exchange.run("a.none", {}, {}, [](Envelope) { return true; }); }), "OPERATION_NOT_FOUND");
  EXPECT_EQ(exchange.pending(), 0u);
}

TEST_F(ExchangeTest, OnlySubscriptionsEmit) {
  registry->add(specification("a", "query"), [](Context& call) {
    call.emit(1);
    return Value();
  });
  EXPECT_EQ(message_of<OperationError>([&] { exchange.call("a.query", {}); }),
            "a.query: only a subscription has more than one answer");
}

// ---- Deadlines and aborts -----------------------------------------------------------------------------------------------------

// Waits until it is told to stop.
Value wait_for_stop(Context& call, std::atomic<int>& stopped) {
  while (!call.stop().stop_requested()) std::this_thread::sleep_for(1ms);
  ++stopped;
  return "late";
}

TEST_F(ExchangeTest, ADeadlineEndsACall) {
  std::atomic<int> stopped = 0;
  registry->add(specification("a", "slow"), [&](Context& call) { return wait_for_stop(call, stopped); });
  const auto start = Clock::now();
  EXPECT_EQ(code_of([&] { exchange.call("a.slow", {}, {.deadline = Clock::now() + 30ms}); }), kTimeout);
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_TRUE(soon([&] { return stopped == 1; }));
}

TEST_F(ExchangeTest, AHandlerThatDoesNotStopDoesNotHoldItsCaller) {
  std::promise<void> let_go;
  std::shared_future<void> gone = let_go.get_future().share();
  registry->add(specification("a", "deaf"), [gone](Context&) {
    gone.wait();
    return Value();
  });
  EXPECT_EQ(code_of([&] { exchange.call("a.deaf", {}, {.deadline = Clock::now() + 30ms}); }), kTimeout);
  let_go.set_value();
}

TEST_F(ExchangeTest, ANestedCallHasNoLaterDeadline) {
  registry->add(specification("a", "inner"), [](Context& call) { return Value(call.deadline().has_value()); });
  registry->add(specification("a", "outer"),
                {.run = [](Context& call) { return call.call("a.inner", {}, {.deadline = Clock::now() + 1h}); },
                 .reach = {"a.*"}});
  std::atomic<bool> same = false;
  const auto deadline = Clock::now() + 20s;
  exchange.observe([&](const Event& event) {
    if (event.operation_id == "a.inner") same = event.deadline == deadline;
  });
  EXPECT_EQ(exchange.call("a.outer", {}, {.deadline = deadline}).data, Value(true));
  EXPECT_TRUE(same);
}

TEST_F(ExchangeTest, AbortEndsACallFromAnotherThread) {
  std::atomic<int> stopped = 0;
  registry->add(specification("a", "slow"), [&](Context& call) { return wait_for_stop(call, stopped); });
  PendingCall call = exchange.start("a.slow", {}, {.identity = Identity{.id = "me"}});
  const Identity other{.id = "other"}, me{.id = "me"};
  EXPECT_FALSE(exchange.abort(call.request_id(), &other)) << "it is not theirs";
  EXPECT_FALSE(exchange.abort("no such call"));
  EXPECT_FALSE(call.get_until(Clock::now() + 5ms));
  EXPECT_TRUE(exchange.abort(call.request_id(), &me));
  EXPECT_EQ(code_of([&] { call.get(); }), kAborted);
  EXPECT_FALSE(exchange.abort(call.request_id(), &me)) << "it has ended";
  // A call that runs on its caller's thread.
  std::thread caller(
      [&] { EXPECT_EQ(code_of([&] { exchange.call("a.slow", {}, {.request_id = "mine"}); }), kAborted); });
  EXPECT_TRUE(soon([&] { return exchange.abort("mine"); }));
  caller.join();
  EXPECT_TRUE(soon([&] { return stopped == 2; }));
}

struct CascadeTest : ExchangeTest {
  std::atomic<int> stopped = 0, ended = 0, started = 0;
  std::atomic<bool> let_go = false;

  void add(OnAbort on_abort) {
    registry->add(specification("a", "leaf"), [&](Context& call) {
      ++started;
      while (!let_go && !call.stop().stop_requested()) std::this_thread::sleep_for(1ms);
      stopped += call.stop().stop_requested();
      ++ended;
      return Value();
    });
    registry->add(specification("a", "middle"), {.run =
                                                     [&](Context& call) {
                                                       call.call("a.leaf", {});
                                                       call.call("a.leaf", {});  // something new
                                                       return Value();
                                                     },
                                                 .reach = {"a.leaf"}});
    registry->add(specification("a", "top"),
                  {.run = [on_abort](Context& call) { return call.call("a.middle", {}, {.on_abort = on_abort}); },
                   .reach = {"a.middle"}});
  }
};

TEST_F(CascadeTest, AbortEndsWhatTheCallHasCalled) {
  add(OnAbort::abort_dependents);
  watch();
  PendingCall call = exchange.start("a.top", {});
  ASSERT_TRUE(soon([&] { return started == 1; }));
  exchange.abort(call.request_id());
  EXPECT_EQ(code_of([&] { call.get(); }), kAborted);
  EXPECT_TRUE(soon([&] { return ended == 1 && exchange.pending() == 0; }));
  EXPECT_EQ(stopped, 1);
  EXPECT_EQ(started, 1);
  EXPECT_EQ(types(), "requested requested requested aborted aborted aborted ");
}

TEST_F(CascadeTest, ContinueRunningLetsStartedWorkFinishAndStartsNothingNew) {
  add(OnAbort::continue_running);
  PendingCall call = exchange.start("a.top", {});
  ASSERT_TRUE(soon([&] { return started == 1; }));
  exchange.abort(call.request_id());
  EXPECT_EQ(code_of([&] { call.get(); }), kAborted);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(ended, 0) << "the leaf goes on";
  let_go = true;
  EXPECT_TRUE(soon([&] { return exchange.pending() == 0; }));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(stopped, 0);
  EXPECT_EQ(started, 1) << "the second leaf is something new";
}

TEST_F(ExchangeTest, NestedCallsHaveALimit) {
  registry->add(specification("a", "self"),
                {.run = [](Context& call) { return call.call("a.self", {}); }, .reach = {"a.self"}});
  EXPECT_EQ(message_of<OperationError>([&] { exchange.call("a.self", {}); }), "calls are nested deeper than 64");
  EXPECT_EQ(exchange.pending(), 0u);
}

TEST_F(ExchangeTest, RefusesMoreThanItTakes) {
  Exchange small(registry, {.threads_max = 1, .waiting_max = 1, .pending_max = 3});
  std::atomic<int> stopped = 0;
  registry->add(specification("a", "slow"), [&](Context& call) { return wait_for_stop(call, stopped); });
  PendingCall first = small.start("a.slow", {});
  ASSERT_TRUE(soon([&] {  // the first has left the queue once another fits
    try {
      small.start("a.slow", {});
      return true;
    } catch (const OperationError&) {
      return false;
    }
  }));
  EXPECT_EQ(code_of([&] { small.start("a.slow", {}); }), kOverloaded);
  EXPECT_EQ(code_of([&] { small.start("a.slow", {}, {.request_id = first.request_id()}); }), kValidationError);
}

TEST_F(ExchangeTest, OneCallerLeavesRoomForOthers) {
  Exchange small(registry, {.threads_max = 8, .calls_per_identity_max = 2});
  std::atomic<int> stopped = 0;
  registry->add(specification("a", "slow"), [&](Context& call) { return wait_for_stop(call, stopped); });
  registry->add(specification("a", "quick"), [](Context&) { return Value(1); });
  const CallOptions greedy{.identity = Identity{.id = "greedy"}}, other{.identity = Identity{.id = "other"}};
  PendingCall first = small.start("a.slow", {}, greedy), second = small.start("a.slow", {}, greedy);
  EXPECT_EQ(code_of([&] { small.start("a.quick", {}, greedy); }), kOverloaded);
  EXPECT_EQ(small.start("a.quick", {}, other).get().data, Value(1));
  EXPECT_EQ(small.call("a.quick", {}, greedy).data, Value(1)) << "on its own thread";
  small.abort(first.request_id());
  EXPECT_TRUE(soon([&] { return code_of([&] { small.start("a.quick", {}, greedy).get(); }) == "none"; }))
      << "once its handler has ended";
}

TEST_F(ExchangeTest, EndsAllCallsWithIt) {
  std::atomic<int> stopped = 0;
  registry->add(specification("a", "slow"), [&](Context& call) { return wait_for_stop(call, stopped); });
  std::optional<PendingCall> left;
  {
    Exchange local(registry);
    left = local.start("a.slow", {});
    local.start("a.slow", {});
  }
  EXPECT_LE(stopped, 2);
  EXPECT_EQ(code_of([&] { left->get(); }), kAborted);
}

TEST_F(ExchangeTest, ThreadsCallAbortObserveAndSubscribeAtOnce) {
  registry->add(specification("a", "inner"), [](Context& call) { return call.input(); });
  registry->add(specification("a", "outer"),
                {.run = [](Context& call) { return call.call("a.inner", call.input()); }, .reach = {"a.*"}});
  registry->add(specification("a", "endless", Kind::subscription), [](Context& call) -> Value {
    for (int i = 0;; ++i) call.emit(i);
  });
  std::atomic<int> seen = 0, answered = 0;
  const std::size_t observer = exchange.observe([&](const Event&) { ++seen; });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const std::string id = std::to_string(t) + "-" + std::to_string(i);
        if (t == 0) {
          answered += exchange.call("a.outer", i).data == Value(i);
        } else if (t == 1) {
          answered += exchange.call("a.outer", i, {.deadline = Clock::now() + 60s}).data == Value(i);
        } else if (t == 2) {
          Subscription answers = exchange.subscribe("a.endless", {}, {.request_id = id});
          answered += answers.next().has_value();
        } else {
          PendingCall call = exchange.start("a.outer", i);
          exchange.abort(call.request_id());
          exchange.forget(exchange.observe([](const Event&) {}));
          ++answered;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  exchange.forget(observer);
  EXPECT_EQ(answered, 400);
  EXPECT_GT(seen, 400);
  EXPECT_TRUE(soon([&] { return exchange.pending() == 0; }));
}

}  // namespace
}  // namespace weft::operations
