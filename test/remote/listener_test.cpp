// Where all places of a server are taken: who gives way, and who is refused.
#include "remote/http/listener.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/read_until.hpp>
#include <list>
#include <thread>

namespace weft::remote {
namespace {

using namespace std::chrono_literals;

// Answers every request, late if it is told to.
class Greeter : public HttpConnection {
 public:
  Greeter(HttpShared& shared, OpenSocket socket, std::chrono::milliseconds answer_time)
      : HttpConnection(shared, std::move(socket)), answer_time_(answer_time) {}

 private:
  void authorise(const Request&) override {}
  bool answer(const Request&) override {
    std::this_thread::sleep_for(answer_time_);
    return send(200, Value("welcome"));
  }
  Value error_body(int, const operations::OperationError& error) const override { return Value(error.what()); }
  int status_of(const operations::OperationError&) const override { return 500; }

  std::chrono::milliseconds answer_time_;
};

class Client {
 public:
  explicit Client(std::uint16_t port) { socket_.connect({asio::ip::make_address("127.0.0.1"), port}); }
  void ask() { asio::write(socket_, asio::buffer(std::string_view("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))); }
  // The first line, or an empty text where the server has ended the connection.
  std::string answer() {
    beast::error_code error;
    std::string text;
    asio::read_until(socket_, asio::dynamic_buffer(text), "\r\n", error);
    return text.substr(0, text.find("\r\n"));
  }

 private:
  asio::io_context context_;
  Tcp::socket socket_{context_};
};

struct Served {
  HttpShared shared;
  HttpListener listener;
  Served(std::chrono::milliseconds start_time, std::chrono::milliseconds answer_time)
      : shared{.options = {.connections_max = 3}}, listener(shared, [=, this](OpenSocket socket) {
          std::this_thread::sleep_for(start_time);
          return std::make_unique<Greeter>(shared, std::move(socket), answer_time);
        }) {}
};

TEST(Listener, ConnectionsWhoseThreadsHaveNotRunYetGiveWayOnceTheyHave) {
  Served server(100ms, 0ms);
  std::list<Client> idle;
  for (int i = 0; i < 5; ++i) idle.emplace_back(server.listener.port());
  Client other(server.listener.port());
  other.ask();
  EXPECT_EQ(other.answer(), "HTTP/1.1 200 OK");
  EXPECT_EQ(idle.front().answer(), "") << "it waited the longest";
}

// Whoever came first gives way first, in whatever order the system lets threads begin.
TEST(Listener, TheWaitBeginsWhenTheSocketIsAccepted) {
  HttpShared shared{.options = {.connections_max = 3}};
  std::atomic<int> made = 0;
  HttpListener listener(shared, [&](OpenSocket socket) {
    if (made++ == 0) std::this_thread::sleep_for(300ms);
    return std::make_unique<Greeter>(shared, std::move(socket), 0ms);
  });
  Client first(listener.port());
  while (made == 0) std::this_thread::sleep_for(1ms);
  Client second(listener.port()), third(listener.port());
  std::this_thread::sleep_for(500ms);
  Client other(listener.port());
  other.ask();
  EXPECT_EQ(other.answer(), "HTTP/1.1 200 OK");
  EXPECT_EQ(first.answer(), "");
  second.ask();
  EXPECT_EQ(second.answer(), "HTTP/1.1 200 OK");
}

TEST(Listener, RefusesAtOnceWhereAllAreServed) {
  Served server(0ms, 2s);
  std::list<Client> busy;
  for (int i = 0; i < 3; ++i) busy.emplace_back(server.listener.port()).ask();
  std::this_thread::sleep_for(300ms);
  const auto start = std::chrono::steady_clock::now();
  Client other(server.listener.port());
  EXPECT_EQ(other.answer(), "HTTP/1.1 503 Service Unavailable");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  for (Client& each : busy) EXPECT_EQ(each.answer(), "HTTP/1.1 200 OK");
}

}  // namespace
}  // namespace weft::remote
