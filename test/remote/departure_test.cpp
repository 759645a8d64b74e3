// Clients that die, by every transport: their calls end, and what they held is freed.
#include <gtest/gtest.h>

#include "remote/every_transport.hpp"

namespace weft::remote::departure_test {
namespace {

using namespace every_transport;

constexpr const char* kToken = "a-token-of-one-who-dies";

// Uploads once there is room: a server may still read the message of a client that has died. It refuses a body before it has read
// it, and the refusal may be lost with the connection.
void upload(AnyClient& client) {
  static const Value input = Value::object({{"x", zeros({kUpload})}});
  for (const auto end = std::chrono::steady_clock::now() + 20s;; std::this_thread::sleep_for(10ms)) {
    try {
      client.call("leave.upload", input);
      return;
    } catch (const op::OperationError& error) {
      if ((error.code() != op::kOverloaded && error.code() != "UNAVAILABLE") || std::chrono::steady_clock::now() > end)
        throw;
    }
  }
}

// A client in a process of its own: --way=0..3 --at=ADDRESS --does=WHAT.
TEST(DepartureProcess, DISABLED_Calls) {
  const auto argument = [](std::string_view name) {
    for (const std::string& each : testing::internal::GetArgvs())
      if (each.starts_with(name)) return each.substr(name.size());
    return std::string();
  };
  if (argument("--at=").empty()) GTEST_SKIP();
  AnyClient client(static_cast<Way>(std::stoi(argument("--way="))), argument("--at="), kToken);
  const std::string does = argument("--does=");
  if (does == "hold") {
    client.call("handle.create", Value::object({{"tensor", tensor({1.0f})}}));
    std::this_thread::sleep_for(1h);
  }
  while (does == "upload") upload(client);
  client.call("leave." + does, Value::Object(), true, true);
}

class Departure : public EveryTransport {
 protected:
  Departure() {
    registry_->add({.space = "leave", .name = "wait"}, [this](op::Context& call) {
      ++begun_;
      while (!call.stop().stop_requested()) std::this_thread::sleep_for(1ms);
      return Value(Value::Object());
    });
    registry_->add({.space = "leave", .name = "stream", .kind = op::Kind::subscription}, [this](op::Context& call) {
      for (std::int64_t i = 0; !call.stop().stop_requested(); ++i) {
        call.emit(Value::object({{"i", i}}));
        if (i == 5) ++begun_;
        std::this_thread::sleep_for(5ms);
      }
      return Value();
    });
    registry_->add({.space = "leave", .name = "upload"}, [this](op::Context& call) {
      EXPECT_EQ(call.input("x").tensor().numel(), kUpload);
      ++begun_;
      return Value(Value::Object());
    });
    // The answer is computed while it is made into a handle.
    registry_->add({.space = "leave", .name = "late"}, [this](op::Context&) {
      Tensor x = full({1500, 1500}, static_cast<float>(++late_));
      for (int i = 0; i < 8; ++i) x = matmul(x, x) * 1e-4f;
      ++begun_;
      return Value::object({{"result", x}});
    });
  }
  void serve(std::chrono::seconds handle_time = kHandleTime) {
    begin(Value::parse(R"([{"token": "a-token-of-one-who-dies", "id": "mortal", "scopes": ["*"]}])"), handle_time);
  }
  // Over gRPC and NATS a session ends with its client; over HTTP and MCP it ends by its age.
  static bool tells_of_its_end(Way way) { return way == Way::grpc || way == Way::nats; }

  pid_t start_client(Way way, const char* does) const {
    return nats_test::start({"/proc/self/exe", "--gtest_filter=DepartureProcess.DISABLED_Calls",
                             "--gtest_also_run_disabled_tests", fmt::format("--way={}", static_cast<int>(way)),
                             "--at=" + address(way), fmt::format("--does={}", does)});
  }
  // Runs a client until `ready`, kills it, and waits for its calls to end.
  template <class Ready>
  void kill_when(Way way, const char* does, const Ready& ready, std::chrono::milliseconds more = 0ms) {
    const pid_t process = start_client(way, does);
    EXPECT_TRUE(soon(ready)) << does;
    std::this_thread::sleep_for(more);
    nats_test::end(process, SIGKILL);
    EXPECT_TRUE(soon([&] { return exchange_.pending() == 0 && nats_->calls() == 0; })) << does << ": a call goes on";
  }

  std::atomic<int> begun_ = 0, late_ = 0;
};

TEST_F(Departure, CallsAndStreamsEnd) {
  serve();
  for (const Way way : ways())
    for (const char* does : {"wait", "stream"}) {
      SCOPED_TRACE(name_of(way));
      begun_ = 0;
      kill_when(way, does, [&] { return begun_ > 0; });
    }
}

class HandlesOfTheDead : public Departure, public testing::WithParamInterface<bool> {};

TEST_P(HandlesOfTheDead, AreFreed) {
  serve(GetParam() ? 3600s : kHandleTime);
  for (const Way way : ways()) {
    if (tells_of_its_end(way) != GetParam()) continue;
    SCOPED_TRACE(name_of(way));
    kill_when(way, "hold", [&] { return handles().size() == 1; });
    EXPECT_TRUE(soon([&] { return handles().size() == 0; }));
    EXPECT_EQ(handles().bytes(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Departure, HandlesOfTheDead, testing::Bool(),
                         [](const auto& info) { return info.param ? "WithTheirSession" : "ByTheirAge"; });

TEST_F(Departure, AHandleMadeTooLateIsFreed) {
  serve(3600s);
  for (const Way way : ways()) {
    if (!tells_of_its_end(way)) continue;
    SCOPED_TRACE(name_of(way));
    begun_ = 0;
    kill_when(
        way, "late", [&] { return begun_ > 0; }, 20ms);
    std::this_thread::sleep_for(3s);  // the product is computed meanwhile
    EXPECT_TRUE(soon([&] { return handles().size() == 0; }));
  }
}

TEST_F(Departure, UploadsAreForgotten) {
  serve();
  for (const Way way : ways()) {
    SCOPED_TRACE(name_of(way));
    for (int round = 0; round < 5; ++round) {
      begun_ = 0;
      kill_when(
          way, "upload", [&] { return begun_ > 0; }, 17ms * round);
    }
    // The room for bodies over HTTP and MCP holds one such upload.
    AnyClient living = client(way, kToken);
    EXPECT_NO_THROW(upload(living));
    EXPECT_EQ(handles().size(), 0u);
  }
}

}  // namespace
}  // namespace weft::remote::departure_test
