// What tests of NATS share: a server, workers in this process and in others, and what they offer.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "remote/nats/client.hpp"
#include "remote/nats/worker.hpp"
#include "weft/catalogue.hpp"
#include "weft/weft.hpp"

namespace weft::remote::nats_test {

namespace op = operations;
namespace fs = std::filesystem;
using namespace std::chrono_literals;
inline constexpr const char *kToken = "a-token-of-this-test", *kOtherToken = "a-token-of-another-caller";

inline std::string text_of(const fs::path& path) {
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
inline pid_t start(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {}) {
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

inline void end(pid_t process, int how) {
  kill(process, how);
  waitpid(process, nullptr, 0);
}

inline void note(const fs::path& folder, std::int64_t number) {
  const int file = open((folder / "notes").c_str(), O_WRONLY | O_APPEND | O_CREAT, 0600);
  const std::string line = fmt::format("{}\n", number);
  [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
  close(file);
}

// What every worker of these tests offers.
inline void add_operations(op::Registry& registry, const fs::path& folder) {
  const op::Access access{.scopes = {"test"}};
  registry.add({.space = "test", .name = "double", .access = access},
               [](op::Context& call) { return Value(2 * call.input().integer()); });
  // A line for each time that it runs.
  registry.add({.space = "test", .name = "note", .kind = op::Kind::mutation, .access = access},
               [folder](op::Context& call) {
                 note(folder, call.input().integer());
                 return call.input();
               });
  // The same, and then it takes its time, fails, or never ends.
  registry.add({.space = "test", .name = "work", .kind = op::Kind::mutation, .access = access},
               [folder](op::Context& call) {
                 note(folder, call.input("number").integer());
                 const std::string& how = call.input("how").string();
                 if (how == "fail") throw op::OperationError(op::kExecutionError, "it always fails");
                 if (how == "large") return Value(std::string(300'000, 'x'));
                 const auto until = std::chrono::steady_clock::now() + (how == "hang" ? 3600s : 700ms);
                 while (!call.stop().stop_requested() && std::chrono::steady_clock::now() < until)
                   std::this_thread::sleep_for(2ms);
                 call.check();
                 return call.input("number");
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
        R"({{"tokens": [{{"token": "{}", "id": "me", "scopes": ["*"]}}, {{"token": "a-token-that-may-nothing", "id": "nobody"}},
        {{"token": "{}", "id": "other", "scopes": ["test"]}}]}})",
        kToken, kOtherToken);
    worker.emplace(serve::Service{exchange, catalogue.handles()},
                   serve::Tokens::load(folder / "tokens.json", *registry),
                   NatsWorkerOptions{.nats = {.url = url}, .heartbeat = 100ms});
  }
  std::shared_ptr<op::Registry> registry = std::make_shared<op::Registry>();
  op::Catalogue catalogue{registry};
  op::Exchange exchange{registry};
  std::optional<NatsWorker> worker;
};

// Starts a server; returns its process and its URL, which is empty if it did not begin.
inline std::pair<pid_t, std::string> start_server(const fs::path& folder, bool jetstream) {
  fs::create_directories(folder);
  std::vector<std::string> arguments = {"nats-server", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", folder};
  if (jetstream) arguments.insert(arguments.end(), {"-js", "-sd", folder / "store"});
  const pid_t server = start(arguments);
  for (int i = 0; i < 1000; ++i) {
    for (const auto& each : fs::directory_iterator(folder))
      if (each.path().extension() == ".ports") {
        const std::string text = text_of(each.path());
        if (const auto at = text.find("nats://"); at != std::string::npos && text.find('}') != std::string::npos)
          return {server, text.substr(at, text.find('"', at) - at)};
      }
    std::this_thread::sleep_for(10ms);
  }
  return {server, ""};
}

// One server for all tests of the program, which its end kills.
class Nats : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fs::temp_directory_path() / fmt::format("weft-nats-{}", getpid());
    std::tie(server_, url_) = start_server(folder_, true);
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

}  // namespace weft::remote::nats_test
