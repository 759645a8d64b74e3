// Operations over NATS: workers that come, go and die, callers that do, large tensors, streams, aborts.
#include <atomic>
#include <future>
#include <set>
#include <sstream>

#include "remote/nats/protocol.hpp"
#include "remote/nats_service.hpp"

namespace weft::remote::nats_test {
namespace {

TEST(NatsWorkerProcess, DISABLED_Serves) {
  const char* url = std::getenv("WEFT_TEST_NATS");
  if (!url) GTEST_SKIP();
  Worker worker(url, std::getenv("WEFT_TEST_FOLDER"));
  while (getppid() != 1) std::this_thread::sleep_for(100ms);
}

TEST_F(Nats, AnswersCallsAndErrors) {
  const Worker worker(url_, folder_);
  const auto caller = client(500ms);
  EXPECT_EQ(caller->call("test.double", 21).data, Value(42));
  EXPECT_EQ(caller->call("test.note", 7).data, Value(7));
  EXPECT_EQ(text_of(folder_ / "notes"), "7\n");
  EXPECT_EQ(code_of([&] { caller->call("test.double", "x"); }), "EXECUTION_ERROR");
  EXPECT_EQ(code_of([&] { caller->call("test.none", 1); }), "UNAVAILABLE");
  EXPECT_EQ(code_of([&] { caller->call("test.*", 1); }), "OPERATION_NOT_FOUND");
  EXPECT_EQ(code_of([&] { client(1s, "a-token-that-nobody-has")->call("test.double", 1); }), "UNAUTHENTICATED");
  EXPECT_EQ(code_of([&] { client(1s, "a-token-that-may-nothing")->call("test.double", 1); }), "ACCESS_DENIED");
  EXPECT_EQ(code_of([&] { client(1s, "")->call("test.double", 1); }), "UNAUTHENTICATED");
  EXPECT_TRUE(client(1s, "a-token-that-nobody-has")->operations().empty());
  EXPECT_EQ(code_of([&] { NatsClient({.nats = {.url = "nats://user:secret@127.0.0.1:1"}}); }), "UNAVAILABLE");
  try {
    NatsClient({.nats = {.url = "nats://user:secret@127.0.0.1:1"}});
  } catch (const op::OperationError& error) {
    EXPECT_EQ(std::string(error.what()).find("secret"), std::string::npos) << error.what();
  }
}

TEST_F(Nats, ARemoteRegistryLooksLocal) {
  const Worker worker(url_, folder_);
  auto registry = std::make_shared<op::Registry>();
  const std::size_t added = from_call(*registry, client());
  EXPECT_EQ(added, worker.registry->list().size());
  op::Exchange exchange(registry);
  const op::CallOptions owner{.identity = registry->owner()};
  EXPECT_EQ(exchange.call("test.double", 4, owner).data, Value(8));
  const Tensor x = tensor({1.0f, 2.0f, 3.0f});
  const Value y = exchange.call("tensor.add", Value::object({{"x", x}, {"y", 1}}), owner).data;
  EXPECT_EQ(y["result"].tensor().to_vector<float>(), (std::vector<float>{2, 3, 4}));
  op::Subscription answers = exchange.subscribe("test.count", 500, owner);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(answers.next()->data, Value(i));
  EXPECT_FALSE(answers.next());
  // Local checks come first: the schemas and the access control of the workers.
  EXPECT_EQ(code_of([&] { exchange.call("tensor.add", Value::object({{"x", 1}}), owner); }), "VALIDATION_ERROR");
  EXPECT_EQ(code_of([&] { exchange.call("test.double", 4); }), "ACCESS_DENIED");
}

TEST_F(Nats, LargeTensorsGoThroughTheObjectStore) {
  const Worker worker(url_, folder_);
  const auto caller = client();
  const Tensor x = arange(3'000'000, DType::f32);
  const Value y = caller->call("tensor.neg", Value::object({{"x", x}})).data;
  const auto values = y["result"].tensor().to_vector<float>();
  ASSERT_EQ(values.size(), 3'000'000u);
  for (std::size_t i = 0; i < values.size(); i += 999) ASSERT_EQ(values[i], -static_cast<float>(i));
}

TEST_F(Nats, HandlesEndWithTheirClient) {
  Worker worker(url_, folder_);
  {
    const auto caller = client();
    std::string by;
    const serve::RemoteCallOptions keep{.keeps_tensors = true, .by = &by};
    const Value kept = caller->call("tensor.add", Value::object({{"x", tensor({1.0f, 2.0f})}, {"y", 1}}), keep).data;
    caller->call("handle.create", Value::object({{"tensor", tensor({5.0f})}}));
    EXPECT_EQ(by, worker.worker->id());
    EXPECT_EQ(worker.catalogue.handles().size(), 2u);
    const Value handle = Value::object({{"$tensor", Value::object({{"handle", kept["result"]["$tensor"]["handle"]}})}});
    const Value y = caller->call("tensor.neg", Value::object({{"x", handle}}), {.worker = by}).data;
    EXPECT_EQ(y["result"].tensor().to_vector<float>(), (std::vector<float>{-2, -3}));
    std::this_thread::sleep_for(400ms);
    EXPECT_EQ(worker.catalogue.handles().size(), 2u) << "a client that lives keeps its handles";
  }
  EXPECT_TRUE(soon([&] { return worker.catalogue.handles().size() == 0; })) << "a client that has gone";
}

TEST_F(Nats, DeadlinesAbortsAndCallersThatLeaveStopTheHandler) {
  Worker worker(url_, folder_);
  const auto stopped = [&] { return fs::exists(folder_ / "stopped"); };
  const auto reset = [&] {
    for (const char* each : {"waits", "stopped"}) fs::remove(folder_ / each);
  };
  const auto caller = client();
  EXPECT_EQ(code_of([&] { caller->call("test.wait", 1, {.deadline = op::Clock::now() + 200ms}); }), "TIMEOUT");
  EXPECT_TRUE(soon(stopped));
  reset();
  std::stop_source source;
  auto code = std::async(std::launch::async,
                         [&] { return code_of([&] { caller->call("test.wait", 1, {.stop = source.get_token()}); }); });
  EXPECT_TRUE(soon([&] { return fs::exists(folder_ / "waits"); }));
  source.request_stop();
  EXPECT_EQ(code.get(), "ABORTED");
  EXPECT_TRUE(soon(stopped));
  reset();
  // A process that is killed while it waits for an answer.
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "test", "--gtest_filter=NatsCallerProcess.DISABLED_Calls",
          "--gtest_also_run_disabled_tests", fmt::format("--url={}", url_).c_str(), nullptr);
    _exit(127);
  }
  EXPECT_TRUE(soon([&] { return fs::exists(folder_ / "waits"); }));
  EXPECT_EQ(worker.worker->calls(), 1u);
  end(child, SIGKILL);
  EXPECT_TRUE(soon(stopped));
  EXPECT_TRUE(soon([&] { return worker.worker->calls() == 0; }));
}

TEST(NatsCallerProcess, DISABLED_Calls) {
  for (const std::string& each : testing::internal::GetArgvs())
    if (each.starts_with("--url=")) NatsClient({.nats = {.url = each.substr(6)}, .token = kToken}).call("test.wait", 1);
}

TEST_F(Nats, AnInboxMayBeUsedAgainAtOnce) {
  const Worker worker(url_, folder_);
  NatsConnection connection({.url = url_}, "hasty");
  const std::string inbox = NatsConnection::inbox();
  constexpr int kCalls = 1000;
  std::atomic<int> answered = 0;
  const auto call = [&] {
    connection.publish("weft.call.test.double", inbox, {{wire::kAuthorization, std::string("Bearer ") + kToken}}, "4");
  };
  connection.subscribe(inbox, "", [&](const NatsMessage&) {
    if (++answered < kCalls) call();
  });
  call();
  EXPECT_TRUE(soon([&] { return answered == kCalls; })) << answered;
}

// A worker publishes to a session now and then, so it must not be led to publish where others listen.
TEST_F(Nats, SessionsOfOtherSubjectsAreRefused) {
  const Worker worker(url_, folder_);
  NatsConnection connection({.url = url_}, "hostile");
  std::mutex mutex;
  std::vector<std::string> answers;
  const std::string inbox = NatsConnection::inbox();
  connection.subscribe(inbox, "", [&](const NatsMessage& message) {
    const std::lock_guard lock(mutex);
    answers.emplace_back(message.data());
  });
  const std::string good[] = {NatsConnection::inbox() + ".session", "mine", "weftling.session"};
  const std::string bad[] = {"weft.control",
                             "weft.call.test.note",
                             "weft.",
                             "$SRV.PING",
                             "$JS.API.STREAM.DELETE.x",
                             "a.*",
                             "_INBOX.>",
                             ">",
                             ".a",
                             "a.",
                             "a..b",
                             "a b",
                             "a\tb",
                             "\x7f",
                             std::string(201, 'x')};
  const auto code = [&](const std::string& session) {
    connection.publish("weft.call.test.double", inbox,
                       {{wire::kAuthorization, std::string("Bearer ") + kToken}, {wire::kSession, session}}, "4");
    EXPECT_TRUE(soon([&] {
      const std::lock_guard lock(mutex);
      return !answers.empty();
    }));
    const std::lock_guard lock(mutex);
    const Value answer = Value::parse(answers.at(0));
    answers.clear();
    const Value* error = answer.find("error");
    return error ? (*error)["code"].string() : "";
  };
  for (const std::string& each : good) EXPECT_EQ(code(each), "") << each;
  for (const std::string& each : bad) EXPECT_EQ(code(each), "VALIDATION_ERROR") << each;
  // Those who keep to the rules are told that the worker lives: this call takes as long as a client bears silence.
  EXPECT_EQ(client()->call("test.work", Value::parse(R"({"number": 1, "how": "sleep"})")).data, Value(1));
  EXPECT_EQ(text_of(folder_ / "notes"), "1\n");
}

TEST_F(Nats, ASlowSubscriberMakesTheHandlerWaitAndOneThatLeavesEndsIt) {
  Worker worker(url_, folder_);
  const auto caller = client();
  std::int64_t taken = 0;
  caller->run("test.count", 100'000'000, {}, [&](const op::Envelope& envelope) {
    EXPECT_EQ(envelope.data, Value(taken));
    if (taken == 10) std::this_thread::sleep_for(300ms);
    return ++taken < 1000;
  });
  EXPECT_EQ(taken, 1000);
  EXPECT_TRUE(soon([&] { return worker.worker->calls() == 0; })) << "the subscriber has left";
}

TEST_F(Nats, AMutationIsNeverRunTwice) {
  // Workers that are stopped look dead, and wake up later with calls that others were asked for.
  std::vector<pid_t> workers = {start_worker(), start_worker()};
  const auto caller = client();
  ASSERT_TRUE(soon([&] { return !caller->operations().empty(); }));
  std::atomic<bool> done = false;
  std::thread stopping([&] {
    for (std::size_t i = 0; !done; ++i) {
      kill(workers[i % 2], SIGSTOP);
      std::this_thread::sleep_for(900ms);  // above the silence that callers bear
      kill(workers[i % 2], SIGCONT);
      std::this_thread::sleep_for(50ms);
    }
  });
  std::atomic<int> next = 0, answered = 0, lost = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i; (i = next++) < 400;) {
        const std::string code = code_of([&] { EXPECT_EQ(caller->call("test.note", i).data, Value(i)); });
        if (code.empty())
          ++answered;
        else if (code == "WORKER_LOST")
          ++lost;
        else
          ADD_FAILURE() << code;
      }
    });
  for (std::thread& each : threads) each.join();
  done = true;
  stopping.join();
  std::this_thread::sleep_for(300ms);
  for (const pid_t each : workers) end(each, SIGKILL);
  std::multiset<int> notes;
  std::istringstream lines(text_of(folder_ / "notes"));
  for (int number; lines >> number;) notes.insert(number);
  for (int i = 0; i < 400; ++i) EXPECT_LE(notes.count(i), 1u) << "call " << i << " ran twice";
  EXPECT_EQ(answered + lost, 400);
  EXPECT_GE(notes.size(), static_cast<std::size_t>(answered));
  EXPECT_LT(lost, 100);
}

TEST_F(Nats, WorkersDieAndEveryCallIsAnsweredOnce) {
  constexpr int kCalls = 10'000, kThreads = 16;
  std::vector<pid_t> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(start_worker());
  const auto caller = client();
  ASSERT_TRUE(soon([&] { return !caller->operations().empty(); }));
  std::atomic<bool> done = false;
  int kills = 0;
  std::thread killing([&] {
    for (std::size_t i = 0; !done; ++i) {
      std::this_thread::sleep_for(1s);
      if (done) break;
      end(workers[i % 4], SIGKILL);
      ++kills;
      workers[i % 4] = start_worker();
    }
  });
  std::vector<std::atomic<int>> answers(kCalls);
  std::atomic<int> next = 0;
  const auto begun = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i; (i = next++) < kCalls;) {
        const std::string code = code_of([&] {
          caller->run("test.double", i, {}, [&](const op::Envelope& envelope) {
            EXPECT_EQ(envelope.data, Value(2 * i));
            ++answers[i];
            return true;
          });
        });
        EXPECT_EQ(code, "") << "call " << i;
        // Spread over five seconds at least, so that workers die meanwhile.
        std::this_thread::sleep_until(begun + 5s * i / kCalls);
      }
    });
  for (std::thread& each : threads) each.join();
  done = true;
  killing.join();
  for (const pid_t each : workers) end(each, SIGKILL);
  for (int i = 0; i < kCalls; ++i) EXPECT_EQ(answers[i], 1) << "call " << i;
  EXPECT_GE(kills, 4);
  fmt::print("{} calls, {} workers killed, {:.1f} s\n", kCalls, kills,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
}

}  // namespace
}  // namespace weft::remote::nats_test
