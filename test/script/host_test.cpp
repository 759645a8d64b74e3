// Scripts that serve: their operations, subscriptions, failures and limits, each of which concerns one call only.
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/temporary_folder.hpp"
#include "script/run_script.hpp"
#include "weft/catalogue.hpp"
#include "weft/ops.hpp"

namespace weft::script {
namespace {

namespace op = operations;
using namespace std::chrono_literals;
using test::TemporaryFolder;

constexpr std::string_view kModels = R"js(
  import { operations, tensor, nn, rand } from "weft";
  const lab = (name, f, more = {}) => operations.register({ namespace: "lab", name, ...more }, f);
  const state = { count: 0, kept: [] };
  lab("triple", ({ x }) => ({ y: x.mul(3) }), { scopes: ["lab:run"], input: { type: "object", required: ["x"] } });
  lab("count", () => ++state.count, { kind: "mutation" });
  lab("throws", () => { throw new RangeError("mine") });
  lab("rejects", async () => { await null; throw new RangeError("later") });
  lab("declared", () => { throw Object.assign(new Error("too long"), { code: "TOO_LONG", details: { most: 3 } }) }, { errors: { TOO_LONG: "the text is too long" } });
  lab("undeclared", () => { throw Object.assign(new Error("own"), { code: "OTHER" }) });
  lab("loops", () => { for (;;); });
  lab("loopsLater", async () => { await null; for (;;); });
  lab("floods", () => { const f = () => queueMicrotask(f); f(); return new Promise((resolve) => state.kept.push(resolve)) });
  lab("never", () => new Promise((resolve) => state.kept.push(resolve)));
  lab("nobody", () => new Promise(() => {}));
  lab("unhandled", () => { Promise.reject(new Error("nobody handles this")); return "done" });
  lab("timerThrows", () => { setTimeout(() => { throw new Error("of a timer") }, 0); return "done" });
  lab("memory", () => { const a = []; for (;;) a.push(new Array(1000).fill(1)) });
  lab("stack", () => { const f = () => f() + 1; return f() });
  lab("device", () => rand([1e9]));
  lab("function", () => () => 1);
  lab("who", (_, { identity, requestId }) => [identity, typeof requestId]);
  lab("other", async () => (await operations.call("vault.open")).length);
  lab("numbers", async function* ({ to }) {
    try { for (let i = 0; i < to; ++i) yield i } finally { state.count = 1000 }
  }, { kind: "subscription" });
  lab("list", () => [tensor([1]), tensor([2])], { kind: "subscription" });
  lab("breaks", async function* () { yield 1; throw new RangeError("after one") }, { kind: "subscription" });
  lab("silent", async function* () { yield 1; await new Promise(() => {}) }, { kind: "subscription" });
)js";

struct Served {
  explicit Served(std::string_view text = kModels, std::chrono::milliseconds limit = 400ms) {
    std::ofstream(folder.path() / "lab.js") << text;
    registry->add({.space = "vault", .name = "open", .access = {.scopes = {"vault:open"}}},
                  [](op::Context&) { return Value("gold"); });
    registry->add({.space = "clock", .name = "ticks", .kind = op::Kind::subscription}, [this](op::Context& call) {
      for (int i = 0;; ++i) {
        try {
          call.emit(Value::object({{"i", i}, {"x", tensor<float>({static_cast<float>(i)}, Shape{1})}}));
        } catch (...) {
          ++left;
          throw;
        }
      }
      return Value();
    });
    IsolateOptions options = small_limits();
    options.time_limit = limit;
    options.registers = {"lab"};
    options.operations = {"vault.open", "clock.*"};
    options.exchange = exchange;
    options.print = [this](std::string_view line, bool) {
      const std::lock_guard lock(mutex);
      printed += std::string(line) + "\n";
    };
    host.emplace(folder.path() / "lab.js", std::move(options));
  }
  std::string said() {
    const std::lock_guard lock(mutex);
    return printed;
  }
  Value call(std::string_view id, Value input = Value::Object(), std::chrono::milliseconds deadline = 20s) {
    return exchange->call(id, std::move(input), {.identity = who, .deadline = op::Clock::now() + deadline}).data;
  }
  // "CODE: message"
  std::string failure(std::string_view id, Value input = Value::Object(), std::chrono::milliseconds deadline = 20s) {
    try {
      return call(id, std::move(input), deadline).to_json();
    } catch (const op::OperationError& error) {
      return error.code() + ": " + error.what();
    }
  }

  TemporaryFolder folder;
  op::Identity who{.id = "me", .scopes = {"lab:run"}};
  std::atomic<int> left = 0;
  std::mutex mutex;
  std::string printed;
  std::shared_ptr<op::Registry> registry = std::make_shared<op::Registry>();
  std::shared_ptr<op::Exchange> exchange = std::make_shared<op::Exchange>(registry);
  std::optional<Host> host;
};

Value x_is(float value) { return Value::object({{"x", tensor<float>(value)}}); }

TEST(ScriptHost, OffersWhatAScriptRegisters) {
  Served served;
  EXPECT_EQ(served.host->operations().size(), 23u);
  EXPECT_EQ(served.call("lab.triple", x_is(2))["y"].tensor().item<float>(), 6);
  EXPECT_EQ(served.call("lab.count").integer(), 1);
  EXPECT_EQ(served.call("lab.count").integer(), 2);
  EXPECT_EQ(served.call("lab.who").to_json(), R"(["me","string"])");
  EXPECT_EQ(served.call("lab.other").integer(), 4) << "the authority is the script's, not the caller's";
  EXPECT_EQ(served.registry->find("lab.triple")->access.scopes, std::vector<std::string>{"lab:run"});
}

TEST(ScriptHost, ScopesAndSchemasHold) {
  Served served;
  EXPECT_EQ(served.failure("lab.triple", Value::Object()).substr(0, 16), "VALIDATION_ERROR");
  served.who.scopes = {};
  EXPECT_EQ(served.failure("lab.triple", x_is(2)).substr(0, 13), "ACCESS_DENIED");
  EXPECT_EQ(served.failure("vault.open").substr(0, 13), "ACCESS_DENIED");
}

TEST(ScriptHost, AFailureIsOfItsCall) {
  Served served(kModels, 20s);
  EXPECT_EQ(served.failure("lab.throws"), "SCRIPT_ERROR: RangeError: mine");
  EXPECT_NE(served.said().find("lab.js:7"), std::string::npos) << "lines go to the console: " << served.said();
  EXPECT_EQ(served.failure("lab.rejects"), "SCRIPT_ERROR: RangeError: later");
  EXPECT_EQ(served.failure("lab.nobody"), "SCRIPT_ERROR: the script gave no answer");
  EXPECT_EQ(served.failure("lab.declared"), "TOO_LONG: too long");
  EXPECT_EQ(served.failure("lab.undeclared"), "SCRIPT_ERROR: Error: own");
  EXPECT_NE(served.failure("lab.function").find("is not a value that operations take"), std::string::npos);
  EXPECT_EQ(served.failure("lab.memory").substr(0, 12), "SCRIPT_LIMIT");
  EXPECT_EQ(served.failure("lab.stack").substr(0, 12), "SCRIPT_LIMIT");
  EXPECT_EQ(served.failure("lab.device").substr(0, 12), "SCRIPT_LIMIT");
  EXPECT_EQ(served.failure("lab.unhandled"), "\"done\"");
  EXPECT_EQ(served.failure("lab.timerThrows"), "\"done\"");
  EXPECT_EQ(served.call("lab.count").integer(), 1) << "the script still works";
  EXPECT_NE(served.said().find("nobody handles this"), std::string::npos) << served.said();
  // The timer may fire after the call has ended.
  for (int i = 0; i < 500 && served.said().find("of a timer") == std::string::npos; ++i)
    std::this_thread::sleep_for(10ms);
  EXPECT_NE(served.said().find("of a timer"), std::string::npos) << served.said();
}

TEST(ScriptHost, TimeIsOfEachCall) {
  Served served;
  for (const char* id : {"lab.loops", "lab.loopsLater", "lab.never", "lab.floods"}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(served.failure(id).substr(0, 7), "TIMEOUT") << id;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << id;
    EXPECT_EQ(served.call("lab.triple", x_is(2))["y"].tensor().item<float>(), 6) << id;
  }
}

// A caller that leaves ends the function that works for it.
TEST(ScriptHost, ADeadlineEndsTheFunction) {
  Served served(kModels, 60s);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(served.failure("lab.loops", Value::Object(), 200ms).substr(0, 7), "TIMEOUT");
  EXPECT_EQ(served.call("lab.count").integer(), 1);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(ScriptHost, CallsOfManyThreads) {
  Served served(kModels, 20s);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const float x = static_cast<float>(20 * t + i);
        right += served.call("lab.triple", x_is(x))["y"].tensor().item<float>() == 3 * x;
        right += served.failure("lab.rejects") == "SCRIPT_ERROR: RangeError: later";
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(right, 320);
}

TEST(ScriptHost, Subscriptions) {
  Served served;
  const op::CallOptions me{.identity = served.who};
  {
    op::Subscription answers = served.exchange->subscribe("lab.numbers", Value::object({{"to", 5}}), me);
    for (int i = 0; i < 5; ++i) EXPECT_EQ(answers.next()->data.integer(), i);
    EXPECT_FALSE(answers.next());
  }
  {
    op::Subscription answers = served.exchange->subscribe("lab.list", Value::Object(), me);
    EXPECT_EQ(answers.next()->data.tensor().to_vector<float>(), std::vector<float>{1});
    EXPECT_EQ(answers.next()->data.tensor().to_vector<float>(), std::vector<float>{2});
    EXPECT_FALSE(answers.next());
  }
  {
    op::Subscription answers = served.exchange->subscribe("lab.breaks", Value::Object(), me);
    EXPECT_EQ(answers.next()->data.integer(), 1);
    EXPECT_THROW(answers.next(), op::OperationError);
  }
  {
    op::Subscription answers = served.exchange->subscribe("lab.silent", Value::Object(), me);
    EXPECT_EQ(answers.next()->data.integer(), 1);
    try {
      answers.next();
      ADD_FAILURE() << "the limit is of the time between two answers";
    } catch (const op::OperationError& error) {
      EXPECT_EQ(error.code(), "TIMEOUT");
    }
  }
  // A caller that leaves ends the generator, with its finally.
  {
    op::Subscription answers = served.exchange->subscribe("lab.numbers", Value::object({{"to", 1000000}}), me);
    EXPECT_EQ(answers.next()->data.integer(), 0);
  }
  for (int i = 0; i < 200 && served.call("lab.count").integer() < 1000; ++i) std::this_thread::sleep_for(20ms);
  EXPECT_GT(served.call("lab.count").integer(), 1000);
}

TEST(ScriptHost, ScriptsSubscribe) {
  Served served(R"js(
    import { operations } from "weft";
    const sum = async ({ most }) => {
      let sum = 0;
      for await (const { i, x } of operations.subscribe("clock.ticks")) {
        if (i >= most) break;
        sum += x.item();
      }
      return sum;
    };
    operations.register({ namespace: "lab", name: "sum" }, sum);
    operations.register({ namespace: "lab", name: "twice" }, async () => {
      const answers = operations.subscribe("clock.ticks");
      const first = answers.next();
      try { await answers.next() } catch (e) { await first; return e.message }
    });
    operations.register({ namespace: "lab", name: "using" }, async () => {
      { using answers = operations.subscribe("clock.ticks"); await answers.next() }
      return "over";
    });
    operations.register({ namespace: "lab", name: "refused" }, () => operations.subscribe("tensor.add"));
    operations.register({ namespace: "lab", name: "forged" }, () => operations.subscribe("clock.ticks").next.call({}));
    operations.register({ namespace: "lab", name: "fails" }, async () => {
      try { for await (const each of operations.subscribe("clock.nothing")); } catch (e) { return e.name + " " + e.message }
    });
    operations.register({ namespace: "lab", name: "kept" }, () => { globalThis.kept = operations.subscribe("clock.ticks"); return 1 });
  )js",
                20s);
  EXPECT_EQ(served.call("lab.sum", Value::object({{"most", 10}})).integer(), 45);
  EXPECT_NE(served.failure("lab.twice").find("one answer after the other"), std::string::npos);
  EXPECT_EQ(served.failure("lab.using"), "\"over\"");
  EXPECT_NE(served.failure("lab.refused").find("not granted"), std::string::npos);
  EXPECT_NE(served.failure("lab.forged").find("is not the subscription"), std::string::npos);
  EXPECT_NE(served.failure("lab.fails").find("OPERATION_NOT_FOUND"), std::string::npos) << served.failure("lab.fails");
  for (int i = 0; i < 200 && served.left < 3; ++i) std::this_thread::sleep_for(20ms);
  EXPECT_GE(served.left, 3) << "leaving a loop ends the call";
  EXPECT_EQ(served.call("lab.kept").integer(), 1);
  served.host.reset();
  for (int i = 0; i < 200 && served.exchange->pending() > 0; ++i) std::this_thread::sleep_for(20ms);
  EXPECT_EQ(served.exchange->pending(), 0u) << "calls end with their script";
}

TEST(ScriptHost, EndsWithItsOperations) {
  Served served(kModels, 20s);
  std::thread waiting([&] { EXPECT_EQ(served.failure("lab.never").substr(0, 12), "SCRIPT_ENDED"); });
  std::this_thread::sleep_for(100ms);
  served.host.reset();
  waiting.join();
  EXPECT_EQ(served.failure("lab.count").substr(0, 19), "OPERATION_NOT_FOUND");
  EXPECT_FALSE(served.registry->find("lab.count"));
}

TEST(ScriptHost, AScriptThatCannotServeIsRefused) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      Served served(text);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  EXPECT_NE(message("const x = ;").find("SyntaxError"), std::string::npos);
  EXPECT_NE(message("1").find("registers no operation"), std::string::npos);
  EXPECT_NE(message("for (;;);").find("limit of 0.4 s"), std::string::npos);
  EXPECT_NE(
      message("import { operations } from 'weft'; operations.register({ namespace: 'tensor', name: 'add' }, () => 1)")
          .find("--allow-register"),
      std::string::npos);
  EXPECT_THROW(Host("/nothing.js", {.exchange = std::make_shared<op::Exchange>(std::make_shared<op::Registry>())}),
               FileError);
  EXPECT_THROW(Host("/nothing.js", {}), UsageError);
}

}  // namespace
}  // namespace weft::script
