// Operations over gRPC between a client and a server of ours: tensors, errors, sessions, cancellation, many streams, damaged messages.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <random>
#include <thread>

#include "catalogue/frame.hpp"
#include "remote/grpc/client.hpp"
#include "remote/grpc/message.hpp"
#include "remote/grpc/server.hpp"
#include "runtime/host_memory.hpp"
#include "weft/catalogue.hpp"
#include "weft/weft.hpp"

namespace weft::remote {
namespace {

namespace op = operations;
using namespace std::chrono_literals;
constexpr const char* kGrpcToken = "a-token-of-this-test";

class Grpc : public testing::Test {
 protected:
  Grpc() {
    registry->add({.space = "test", .name = "count", .kind = op::Kind::subscription}, [](op::Context& call) {
      for (std::int64_t i = 0; i < call.input().integer(); ++i) call.emit(i);
      return Value();
    });
    registry->add({.space = "test", .name = "tick", .kind = op::Kind::subscription}, [this](op::Context& call) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(call.input().integer());
      std::int64_t i = 0;
      for (; std::chrono::steady_clock::now() < end; ++i) {
        call.emit(i);
        std::this_thread::sleep_for(50ms);
      }
      sent += i;
      return Value();
    });
    registry->add({.space = "test", .name = "wait"}, [this](op::Context& call) {
      ++waiting;
      while (!call.stop().stop_requested()) std::this_thread::sleep_for(1ms);
      ++stopped;
      call.check();
      return Value();
    });
    const auto file = std::filesystem::temp_directory_path() / fmt::format("weft-grpc-{}.json", getpid());
    std::ofstream(file) << fmt::format(R"({{"tokens": [{{"token": "{}", "id": "me", "scopes": ["*"]}}]}})", kGrpcToken);
    server.emplace(serve::Service{exchange, catalogue.handles()}, serve::Tokens::load(file, *registry), GrpcOptions{});
    std::filesystem::remove(file);
  }
  std::shared_ptr<GrpcClient> client() const {
    return std::make_shared<GrpcClient>(
        GrpcClientOptions{.address = fmt::format("127.0.0.1:{}", server->port()), .token = kGrpcToken});
  }
  static bool soon(const auto& condition) {
    for (int i = 0; i < 5000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }
  static std::string code_of(const auto& call) {
    try {
      call();
    } catch (const op::OperationError& error) {
      return error.code();
    }
    return "";
  }

  std::atomic<int> waiting = 0, stopped = 0;
  std::atomic<std::int64_t> sent = 0;
  std::shared_ptr<op::Registry> registry = std::make_shared<op::Registry>();
  op::Catalogue catalogue{registry};
  op::Exchange exchange{registry, {.threads_max = 2000, .calls_per_identity_max = 2000}};
  std::optional<GrpcServer> server;
};

TEST_F(Grpc, ARemoteRegistryLooksLocal) {
  auto local = std::make_shared<op::Registry>();
  EXPECT_EQ(from_call(*local, client()), registry->list().size());
  op::Exchange here(local);
  const op::CallOptions owner{.identity = local->owner()};
  const Tensor x = tensor({1.0f, 2.0f, 3.0f});
  const Value y = here.call("tensor.add", Value::object({{"x", x}, {"y", 1}}), owner).data;
  EXPECT_EQ(y["result"].tensor().to_vector<float>(), (std::vector<float>{2, 3, 4}));
  op::Subscription answers = here.subscribe("test.count", 500, owner);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(answers.next()->data, Value(i));
  EXPECT_FALSE(answers.next());
  EXPECT_EQ(client()->call("test.count", 3).data, Value(0)) << "a call of a subscription gives the first answer";
  EXPECT_EQ(code_of([&] { client()->call("tensor.add", Value::object({{"x", 1}})); }), "VALIDATION_ERROR");
  EXPECT_EQ(code_of([&] { client()->call("test.none", 1); }), "OPERATION_NOT_FOUND");
  EXPECT_EQ(code_of([&] { GrpcClient({.address = "127.0.0.1:1"}).call("test.count", 1); }), "UNAVAILABLE");
}

TEST_F(Grpc, LargeTensorsGoThereAndBack) {
  const Tensor x = arange(5'000'000, DType::f32);
  const Value y = client()->call("tensor.neg", Value::object({{"x", x}})).data;
  const auto values = y["result"].tensor().to_vector<float>();
  ASSERT_EQ(values.size(), 5'000'000u);
  for (std::size_t i = 0; i < values.size(); i += 999) ASSERT_EQ(values[i], -static_cast<float>(i));
}

TEST_F(Grpc, CancelsAndDeadlinesReachTheHandler) {
  const auto caller = client();
  EXPECT_EQ(code_of([&] { caller->call("test.wait", 1, {.deadline = op::Clock::now() + 100ms}); }), "TIMEOUT");
  EXPECT_TRUE(soon([&] { return stopped == 1; }));
  std::stop_source source;
  auto code = std::async(std::launch::async,
                         [&] { return code_of([&] { caller->call("test.wait", 1, {.stop = source.get_token()}); }); });
  EXPECT_TRUE(soon([&] { return waiting == 2; }));
  source.request_stop();
  EXPECT_EQ(code.get(), "ABORTED");
  EXPECT_TRUE(soon([&] { return stopped == 2; }));
  std::int64_t taken = 0;
  caller->run("test.count", 100'000'000, {}, [&](const op::Envelope& envelope) {
    EXPECT_EQ(envelope.data, Value(taken));
    return ++taken < 100;
  });
  EXPECT_TRUE(soon([&] { return exchange.pending() == 0; })) << "the subscriber has left";
}

TEST_F(Grpc, HandlesEndWithTheirClient) {
  {
    const auto caller = client();
    const Value kept =
        caller->call("tensor.add", Value::object({{"x", tensor({1.0f, 2.0f})}, {"y", 1}}), {.keeps_tensors = true})
            .data;
    EXPECT_EQ(catalogue.handles().size(), 1u);
    const Value handle = Value::object({{"$tensor", Value::object({{"handle", kept["result"]["$tensor"]["handle"]}})}});
    const Value y = caller->call("tensor.neg", Value::object({{"x", handle}})).data;
    EXPECT_EQ(y["result"].tensor().to_vector<float>(), (std::vector<float>{-2, -3}));
  }
  EXPECT_TRUE(soon([&] { return catalogue.handles().size() == 0; }));
}

// WEFT_TEST_STREAMS and WEFT_TEST_SECONDS: more of them, for longer.
TEST_F(Grpc, ManyStreamsLoseNothing) {
  const auto setting = [](const char* name, int otherwise) {
    return std::getenv(name) ? std::atoi(std::getenv(name)) : otherwise;
  };
  const int streams = setting("WEFT_TEST_STREAMS", 100), seconds = setting("WEFT_TEST_SECONDS", 2);
  std::vector<std::shared_ptr<GrpcClient>> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(client());
  std::atomic<std::int64_t> received = 0;
  std::vector<std::thread> threads;
  for (int s = 0; s < streams; ++s)
    threads.emplace_back([&, s] {
      std::int64_t next = 0;
      EXPECT_EQ(code_of([&] {
                  clients[s % clients.size()]->run("test.tick", 1000 * seconds, {}, [&](const op::Envelope& envelope) {
                    EXPECT_EQ(envelope.data, Value(next++));
                    return true;
                  });
                }),
                "");
      received += next;
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(received, sent);
  EXPECT_GE(received, streams);
  fmt::print("{} answers of {} streams\n", received.load(), streams);
}

// WEFT_TEST_EVERY_MUTATION: many more.
TEST(GrpcMessage, TensorsKeepTheirMemory) {
  const Tensor x = arange(1 << 20, DType::f32), small = arange(5, DType::i64);
  op::TensorSection section;
  EXPECT_EQ(section.add(small), 0u);
  const std::uint64_t offset = section.add(x);
  const grpc::ByteBuffer message = call_message("test.take", "{}", section, false, "");
  const Whole received = whole(message);
  CallFields fields;
  ASSERT_TRUE(read_call(received.text, fields));
  ASSERT_EQ(fields.tensors.size(), section.bytes());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(fields.tensors.data()) % op::TensorSection::kAlignment, 0u);
  std::string written(section.bytes(), '\0');
  section.write(written.data());
  EXPECT_EQ(fields.tensors, written);
  op::Handles none;
  const auto value = [&](std::uint64_t at, const char* dtype, Extent count) {
    return op::from_wire(Value::parse(fmt::format(R"({{"$tensor": {{"dtype": "{}", "shape": [{}], "offset": {}}}}})",
                                                  dtype, count, at)),
                         fields.tensors, none, "me", received.memory_for(fields.tensors))
        .tensor();
  };
  const Tensor y = value(offset, "f32", 1 << 20), z = value(0, "i64", 5);
  EXPECT_EQ(runtime::view_host(y).data, fields.tensors.data() + offset) << "no copy";
  EXPECT_NE(runtime::view_host(z).data, fields.tensors.data()) << "a small tensor does not keep a large message";
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(z.to_vector<std::int64_t>(), small.to_vector<std::int64_t>());
  EXPECT_EQ(received.memory_for(fields.operation), nullptr);
}

TEST(GrpcMessage, ReadersSurviveDamage) {
  std::mt19937 random(1);
  const std::string good(whole(call_message("tensor.add", R"({"x": 1})", {}, true, "session")).text);
  CallFields fields;
  ASSERT_TRUE(read_call(good, fields));
  EXPECT_EQ(fields.operation, "tensor.add");
  EXPECT_EQ(fields.session, "session");
  EXPECT_TRUE(fields.keep_tensors);
  const int rounds = std::getenv("WEFT_TEST_EVERY_MUTATION") ? 20'000'000 : 200'000;
  for (int i = 0; i < rounds; ++i) {
    std::string damaged = good.substr(0, random() % (good.size() + 1));
    for (std::uint32_t k = random() % 4; k > 0 && !damaged.empty(); --k)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    CallFields read;
    if (read_call(damaged, read)) {
      for (const std::string_view each : {read.operation, read.input, read.tensors, read.request_id, read.session})
        ASSERT_TRUE(each.empty() ||
                    (each.data() >= damaged.data() && each.data() + each.size() <= damaged.data() + damaged.size()));
    }
    std::string_view envelope, tensors;
    read_answer(damaged, envelope, tensors);
  }
}

}  // namespace
}  // namespace weft::remote
