// Mutations with a request id run at most once, however often plain clients send them, and whichever workers die.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <sstream>

#include "base/sanitized.hpp"
#include "remote/nats/protocol.hpp"
#include "remote/nats_service.hpp"

namespace weft::remote::nats_test {
namespace {

struct Answer {
  std::string event, worker, repeated, status, data;
  std::string code() const { return event == "call.responded" ? "" : Value::parse(data)["error"]["code"].string(); }
};

// A client that knows NATS and nothing of Weft's protocol of grants.
class PlainClient {
 public:
  explicit PlainClient(const std::string& url) : connection_({.url = url}, "plain") {
    connection_.subscribe(root_ + ".>", "", [this](const NatsMessage& message) {
      const std::lock_guard lock(mutex_);
      answers_[std::string(message.subject())].push_back(
          {.event = message.is_no_responders() ? "nobody" : std::string(message.header(wire::kEvent)),
           .worker = std::string(message.header(wire::kWorker)),
           .repeated = std::string(message.header(wire::kRepeated)),
           .status = std::string(message.header(wire::kServiceErrorCode)),
           .data = std::string(message.data())});
      changed_.notify_all();
    });
    connection_.flush();
  }
  ~PlainClient() { connection_.close(); }

  // Sends a request; without an answer in time, `event` is empty.
  Answer ask(const std::string& operation, const std::string& input, const std::string& request_id,
             std::chrono::milliseconds time = 20s, const char* token = kToken, const char* timeout = "") {
    std::unique_lock lock(mutex_);
    const std::string inbox = fmt::format("{}.{}", root_, ++last_);
    lock.unlock();
    NatsHeaders headers{{wire::kAuthorization, std::string("Bearer ") + token}};
    if (!request_id.empty()) headers.emplace_back(wire::kRequestId, request_id);
    if (*timeout) headers.emplace_back(wire::kTimeout, timeout);
    connection_.publish("weft.call." + operation, inbox, headers, input);
    lock.lock();
    changed_.wait_for(lock, time, [&] { return !answers_[inbox].empty(); });
    return answers_[inbox].empty() ? Answer() : answers_[inbox].front();
  }

 private:
  std::string root_ = NatsConnection::inbox();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::deque<Answer>> answers_;
  int last_ = 0;
  NatsConnection connection_;
};

class NatsOnce : public Nats {
 protected:
  static std::multiset<int> notes() {
    std::multiset<int> numbers;
    std::istringstream lines(text_of(folder_ / "notes"));
    for (int number; lines >> number;) numbers.insert(number);
    return numbers;
  }
  static std::string work(int number, const char* how) {
    return fmt::format(R"({{"number": {}, "how": "{}"}})", number, how);
  }
  // An id that no earlier run of a test has used.
  static std::string fresh(const char* name) { return fmt::format("{} {}", name, NatsConnection::inbox()); }
};

TEST_F(NatsOnce, ARepeatedRequestHasTheFirstAnswer) {
  const Worker one(url_, folder_), two(url_, folder_);
  PlainClient client(url_);
  const std::string id = fresh("a");
  const Answer first = client.ask("test.note", "1", id);
  EXPECT_EQ(first.event, "call.responded") << first.data;
  EXPECT_EQ(first.repeated, "");
  for (int i = 0; i < 8; ++i) {
    const Answer again = client.ask("test.note", "1", id);
    EXPECT_EQ(again.event, "call.responded");
    EXPECT_EQ(again.data, first.data);
    EXPECT_EQ(again.worker, first.worker);
    EXPECT_EQ(again.repeated, "1");
  }
  EXPECT_EQ(notes().count(1), 1u);
  // Another id, and no id, are other calls; and so is the same id of another caller, or of another operation.
  client.ask("test.note", "2", fresh("b"));
  client.ask("test.note", "2", "");
  client.ask("test.note", "2", "");
  EXPECT_EQ(client.ask("test.note", "2", id, 20s, kOtherToken).repeated, "");
  EXPECT_EQ(client.ask("test.work", work(2, "fail"), id).repeated, "");
  EXPECT_EQ(notes().count(2), 5u);
  // What may run any number of times is not recorded.
  EXPECT_EQ(client.ask("test.double", "2", id).repeated, "");
  EXPECT_EQ(client.ask("test.double", "2", id).repeated, "");
}

TEST_F(NatsOnce, ErrorsAreRepeatedAndRefusalsAreNotRecorded) {
  const Worker worker(url_, folder_);
  PlainClient client(url_);
  const std::string id = fresh("a");
  const Answer first = client.ask("test.work", work(1, "fail"), id),
               again = client.ask("test.work", work(1, "fail"), id);
  EXPECT_EQ(first.code(), "EXECUTION_ERROR");
  EXPECT_EQ(again.data, first.data);
  EXPECT_EQ(again.status, "500");
  EXPECT_EQ(again.repeated, "1");
  EXPECT_EQ(notes().count(1), 1u);
  EXPECT_EQ(client.ask("test.work", work(2, "fail"), id).code(), "VALIDATION_ERROR") << "another input";
  EXPECT_EQ(client.ask("test.note", "3", std::string(201, 'x')).code(), "VALIDATION_ERROR");
  const std::string denied = fresh("b");
  EXPECT_EQ(client.ask("test.note", "4", denied, 20s, "a-token-that-may-nothing").code(), "ACCESS_DENIED");
  EXPECT_EQ(client.ask("test.note", "4", denied, 20s, "a-token-that-may-nothing").repeated, "");
  EXPECT_EQ(notes(), (std::multiset<int>{1}));
  const std::string large = fresh("c");
  EXPECT_EQ(client.ask("test.work", work(5, "large"), large).code(), "");
  EXPECT_EQ(client.ask("test.work", work(5, "large"), large).code(), "ANSWER_GONE");
  EXPECT_EQ(notes().count(5), 1u);
}

TEST_F(NatsOnce, ACallThatWasEndedIsNotRunAgain) {
  const Worker worker(url_, folder_);
  PlainClient client(url_);
  const std::string id = fresh("late");
  const Answer first = client.ask("test.work", work(1, "hang"), id, 20s, kToken, "0.4");
  EXPECT_EQ(first.code(), "TIMEOUT");
  EXPECT_EQ(first.data.find("another id"), std::string::npos) << first.data;
  for (const char* timeout : {"0.4", "10", ""}) {
    const Answer again = client.ask("test.work", work(1, "hang"), id, 20s, kToken, timeout);
    EXPECT_EQ(again.code(), "TIMEOUT");
    EXPECT_EQ(again.repeated, "1");
    EXPECT_NE(again.data.find("another id"), std::string::npos) << again.data;
  }
  EXPECT_EQ(notes().count(1), 1u);
  EXPECT_EQ(client.ask("test.work", work(1, "sleep"), fresh("late")).event, "call.responded");
  EXPECT_EQ(notes().count(1), 2u);
}

TEST_F(NatsOnce, RequestsAtOnceShareOneRun) {
  const Worker one(url_, folder_), two(url_, folder_);
  PlainClient client(url_);
  const std::string id = fresh("a");
  std::vector<std::future<Answer>> asked;
  for (int i = 0; i < 12; ++i)
    asked.push_back(std::async(std::launch::async, [&] { return client.ask("test.work", work(1, "sleep"), id); }));
  int repeated = 0;
  std::set<std::string> answers;
  for (auto& each : asked) {
    const Answer answer = each.get();
    EXPECT_EQ(answer.event, "call.responded") << answer.data;
    repeated += !answer.repeated.empty();
    answers.insert(answer.data);
  }
  EXPECT_EQ(repeated, 11);
  EXPECT_EQ(answers.size(), 1u);
  EXPECT_EQ(notes().count(1), 1u);
}

TEST_F(NatsOnce, ADeadWorkerLeavesAnErrorAndNoSecondRun) {
  PlainClient client(url_);
  pid_t worker = start_worker();
  ASSERT_TRUE(soon([&] { return client.ask("test.double", "1", "", 500ms).event == "call.responded"; }));
  const std::string id = fresh("a");
  EXPECT_EQ(client.ask("test.work", work(1, "hang"), id, 500ms).event, "") << "it never ends";
  ASSERT_TRUE(soon([&] { return notes().contains(1); }));
  end(worker, SIGKILL);
  worker = start_worker();
  ASSERT_TRUE(soon([&] { return client.ask("test.double", "1", "", 500ms).event == "call.responded"; }));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(client.ask("test.work", work(1, "hang"), id).code(), "WORKER_LOST");
  EXPECT_EQ(notes().count(1), 1u);
  // The same for Weft's own client, which asks again by itself when the worker that it chose has died.
  const auto caller = Nats::client();
  const serve::RemoteCallOptions options{.request_id = fresh("b")};
  auto code = std::async(std::launch::async, [&] {
    return code_of([&] { caller->call("test.work", Value::parse(work(2, "hang")), options); });
  });
  ASSERT_TRUE(soon([&] { return notes().contains(2); }));
  end(worker, SIGKILL);
  worker = start_worker();
  EXPECT_EQ(code.get(), "WORKER_LOST");
  EXPECT_EQ(notes().count(2), 1u);
  end(worker, SIGKILL);
}

// Clients that give up soon and ask again, while workers stop, wake up and die.
TEST_F(NatsOnce, ManyRepetitionsWhileWorkersDie) {
  constexpr int kCalls = 120;
  constexpr auto patience = test::kSanitized ? 3000ms : 150ms;
  PlainClient client(url_);
  std::vector<pid_t> workers = {start_worker(), start_worker(), start_worker()};
  ASSERT_TRUE(soon([&] { return client.ask("test.double", "1", "", 500ms).event == "call.responded"; }));
  std::atomic<bool> done = false;
  int kills = 0;
  std::thread troubling([&] {
    for (std::size_t i = 0; !done; ++i) {
      pid_t& worker = workers[i % 3];
      kill(worker, SIGSTOP);
      std::this_thread::sleep_for(300ms);
      kill(worker, SIGCONT);
      if (i % 4 != 3) continue;
      end(worker, SIGKILL);
      ++kills;
      worker = start_worker();
    }
  });
  const std::string run = fresh("run");
  const auto begun = std::chrono::steady_clock::now();
  std::atomic<int> next = 0, answered = 0, lost = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([&] {
      for (int i; (i = next++) < kCalls;) {
        std::this_thread::sleep_until(begun + 5s * i / kCalls);  // so that workers die meanwhile
        for (int attempt = 0;; ++attempt) {
          ASSERT_LT(attempt, 200) << "call " << i << " is never answered";
          const Answer answer = client.ask("test.note", std::to_string(i), fmt::format("{} {}", run, i), patience);
          if (answer.event.empty()) continue;  // an impatient client
          const std::string code = answer.event == "nobody" ? answer.event : answer.code();
          if (code.empty()) ++answered;
          if (code == "WORKER_LOST") ++lost;
          if (code.empty() || code == "WORKER_LOST") break;
          EXPECT_TRUE(code == "nobody" || code == "STILL_RUNNING") << code << ": " << answer.data;
          std::this_thread::sleep_for(50ms);
        }
      }
    });
  for (std::thread& each : threads) each.join();
  done = true;
  troubling.join();
  std::this_thread::sleep_for(500ms);  // for requests that workers still hold
  for (const pid_t each : workers) end(each, SIGKILL);
  const auto all = notes();
  for (int i = 0; i < kCalls; ++i) EXPECT_LE(all.count(i), 1u) << "call " << i << " ran twice";
  EXPECT_EQ(answered + lost, kCalls);
  EXPECT_GE(kills, 2);
  EXPECT_GE(all.size(), static_cast<std::size_t>(answered));
  EXPECT_LT(lost, kCalls / 4);
}

TEST_F(NatsOnce, WithoutJetStreamARequestIdIsRefused) {
  const auto [server, url] = start_server(folder_ / "plain", false);
  ASSERT_FALSE(url.empty());
  {
    const Worker worker(url, folder_);
    PlainClient client(url);
    const Answer refused = client.ask("test.note", "1", "an id");
    EXPECT_EQ(refused.code(), "UNAVAILABLE");
    EXPECT_NE(refused.data.find("nats-server -js"), std::string::npos) << refused.data;
    EXPECT_TRUE(notes().empty());
    EXPECT_EQ(client.ask("test.note", "1", "").event, "call.responded");
    EXPECT_TRUE(nats_reaches({.url = url}, {.url = url}));
    EXPECT_FALSE(nats_reaches({.url = url}, {.url = url_}));
    std::string other = url;
    other.replace(other.find("127.0.0.1"), 9, "localhost");
    EXPECT_TRUE(nats_reaches({.url = url}, {.url = other})) << "another name of the same server";
  }
  end(server, SIGTERM);
}

}  // namespace
}  // namespace weft::remote::nats_test
