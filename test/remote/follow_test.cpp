// Lists of tools that change while clients of MCP are there: the clients are told, and what was imported follows.
#include <gtest/gtest.h>

#include <thread>

#include "remote/every_transport.hpp"
#include "remote/http/mcp_transport.hpp"
#include "serve/mcp_client.hpp"

namespace weft::remote::follow_test {
namespace {

using namespace every_transport;

constexpr const char* kToken = "a-token-of-a-follower";
const Value kTokens =
    Value::array({Value::object({{"token", kToken}, {"id", "gate"}, {"scopes", Value::array({"*"})}}),
                  Value::object({{"token", "another-token-of-hers"}, {"id", "her"}, {"scopes", Value::array({"*"})}})});

class Follow : public EveryTransport {
 protected:
  Follow() { add("place.first", "1"); }
  // An operation that answers with a text.
  void add(const std::string& id, const std::string& text) {
    registry_->add({.space = id.substr(0, id.find('.')), .name = id.substr(id.find('.') + 1), .description = text},
                   [text](op::Context&) { return Value(text); });
  }
  std::shared_ptr<serve::McpClient> client() {
    return std::make_shared<serve::McpClient>(
        mcp_over_http({.url = "http://" + address(Way::mcp) + "/mcp", .token = kToken}));
  }
  HttpRequest request(std::string method, const std::string& session, std::string_view token = kToken) {
    HttpRequest made{.method = std::move(method), .url = HttpUrl::parse("http://" + address(Way::mcp) + "/mcp")};
    made.headers = {{"Authorization", "Bearer " + std::string(token)}};
    made.headers.emplace_back("Accept", made.method == "GET" ? "text/event-stream" : "application/json");
    if (!session.empty()) made.headers.emplace_back("Mcp-Session-Id", session);
    return made;
  }
  HttpReply post(const std::string& session, std::string body) {
    HttpRequest made = request("POST", session);
    made.headers.emplace_back("Content-Type", "application/json");
    made.body = std::move(body);
    return http_request(made);
  }
  // A session that has begun, by its name.
  std::string begin_session() {
    const HttpReply reply =
        post("", R"({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}})");
    EXPECT_NE(reply.body.find(R"("listChanged":true)"), std::string::npos) << reply.body;
    std::string name(reply.header("Mcp-Session-Id"));
    post(name, R"({"jsonrpc": "2.0", "method": "notifications/initialized"})");
    return name;
  }
  void list(const std::string& session) {
    EXPECT_EQ(post(session, R"({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})").status, 200);
  }
};

// A standing stream, whose events are counted.
class Listener {
 public:
  explicit Listener(HttpRequest request)
      : thread_([this, request = std::move(request)](const std::stop_token& stop) mutable {
          request.stop = stop;
          request.deadline = op::Clock::now() + 1h;
          try {
            status_ = http_request(request, [this](const HttpReply&, std::string_view bytes) {
                        is_open_ = true;
                        const std::lock_guard lock(mutex_);
                        text_ += bytes;
                        return true;
                      }).status;
          } catch (const op::OperationError&) {
          }
          has_ended_ = true;
        }) {}
  int events() {
    const std::lock_guard lock(mutex_);
    int count = 0;
    for (std::size_t at = text_.find("list_changed"); at != std::string::npos; at = text_.find("list_changed", at + 1))
      ++count;
    return count;
  }
  bool has_ended() const { return has_ended_; }
  int status() const { return status_; }

 private:
  std::mutex mutex_;
  std::string text_;
  std::atomic<bool> is_open_ = false, has_ended_ = false;
  std::atomic<int> status_ = 0;
  std::jthread thread_;
};

TEST_F(Follow, ARegistryFollowsWhatItImported) {
  begin(kTokens);
  op::Registry imported;
  imported.add({.space = "own", .name = "stays"}, [](op::Context&) { return Value(1); });
  from_call(imported, client());
  op::Exchange gate(std::shared_ptr<op::Registry>(&imported, [](op::Registry*) {}));
  const auto tells = [&](const std::string& id) {
    return gate.call(id, Value::Object(), {.identity = imported.owner()}).data;
  };
  EXPECT_EQ(tells("place.first"), Value("1"));
  std::atomic<int> changes = 0;
  const std::size_t observer = imported.observe([&] { ++changes; });
  for (int i = 0; i < 20; ++i) add("later.n" + std::to_string(i), std::to_string(i));
  EXPECT_TRUE(soon([&] { return imported.find("later.n19") != nullptr; }));
  EXPECT_EQ(tells("later.n19"), Value("19"));
  EXPECT_EQ(changes, 20);
  registry_->remove("later.n7");
  EXPECT_TRUE(soon([&] { return imported.find("later.n7") == nullptr; }));
  registry_->remove("place.first");
  add("place.first", "another");
  EXPECT_TRUE(soon([&] {
    const auto found = imported.find("place.first");
    return found && found->description == "another";
  }));
  EXPECT_EQ(tells("place.first"), Value("another"));
  EXPECT_NE(imported.find("own.stays"), nullptr);
  imported.forget(observer);
  imported.remove("later.n3");  // here only; it comes back with the next change there
  add("later.last", "last");
  EXPECT_TRUE(soon([&] { return imported.find("later.last") != nullptr; }));
}

TEST_F(Follow, RegistriesEndWhileOperationsCome) {
  begin(kTokens);
  std::atomic<bool> ends = false;
  std::jthread changing([&] {
    for (int i = 0; !ends; ++i) {
      add("busy.op", std::to_string(i));
      registry_->remove("busy.op");
    }
  });
  const auto shared = client();
  for (int i = 0; i < 6; ++i) {
    op::Registry imported;
    from_call(imported, i % 2 ? shared : client());
  }
  ends = true;
}

TEST_F(Follow, AClientIsToldOnceUntilItLists) {
  begin(kTokens);
  const std::string session = begin_session();
  Listener listener(request("GET", session));
  std::this_thread::sleep_for(100ms);
  for (int i = 0; i < 50; ++i) add("many.n" + std::to_string(i), "");
  EXPECT_TRUE(soon([&] { return listener.events() == 1; }));
  list(session);
  registry_->remove("many.n0");
  EXPECT_TRUE(soon([&] { return listener.events() == 2; }));
  registry_->add({.space = "many", .name = "hidden", .visibility = op::Visibility::internal});
  list(session);
  registry_->add({.space = "many", .name = "hidden2", .visibility = op::Visibility::internal});
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(listener.events(), 2) << "internal operations are no tools";

  // A client that was away hears of it when it listens again; and the newest stream is the one that counts.
  Listener second(request("GET", session));
  EXPECT_TRUE(soon([&] { return listener.has_ended(); }));
  add("away.n0", "");
  EXPECT_TRUE(soon([&] { return second.events() == 1; }));
  Listener third(request("GET", session));
  EXPECT_TRUE(soon([&] { return third.events() == 1; }));
  http_request(request("DELETE", session));
  EXPECT_TRUE(soon([&] { return third.has_ended(); })) << "the session has ended";
}

TEST_F(Follow, StreamsAreRefused) {
  begin(kTokens);
  const std::string session = begin_session();
  EXPECT_EQ(http_request(request("GET", "")).status, 400);
  EXPECT_EQ(http_request(request("GET", "nonsense")).status, 404);
  EXPECT_EQ(http_request(request("GET", session, "another-token-of-hers")).status, 404) << "the session of another";
  EXPECT_EQ(http_request(request("GET", session, "no-token-at-all")).status, 401);
  HttpRequest wrong = request("GET", session);
  wrong.headers[1].second = "application/json";
  EXPECT_EQ(http_request(wrong).status, 406);
  EXPECT_EQ(http_request(request("PUT", session)).status, 405);

  // Streams of one identity have a limit, and calls still work.
  std::vector<std::unique_ptr<Listener>> all;
  const auto refused = [&] {
    return std::count_if(all.begin(), all.end(), [](const auto& each) { return each->has_ended(); });
  };
  for (int i = 0; i < 40; ++i) all.push_back(std::make_unique<Listener>(request("GET", begin_session())));
  EXPECT_TRUE(soon([&] { return refused() >= 8; }));
  EXPECT_EQ(refused(), 8);
  for (const auto& each : all)
    if (each->has_ended()) {
      EXPECT_EQ(each->status(), 503);
    }
  list(session);
  all.clear();  // clients that leave make room
  EXPECT_TRUE(soon([&] {
    Listener again(request("GET", session));
    std::this_thread::sleep_for(300ms);
    return !again.has_ended();
  }));
}

}  // namespace
}  // namespace weft::remote::follow_test
