// Operations over NATS: workers that come, go and die, callers that do, large tensors, streams, aborts.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <set>
#include <sstream>
#include <thread>

#include "catalogue/frame.hpp"
#include "remote/nats/client.hpp"
#include "remote/nats/worker.hpp"
#include "weft/catalogue.hpp"
#include "weft/weft.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
namespace fs = std::filesystem;
using namespace std::chrono_literals;
constexpr const char* kToken = "a-token-of-this-test";

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class Condition>
bool soon(const Condition& condition, std::chrono::milliseconds limit = 20s) {
  for (const auto end = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return condition();
}

// Starts a program; `environment` is added to this one's.
pid_t start(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
  std::vector<char*> argv, envp;
  for (const std::string& each : arguments) argv.push_back(const_cast<char*>(each.c_str()));
  argv.push_back(nullptr);
  for (char** each = environ; *each; ++each) envp.push_back(*each);
  for (const std::string& each : environment) envp.push_back(const_cast<char*>(each.c_str()));
  envp.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int nothing = open("/dev/null", O_RDWR);
    for (int i = 0; i < 3; ++i) dup2(nothing, i);
    execvpe(argv[0], argv.data(), envp.data());
    _exit(127);
  }
  return child;
}

void end(pid_t process, int how) {
  kill(process, how);
  waitpid(process, nullptr, 0);
}

// What every worker of these tests offers.
void add_operations(op::Registry& registry, const fs::path& folder) {
  const op::Access access{.scopes = {"test"}};
  registry.add({.space = "test", .name = "double", .access = access},
               [](op::Context& call) { return Value(2 * call.input().integer()); });
  // A line for each time that it runs.
  registry.add({.space = "test", .name = "note", .kind = op::Kind::mutation, .access = access},
               [folder](op::Context& call) {
                 const int file = open((folder / "notes").c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
                 const std::string line = fmt::format("{}\n", call.input().integer());
                 [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
                 close(file);
                 return call.input();
               });
  registry.add({.space = "test", .name = "count", .kind = op::Kind::subscription, .access = access},
               [](op::Context& call) {
                 for (std::int64_t i = 0; i < call.input().integer(); ++i) call.emit(i);
                 return Value();
               });
  registry.add({.space = "test", .name = "wait", .access = access}, [folder](op::Context& call) {
    std::ofstream(folder / "waits") << call.request_id();
    while (!call.stop().stop_requested()) std::this_thread::sleep_for(2ms);
    std::ofstream(folder / "stopped") << "yes";
    call.check();
    return Value();
  });
}

struct Worker {
  explicit Worker(const std::string& url, const fs::path& folder) {
    add_operations(*registry, folder);
    std::ofstream(folder / "tokens.json") << fmt::format(
        R"({{"tokens": [{{"token": "{}", "id": "me", "scopes": ["*"]}}, {{"token": "a-token-that-may-nothing", "id": "nobody"}}]}})",
        kToken);
    worker.emplace(serve::Service{exchange, catalogue.handles()},
                   serve::Tokens::load(folder / "tokens.json", *registry),
                   NatsWorkerOptions{.nats = {.url = url}, .heartbeat = 100ms});
  }
  std::shared_ptr<op::Registry> registry = std::make_shared<op::Registry>();
  op::Catalogue catalogue{registry};
  op::Exchange exchange{registry};
  std::optional<NatsWorker> worker;
};

// One server for all tests of the program, which its end kills.
class Nats : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::temp_directory_path() / fmt::format("weft-nats-{}", getpid());
    fs::create_directories(folder_);
    server_ = start(
        {"nats-server", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", folder_ / "store", "--ports_file_dir", folder_});
    for (int i = 0; i < 1000 && url_.empty(); ++i) {
      for (const auto& each : fs::directory_iterator(folder_))
        if (each.path().extension() == ".ports") {
          const std::string text = text_of(each.path());
          if (const auto at = text.find("nats://"); at != std::string::npos && text.find('}') != std::string::npos)
            url_ = text.substr(at, text.find('"', at) - at);
        }
      std::this_thread::sleep_for(10ms);
    }
  }
  static void TearDownTestSuite() {
    end(server_, SIGTERM);
    fs::remove_all(folder_);
  }
  void SetUp() override {
    ASSERT_FALSE(url_.empty()) << "nats-server did not begin (Debian: nats-server)";
    for (const char* each : {"notes", "waits", "stopped"}) fs::remove(folder_ / each);
  }

  static pid_t start_worker() {
    return start(
        {"/proc/self/exe", "--gtest_filter=NatsWorkerProcess.DISABLED_Serves", "--gtest_also_run_disabled_tests"},
        {"WEFT_TEST_NATS=" + url_, "WEFT_TEST_FOLDER=" + folder_.string()});
  }
  static std::shared_ptr<NatsClient> client(std::chrono::milliseconds find_time = 10s, std::string token = kToken) {
    return std::make_shared<NatsClient>(
        NatsClientOptions{.nats = {.url = url_}, .token = std::move(token), .silence = 700ms, .find_time = find_time});
  }
  template <class Function>
  static std::string code_of(const Function& function) {
    try {
      function();
    } catch (const op::OperationError& error) {
      return error.code();
    }
    return "";
  }

  static inline fs::path folder_;
  static inline std::string url_;
  static inline pid_t server_ = 0;
};

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
}  // namespace weft::remote
