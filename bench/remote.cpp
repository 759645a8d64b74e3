// Calls over gRPC and NATS on this machine: bench_remote [SECONDS a row [NATS URL]].
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "bare_grpc.hpp"
#include "remote/grpc/client.hpp"
#include "remote/grpc/server.hpp"
#include "remote/nats/client.hpp"
#include "remote/nats/worker.hpp"
#include "weft/weft.hpp"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;
constexpr int kRounds = 11;
constexpr const char* kToken = "a-token-of-the-benchmark";

double seconds_of(const std::function<void()>& call) {
  const auto start = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the median.
double latency(const char* name, double seconds, const std::function<void()>& call) {
  std::vector<double> times;
  for (int i = 0; i < 200; ++i) call();
  for (const auto end = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < end;)
    times.push_back(1e6 * seconds_of(call));
  std::sort(times.begin(), times.end());
  fmt::print("{:<44} {:8.1f} us median, {:8.1f} us at 99 %\n", name, times[times.size() / 2],
             times[times.size() * 99 / 100]);
  return times[times.size() / 2];
}

void rate(const char* name, double seconds, int threads, const std::function<void()>& call) {
  std::atomic<std::uint64_t> calls = 0;
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration<double>(seconds);
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&] {
      for (; Clock::now() < end; ++calls) call();
    });
  for (std::thread& each : all) each.join();
  fmt::print("{:<44} {:8.0f} calls/s on {} threads\n", name,
             static_cast<double>(calls) / std::chrono::duration<double>(Clock::now() - start).count(), threads);
}

// To the server and back.
struct Rates {
  double up, down;
};

// The middle time of each direction as a rate.
Rates print_rates(const char* name, std::vector<double> up, std::vector<double> down) {
  std::sort(up.begin(), up.end());
  std::sort(down.begin(), down.end());
  const double gigabytes = (64 << 20) / 1e9;
  const std::size_t middle = up.size() / 2;
  const Rates rates{gigabytes / up[middle], gigabytes / down[middle]};
  fmt::print("{:<44} {:8.2f} GB/s to the server, {:.2f} GB/s back\n", name, rates.up, rates.down);
  return rates;
}

// 64 MB there and 64 MB back.
Rates tensors(const char* name, serve::Caller& caller) {
  const Tensor x = rand({16 << 20});
  x.eval();
  const Value input = Value::object({{"tensor", x}});
  std::vector<double> up, down;
  for (int i = 0; i < kRounds; ++i) {
    up.push_back(seconds_of([&] { caller.call("bench.take", input); }));
    down.push_back(seconds_of([&] { caller.call("bench.give", Value(Value::Object())); }));
  }
  return print_rates(name, up, down);
}

struct Figures {
  double call_us;
  Rates rates;
};

// The same bytes through gRPC alone: what Weft could reach at best.
Figures bare_grpc(double seconds) {
  bench::BareGrpc bare(64 << 20);
  const double call_us = latency("gRPC without Weft: a call", seconds, [&] { bare.call(); });
  std::vector<double> up, down;
  for (int i = 0; i < kRounds; ++i) {
    up.push_back(seconds_of([&] { bare.send(); }));
    down.push_back(seconds_of([&] { bare.receive(); }));
  }
  return {call_us, print_rates("gRPC without Weft: 64 MB", up, down)};
}

Figures all_rows(const std::string& name, serve::Caller& caller, double seconds) {
  const double call_us = latency((name + ": a call").c_str(), seconds, [&] { caller.call("bench.echo", 1); });
  rate((name + ": calls").c_str(), seconds, 8, [&] { caller.call("bench.echo", 1); });
  std::uint64_t answers = 0;
  const double time = seconds_of([&] {
    caller.run("bench.count", 100'000, {}, [&](const operations::Envelope&) { return ++answers < 100'000; });
  });
  fmt::print("{:<44} {:8.0f} answers/s of one subscription\n", name, static_cast<double>(answers) / time);
  return {call_us, tensors((name + ": a tensor of 64 MB").c_str(), caller)};
}

}  // namespace

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 1;
  set_default_device(kCpu);
  auto registry = std::make_shared<operations::Registry>();
  operations::Handles handles;
  registry->add({.space = "bench", .name = "echo"}, [](operations::Context& call) { return call.input(); });
  registry->add({.space = "bench", .name = "take"},
                [](operations::Context& call) { return Value(call.input("tensor").tensor().numel()); });
  const Tensor given = rand({16 << 20});
  given.eval();
  registry->add({.space = "bench", .name = "give"}, [&](operations::Context&) {
    return Value::object({{"tensor", given}});
  });
  registry->add({.space = "bench", .name = "count", .kind = operations::Kind::subscription},
                [](operations::Context& call) {
                  for (std::int64_t i = 0; i < call.input().integer(); ++i) call.emit(i);
                  return Value();
                });
  operations::Exchange exchange(registry);
  const serve::Service service{exchange, handles};
  const auto file = std::filesystem::temp_directory_path() / fmt::format("weft-bench-{}.json", getpid());
  std::ofstream(file) << fmt::format(R"({{"tokens": [{{"token": "{}", "id": "me", "scopes": ["*"]}}]}})", kToken);
  const auto tokens = [&] { return serve::Tokens::load(file, *registry); };
  {
    const remote::GrpcServer server(service, tokens(), {});
    remote::GrpcClient client({.address = fmt::format("127.0.0.1:{}", server.port()), .token = kToken});
    const Figures bare = bare_grpc(seconds), weft = all_rows("gRPC", client, seconds);
    fmt::print("{:<44} {:8.2f} of its time for a call, {:.2f} of its rate to the server, {:.2f} of its rate back\n",
               "Weft beside gRPC alone", weft.call_us / bare.call_us, weft.rates.up / bare.rates.up,
               weft.rates.down / bare.rates.down);
  }
  if (count > 2) {
    const remote::NatsWorker worker(service, tokens(), {.nats = {.url = arguments[2]}});
    remote::NatsClient client({.nats = {.url = arguments[2]}, .token = kToken});
    all_rows("NATS", client, seconds);
  } else {
    fmt::print("NATS: left out. Start nats-server -js, and give its URL as the second argument\n");
  }
  std::filesystem::remove(file);
  return 0;
}
